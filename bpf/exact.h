/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * Exact sums of IEEE 754 binary64 and binary32 in integers, rounded once, to nearest, ties to even.
 * The bits are the same in any order, on any CPU, in the kernel and in user space.
 *
 * An accumulator is as long as the format's numbers reach, a "small superaccumulator" (R. Neal,
 * Fast exact summation using small and large superaccumulators, arXiv 1505.05571). Its chunks are
 * signed words at a distance of 32 bits, so that additions need no carries:
 *
 *   sum = unit * (chunk[0] + chunk[1] * 2^32 + chunk[2] * 2^64 + ...),  unit: the least subnormal
 *
 *   bits of the sum    | 95 .. 64 | 63 .. 32 | 31 .. 0 |
 *   a number                 |  high, 52 | low, 32 |       two chunks, whatever its exponent
 *
 * Limits. A number adds less than 2^52 + 2^32 to a chunk's magnitude, so FB_EXACT_MOST of them may
 * come before a carry (half of what a chunk holds). Carried, an accumulator has digits of 32 bits,
 * and counts as one number, in its own further life as well as when it is merged into another.
 * With carries in time, 2^40 numbers may be summed.
 *
 * Not finite: a NaN, or both infinities, make the one canonical NaN, whatever payloads and signs
 * there were. The order of several NaNs must not matter. A sum of zero is +0, unless only -0 was
 * added. The empty sum is +0.
 *
 * All zeroes is an empty accumulator. Only chunks between the lowest and the highest in use are
 * ever walked: four or five for numbers of like magnitude.
 *
 * Plain C without BPF, libc or floating point, like fold.h. In a BPF program that loops over
 * elements, adding may be inlined, but rounding must be a global function. Otherwise every turn
 * leaves an end of its own to be looked at, and the verifier gives up. (Linux 6.18, clang 14, 176
 * doubles: "The sequence of 8193 jumps is too complex".)
 */
#ifndef FOLDBACK_EXACT_H
#define FOLDBACK_EXACT_H

#include "wire.h"

#define FB_EXACT_INLINE static inline __attribute__((always_inline))

enum {
	FB_EXACT_MOST = 1024,
	/* Binary64: positions 0 to 2045 of a lowest bit, 53 bits, 40 of carries. */
	FB_EXACT64_CHUNKS = 67,
	/* Binary32: positions 0 to 253, 24 bits, 40 of carries. */
	FB_EXACT32_CHUNKS = 10,
};

/* Special values that have been added, beside the contents of the chunks. */
enum fb_exact_seen {
	FB_EXACT_NAN = 1,
	FB_EXACT_PLUS_INF = 2,
	FB_EXACT_MINUS_INF = 4,
	FB_EXACT_MINUS_ZERO = 8,
	FB_EXACT_OTHER = 16, /* +0 or a number that is not zero */
};

struct fb_exact_head {
	__u16 end;   /* one beyond the highest chunk in use */
	__u16 depth; /* from the lowest chunk in use to the last of all and one beyond */
	__u32 seen;  /* of enum fb_exact_seen */
};

struct fb_exact64 {
	struct fb_exact_head head;
	__s64 chunk[FB_EXACT64_CHUNKS];
};

struct fb_exact32 {
	struct fb_exact_head head;
	__s64 chunk[FB_EXACT32_CHUNKS];
};

_Static_assert(sizeof(struct fb_exact64) == 544, "no padding");
_Static_assert(sizeof(struct fb_exact32) == 88, "no padding");

/* A format, and what follows from it; always known when this is compiled. */
struct fb_exact_format {
	__u32 chunks;
	__u32 fraction; /* bits of it, without the implicit one */
	__u32 infinite; /* the exponent of infinities and NaNs */
};

#define FB_EXACT_BINARY64 ((struct fb_exact_format){FB_EXACT64_CHUNKS, 52, 0x7ff})
#define FB_EXACT_BINARY32 ((struct fb_exact_format){FB_EXACT32_CHUNKS, 23, 0xff})

FB_EXACT_INLINE int fb_exact_used(__u32 *k, const struct fb_exact_head *head,
				  struct fb_exact_format format)
{
	/* The checked value is the used one: the compiler must not make another of it, or the
	 * verifier does not know its bounds. */
	__asm__ volatile("" : "+r"(*k));
	return *k < head->end && *k < format.chunks;
}

/* For each chunk `k` in use, from the lowest. */
#define FB_EXACT_EACH(k, head, format)                                                             \
	for (__u32 turn = 0, k = (format).chunks - (head)->depth;                                  \
	     turn < (format).chunks && fb_exact_used(&k, head, format); turn++, k++)

FB_EXACT_INLINE void fb_exact_use(struct fb_exact_head *head, __u32 first, __u32 end,
				  struct fb_exact_format format)
{
	if (head->end < end)
		head->end = end;
	if (head->depth < format.chunks - first)
		head->depth = format.chunks - first;
}

/* Adds the number of these bits. */
FB_EXACT_INLINE void fb_exact_add(struct fb_exact_head *head, __s64 *chunk, __u64 bits,
				  struct fb_exact_format format)
{
	__u32 exponent = bits >> format.fraction & format.infinite;
	__u64 number = bits & ((1ULL << format.fraction) - 1);
	__u64 negative = bits >> format.fraction > format.infinite;
	__u64 low, high;
	__u32 k;

	if (exponent == format.infinite) {
		head->seen |= number	 ? FB_EXACT_NAN
			      : negative ? FB_EXACT_MINUS_INF
					 : FB_EXACT_PLUS_INF;
		return;
	}
	if (exponent) {
		number |= 1ULL << format.fraction;
		exponent--;
	} else if (!number) {
		/* No chunk: it would be the lowest, and the way from there to the others long. */
		head->seen |= negative ? FB_EXACT_MINUS_ZERO : FB_EXACT_OTHER;
		return;
	}
	head->seen |= FB_EXACT_OTHER;
	k = exponent >> 5;
	/* Changes nothing, but the verifier then knows the bounds. */
	__asm__ volatile("" : "+r"(k));
	k &= format.infinite >> 5;
	low = number << (exponent & 31) & 0xffffffff;
	high = number >> 1 >> (31 - (exponent & 31));
	chunk[k] += (__s64)((low ^ -negative) + negative);
	chunk[k + 1] += (__s64)((high ^ -negative) + negative);
	fb_exact_use(head, k, k + 2, format);
}

/* Makes digits of 0 to 2^32 - 1 of all chunks in use but the highest, which has the sign and is of
 * 32 bits too. */
FB_EXACT_INLINE void fb_exact_carry(struct fb_exact_head *head, __s64 *chunk,
				    struct fb_exact_format format)
{
	__s64 carry = 0;
	__u32 end = head->end;

	if (!end)
		return;
	FB_EXACT_EACH (k, head, format) {
		__s64 digit = chunk[k] + carry;

		if (k + 1 == end && digit == (__s32)digit) {
			chunk[k] = digit;
			return;
		}
		chunk[k] = digit & 0xffffffff;
		carry = digit >> 32;
	}
	/* The checked value is the used one. */
	__asm__ volatile("" : "+r"(end));
	if (end < format.chunks) {
		chunk[end] = carry;
		head->end = end + 1;
	}
}

/* The sum, rounded. Leaves it carried, otherwise unchanged. */
FB_EXACT_INLINE __u64 fb_exact_round(struct fb_exact_head *head, __s64 *chunk,
				     struct fb_exact_format format)
{
	__u64 infinity = (__u64)format.infinite << format.fraction;
	__u64 minus = infinity + (1ULL << format.fraction);
	__u64 flip = 0, one = 0, high = 0, low = 0, rest = 0;
	__u64 d2 = 0, d1 = 0, d0 = 0, below = 0, kept;
	__u32 seen = head->seen, top = 0, log = 0, drop, last;

	if (seen & FB_EXACT_NAN || !(~seen & (FB_EXACT_PLUS_INF | FB_EXACT_MINUS_INF)))
		return infinity | 1ULL << (format.fraction - 1);
	if (seen & FB_EXACT_PLUS_INF)
		return infinity;
	if (seen & FB_EXACT_MINUS_INF)
		return minus | infinity;
	fb_exact_carry(head, chunk, format);
	last = head->end - 1;
	__asm__ volatile("" : "+r"(last));
	if (last < format.chunks && chunk[last] < 0) {
		flip = 0xffffffff;
		one = 1;
	} else {
		minus = 0;
	}

	/* The digits of the magnitude: from the highest that is not zero, `top`, 64 bits in `high`,
	 * 32 more in `low`; `rest` tells whether there is anything below. */
	FB_EXACT_EACH (k, head, format) {
		__u64 digit = ((chunk[k] & 0xffffffff) ^ flip) + one;

		one = digit >> 32;
		below |= d0;
		d0 = d1;
		d1 = d2;
		d2 = digit & 0xffffffff;
		if (d2) {
			top = k;
			high = d2 << 32 | d1;
			low = d0;
			rest = below;
		}
	}
	if (!high)
		return seen == FB_EXACT_MINUS_ZERO ? infinity + (1ULL << format.fraction) : 0;

	/* The highest bit to the top of `high`; it is bit `log` of the sum. */
	for (__u32 step = 32; step >>= 1;) {
		if (high >> 32 >> log >> step)
			log += step;
	}
	high = high << (31 - log) | low << (31 - log) >> 32;
	rest |= low << (31 - log) & 0xffffffff;
	log += 32 * top;

	/* A subnormal is of the unit, like the sum, and needs no rounding. Of other numbers, the
	 * implicit bit counts the exponent up by one, as does a carry out of the rounding, to
	 * infinity if need be. */
	drop = log < format.fraction ? 63 - log : 63 - format.fraction;
	kept = high >> drop;
	rest |= high << 1 << (64 - drop);
	if (high >> (drop - 1) & 1 && (rest || kept & 1))
		kept++;
	if (log > format.fraction)
		kept += (__u64)(log - format.fraction) << format.fraction;
	return minus | (kept < infinity ? kept : infinity);
}

/* Empties the accumulator. */
FB_EXACT_INLINE void fb_exact_clear(struct fb_exact_head *head, __s64 *chunk,
				    struct fb_exact_format format)
{
	FB_EXACT_EACH (k, head, format)
		chunk[k] = 0;
	*head = (struct fb_exact_head){};
}

/* Adds the sum of another accumulator. */
FB_EXACT_INLINE void fb_exact_merge(struct fb_exact_head *head, __s64 *chunk,
				    const struct fb_exact_head *from_head, const __s64 *from,
				    struct fb_exact_format format)
{
	FB_EXACT_EACH (k, from_head, format)
		chunk[k] += from[k];
	if (from_head->end)
		fb_exact_use(head, format.chunks - from_head->depth, from_head->end, format);
	head->seen |= from_head->seen;
}

/* The same of the two formats by name. Of FB_EXACT_MOST, a number counts one, and an accumulator
 * that is merged as many as were added to it since it was carried, and one. */
#define FB_EXACT_OF(width)                                                                         \
	FB_EXACT_INLINE void fb_exact##width##_add(struct fb_exact##width *sum, __u##width bits)   \
	{                                                                                          \
		fb_exact_add(&sum->head, sum->chunk, bits, FB_EXACT_BINARY##width);                \
	}                                                                                          \
	FB_EXACT_INLINE void fb_exact##width##_carry(struct fb_exact##width *sum)                  \
	{                                                                                          \
		fb_exact_carry(&sum->head, sum->chunk, FB_EXACT_BINARY##width);                    \
	}                                                                                          \
	FB_EXACT_INLINE __u##width fb_exact##width##_round(struct fb_exact##width *sum)            \
	{                                                                                          \
		return fb_exact_round(&sum->head, sum->chunk, FB_EXACT_BINARY##width);             \
	}                                                                                          \
	FB_EXACT_INLINE void fb_exact##width##_clear(struct fb_exact##width *sum)                  \
	{                                                                                          \
		fb_exact_clear(&sum->head, sum->chunk, FB_EXACT_BINARY##width);                    \
	}                                                                                          \
	FB_EXACT_INLINE void fb_exact##width##_merge(struct fb_exact##width *sum,                  \
						     const struct fb_exact##width *from)           \
	{                                                                                          \
		fb_exact_merge(&sum->head, sum->chunk, &from->head, from->chunk,                   \
			       FB_EXACT_BINARY##width);                                            \
	}

FB_EXACT_OF(64)
FB_EXACT_OF(32)

#endif
