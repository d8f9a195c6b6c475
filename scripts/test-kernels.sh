#!/bin/sh
# Boots the kernel of Debian 12 (6.1) in qemu, with nothing but busybox, iproute2 and the programs
# under test in an initramfs, and runs these there. Then it loads the kernel module foldback_simd
# and runs the tests of folds again, with programs that call it. No disk, no network, no privilege
# needed. Under software emulation it is up in seconds.
#
#   scripts/test-kernels.sh [COMMAND ARG…]    instead of the tests, run one command there
#
# DEBIAN and KERNEL choose another kernel (scripts/guest.sh), on which the tests run without the module. TESTS="NAME…"
# runs some tests alone.
set -eu
cd "$(dirname "$0")/.."

# Integration tests (tests/NAME.rs) that run there: they depend on the kernel.
TESTS=${TESTS:-bpf agent netns lab}

# A file's tests to run; none: all. Of the agent's tests, the ones of attaching, of other programs, of
# time and of groups' ends: the rest is between processes. Of the lab's, the one that needs netem.
tests_of() {
	case "$1" in
	agent) echo "attaching:: beside:: cpu_time a_killed_rank pile_up" ;;
	lab) echo "frames_take_their_delay" ;;
	esac
}

# Tests of tests/bpf.rs that run again with the module: of everything that folds. The first one
# counts its folds, and so runs alone.
SIMD_COUNTS="simd::the_module"
SIMD_TESTS="fold:: jumbo:: direct:: ring:: verifier:: simd::a_fold_leaves"

# Seconds until a hanging guest is ended, and for one test in it.
GUEST_SECONDS=2400
TEST_SECONDS=1000

me=test-kernels
work=target/kernels
# What the tests need of this kernel: the lab's links and switch, and TC hooks (tcx came with
# Linux 6.6).
guest_modules="veth bridge sch_ingress cls_bpf cls_u32 sch_tbf sch_netem"
# shellcheck source=scripts/guest.sh
. scripts/guest.sh
need_tools gcc lz4 pahole bpftool
log=$work/log
# Where its tests are; elsewhere it was not built.
with_module=
[ "$DEBIAN-$KERNEL" != 12-stock ] || with_module=yes

# ---- the module foldback_simd -----------------------------------------------------------------

# A number of 32 bits of a file.
number_at() {
	od -An -tu4 -j "$2" -N 4 "$1" | tr -d ' '
}

# The kernel itself, for its BTF: unpacked from the image (Documentation/arch/x86/boot.rst).
unpack_vmlinux() {
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
	headers=$PWD/$kernels/headers-$release/usr/src
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

# ---- the tests ---------------------------------------------------------------------------------

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

add_tests() {
	if [ $# -gt 0 ]; then
		echo "command $*" >"$root/tests/list"
		return
	fi
	for name in $TESTS; do
		add_program "$work/tests/$name" "/tests/$name"
		echo "$name /tests/$name --test-threads 2 $(tests_of "$name")" >>"$root/tests/list"
	done
	for program in bash ethtool; do
		add_program "$(command -v "$program")" "/bin/$program"
	done
	[ -n "$with_module" ] || return 0
	install -m 644 "$work/simd/foldback_simd.ko" "$root/modules"
	# foldback doctor finds something missing here: MPI.
	echo 'foldback doctor | grep "fold: AVX2 by foldback_simd"' >"$root/tests/doctor"
	# The kernel frees programs a while after their process has ended, and they hold the module until then.
	cat >"$root/tests/unload" <<-'END'
		for try in $(seq 120); do
			rmmod foldback_simd && exit
			sleep 1
		done
		exit 1
	END
	with="env FOLDBACK_TEST_SIMD=1 /tests/bpf --test-threads"
	cat >>"$root/tests/list" <<-END
		simd insmod /modules/foldback_simd.ko
		simd $with 1 $SIMD_COUNTS
		simd $with 2 $SIMD_TESTS
		simd sh /tests/doctor
		simd sh /tests/unload
	END
}

[ $# -gt 0 ] || build_tests
fetch_kernel
[ $# -gt 0 ] || [ -z "$with_module" ] || build_module
begin_root
add_tests "$@"
pack_root
say "booting $release"
run_guest "$GUEST_SECONDS" "name=guest test_seconds=$TEST_SECONDS" -smp 2 | tr -d '\r' | tee "$log"
grep -q '^guest: PASS$' "$log" || die "FAILED under $release (or no verdict: see $log)"
