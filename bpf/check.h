/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * The checksum of a frame and its payload. UDP's cannot serve: the programs rewrite payloads, and
 * between namespaces nobody computes it.
 *
 * Words of 64 bits in host byte order, the payload's filled up with zeroes to an even number of
 * them, are summed in two lanes, of the even and of the odd ones, which a CPU does side by side. A
 * lane has a sum, and a sum of the first's values, so that it tells words that changed places
 * (Fletcher, IEEE Transactions on Communications, 1982; with the modulus 2^64). Multiplications
 * mix all four into 32 bits. src/wire/check.rs is the same in Rust.
 *
 * Plain C without BPF or libc, like fold.h.
 */
#ifndef FOLDBACK_CHECK_H
#define FOLDBACK_CHECK_H

#include "wire.h"

#define FB_CHECK_ADD(even, odd)                                                                    \
	do {                                                                                       \
		a0 += (even);                                                                      \
		b0 += a0;                                                                          \
		a1 += (odd);                                                                       \
		b1 += a1;                                                                          \
	} while (0)

#define FB_CHECK_MIX 0x9e3779b97f4a7c15ULL

/* The word at byte `at` of a payload of `length` bytes, without what is behind those. */
static inline __attribute__((always_inline)) __u64 fb_word(const struct fb_payload *payload,
							   __u32 at, __u32 length)
{
	__u32 beyond;
	__u64 word;

	/* What is checked is what is used: the compiler must not make another of it. */
	__asm__ volatile("" : "+r"(at));
	if (at > FB_MOST_BYTES - 8 || at >= length)
		return 0;
	word = *(const __u64 *)(payload->data + at);
	if (length - at >= 8)
		return word;
	beyond = 64 - 8 * (length - at);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return word << beyond >> beyond;
#else
	return word >> beyond << beyond;
#endif
}

/* What a frame's `check` must be, itself taken for 0; of `length` bytes of payload, at most
 * FB_MOST_BYTES. Global, not static: the verifier then checks it once, for any arguments. */
__u32 fb_check(const struct fb_frame *frame, const struct fb_payload *payload, __u32 length)
{
	const __u64 *words = (const __u64 *)frame;
	__u64 a0 = 0, b0 = 0, a1 = 0, b1 = 0;
	__u32 at = 0;
	union {
		__u32 halves[2];
		__u64 word;
	} without = {};

	if (!frame || !payload)
		return 0;
	/* `check` is the other half of its word. */
	without.halves[0] = ((const __u32 *)frame)[10];
	FB_CHECK_ADD(words[0], words[1]);
	FB_CHECK_ADD(words[2], words[3]);
	FB_CHECK_ADD(words[4], without.word);
	FB_CHECK_ADD(words[6], words[7]);
	for (__u32 block = 0; block < FB_MOST_BYTES / FB_FOLD_BLOCK; block++) {
		const __u64 *data = (const __u64 *)(payload->data + block * FB_FOLD_BLOCK);

		if ((block + 1) * FB_FOLD_BLOCK > length)
			break;
		FB_CHECK_ADD(data[0], data[1]);
		FB_CHECK_ADD(data[2], data[3]);
		FB_CHECK_ADD(data[4], data[5]);
		FB_CHECK_ADD(data[6], data[7]);
		at += FB_FOLD_BLOCK;
	}
	for (int i = 0; i < FB_FOLD_BLOCK / 16 && at < length; i++) {
		FB_CHECK_ADD(fb_word(payload, at, length), fb_word(payload, at + 8, length));
		at += 16;
	}
	a0 = (a0 ^ (b0 << 32 | b0 >> 32)) * FB_CHECK_MIX;
	a1 = (a1 ^ (b1 << 32 | b1 >> 32)) + (a0 << 32 | a0 >> 32);
	return a1 * FB_CHECK_MIX >> 32;
}

#endif
