/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * The fold: into[i] = op(into[i], from[i]) for integers of 8 to 64 bits.
 *
 * Plain C without BPF or libc, so that the tests compile the very same code natively.
 *
 * Elements are folded as lanes of 64-bit words (SWAR, "SIMD within a register"; the lane tricks are
 * from Warren, Hacker's Delight, 2nd ed., 2-18). The lane width is a pair of constants, not a
 * branch, so one loop serves several types of an op. Sums, minima and maxima of elements that fill
 * a register are cheaper without lanes. Nothing branches on data, which would double the verifier's
 * paths with every element (1,000,000 instructions were not enough).
 *
 * Loops go over blocks of FB_FOLD_BLOCK bytes and are unrolled within one. The verifier walks 22
 * turns at most, 139 for jumbo frames; a 4-byte message costs one. The last block folds up to 63
 * bytes beyond the payload: padding, sent to nobody.
 *
 * Not by bpf_loop(), which calls through a pointer at every turn.
 */
#ifndef FOLDBACK_FOLD_H
#define FOLDBACK_FOLD_H

#include "wire.h"
#ifdef FB_SIMD
#include "simd.bpf.h"
#endif

/* The top bit of every lane of 8 << size bits. A table: branches would multiply the verifier's
 * paths. */
static const volatile __u64 fb_lane_high[4] = {0x8080808080808080ULL, 0x8000800080008000ULL,
					       0x8000000080000000ULL, 0x8000000000000000ULL};

/* The distance from it to the lane's lowest. */
#define FB_LANE_SHIFT(size) ((8u << (size)) - 1)

/* Lane-wise sum: no carry from lane to lane. */
#define FB_SUM(a, b) ((((a) & ~high) + ((b) & ~high)) ^ (((a) ^ (b)) & high))

/* The top bit of every lane that is not zero. */
#define FB_NONZERO(a) (((((a) & ~high) + ~high) | (a)) & high)

/* The top bit of every lane where a < b, unsigned. If the lanes' top bits differ, they tell; else
 * the subtraction of the rest does, with the top bit of a as its guard against borrowing. */
#define FB_LESS(a, b) (((~(a) & (b)) | (~((a) ^ (b)) & ~(((a) | high) - ((b) & ~high)))) & high)

/* All bits of every lane whose top bit is in m. */
#define FB_LANES(m) ((m) | ((m) - ((m) >> shift)))

/* b in the lanes of m, a in the others. */
#define FB_SELECT(m, a, b) ((a) ^ (((a) ^ (b)) & FB_LANES(m)))

/* All bits if a word is negative, or else none. The compiler must not make a branch of it. */
#define FB_NEGATIVE(word)                                                                          \
	({                                                                                         \
		__u64 bits = (word);                                                               \
		__asm__ volatile("" : "+r"(bits));                                                 \
		bits = (__s64)bits >> 63;                                                          \
		__asm__ volatile("" : "+r"(bits));                                                 \
		bits;                                                                              \
	})

/* The same if a < b, unsigned words. */
#define FB_BELOW(a, b) FB_NEGATIVE((~(a) & (b)) | (~((a) ^ (b)) & ((a) - (b))))

/* b if all bits of m are set, a if none is. */
#define FB_CHOSEN(m, a, b) ((a) ^ (((a) ^ (b)) & (m)))

/* For each whole block of `length`: EXPR over a and b, elements of TYPE, gives the new element. */
#define FB_FOLD_LOOP(TYPE, EXPR)                                                                   \
	do {                                                                                       \
		for (__u32 block = 0; block < FB_MOST_BYTES / FB_FOLD_BLOCK; block++) {            \
			if (block * FB_FOLD_BLOCK >= length)                                       \
				break;                                                             \
			TYPE *x = (TYPE *)(into->data + block * FB_FOLD_BLOCK);                    \
			const TYPE *y = (const TYPE *)(from->data + block * FB_FOLD_BLOCK);        \
			_Pragma("clang loop unroll(full)") for (__u32 i = 0;                       \
								i < FB_FOLD_BLOCK / sizeof(TYPE);  \
								i++)                               \
			{                                                                          \
				TYPE a = x[i], b = y[i];                                           \
				x[i] = (EXPR);                                                     \
			}                                                                          \
		}                                                                                  \
		return 0;                                                                          \
	} while (0)

/*
 * Folds `length` bytes of `from` into `into`. `op` and `type` are of enum fb_op and enum fb_type.
 * Returns 0, or -1 if the op is none of them. Global, not static: the verifier then checks it
 * once, for any arguments, and not again wherever it is called.
 */
int fb_fold(struct fb_payload *into, const struct fb_payload *from, __u32 op, __u32 type,
	    __u32 length)
{
	__u32 size = type >> 1 & 3;
	__u64 high = fb_lane_high[size];
	__u32 shift = FB_LANE_SHIFT(size);
	/* Signed lanes compare as unsigned ones once their top bits are flipped. */
	__u64 flip = type & 1 ? 0 : high;
	__u32 low;

	if (!into || !from)
		return -1;
#ifdef FB_SIMD
	if (fb_is_for_module(op, type, length))
		return fb_fold_by_module(into, from, op, type, length);
#endif
	switch (op) {
	case FB_OP_SUM:
		switch (size) {
		case 3:
			FB_FOLD_LOOP(__u64, a + b);
		case 2:
			FB_FOLD_LOOP(__u32, a + b);
		default:
			FB_FOLD_LOOP(__u64, FB_SUM(a, b));
		}
	case FB_OP_PROD:
		switch (size) {
		case 0:
			FB_FOLD_LOOP(__u8, (__u8)((__u32)a * b));
		case 1:
			FB_FOLD_LOOP(__u16, (__u16)((__u32)a * b));
		case 2:
			FB_FOLD_LOOP(__u32, a * b);
		default:
			FB_FOLD_LOOP(__u64, a * b);
		}
	case FB_OP_MAX:
		/* The complement turns the order around. */
		flip = ~flip;
		/* fallthrough */
	case FB_OP_MIN:
		low = flip;
		switch (size) {
		case 3:
			FB_FOLD_LOOP(__u64, FB_CHOSEN(FB_BELOW(b ^ flip, a ^ flip), a, b));
		case 2:
			FB_FOLD_LOOP(__u32,
				     FB_CHOSEN(FB_NEGATIVE((__u64)(b ^ low) - (a ^ low)), a, b));
		default:
			FB_FOLD_LOOP(__u64, FB_SELECT(FB_LESS(b ^ flip, a ^ flip), a, b));
		}
	case FB_OP_BAND:
		FB_FOLD_LOOP(__u64, a & b);
	case FB_OP_BOR:
		FB_FOLD_LOOP(__u64, a | b);
	case FB_OP_BXOR:
		FB_FOLD_LOOP(__u64, a ^ b);
	case FB_OP_LAND:
		FB_FOLD_LOOP(__u64, (FB_NONZERO(a) & FB_NONZERO(b)) >> shift);
	case FB_OP_LOR:
		FB_FOLD_LOOP(__u64, FB_NONZERO(a | b) >> shift);
	case FB_OP_LXOR:
		FB_FOLD_LOOP(__u64, (FB_NONZERO(a) ^ FB_NONZERO(b)) >> shift);
	default:
		return -1;
	}
}

/*
 * Clears the block that holds the last of `length` bytes (1 to FB_MOST_BYTES), before they are
 * loaded. A fold takes whole blocks, and the old bytes may be another user's.
 */
static inline __attribute__((always_inline)) void fb_clear_last_block(struct fb_payload *into,
								      __u32 length)
{
	__u32 block = (length - 1) / FB_FOLD_BLOCK;
	__u64 *words;

	/* The checked value is the used one: the compiler must not make another of it. */
	__asm__ volatile("" : "+r"(block));
	if (block >= FB_MOST_BYTES / FB_FOLD_BLOCK)
		return;
	words = (__u64 *)(into->data + block * FB_FOLD_BLOCK);
	for (__u32 i = 0; i < FB_FOLD_BLOCK / 8; i++)
		words[i] = 0;
}

/* Copies the blocks of the first `length` bytes. */
int fb_copy(struct fb_payload *into, const struct fb_payload *from, __u32 length)
{
	if (!into || !from)
		return -1;
	FB_FOLD_LOOP(__u64, ((void)a, b));
}

/*
 * FB_OP_PLACE: puts `length` bytes of `from` to byte `offset` of `into`, in whole words: bytes
 * behind them up to the next multiple of 8 are lost. Word by word, since the verifier knows the
 * bounds of two lengths but not of their sum.
 */
int fb_place(struct fb_payload *into, const struct fb_payload *from, __u32 offset, __u32 length)
{
	__u32 first = offset / 8;

	if (!into || !from)
		return -1;
	for (__u32 i = 0; i < FB_MOST_BYTES / 8; i++) {
		__u32 at = first + i;

		/* The checked value is the used one: the compiler must not make another of it. */
		__asm__ volatile("" : "+r"(at));
		if (i * 8 >= length || at >= FB_MOST_BYTES / 8)
			break;
		((__u64 *)into->data)[at] = ((const __u64 *)from->data)[i];
	}
	return 0;
}

#endif
