#!/bin/sh
# Runs the tests; the last lines are cargo test's.
#
#   scripts/test.sh quick    between edits: pure logic, the simulation, packets, a job on each MPI of Debian
#   scripts/test.sh all      every behaviour once: decides whether a change lands
#   scripts/test.sh long     long streams and simulations, every fault in every setting: before a release, and
#                            after a change of the protocol
#   scripts/test.sh soak     a job under random faults, for FOLDBACK_SOAK_HOURS
#   scripts/test.sh apps     the programs of others, mpi4py's own tests among them
set -eu
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "test: needs root, to load BPF programs and make network namespaces" >&2
	exit 1
fi

# Two lanes side by side. Most jobs of tests/mpi.rs keep both CPUs busy. Jobs of these modules mostly wait for
# troubles to pass. So they come in the second lane, after all other tests. Its output is shown at its end.
waiting="agents faults limits multicast"

all() {
	others="--lib --bins"
	for file in tests/*.rs; do
		name=$(basename "$file" .rs)
		[ "$name" = mpi ] || others="$others --test $name"
	done
	skips=
	filters=
	for module in $waiting; do
		skips="$skips --skip $module::"
		filters="$filters $module::"
	done
	cargo test --release --no-run
	said=$(mktemp)
	# shellcheck disable=SC2016,SC2086 # the inner shell's words; several words each
	setsid sh -c '
		status=0
		cargo test --release --no-fail-fast $1 || status=$?
		cargo test --release --test mpi -- $2 || status=$?
		exit $status
	' sh "$others" "$filters" >"$said" 2>&1 &
	second=$!
	trap 'kill -- -$second 2>/dev/null || true; rm -f "$said"' EXIT
	trap 'exit 130' INT TERM
	first=0
	# shellcheck disable=SC2086 # several words
	cargo test --release --test mpi -- $skips || first=$?
	status=0
	wait "$second" || status=$?
	cat "$said"
	[ "$first" = 0 ] && [ "$status" = 0 ]
}

case "${1-}" in
quick)
	cargo test --release --lib --bins --test exact --test simulation --test bpf --test coverage --test layers
	cargo test --release --test mpi -- --exact conformance::open_mpi_3_hosts_tc conformance::mpich_2_hosts_tc
	;;
all)
	all
	;;
long)
	cargo test --release --test exact --test simulation --test mpi -- --ignored --nocapture
	;;
soak)
	cargo test --release --test mpi -- --ignored --exact soak::a_job_bears_faults_for_hours --nocapture
	;;
apps)
	cargo test --release --test apps -- --include-ignored --nocapture
	;;
*)
	echo "usage: scripts/test.sh quick|all|long|soak|apps" >&2
	exit 2
	;;
esac
