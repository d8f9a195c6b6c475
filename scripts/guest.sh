# shellcheck shell=sh
# Sourced by the scripts that boot a kernel of Debian or Ubuntu in qemu. Nothing but an initramfs is needed: no disk, no
# network, no privilege. The kernel's package is unpacked under target/, not installed. Before, set `me` to the script's
# name, `work` to its directory under target/, and `guest_modules` to the modules that the guest loads. `guest_kernel` is
# the flavour of Debian's kernel, and `guest_setup` the group of scripts/setup.sh that installs what is needed.
#
# DEBIAN=12|13 is the release, 12 if not said. KERNEL=stock|backports is its kernel, stock if not said, and
# KERNEL=ubuntu-22.04|ubuntu-24.04|ubuntu-26.04 the newest kernel of that release.
: "${me:?}" "${work:?}" "${guest_modules:?}" "${guest_kernel:=cloud-amd64}" "${guest_setup:=kernels}"
DEBIAN=${DEBIAN:-12}
KERNEL=${KERNEL:-stock}
work=$work/$DEBIAN-$KERNEL
kernels=target/kernels
root=$work/root

die() {
	echo "$me: $*" >&2
	exit 1
}
say() {
	echo "$me: $*" >&2
}

need_tools() {
	for tool in "$@"; do
		command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin:/sbin
		command -v "$tool" >/dev/null || die "no $tool: run scripts/setup.sh $guest_setup"
	done
}
need_tools qemu-system-x86_64 busybox cpio depmod ip tc ldd xz zstd

case "$DEBIAN" in
12) suite=bookworm ;;
13) suite=trixie ;;
*) die "DEBIAN: there is no release $DEBIAN" ;;
esac

# ---- the kernel -------------------------------------------------------------------------------

# apt has lists of its own here, so this machine may be of another release.
lists=$PWD/$work/apt
with_lists() {
	APT_CONFIG=$lists/apt.conf "$@"
}

describe_suites() {
	mkdir -p "$lists/lists/partial" "$lists/archives/partial"
	cat >"$lists/apt.conf" <<-END
		Dir::State "$lists";
		Dir::State::status "/dev/null";
		Dir::Cache "$lists";
		Dir::Etc::SourceList "$lists/sources.list";
		Dir::Etc::SourceParts "/dev/null";
		Dir::Etc::Preferences "$lists/preferences";
		Dir::Etc::PreferencesParts "/dev/null";
		APT::Sandbox::User "root";
	END
	: >"$lists/preferences"
	mirror=http://deb.debian.org
	cat >"$lists/sources.list" <<-END
		deb $mirror/debian $suite main
		deb $mirror/debian $suite-updates main
		deb $mirror/debian-security $suite-security main
	END
	case "$KERNEL" in
	stock) ;;
	backports)
		echo "deb $mirror/debian $suite-backports main" >>"$lists/sources.list"
		prefer "linux-image-$guest_kernel" "$suite-backports" 900
		;;
	ubuntu-22.04) describe_ubuntu jammy generic-hwe-22.04 ;;
	ubuntu-24.04) describe_ubuntu noble generic ;;
	ubuntu-26.04) describe_ubuntu resolute generic ;;
	*) die "KERNEL: there is no $KERNEL" ;;
	esac
}

# prefer PACKAGE SUITE PRIORITY
prefer() {
	printf 'Package: %s\nPin: release n=%s\nPin-Priority: %s\n\n' "$@" >>"$lists/preferences"
}

# describe_ubuntu SUITE FLAVOUR: of its kernel alone.
describe_ubuntu() {
	guest_kernel=$2
	# Debian 13 has the keys.
	echo "deb $mirror/debian trixie main" >"$lists/sources.list"
	[ -d "$kernels/ubuntu-keyring" ] || update_lists
	fetch ubuntu-keyring ubuntu-keyring
	for of_ubuntu in "$1" "$1-updates" "$1-security"; do
		echo "deb [signed-by=$PWD/$kernels/ubuntu-keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg]" \
			"http://archive.ubuntu.com/ubuntu $of_ubuntu main"
	done >"$lists/sources.list"
}

update_lists() {
	say "asking for the packages of Debian $DEBIAN, $KERNEL"
	with_lists apt-get -q update >/dev/null || die "apt-get update failed"
}

# Packages of the kernel: the newest that apt knows, on which the metapackage depends.
find_package() {
	with_lists apt-cache depends "linux-image-$guest_kernel" 2>/dev/null |
		sed -n 's/^ *Depends: *\(linux-image-[0-9][^ ]*\).*/\1/p' | head -n 1
}

# Modules may be in packages of their own. From Linux 7 on Debian's linux-image is empty, and depends on the others.
parts_of_kernel() {
	with_lists apt-cache depends "linux-image-$guest_kernel" "$1" |
		sed -n 's/^ *Depends: *\(linux-\(base\|binary\|modules\|modules-extra\)-[0-9][^ ]*\).*/\1/p' | sort -u
}

# Unpacks packages into $kernels/$1, once.
fetch() {
	[ ! -d "$kernels/$1" ] || return 0
	into=$1
	shift
	say "fetching $*"
	rm -rf "$kernels/download" "$kernels/$into.part"
	mkdir -p "$kernels/download"
	(cd "$kernels/download" && with_lists apt-get -q download "$@" >/dev/null) || die "cannot download $*"
	for file in "$kernels"/download/*.deb; do
		dpkg -x "$file" "$kernels/$into.part"
	done
	mv "$kernels/$into.part" "$kernels/$into"
	rm -r "$kernels/download"
}

# Sets `kernel`, the unpacked package, `release`, and `image`.
fetch_kernel() {
	package=$(find_package)
	if [ -z "$package" ] || ! [ -d "$kernels/$package" ]; then
		update_lists
		package=$(find_package)
	fi
	[ -n "$package" ] || die "no linux-image-$guest_kernel for Debian $DEBIAN, $KERNEL"
	# shellcheck disable=SC2046 # words
	fetch "$package" "$package" $(parts_of_kernel "$package")
	kernel=$kernels/$package
	# Debian 13's are in /usr/lib.
	[ -e "$kernel/lib" ] || ln -s usr/lib "$kernel/lib"
	release=$(ls "$kernel/lib/modules")
	[ -e "$kernel/lib/modules/$release/modules.dep" ] || depmod -b "$kernel" "$release"
	image=$kernel/boot/vmlinuz-$release
	[ -e "$image" ] || image=$kernel/lib/modules/$release/vmlinuz
}

# ---- the initramfs ----------------------------------------------------------------------------

# The shared libraries that a program or a library is linked with, at the same places.
add_libraries() {
	# "libc.so.6 => /lib/… (0x…)" and "/lib64/ld-linux… (0x…)"; nothing for a static program.
	ldd "$1" 2>/dev/null | sed -n 's/^[^/]*\(\/[^ ]*\) (0x.*/\1/p' | while read -r library; do
		[ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
	done
}

# A program, at a place of the guest, and its libraries.
add_program() {
	install -D -m 755 "$1" "$root/$2"
	add_libraries "$1"
}

add_modules() {
	for module in $guest_modules; do
		modprobe -d "$kernel" -S "$release" --show-depends "$module" ||
			die "the kernel has no module $module"
	done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r file; do
		module=$root/modules/$(basename "$file" | sed 's/\.\(xz\|zst\)$//')
		case "$file" in
		*.xz) xz -dc "$file" >"$module" ;;
		*.zst) zstd -dcq "$file" >"$module" ;;
		*) install -m 644 "$file" "$module" ;;
		esac
		echo "/modules/${module##*/}" >>"$root/modules/order"
	done
}

# A root with busybox, and modules.
begin_bare_root() {
	rm -rf "$root"
	mkdir -p "$root/bin" "$root/sbin" "$root/modules"
	for directory in proc sys dev run tmp; do
		mkdir "$root/$directory"
	done
	install -m 755 "$(command -v busybox)" "$root/bin/busybox"
	add_modules
}

# A root with foldback, in which scripts/guest-init.sh runs the lines of /tests/list.
begin_root() {
	begin_bare_root
	mkdir "$root/tests" "$root/etc" "$root/root"
	echo 'root:x:0:0::/root:/bin/sh
nobody:x:65534:65534::/:/bin/false' >"$root/etc/passwd"
	echo '127.0.0.1 localhost' >"$root/etc/hosts"
	add_program "$(command -v ip)" /sbin/ip
	add_program "$(command -v tc)" /sbin/tc
	add_program target/release/foldback /bin/foldback
	install -m 755 target/release/libfoldback.so "$root/bin/libfoldback.so"
	install -m 755 scripts/guest-init.sh "$root/init"
}

pack_root() {
	(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/initramfs.gz"
}

# ---- the guest --------------------------------------------------------------------------------

# Runs a guest, in place of the (sub)shell: for how many seconds at most, its parameters, and options
# of qemu. It ends with the script, also if that is killed.
run_guest() {
	seconds=$1 parameters=$2
	shift 2
	# Not -accel kvm: it is there or works only on some machines, and this is fast enough. On busy CPUs the kernel
	# may find that a timer does not tick, and panic: it is not to check. A tmpfs would have half of the memory that the
	# kernel knows of so early. With Ubuntu's that is a fifth of it.
	exec setpriv --pdeathsig TERM timeout --foreground "$seconds" qemu-system-x86_64 -accel tcg \
		-cpu max -m 1G -nodefaults -no-user-config -display none -no-reboot -serial stdio \
		-kernel "$image" -initrd "$work/initramfs.gz" \
		-append "console=ttyS0 quiet oops=panic panic=-1 no_timer_check rootfstype=ramfs $parameters" "$@" </dev/null
}

[ -e target/release/foldback ] || die "no target/release/foldback: cargo build --release"
describe_suites
