#!/bin/sh
# Makes what a release hands out (scripts/dist.sh), here and in a clone elsewhere, which must come out the same; looks
# into it, and builds, runs and installs the sources without a network. Ends with "dist: ok".
set -eu
cd "$(dirname "$0")/.."

die() {
	echo "dist: $*" >&2
	exit 1
}
step() {
	echo "dist: $*" >&2
}

here=$PWD
dist=$here/target/dist
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
name=foldback-$version
sbom=$dist/$name.cdx.json
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

step "make it"
scripts/dist.sh >/dev/null
for file in "$name.tar.xz" "$name.cdx.json" "foldback_$version-1_*.deb" "$name-1.*.rpm" SHA256SUMS; do
	# shellcheck disable=SC2086 # a pattern
	(cd "$dist" && [ -s $file ]) || die "there is no $file"
done
[ "$(find "$dist" -type f | wc -l)" -eq 5 ] || die "there are other files in $dist"
(cd "$dist" && sha256sum --check --strict --quiet SHA256SUMS) || die "SHA256SUMS is wrong"
[ "$(wc -l <"$dist/SHA256SUMS")" -eq 4 ] || die "SHA256SUMS does not have each file"

step "make it again, in a clone, as another user would"
git clone --quiet "$here" "$root/again"
(umask 077 && TZ=Asia/Tokyo "$root/again/scripts/dist.sh" sources sbom >/dev/null)
for file in "$name.tar.xz" "$name.cdx.json"; do
	cmp "$dist/$file" "$root/again/target/dist/$file" || die "$file differs from one place to another"
done
rm -rf "$root/again"

step "sources"
tar -xf "$dist/$name.tar.xz" -C "$root"
cd "$root/$name"
[ "$(ls -A "$root")" = "$name" ] || die "the sources hold more than $name/"
found=$(find . \( -name .git -o -path ./target \) -print -quit)
[ -z "$found" ] || die "the sources hold $found"
# The clone elsewhere has the same bits, so they cannot have its place.
found=$(grep -rlF -e "${CARGO_HOME:-$HOME/.cargo}" . | head -n 1)
[ -z "$found" ] || die "$found names a place of this machine"
found=$(sed -n 's/^source = //p' Cargo.lock | grep -vF '"registry+https://github.com/rust-lang/crates.io-index"' || true)
[ -z "$found" ] || die "crates come from $found"
for crate in vendor/*; do
	grep -q '^license' "$crate/Cargo.toml" || die "$crate has no licence"
done

step "build, run and install them without a network"
# What is left of this machine: the compilers.
apart() {
	CARGO_HOME=$root/cargo CARGO_NET_OFFLINE=true unshare --map-root-user --net "$@" >"$root/log" 2>&1 || {
		tail -n 20 "$root/log" >&2
		die "failed: $*"
	}
}
apart cargo build --release --offline --locked
apart make install DESTDIR="$root/installed" PREFIX=/usr
[ "$("$root/installed/usr/bin/foldback" --version)" = "foldback $version" ] || die "foldback --version is not $version"
[ "$(LD_PRELOAD=$root/installed/usr/lib/libfoldback.so /bin/echo preloaded 2>&1)" = preloaded ] ||
	die "a program with the library does not run"
# Sources of crates that debuggers would look for.
strings -a target/release/foldback target/release/foldback-bench target/release/libfoldback.so |
	sed -n 's,.*/vendor/\([^/ ]*\)/.*,\1,p' | sed 's/-[0-9]*\.[0-9.]*$//' | sort -u >"$root/linked"

step "SBOM"
jq --exit-status --arg version "$version" '
	.bomFormat == "CycloneDX" and .metadata.component.name == "foldback" and .metadata.component.version == $version
' "$sbom" >/dev/null || die "$sbom is not of foldback $version"
jq --exit-status '
	all(.components[]; .licenses and .hashes and (.purl | test("^pkg:cargo/[^?]*$"))
		and (."bom-ref" | startswith("registry+https://github.com/rust-lang/crates.io-index#")))
' "$sbom" >/dev/null || die "$sbom has a crate without licence, checksum or its place in crates.io"
! grep -qF path+file "$sbom" || die "$sbom names a place of this machine"
# All but foldback itself.
crates=$(($(cargo tree --locked --offline --edges normal --prefix none --format '{p}' | sed 's/ (.*//' | sort -u | wc -l) - 1))
[ "$(jq '.components | length' "$sbom")" -eq "$crates" ] || die "$sbom does not have $crates crates"
[ -s "$root/linked" ] || die "the build names none of its crates"
missing=$(jq -r '.components[].name' "$sbom" | grep -vxFf - "$root/linked" || true)
[ -z "$missing" ] || die "in the build, and not in $sbom: $missing"
echo "dist: ok"
