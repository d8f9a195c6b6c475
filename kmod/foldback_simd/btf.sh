#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Gives foldback_simd.ko its BTF, without which the kernel cannot know the kfunc: types by pahole, then the
# number of the kfunc's type in the list of kfuncs. If Kbuild can do all that, it has. Mostly it cannot: that
# takes the kernel's vmlinux beside the headers, and resolve_btfids, which Debian 12 does not ship.
#
#   btf.sh MODULE.ko BTF-of-the-kernel
set -eu
module=$1
base=$2

die() {
	echo "btf.sh: $*" >&2
	exit 1
}
has_btf() {
	readelf -SW "$module" | grep -q ' \.BTF '
}
# A list: how many, flags, then of each number and flags, words of 32 bits. Here of one function.
list() {
	objcopy -O binary --only-section=.BTF_ids --set-section-flags .BTF_ids=alloc "$module" "$1"
}
word() {
	printf '%b' "$(printf '\\0%o' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24)))"
}

for tool in pahole bpftool objcopy readelf; do
	command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin:/sbin
	command -v "$tool" >/dev/null || die "no $tool (Debian: packages dwarves, bpftool, binutils)"
done
[ -r "$base" ] || die "no BTF of the kernel at $base"
if has_btf; then
	echo "btf.sh: $module has BTF already"
	exit
fi
# Older releases of pahole call llvm-objcopy, if not told so.
LLVM_OBJCOPY=${OBJCOPY:-objcopy} pahole -J --btf_base "$base" "$module"
has_btf || die "pahole made no BTF"
number=$(bpftool -B "$base" btf dump file "$module" | sed -n "s/^\[\([0-9]*\)\] FUNC 'foldback_simd_fold'.*/\1/p")
[ -n "$number" ] || die "the module's BTF has no foldback_simd_fold"
ids=$(mktemp)
trap 'rm -f "$ids"' EXIT
list "$ids"
[ "$(stat -c %s "$ids")" -eq 16 ] || die "the list of kfuncs is not as expected"
word 1 | dd of="$ids" bs=4 seek=0 conv=notrunc status=none
word "$number" | dd of="$ids" bs=4 seek=2 conv=notrunc status=none
objcopy --update-section .BTF_ids="$ids" "$module"
