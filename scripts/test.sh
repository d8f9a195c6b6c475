#!/bin/sh
# Runs the tests; the last lines are those of `cargo test`.
#
#   scripts/test.sh quick    all but the long ones
#   scripts/test.sh all      all
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
	cargo test --release -- --include-ignored
	;;
*)
	echo "usage: scripts/test.sh quick|all" >&2
	exit 2
	;;
esac
