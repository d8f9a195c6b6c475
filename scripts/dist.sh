#!/bin/sh
# Makes all that a release hands out, in target/dist, with SHA256SUMS over it:
#
#   scripts/dist.sh [sources] [sbom] [packages]       all, if nothing is said
#
#   sources     the sources of HEAD with all crates, which build without a network: foldback-VERSION.tar.xz
#   sbom        the crates in the library and the commands, in CycloneDX: foldback-VERSION.cdx.json
#   packages    the .deb and the .rpm of this build (scripts/packages.sh)
#
# With the same commit and tools all come out the same to the bit, packages in the same place only.
# SOURCE_DATE_EPOCH is the time of all files, by default of the commit.
# DIRTY=1 takes a tree with changes, too: new files are left out of the sources.
set -eu
cd "$(dirname "$0")/.."

die() {
	echo "dist: $*" >&2
	exit 1
}

dist=$PWD/target/dist
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
name=foldback-$version
[ "$(git rev-parse --show-cdup 2>&1)" = "" ] || die "the sources are made of a commit, and this is no clone"
[ -z "$(git status --porcelain)" ] || [ "${DIRTY-}" = 1 ] || die "the tree has changes: commit them, or set DIRTY=1"
changes=$(git stash create)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Fills $work/$name with the sources and all crates.
tree() {
	git archive --prefix="$name/" --output="$work/git.tar" "${changes:-HEAD}"
	tar -xf "$work/git.tar" -C "$work"
	mkdir -p "$work/$name/.cargo"
	(
		cd "$work/$name"
		cargo vendor --quiet --locked --respect-source-config >/dev/null
		cat >>.cargo/config.toml <<-END
			[source.crates-io]
			replace-with = "vendor"

			[source.vendor]
			directory = "vendor"
		END
		# Cargo.lock names the crates of Windows, so cargo wants to see them. Their code is half of all.
		for crate in vendor/winapi* vendor/windows-*; do
			find "$crate" -type f ! -name Cargo.toml ! -name .cargo-checksum.json ! -iname '*licen[sc]e*' ! -name COPYING -delete
			find "$crate" -type d -empty -delete
			mkdir "$crate/src"
			: >"$crate/src/lib.rs"
			sed -i 's/"files":{[^}]*}/"files":{}/' "$crate/.cargo-checksum.json"
		done
	)
}

sources() {
	tar -cf "$work/$name.tar" -C "$work" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
		--mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" "$name"
	# More threads give other bits.
	xz -T1 "$work/$name.tar"
	mv "$work/$name.tar.xz" "$dist/"
}

sbom() {
	command -v cargo-cyclonedx >/dev/null || die "no cargo-cyclonedx: cargo install --locked cargo-cyclonedx"
	(
		cd "$work/$name"
		cargo cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps --override-filename "$name.cdx"
		# Crates that the lock file names for a feature that is off are not in the build, and `cargo tree` knows.
		cargo tree --locked --edges normal --prefix none --format '{p}' | sed 's/ v\([^ ]*\).*/@\1/' >"$work/crates"
		# Nor does the place of these sources belong there.
		jq --rawfile crates "$work/crates" '
			def built: sub(".*#"; "") | IN($crates | split("\n")[]);
			.components |= map(select(."bom-ref" | built))
			| .dependencies |= map(select(.ref | built) | if .dependsOn then .dependsOn |= map(select(built)) else . end)
			| walk(if type == "string" then sub("^path\\+file://[^#]*#"; "") else . end)
		' "$name.cdx.json" >"$dist/$name.cdx.json"
	)
}

packages() {
	rm -f target/packages/*.deb target/packages/*.rpm
	scripts/packages.sh >/dev/null
	cp target/packages/*.deb target/packages/*.rpm "$dist/"
}

[ $# -gt 0 ] || set -- sources sbom packages
rm -rf "$dist"
mkdir -p "$dist"
tree
for part in "$@"; do
	case "$part" in
	sources | sbom | packages) "$part" ;;
	*) die "unknown argument $part" ;;
	esac
done
cd "$dist"
sums=$(sha256sum -- *)
echo "$sums" >SHA256SUMS
ls -l
