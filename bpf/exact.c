// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Exact sums in user space: exact.h, and beside it the CPU's own floating point, where that
 * provably gives the same bits (exact_lanes.h).
 */
#include <string.h>

#include "native.h"

#pragma STDC FP_CONTRACT OFF

/* Element `at` of all parts, in integers. A carried accumulator counts as one number. */
#define FB_ONE_OF(width)                                                                           \
	static __attribute__((noinline)) void fb_one_of_##width(                                   \
	    void *into, const void *const *parts, __u64 count, __u64 at)                           \
	{                                                                                          \
		struct fb_exact##width sum = {};                                                   \
		__u##width bits;                                                                   \
                                                                                                   \
		for (__u64 i = 0; i < count; i++) {                                                \
			memcpy(&bits, (const char *)parts[i] + at * sizeof(bits), sizeof(bits));   \
			if (i % (FB_EXACT_MOST - 1) == FB_EXACT_MOST - 2)                          \
				fb_exact##width##_carry(&sum);                                     \
			fb_exact##width##_add(&sum, bits);                                         \
		}                                                                                  \
		bits = fb_exact##width##_round(&sum);                                              \
		memcpy(into, &bits, sizeof(bits));                                                 \
	}

FB_ONE_OF(64)
FB_ONE_OF(32)

static void fb_sum_in_integers(void *into, const void *const *parts, __u64 count, __u64 elements,
			       __u64 width)
{
	for (__u64 at = 0; at < elements; at++) {
		if (width == 8)
			fb_one_of_64((char *)into + at * 8, parts, count, at);
		else
			fb_one_of_32((char *)into + at * 4, parts, count, at);
	}
}

#ifdef __x86_64__
/* Up to so many parts the second order of the errors is far below the first. */
#define FB_LANES_MOST (1 << 20)

#define FB_LANES 1
#define FB_LANES_SOME fb_lane_some
#define FB_LANES_SUM fb_lane_sum
#define FB_LANES_TARGET
#include "exact_lanes.h"

#define FB_LANES 4
#define FB_LANES_SOME fb_lanes_some
#define FB_LANES_SUM fb_lanes_sum
#define FB_LANES_TARGET
#include "exact_lanes.h"

#define FB_LANES 4
#define FB_LANES_SOME fb_lanes_avx2_some
#define FB_LANES_SUM fb_lanes_avx2_sum
#define FB_LANES_TARGET __attribute__((target("avx2")))
#include "exact_lanes.h"

#define FB_LANES 8
#define FB_LANES_SOME fb_lanes_avx512_some
#define FB_LANES_SUM fb_lanes_avx512_sum
#define FB_LANES_TARGET __attribute__((target("avx512f,avx512dq")))
#include "exact_lanes.h"

/* The default floating-point environment: to nearest, subnormals kept, no traps; and its flags. */
enum { FB_MXCSR = 0x1f80, FB_MXCSR_FLAGS = 0x3f };

static void fb_sum_in_lanes(void *into, const void *const *parts, __u64 count, __u64 elements,
			    __u64 width, enum fb_exact_by by)
{
	__u32 environment = __builtin_ia32_stmxcsr();
	__u64 at = 0;

	/* The program's may be another, and its flags are its own. */
	if ((environment & ~FB_MXCSR_FLAGS) != FB_MXCSR)
		__builtin_ia32_ldmxcsr(FB_MXCSR);
	if (by >= FB_EXACT_BY_AVX512 && elements >= 8)
		at = fb_lanes_avx512_sum(into, parts, count, at, elements, width);
	if (by >= FB_EXACT_BY_AVX2 && elements - at >= 4)
		at = fb_lanes_avx2_sum(into, parts, count, at, elements, width);
	if (elements - at >= 4)
		at = fb_lanes_sum(into, parts, count, at, elements, width);
	fb_lane_sum(into, parts, count, at, elements, width);
	if (__builtin_ia32_stmxcsr() != environment)
		__builtin_ia32_ldmxcsr(environment);
}
#endif

void fb_exact_sum(void *into, const void *const *parts, __u64 count, __u64 elements, __u64 width,
		  enum fb_exact_by by)
{
#ifdef __x86_64__
	if (by != FB_EXACT_BY_INTEGERS && count > 0 && count <= FB_LANES_MOST)
		return fb_sum_in_lanes(into, parts, count, elements, width, by);
#endif
	fb_sum_in_integers(into, parts, count, elements, width);
}

#define FB_NATIVE_EXACT(width)                                                                     \
	void fb_native_exact##width##_add(struct fb_exact##width *sum, __u##width bits)            \
	{                                                                                          \
		fb_exact##width##_add(sum, bits);                                                  \
	}                                                                                          \
	void fb_native_exact##width##_merge(struct fb_exact##width *sum,                           \
					    const struct fb_exact##width *from)                    \
	{                                                                                          \
		fb_exact##width##_merge(sum, from);                                                \
	}                                                                                          \
	void fb_native_exact##width##_carry(struct fb_exact##width *sum)                           \
	{                                                                                          \
		fb_exact##width##_carry(sum);                                                      \
	}                                                                                          \
	__u##width fb_native_exact##width##_round(struct fb_exact##width *sum)                     \
	{                                                                                          \
		return fb_exact##width##_round(sum);                                               \
	}                                                                                          \
	void fb_native_exact##width##_clear(struct fb_exact##width *sum)                           \
	{                                                                                          \
		fb_exact##width##_clear(sum);                                                      \
	}

FB_NATIVE_EXACT(64)
FB_NATIVE_EXACT(32)
