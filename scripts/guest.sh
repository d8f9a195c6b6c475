# shellcheck shell=sh
# Sourced by the scripts that boot the kernel of Debian 12 (6.1) in qemu. Nothing but an initramfs is
# needed: no disk, no network, no privilege. The kernel's package is unpacked under target/, not
# installed. Before, set `me` to the script's name, `work` to its directory under target/, and
# `guest_modules` to the modules that the guest loads. `guest_kernel` is the kernel's flavour,
# `guest_version` how its version begins, and `guest_setup` the group of scripts/setup.sh that installs what is needed.
: "${me:?}" "${work:?}" "${guest_modules:?}" "${guest_kernel:=cloud-amd64}" "${guest_version=6.1.}" "${guest_setup:=kernels}"
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
need_tools qemu-system-x86_64 busybox cpio depmod ip tc ldd

# ---- the kernel -------------------------------------------------------------------------------

# The newest that apt knows; the metapackage depends on it.
find_package() {
	apt-cache depends "linux-image-$guest_kernel" 2>/dev/null |
		sed -n 's/^ *Depends: *\(linux-image-[0-9][^ ]*\).*/\1/p' | grep -F "linux-image-$guest_version" | head -n 1
}

# From Linux 7 on Debian's linux-image is empty, and depends on these.
parts_of_kernel() {
	apt-cache depends "$1" | sed -n 's/^ *Depends: *\(linux-\(base\|binary\|modules\)-[0-9][^ ]*\).*/\1/p'
}

# Unpacks packages into $kernels/$1, once.
fetch() {
	[ ! -d "$kernels/$1" ] || return 0
	into=$1
	shift
	say "fetching $*"
	rm -rf "$kernels/download" "$kernels/$into.part"
	mkdir -p "$kernels/download"
	(cd "$kernels/download" && apt-get -q -o APT::Sandbox::User=root download "$@" >/dev/null) ||
		die "cannot download $*"
	for file in "$kernels"/download/*.deb; do
		dpkg -x "$file" "$kernels/$into.part"
	done
	mv "$kernels/$into.part" "$kernels/$into"
	rm -r "$kernels/download"
}

# Sets `kernel`, the unpacked package, `release`, and `image`.
fetch_kernel() {
	package=$(find_package)
	if [ -z "$package" ]; then
		[ "$(id -u)" -eq 0 ] || die "apt has no package lists: apt-get update, as root"
		apt-get -q update >/dev/null || die "apt-get update failed"
		package=$(find_package)
	fi
	[ -n "$package" ] || die "apt knows no linux-image-$guest_kernel $guest_version"
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
		module=$root/modules/$(basename "$file" .xz)
		case "$file" in
		*.xz) xz -dc "$file" >"$module" ;;
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
	# may find that a timer does not tick, and panic: it is not to check.
	exec setpriv --pdeathsig TERM timeout --foreground "$seconds" qemu-system-x86_64 -accel tcg \
		-cpu max -m 1G -nodefaults -no-user-config -display none -no-reboot -serial stdio \
		-kernel "$image" -initrd "$work/initramfs.gz" \
		-append "console=ttyS0 quiet panic=-1 no_timer_check $parameters" "$@" </dev/null
}

[ -e target/release/foldback ] || die "no target/release/foldback: cargo build --release"
