#!/bin/sh
# Makes the packages twice, which must come out the same, checks them by lintian and rpmlint, and installs, runs and
# removes them in roots of Debian and of Ubuntu. Needs root and the network; nothing of this machine is changed but
# target/packages. Ends with "packages: ok".
set -eu
cd "$(dirname "$0")/.."

work=$PWD/target/packages
die() {
	echo "packages: $*" >&2
	exit 1
}
step() {
	echo "packages: $*" >&2
}
[ "$(id -u)" -eq 0 ] || die "needs root, to make roots of other releases"
: "${DEBFULLNAME:=foldback developers}" "${DEBEMAIL:=packager@cluster.example.com}"
export DEBFULLNAME DEBEMAIL

root=$(mktemp -d)
# Nothing is mounted in the roots but what in_root mounts, in a mount namespace that ends with it.
trap 'rm -rf "$root"' EXIT

step "make them twice"
rm -f "$work"/*.deb "$work"/*.rpm
scripts/packages.sh >/dev/null
sums=$(cat "$work"/*.deb "$work"/*.rpm | sha256sum)
scripts/packages.sh >/dev/null
[ "$sums" = "$(cat "$work"/*.deb "$work"/*.rpm | sha256sum)" ] || die "they differ from one time to the next"

step "lintian and rpmlint"
lintian --allow-root --fail-on error --suppress-tags initial-upload-closes-no-bugs "$work"/*.deb
rpmlint -c dist/rpmlint.toml "$work"/*.rpm | tee "$root/rpmlint" | tail -n 1
if grep -q ': E: ' "$root/rpmlint"; then
	cat "$root/rpmlint" >&2
	die "rpmlint has errors"
fi

# in_root ROOT COMMAND…: as on a machine of that release, with networks of its own.
in_root() {
	# shellcheck disable=SC2016 # the inner shell's
	unshare --mount --net --pid --fork sh -euc '
		root=$1
		shift
		# rpm of Debian 13 wants / to be a mount.
		mount --bind "$root" "$root"
		mount -t proc proc "$root/proc"
		mount -t sysfs sysfs "$root/sys"
		mount --rbind /dev "$root/dev"
		exec timeout 120 chroot "$root" "$@"
	' sh "$@"
}

# Runs a command that is to succeed, and says what it said if it does not.
quietly() {
	"$@" >"$root/log" 2>&1 || {
		cat "$root/log" >&2
		die "failed: $*"
	}
}

# try ROOT LIBRARY: runs what is installed: the command, the agent with its programs, a program with the library.
try() {
	# shellcheck disable=SC2016 # the inner shell's
	in_root "$1" sh -euc '
		export LANG=C.UTF-8
		foldback --version
		ip link set lo up
		foldback agent >/tmp/agent.log 2>&1 &
		agent=$!
		for _ in $(seq 100); do
			foldback status >/tmp/status 2>&1 && break
			sleep 0.1
		done
		cat /tmp/status
		grep -q "^agent" /tmp/status || { cat /tmp/agent.log; exit 1; }
		kill "$agent"
		wait "$agent"
		said=$(LD_PRELOAD=$1 /bin/echo preloaded 2>&1)
		[ "$said" = preloaded ] || { echo "$said"; exit 1; }
		systemd-analyze verify --man=no foldback-agent.service
	' sh "$2" >"$root/log" 2>&1 || {
		cat "$root/log" >&2
		die "what is installed in $1 does not run"
	}
}

# Files of foldback in a root, but for what an agent makes in /run, and packages that were fetched.
remains() {
	find "$1" -xdev \( -path "$1/proc" -o -path "$1/sys" -o -path "$1/dev" -o -path "$1/run" -o -path "$1/var/cache" \) -prune -o \
		-name '*foldback*' -print
}

deb=$(basename "$work"/*.deb)
rpm=$(basename "$work"/*.rpm)
# in_release NAME SUITE OPTION… [MIRROR]: both packages come and go in a root of that release, by mmdebstrap.
in_release() {
	release=$1 suite=$2
	shift 2
	step "$release"
	here=$root/$suite
	mmdebstrap --quiet --variant=minbase --include=systemd,iproute2,libelf1,zlib1g,rpm "$suite" "$here" "$@" ||
		die "no root of $release"
	[ -z "$(remains "$here")" ] || die "there is foldback in the files of $release"

	cp "$work/$deb" "$here/tmp/"
	quietly in_root "$here" dpkg --install "/tmp/$deb"
	try "$here" libfoldback.so
	in_root "$here" systemctl --quiet enable foldback-agent
	quietly in_root "$here" dpkg --remove foldback
	[ "$(in_root "$here" systemctl is-enabled foldback-agent 2>&1)" != enabled ] || die "removed, and still enabled"
	quietly in_root "$here" dpkg --purge foldback
	rm -f "$here/tmp/$deb"
	remains=$(remains "$here")
	[ -z "$remains" ] || die "left in $release by the .deb: $remains"

	cp "$work/$rpm" "$here/tmp/"
	# Its dependencies have other names here, and the linker does not look into lib64.
	quietly in_root "$here" rpm --install --nodeps "/tmp/$rpm"
	try "$here" /usr/lib64/libfoldback.so
	in_root "$here" systemctl --quiet enable foldback-agent
	quietly in_root "$here" rpm --erase foldback
	[ "$(in_root "$here" systemctl is-enabled foldback-agent 2>&1)" != enabled ] || die "erased, and still enabled"
	rm -f "$here/tmp/$rpm"
	remains=$(remains "$here")
	[ -z "$remains" ] || die "left in $release by the .rpm: $remains"
	rm -rf "$here"
}

in_release "Debian 12" bookworm
# Debian has the keys of Ubuntu.
keys=usr/share/keyrings/ubuntu-archive-keyring.gpg
in_release "Debian 13" trixie --include=ubuntu-keyring --customize-hook="copy-out /$keys $root"
for ubuntu in 22.04,jammy 24.04,noble 26.04,resolute; do
	in_release "Ubuntu ${ubuntu%,*}" "${ubuntu#*,}" --components=main,universe --keyring="$root/$(basename $keys)" \
		http://archive.ubuntu.com/ubuntu
done
echo "packages: ok"
