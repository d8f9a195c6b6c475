/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Folds by vectors. Needs AVX2; in the kernel, between kernel_fpu_begin() and kernel_fpu_end(). */
#ifndef FOLDBACK_SIMD_FOLDS_H
#define FOLDBACK_SIMD_FOLDS_H

#include "wire.h"

/* Types beside enum fb_type, for FB_OP_SUM alone. */
enum fb_simd_type {
	FB_SIMD_F32 = FB_TYPE_COUNT,
	FB_SIMD_F64,
};

/* Folds `bytes` bytes, whole blocks of FB_FOLD_BLOCK, of `from` into `into`. Neither needs to be
 * aligned. Returns 0, or -1 if there is no such op of such a type. */
int fb_simd_fold(void *into, const void *from, __u32 bytes, __u32 op, __u32 type);

#endif
