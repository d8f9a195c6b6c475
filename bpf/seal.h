/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * The seal of a frame and its payload: a code that takes the group's key, or, in a group without
 * one, a checksum. UDP's checksum cannot serve: the programs rewrite payloads, and between
 * namespaces nobody computes it. src/wire/seal.rs is the same in Rust.
 *
 * The code. NH hashes the frame without its seal and the payload, filled up with zeroes to whole
 * words, to 128 bits (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, CRYPTO 1999). It uses two
 * keys; the second is the first moved on by one word (Toeplitz). SipHash-2-4 (Aumasson, Bernstein,
 * INDOCRYPT 2012) makes 64 bits of these and of two words of the frame, which say number, kind,
 * source and length. Two messages of one length have the same 128 bits with a probability of 2^-64
 * at most (the theorem on Toeplitz-NH there). SipHash hides whether they have. So a try of somebody
 * without the key succeeds with a probability of about 2^-64, whatever frames they have seen.
 *
 * The checksum. Words are summed in two lanes, the even and the odd ones, which a CPU does side by
 * side. A lane has a sum, and a sum of that sum's values, so that it tells words that changed
 * places (Fletcher, IEEE Transactions on Communications, 1982; with the modulus 2^64).
 * Multiplications mix all four. It finds accidents, not malice.
 *
 * Words are of 64 bits in host byte order. Plain C without BPF or libc, like fold.h.
 */
#ifndef FOLDBACK_SEAL_H
#define FOLDBACK_SEAL_H

#include "intf.h"

/* Fields of other types are read as these. */
typedef __u64 __attribute__((may_alias)) fb_any_word;
typedef __u32 __attribute__((may_alias)) fb_any_half;

/* The word at byte `at` of a payload of `length` bytes, without what is behind those. */
static inline __attribute__((always_inline)) __u64 fb_word(const struct fb_payload *payload,
							   __u32 at, __u32 length)
{
	__u32 beyond;
	__u64 word;

	/* The checked value is the used one: the compiler must not make another of it. */
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

/* Bytes of whole blocks among so many. Of the length, not counted as the blocks are: the verifier
 * then sees that what follows them is the same after any number. */
static inline __attribute__((always_inline)) __u32 fb_whole_blocks(__u32 length)
{
	return length / FB_FOLD_BLOCK * FB_FOLD_BLOCK;
}

/* Has the compiler finish both before it loads more, which would lie on the stack: BPF programs
 * have 512 bytes. */
#define FB_IN_ORDER(one, other) __asm__ volatile("" : "+r"(one), "+r"(other) : : "memory")

#define FB_SUM_ADD(even, odd)                                                                      \
	do {                                                                                       \
		a0 += (even);                                                                      \
		b0 += a0;                                                                          \
		a1 += (odd);                                                                       \
		b1 += a1;                                                                          \
		FB_IN_ORDER(b0, b1);                                                               \
	} while (0)

#define FB_SUM_MIX 0x9e3779b97f4a7c15ULL

static inline __attribute__((always_inline)) __u64 fb_rotated(__u64 word, int by)
{
	return word << by | word >> (64 - by);
}

static inline __attribute__((always_inline)) __u64
fb_checksum(const struct fb_frame *frame, const struct fb_payload *payload, __u32 length)
{
	const fb_any_word *words = (const fb_any_word *)frame;
	__u64 a0 = 0, b0 = 0, a1 = 0, b1 = 0;
	__u32 at = fb_whole_blocks(length);

	FB_SUM_ADD(words[0], words[1]);
	FB_SUM_ADD(words[2], words[3]);
	FB_SUM_ADD(words[4], words[5]);
	FB_SUM_ADD(words[6], 0);
	for (__u32 block = 0; block < FB_MOST_BYTES / FB_FOLD_BLOCK; block++) {
		const __u64 *data = (const __u64 *)(payload->data + block * FB_FOLD_BLOCK);

		if ((block + 1) * FB_FOLD_BLOCK > length)
			break;
		FB_SUM_ADD(data[0], data[1]);
		FB_SUM_ADD(data[2], data[3]);
		FB_SUM_ADD(data[4], data[5]);
		FB_SUM_ADD(data[6], data[7]);
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < FB_FOLD_BLOCK / 16 && at < length; i++) {
		/* Never so. The verifier of Linux 6.12 does not know, and takes a word beyond
		 * such a one for possible if the first one does not end the loop. */
		__asm__ volatile("" : "+r"(at));
		if (at > FB_MOST_BYTES - 16)
			break;
		FB_SUM_ADD(fb_word(payload, at, length), fb_word(payload, at + 8, length));
		at += 16;
	}
	a0 = (a0 ^ fb_rotated(b0, 32)) * FB_SUM_MIX;
	a1 = (a1 ^ fb_rotated(b1, 32)) + fb_rotated(a0, 32);
	return a1 * FB_SUM_MIX;
}

/*
 * Adds a word, in halves, to NH under both keys, of which the first has its word in `low` and
 * `high`, and gets the second's for the next. Each half is loaded by a load of its own, and each
 * sum takes the place of an addend that is not needed again. So a word takes 12 instructions, and
 * no more registers than BPF has. The compiler adds to the operand that it has seen last, hence the
 * order.
 */
#define FB_NH_ADD(first, last, key_first, key_last)                                                \
	do {                                                                                       \
		__u32 w0 = (first), w1 = (last);                                                   \
		FB_IN_ORDER(low, high);                                                            \
		low += w0;                                                                         \
		high += w1;                                                                        \
		h0 += (__u64)low * high;                                                           \
		FB_IN_ORDER(h0, h1);                                                               \
		low = (key_first);                                                                 \
		high = (key_last);                                                                 \
		FB_IN_ORDER(w0, w1);                                                               \
		w0 += low;                                                                         \
		w1 += high;                                                                        \
		h1 += (__u64)w0 * w1;                                                              \
		FB_IN_ORDER(h0, h1);                                                               \
	} while (0)

/* The same, of the word behind `word`, and of the key's behind `key`. */
#define FB_NH_NEXT(word, key) FB_NH_ADD((word)[0], (word)[1], (key)[2], (key)[3])

#define FB_SIP_ROUND                                                                               \
	do {                                                                                       \
		v0 += v1;                                                                          \
		v2 += v3;                                                                          \
		v1 = fb_rotated(v1, 13) ^ v0;                                                      \
		v3 = fb_rotated(v3, 16) ^ v2;                                                      \
		v0 = fb_rotated(v0, 32);                                                           \
		v2 += v1;                                                                          \
		v0 += v3;                                                                          \
		v1 = fb_rotated(v1, 17) ^ v2;                                                      \
		v3 = fb_rotated(v3, 21) ^ v0;                                                      \
		v2 = fb_rotated(v2, 32);                                                           \
	} while (0)

#define FB_SIP_ADD(word)                                                                           \
	do {                                                                                       \
		__u64 m = (word);                                                                  \
		v3 ^= m;                                                                           \
		FB_SIP_ROUND;                                                                      \
		FB_SIP_ROUND;                                                                      \
		v0 ^= m;                                                                           \
	} while (0)

enum {
	FB_SEALED_WORDS = FB_FRAME_BYTES / 8 - 1, /* of a frame: all but the seal itself */
	FB_BLOCK_WORDS = FB_FOLD_BLOCK / 8,
};

static inline __attribute__((always_inline)) __u64 fb_code(const struct fb_frame *frame,
							   const struct fb_payload *payload,
							   __u32 length, const struct fb_key *key)
{
	const fb_any_word *words = (const fb_any_word *)frame;
	const fb_any_half *halves = (const fb_any_half *)frame;
	const fb_any_half *keys = (const fb_any_half *)key->nh;
	__u32 low = keys[0], high = keys[1];
	__u64 h0 = 0, h1 = 0, v0, v1, v2, v3;
	__u32 first = fb_whole_blocks(length) / 8;

#pragma clang loop unroll(full)
	for (int i = 0; i < FB_SEALED_WORDS; i++)
		FB_NH_NEXT(halves + 2 * i, keys + 2 * i);
	for (__u32 block = 0; block < FB_MOST_BYTES / FB_FOLD_BLOCK; block++) {
		const fb_any_half *data =
		    (const fb_any_half *)(payload->data + block * FB_FOLD_BLOCK);
		const fb_any_half *own = keys + 2 * (FB_SEALED_WORDS + block * FB_BLOCK_WORDS);

		if ((block + 1) * FB_FOLD_BLOCK > length)
			break;
#pragma clang loop unroll(full)
		for (int i = 0; i < FB_BLOCK_WORDS; i++)
			FB_NH_NEXT(data + 2 * i, own + 2 * i);
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < FB_BLOCK_WORDS; i++) {
		__u32 at = first + i;
		__u64 word, next;

		__asm__ volatile("" : "+r"(at));
		if (at >= FB_MOST_BYTES / 8 || at * 8 >= length)
			break;
		word = fb_word(payload, at * 8, length);
		next = key->nh[FB_SEALED_WORDS + at + 1];
		FB_NH_ADD((__u32)word, (__u32)(word >> 32), (__u32)next, (__u32)(next >> 32));
	}
	/* To be loaded once more, not kept. */
	FB_IN_ORDER(words, key);
	FB_IN_ORDER(frame, key);
	v0 = key->finish[0] ^ 0x736f6d6570736575ULL;
	v1 = key->finish[1] ^ 0x646f72616e646f6dULL;
	v2 = key->finish[0] ^ 0x6c7967656e657261ULL;
	v3 = key->finish[1] ^ 0x7465646279746573ULL;
	FB_SIP_ADD(h0);
	FB_SIP_ADD(h1);
	/* No number has as many bits as that. */
	FB_SIP_ADD(frame->seq ^ (__u64)frame->kind << 56);
	FB_SIP_ADD(words[4]);
	FB_SIP_ADD(4ULL * 8 << 56); /* bytes hashed */
	v2 ^= 0xff;
	FB_SIP_ROUND;
	FB_SIP_ROUND;
	FB_SIP_ROUND;
	FB_SIP_ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

/* The right `seal` of a frame, with `length` bytes of payload, at most FB_MOST_BYTES. Global, not
 * static: the verifier then checks it once, for any arguments. */
__u64 fb_seal(const struct fb_frame *frame, const struct fb_payload *payload, __u32 length,
	      const struct fb_key *key)
{
	if (!frame || !payload || !key)
		return 0;
	return key->keyed ? fb_code(frame, payload, length, key)
			  : fb_checksum(frame, payload, length);
}

#endif
