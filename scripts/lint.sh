#!/bin/sh
# Everything that can be wrong with the text of the sources. Ends with "lint: ok".
set -eu
cd "$(dirname "$0")/.."

step() {
	echo "lint: $*" >&2
}

step rustfmt
cargo fmt --check

step clang-format
# include/foldback.h is cbindgen's.
git ls-files --cached --others --exclude-standard -z 'bpf/*.[ch]' 'kmod/**.[ch]' 'mpi-tests/**.[ch]' 'benchmarks/*.[ch]' \
	'examples/*.[ch]' 'dist/slurm/*.[ch]' |
	xargs -0 clang-format --dry-run -Werror

step shellcheck
git ls-files --cached --others --exclude-standard -z 'scripts/*.sh' 'kmod/**.sh' .ci/run dist/debian/p* | xargs -0 shellcheck

step XML
# A file of a service that is not well-formed keeps firewalld from all its files.
git ls-files --cached --others --exclude-standard -z '*.xml' '*.svg' |
	xargs -0 -n 1 python3 -c 'import sys, xml.sax; xml.sax.parse(sys.argv[1], xml.sax.ContentHandler())'

step clippy
cargo clippy --release --all-targets --quiet -- -D warnings

step "features of dependencies"
# Features that only the tests add make cargo build dependencies anew in turns (Cargo.toml).
features() {
	cargo tree --prefix none --edges "$1" --format '{p} {f}' | sed 's/ (\*)$//' | sort -u
}
differ=$(features normal,build | grep -vxF "$(features normal,build,dev)" || true)
[ -z "$differ" ] || {
	echo "lint: \`cargo test\` gives more features than \`cargo build\` to: $differ" >&2
	exit 1
}

step "links of doc comments"
RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --release --no-deps --document-private-items --lib --bin foldback-bench --quiet

step "include/foldback.h, documents"
cargo test --release --quiet --test header --test documents

echo "lint: ok"
