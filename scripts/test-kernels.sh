#!/bin/sh
# Boots the kernel of Debian 12 (6.1) in qemu, with nothing but busybox, iproute2 and the programs
# under test in an initramfs, and runs these there. No disk, no network, no privilege needed; the
# kernel's package is unpacked under target/, not installed. Under software emulation it is up in
# seconds.
#
#   scripts/test-kernels.sh [COMMAND ARG…]    instead of the tests, run one command there
set -eu
cd "$(dirname "$0")/.."

# Integration tests (tests/NAME.rs) that run there: they depend on the kernel.
TESTS="bpf agent netns"

# A file's tests to run; none: all. Of the agent's tests, the ones of attaching and of groups' ends: the
# rest is between processes.
tests_of() {
	[ "$1" != agent ] || echo "attaching:: a_killed_rank pile_up"
}

# Modules of this kernel that they need: the lab's links and switch, and TC hooks (tcx came with
# Linux 6.6).
MODULES="veth bridge sch_ingress cls_bpf cls_u32 sch_tbf"

# Seconds until a hanging guest is ended, and for one test in it.
GUEST_SECONDS=2400
TEST_SECONDS=1000

work=target/kernels
die() {
	echo "test-kernels: $*" >&2
	exit 1
}
say() {
	echo "test-kernels: $*" >&2
}

for tool in qemu-system-x86_64 busybox cpio depmod ip tc ldd; do
	command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin:/sbin
	command -v "$tool" >/dev/null || die "no $tool: run scripts/setup.sh kernels"
done

# ---- the kernel -------------------------------------------------------------------------------

# The newest that apt knows; the metapackage depends on it.
find_package() {
	apt-cache depends linux-image-cloud-amd64 2>/dev/null |
		sed -n 's/^ *Depends: *\(linux-image-6\.1\.[^ ]*\).*/\1/p' | head -n 1
}

fetch_kernel() {
	package=$(find_package)
	if [ -z "$package" ]; then
		[ "$(id -u)" -eq 0 ] || die "apt has no package lists: apt-get update, as root"
		apt-get -q update >/dev/null || die "apt-get update failed"
		package=$(find_package)
	fi
	[ -n "$package" ] || die "apt knows no linux-image-cloud-amd64 with a 6.1 kernel"
	if [ ! -d "$work/$package" ]; then
		say "fetching $package"
		mkdir -p "$work/download"
		(cd "$work/download" && rm -f ./*.deb &&
			apt-get -q -o APT::Sandbox::User=root download "$package" >/dev/null) ||
			die "cannot download $package"
		dpkg -x "$work"/download/*.deb "$work/$package.part"
		mv "$work/$package.part" "$work/$package"
		rm -r "$work/download"
	fi
	kernel=$work/$package
	release=$(ls "$kernel/lib/modules")
	[ -e "$kernel/lib/modules/$release/modules.dep" ] || depmod -b "$kernel" "$release"
}

# ---- the initramfs ----------------------------------------------------------------------------

# A program and the shared libraries that it is linked with, at the same places.
add_program() {
	install -D -m 755 "$1" "$root/$2"
	# "libc.so.6 => /lib/… (0x…)" and "/lib64/ld-linux… (0x…)"; nothing for a static program.
	ldd "$1" 2>/dev/null | sed -n 's/^[^/]*\(\/[^ ]*\) (0x.*/\1/p' | while read -r library; do
		[ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
	done
}

add_modules() {
	for module in $MODULES; do
		modprobe -d "$kernel" -S "$release" --show-depends "$module" ||
			die "the kernel has no module $module"
	done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r file; do
		install -D -m 644 "$file" "$root/modules/$(basename "$file")"
		echo "/modules/$(basename "$file")" >>"$root/modules/order"
	done
}

# The path at which cargo put an integration test.
test_binary() {
	[ -e "tests/$1.rs" ] || die "tests/$1.rs does not exist"
	cargo test --release --quiet --no-run --test "$1" --message-format=json |
		sed -n 's/.*"executable":"\([^"]*\/deps\/'"$1"'-[^"]*\)".*/\1/p' | tail -n 1
}

# Before anything else, so that cargo is free for others by the time the kernel boots.
build_tests() {
	mkdir -p "$work/tests"
	for name in $TESTS; do
		say "building tests/$name.rs"
		binary=$(test_binary "$name")
		[ -n "$binary" ] || die "tests/$name.rs does not build"
		ln -sf "$binary" "$work/tests/$name"
	done
}

build_root() {
	rm -rf "$root"
	mkdir -p "$root/bin" "$root/sbin" "$root/modules" "$root/tests" "$root/etc" "$root/root"
	for directory in proc sys dev run tmp; do
		mkdir "$root/$directory"
	done
	install -m 755 "$(command -v busybox)" "$root/bin/busybox"
	echo 'root:x:0:0::/root:/bin/sh
nobody:x:65534:65534::/:/bin/false' >"$root/etc/passwd"
	echo '127.0.0.1 localhost' >"$root/etc/hosts"
	add_modules
	add_program "$(command -v ip)" /sbin/ip
	add_program "$(command -v tc)" /sbin/tc
	add_program target/release/foldback /bin/foldback
	install -m 755 target/release/libfoldback.so "$root/bin/libfoldback.so"
	install -m 755 scripts/test-kernels-init.sh "$root/init"
	if [ $# -gt 0 ]; then
		echo "command $*" >"$root/tests/list"
		return
	fi
	for name in $TESTS; do
		add_program "$work/tests/$name" "/tests/$name"
		echo "$name /tests/$name --test-threads 2 $(tests_of "$name")" >>"$root/tests/list"
	done
}

# ---- the run ----------------------------------------------------------------------------------

boot() {
	# Not -accel kvm: it is there or works only on some machines, and this is fast enough.
	timeout --foreground "$GUEST_SECONDS" qemu-system-x86_64 -accel tcg -cpu max -smp 2 -m 1G \
		-nodefaults -no-user-config -display none -no-reboot -serial stdio \
		-kernel "$kernel/boot/vmlinuz-$release" -initrd "$work/initramfs.gz" \
		-append "console=ttyS0 quiet panic=-1 test_seconds=$TEST_SECONDS" </dev/null
}

[ -e target/release/foldback ] || die "no target/release/foldback: cargo build --release"
root=$work/root
log=$work/log
[ $# -gt 0 ] || build_tests
fetch_kernel
build_root "$@"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/initramfs.gz"
say "booting $release"
boot | tr -d '\r' | tee "$log"
grep -q '^test-kernels: PASS$' "$log" || die "FAILED under $release (or no verdict: see $log)"
