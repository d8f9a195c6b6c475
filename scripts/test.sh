#!/bin/sh
# Runs the tests; the last lines are those of `cargo test`.
#
#   scripts/test.sh quick    all but the long tests
#   scripts/test.sh slice    these, and the long tests cut down (FOLDBACK_TEST_LONG)
#   scripts/test.sh long     the long tests in full
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
slice)
	cargo test --release
	FOLDBACK_TEST_LONG=slice cargo test --release --test mpi -- --ignored a_hundred_thousand
	;;
long)
	cargo test --release --test mpi -- --ignored a_hundred_thousand
	;;
*)
	echo "usage: scripts/test.sh quick|slice|long" >&2
	exit 2
	;;
esac
