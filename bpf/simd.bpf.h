/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The fold by the kernel module foldback_simd (kmod/foldback_simd), on hosts that have it. */
#ifndef FOLDBACK_SIMD_BPF_H
#define FOLDBACK_SIMD_BPF_H

#include <bpf/bpf_helpers.h>
#include "wire.h"

/* Fewest bytes that the module folds faster, with the registers that it saves for that: of ops that
 * take many instructions in BPF, and of the others. They are measured
 * (docs/decisions/60-simd-by-a-module.md). */
enum {
	FB_SIMD_FROM = 1152,
	FB_SIMD_FROM_OF_FEW = 5120,
};

extern int foldback_simd_fold(void *into, __u32 into__sz, const void *from, __u32 from__sz,
			      __u32 op_and_type) __ksym;

/* Whether the module is to fold such a payload. Global, not static: the verifier then walks the
 * fold's own loops once, and not for each way through here. */
__attribute__((noinline)) int fb_is_for_module(__u32 op, __u32 type, __u32 length)
{
	int many = op == FB_OP_MIN || op == FB_OP_MAX || op == FB_OP_LAND || op == FB_OP_LXOR ||
		   (op == FB_OP_PROD && type < FB_TYPE_I32);

	return length >= (many ? FB_SIMD_FROM : FB_SIMD_FROM_OF_FEW);
}

/* As fb_fold(). */
static __always_inline int fb_fold_by_module(struct fb_payload *into, const struct fb_payload *from,
					     __u32 op, __u32 type, __u32 length)
{
	__u32 bytes = (length + FB_FOLD_BLOCK - 1) & -FB_FOLD_BLOCK;

	/* The checked value is the used one: the compiler must not make another of it. */
	__asm__ volatile("" : "+r"(bytes));
	if (bytes > FB_MOST_BYTES)
		return -1;
	return foldback_simd_fold(into->data, bytes, from->data, bytes, op << 8 | (type & 255));
}

#endif
