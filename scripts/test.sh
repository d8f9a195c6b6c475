#!/bin/sh
# Runs the tests; the last lines are those of `cargo test`.
#
#   scripts/test.sh quick    between edits: pure logic, the simulation, packets, a job on each MPI of Debian
#   scripts/test.sh all      every behaviour once: what decides whether a change lands
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

# All but tests/mpi.rs beside tests/mpi.rs, whose jobs leave the CPUs idle for a third of the time. What the
# others say is shown at their end.
all() {
	set -- --lib --bins
	for file in tests/*.rs; do
		name=$(basename "$file" .rs)
		[ "$name" = mpi ] || set -- "$@" --test "$name"
	done
	cargo test --release --no-run
	said=$(mktemp)
	setsid cargo test --release --no-fail-fast "$@" >"$said" 2>&1 &
	others=$!
	trap 'kill -- -$others 2>/dev/null || true; rm -f "$said"' EXIT
	trap 'exit 130' INT TERM
	jobs=0
	cargo test --release --test mpi || jobs=$?
	status=0
	wait "$others" || status=$?
	cat "$said"
	[ "$jobs" = 0 ] && [ "$status" = 0 ]
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
