#!/bin/sh
# Boots the kernel of Debian 12 (6.1) in qemu, with nothing but busybox, iproute2 and the programs
# under test in an initramfs, and runs these there. Then it loads the kernel module foldback_simd
# and runs the tests of folds again, with programs that call it. No disk, no network, no privilege needed; the
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

# Tests of tests/bpf.rs that run again with the module: of everything that folds. The first one
# counts its folds, and so runs alone.
SIMD_COUNTS="simd::the_module"
SIMD_TESTS="fold:: jumbo:: direct:: ring:: verifier:: simd::a_fold_leaves"

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

for tool in qemu-system-x86_64 busybox cpio depmod ip tc ldd gcc lz4 pahole bpftool; do
	command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin:/sbin
	command -v "$tool" >/dev/null || die "no $tool: run scripts/setup.sh kernels"
done

# ---- the kernel -------------------------------------------------------------------------------

# The newest that apt knows; the metapackage depends on it.
find_package() {
	apt-cache depends linux-image-cloud-amd64 2>/dev/null |
		sed -n 's/^ *Depends: *\(linux-image-6\.1\.[^ ]*\).*/\1/p' | head -n 1
}

# Unpacks packages into $work/$1, once.
fetch() {
	[ ! -d "$work/$1" ] || return 0
	into=$1
	shift
	say "fetching $*"
	rm -rf "$work/download" "$work/$into.part"
	mkdir -p "$work/download"
	(cd "$work/download" && apt-get -q -o APT::Sandbox::User=root download "$@" >/dev/null) ||
		die "cannot download $*"
	for file in "$work"/download/*.deb; do
		dpkg -x "$file" "$work/$into.part"
	done
	mv "$work/$into.part" "$work/$into"
	rm -r "$work/download"
}

fetch_kernel() {
	package=$(find_package)
	if [ -z "$package" ]; then
		[ "$(id -u)" -eq 0 ] || die "apt has no package lists: apt-get update, as root"
		apt-get -q update >/dev/null || die "apt-get update failed"
		package=$(find_package)
	fi
	[ -n "$package" ] || die "apt knows no linux-image-cloud-amd64 with a 6.1 kernel"
	fetch "$package" "$package"
	kernel=$work/$package
	release=$(ls "$kernel/lib/modules")
	[ -e "$kernel/lib/modules/$release/modules.dep" ] || depmod -b "$kernel" "$release"
}

# ---- the module foldback_simd -----------------------------------------------------------------

# A number of 32 bits of a file.
number_at() {
	od -An -tu4 -j "$2" -N 4 "$1" | tr -d ' '
}

# The kernel itself, for its BTF: unpacked from the image (Documentation/arch/x86/boot.rst).
unpack_vmlinux() {
	image=$kernel/boot/vmlinuz-$release
	sectors=$(od -An -tu1 -j 497 -N 1 "$image" | tr -d ' ')
	start=$((512 * (1 + sectors) + $(number_at "$image" 584)))
	# Behind it is its size.
	length=$(($(number_at "$image" 588) - 4))
	tail -c "+$((1 + start))" "$image" | head -c "$length" | lz4 -dcq >"$1" 2>/dev/null ||
		die "$image is not of LZ4"
}

# In a copy of its sources, as DKMS builds it.
build_module() {
	fetch "headers-$release" "linux-headers-$release" "linux-headers-${release%-*-*}-common" \
		linux-kbuild-6.1
	headers=$PWD/$work/headers-$release/usr/src
	# It names the place where the package would be installed.
	sed -i "s,^include .*/linux-headers-,include $headers/linux-headers-," \
		"$headers/linux-headers-$release/Makefile"
	[ -e "$work/vmlinux-$release" ] || {
		unpack_vmlinux "$work/vmlinux.part"
		mv "$work/vmlinux.part" "$work/vmlinux-$release"
	}
	rm -rf "$work/simd"
	make -s -C kmod/foldback_simd dkms-tree DKMS_TREE="$PWD/$work/simd"
	make -s -C "$work/simd" KDIR="$headers/linux-headers-$release" BTF="$PWD/$work/vmlinux-$release" \
		>"$work/simd.log" 2>&1 || {
		cat "$work/simd.log" >&2
		die "foldback_simd does not build"
	}
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
	install -m 644 "$work/simd/foldback_simd.ko" "$root/modules"
	# foldback doctor finds something missing here: MPI.
	echo 'foldback doctor | grep "fold: AVX2 by foldback_simd"' >"$root/tests/doctor"
	with="env FOLDBACK_TEST_SIMD=1 /tests/bpf --test-threads"
	cat >>"$root/tests/list" <<-END
		simd insmod /modules/foldback_simd.ko
		simd $with 1 $SIMD_COUNTS
		simd $with 2 $SIMD_TESTS
		simd sh /tests/doctor
		simd rmmod foldback_simd
	END
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
[ $# -gt 0 ] || build_module
build_root "$@"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/initramfs.gz"
say "booting $release"
boot | tr -d '\r' | tee "$log"
grep -q '^test-kernels: PASS$' "$log" || die "FAILED under $release (or no verdict: see $log)"
