#!/bin/sh
# Makes packages of this build, in target/packages: a .deb by cargo-deb, and an .rpm by rpmbuild. Both hold what
# `make install` installs. They need glibc 2.34 or newer, libelf and zlib.
#
#   scripts/packages.sh [deb] [rpm]       both, if nothing is said
#
# DEBFULLNAME and DEBEMAIL name the packager, as Debian's tools have it.
# SOURCE_DATE_EPOCH is the time of all files in them, by default of the last commit. With the same sources, tools and
# path of the build both come out the same to the bit.
set -eu
cd "$(dirname "$0")/.."

die() {
	echo "packages: $*" >&2
	exit 1
}

work=target/packages
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
# The newest glibc that the oldest supported distributions have: RHEL 9's.
glibc=2.34
[ -x target/release/foldback ] || die "nothing is built yet: make build"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}"
export SOURCE_DATE_EPOCH
maintainer="${DEBFULLNAME:-foldback developers} <${DEBEMAIL:-foldback@localhost}>"

# Fills $work/$1 with what `make install` installs, with libraries in $2.
tree() {
	rm -rf "${work:?}/$1"
	PREFIX=/usr LIBDIR=$2 DESTDIR=$PWD/$work/$1 scripts/install.sh install
	for binary in "$work/$1/usr/bin/foldback" "$work/$1/usr/bin/foldback-bench" "$work/$1$2/libfoldback.so.$version"; do
		newest=$(objdump -T "$binary" | sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort -V | tail -n 1)
		[ "$(printf '%s\n%s\n' "$newest" $glibc | sort -V | tail -n 1)" = $glibc ] ||
			die "$binary needs glibc $newest, and RHEL 9 has $glibc"
	done
	find "$work/$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

deb() {
	command -v cargo-deb >/dev/null || die "no cargo-deb: cargo install --locked cargo-deb"
	tree deb "/usr/lib/$(gcc -print-multiarch)"
	cat >"$work/changelog" <<-END
		foldback ($version-1) unstable; urgency=medium

		  * See /usr/share/doc/foldback/CHANGELOG.md.

		 -- $maintainer  $(LC_ALL=C date -uR -d "@$SOURCE_DATE_EPOCH")
	END
	cargo deb --maintainer "$maintainer" --no-build --no-strip --quiet --output "$work/"
	rm -rf "$work/deb"
}

rpm() {
	command -v rpmbuild >/dev/null || die "no rpmbuild: apt-get install rpm"
	tree rpm /usr/lib64
	find "$work/rpm/usr/share/man" -type f -exec gzip -9n {} +
	# Directories of foldback alone belong to the package.
	(
		cd "$work/rpm"
		find . -type d -path '*/foldback*' -printf '%%dir /%P\n'
		find . ! -type d -path './usr/share/doc/*' -printf '%%doc /%P\n'
		find . ! -type d ! -path './usr/share/doc/*' -printf '/%P\n'
	) >"$work/files"
	rpmbuild --quiet -bb dist/foldback.spec --target "$(uname -m)" \
		--define "tree $PWD/$work/rpm" --define "list_of_files $PWD/$work/files" \
		--define "release_of_sources $version" --define "packager_of_tree $maintainer" \
		--define "day_of_sources $(LC_ALL=C date -u '+%a %b %d %Y' -d "@$SOURCE_DATE_EPOCH")" \
		--define "_topdir $PWD/$work/rpmbuild" --define "_rpmdir $PWD/$work" \
		--define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"
	rm -rf "$work/rpm" "$work/rpmbuild" "$work/files"
}

mkdir -p "$work"
[ $# -gt 0 ] || set -- deb rpm
for kind in "$@"; do
	case "$kind" in
	deb | rpm) "$kind" ;;
	*) die "unknown argument $kind" ;;
	esac
done
ls -l "$work"/*.deb "$work"/*.rpm 2>/dev/null || true
