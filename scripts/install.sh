#!/bin/sh
# Copies the build to PREFIX, BINDIR and LIBDIR, below DESTDIR; or removes it from there.
#
#   scripts/install.sh install|uninstall
set -eu
cd "$(dirname "$0")/.."

: "${PREFIX:=/usr/local}" "${BINDIR:=$PREFIX/bin}" "${LIBDIR:=$PREFIX/lib}" "${DESTDIR:=}"
share=$PREFIX/share
# The place of systemd's units of /usr, or of the administrator.
case $PREFIX in
/usr) units=/usr/lib/systemd/system ;;
*) units=$PREFIX/lib/systemd/system ;;
esac
# Firewalld looks below /usr and /etc only. Elsewhere it is an example.
services=$PREFIX/lib/firewalld/services
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
# Of `cargo build`; tests name theirs.
: "${LIBRARY:=target/release/libfoldback.so}"
# The name that the library gives itself (build.rs).
soname=libfoldback.so.${version%%.*}

# put MODE FILE TARGET [install(1) options…]
put() {
	mode=$1 file=$2 target=$3
	shift 3
	install -D -m "$mode" "$@" "$file" "$DESTDIR$target"
}

# README, changelog, licences and all documents, by their paths in the sources.
documents() {
	find README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT docs -type f
}

# The sources of the kernel module, by their paths in $work.
module() {
	(cd "$work" && find foldback_simd -type f)
}

# All that is installed, one path a line.
list() {
	cat <<-END
		$BINDIR/foldback
		$BINDIR/foldback-bench
		$LIBDIR/libfoldback.so.$version
		$LIBDIR/$soname
		$LIBDIR/libfoldback.so
		$LIBDIR/pkgconfig/foldback.pc
		$PREFIX/include/foldback.h
		$units/foldback-agent.service
		$services/foldback.xml
		$share/modulefiles/foldback/$version
		$share/doc/foldback/foldback.conf
		$share/doc/foldback/foldback.nft
		$share/doc/foldback/grafana.json
		$share/foldback/slurm/foldback.c
		$share/foldback/slurm/Makefile
		$share/foldback/slurm/README.md
		$share/bash-completion/completions/foldback
		$share/fish/vendor_completions.d/foldback.fish
		$share/zsh/site-functions/_foldback
	END
	module | while read -r file; do
		echo "$share/foldback/$file"
	done
	for page in "$work"/*.1; do
		echo "$share/man/man1/$(basename "$page")"
	done
	documents | while read -r document; do
		echo "$share/doc/foldback/$document"
	done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
target/release/foldback-bench generate "$work"
make -s -C kmod/foldback_simd dkms-tree DKMS_TREE="$work/foldback_simd"

case "${1-}" in
install)
	for command in foldback foldback-bench; do
		put 755 "target/release/$command" "$BINDIR/$command" -s
	done
	put 755 "$LIBRARY" "$LIBDIR/libfoldback.so.$version" -s
	ln -sf "libfoldback.so.$version" "$DESTDIR$LIBDIR/$soname"
	ln -sf "$soname" "$DESTDIR$LIBDIR/libfoldback.so"
	put 644 include/foldback.h "$PREFIX/include/foldback.h"
	sed "s,@VERSION@,$version,; s,^prefix=.*,prefix=$PREFIX,; s,\${prefix}/lib,$LIBDIR," dist/foldback.pc >"$work/foldback.pc"
	put 644 "$work/foldback.pc" "$LIBDIR/pkgconfig/foldback.pc"
	sed "s,/usr/local/bin/,$BINDIR/," dist/foldback-agent.service >"$work/unit"
	put 644 "$work/unit" "$units/foldback-agent.service"
	put 644 dist/foldback.xml "$services/foldback.xml"
	sed "s,@VERSION@,$version,; s,@PREFIX@,$PREFIX,; s,@LIBDIR@,$LIBDIR,; s,@BINDIR@,$BINDIR," dist/modulefile >"$work/modulefile"
	put 644 "$work/modulefile" "$share/modulefiles/foldback/$version"
	# Not to /etc, where the site has its own.
	put 644 dist/foldback.conf "$share/doc/foldback/foldback.conf"
	put 644 dist/foldback.nft "$share/doc/foldback/foldback.nft"
	put 644 dist/grafana.json "$share/doc/foldback/grafana.json"
	# Source alone: a plugin is of one release of Slurm.
	sed "s,^PREFIX ?= .*,PREFIX ?= $PREFIX,; s,^LIBDIR ?= .*,LIBDIR ?= $LIBDIR," dist/slurm/Makefile >"$work/plugin"
	put 644 "$work/plugin" "$share/foldback/slurm/Makefile"
	put 644 dist/slurm/foldback.c "$share/foldback/slurm/foldback.c"
	put 644 dist/slurm/README.md "$share/foldback/slurm/README.md"
	module | while read -r file; do
		put "$(stat -c %a "$work/$file")" "$work/$file" "$share/foldback/$file"
	done
	put 644 "$work/foldback.bash" "$share/bash-completion/completions/foldback"
	put 644 "$work/foldback.fish" "$share/fish/vendor_completions.d/foldback.fish"
	put 644 "$work/_foldback" "$share/zsh/site-functions/_foldback"
	for page in "$work"/*.1; do
		put 644 "$page" "$share/man/man1/$(basename "$page")"
	done
	documents | while read -r document; do
		put 644 "$document" "$share/doc/foldback/$document"
	done
	;;
uninstall)
	unit=foldback-agent.service
	# Of a running system, and not where the unit that it knows is from another place.
	if [ -z "$DESTDIR" ] && [ "$(systemctl show -P FragmentPath "$unit" 2>/dev/null)" = "$units/$unit" ]; then
		systemctl disable --now "$unit"
	fi
	list | while read -r path; do
		rm -f "$DESTDIR$path"
	done
	find "$DESTDIR$share/doc/foldback" "$DESTDIR$share/foldback" "$DESTDIR$share/modulefiles/foldback" -depth -type d -empty -delete 2>/dev/null || true
	;;
*)
	echo "usage: scripts/install.sh install|uninstall" >&2
	exit 2
	;;
esac
