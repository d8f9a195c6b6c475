#!/bin/sh
# Runs the tests; the last lines are those of `cargo test`.
#
#   scripts/test.sh quick    all but the long ones
#   scripts/test.sh all      all but mpi4py's own
#   scripts/test.sh apps     the programs of others, mpi4py's own tests among them
set -eu
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "test: needs root, to load BPF programs and make network namespaces" >&2
	exit 1
fi

case "${1-}" in
quick)
	cargo test --release
	;;
all)
	cargo test --release -- --include-ignored --skip suite_of_mpi4py
	;;
apps)
	cargo test --release --test apps -- --include-ignored --nocapture
	;;
*)
	echo "usage: scripts/test.sh quick|all|apps" >&2
	exit 2
	;;
esac
