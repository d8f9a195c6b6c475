/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * The protocol at a part of a table of pairs: the effect of a frame on it, and the answer to a
 * question.
 *
 * As cell.h, for a part instead of a cell: plain C that knows neither packets nor maps, for the
 * programs (table.bpf.h) and for user space (native.c).
 *
 * docs/contributing/protocol.md says why each pair is folded exactly once.
 */
#ifndef FOLDBACK_PAIRS_H
#define FOLDBACK_PAIRS_H

#include "frame.h"
#include "seal.h"

_Static_assert(FB_PARTS * 8 <= FB_CHUNK_BYTES, "an answer fits a chunk");
_Static_assert(FB_FRAME_PAIRS * sizeof(struct fb_pair) <= FB_CHUNK_BYTES, "so do pairs");
_Static_assert(sizeof(struct fb_table) <= sizeof(struct fb_part),
	       "the table lies in a part's place");

/* The bucket of a key: the top bits of its product with 2^64 over the golden ratio (Knuth, The Art
 * of Computer Programming, 6.4). Processes choose parts and owners by another hash, so keys of one
 * part still lie in all buckets. */
static __always_inline __u32 fb_bucket(__u64 key)
{
	return (key * 0x9e3779b97f4a7c15ULL) >> 58;
}

_Static_assert(FB_BUCKETS == 1 << (64 - 58), "fb_bucket() finds every bucket");

/* One value of two. Of ops that do not combine pairs, which no frame has, the last. */
static __always_inline __u64 fb_combine(__u64 a, __u64 b, __u32 op, __u32 type)
{
	/* Signed numbers compare as unsigned ones once their top bits are flipped. */
	__u64 flip = type & 1 ? 0 : 1ULL << 63;

	switch (op) {
	case FB_OP_SUM:
		return a + b;
	case FB_OP_PROD:
		return a * b;
	case FB_OP_MIN:
		return (a ^ flip) < (b ^ flip) ? a : b;
	case FB_OP_MAX:
		return (a ^ flip) < (b ^ flip) ? b : a;
	case FB_OP_BAND:
		return a & b;
	case FB_OP_BOR:
		return a | b;
	case FB_OP_BXOR:
		return a ^ b;
	case FB_OP_LAND:
		return a && b;
	case FB_OP_LOR:
		return a || b;
	default:
		return !a != !b;
	}
}

/*
 * Combines a pair with the slot of its key. If there is none, the pair takes a free slot of its
 * bucket. If there is none either, it waits with others for the owner's process. Returns whether it
 * waits. Global, not static: the verifier then checks it once, and not for every pair of a frame.
 */
int fb_put_pair(struct fb_part *part, const struct fb_pair *pair, __u32 op, __u32 type)
{
	__u32 bucket, taken, spilt;
	struct fb_pair *slot;
	__u64 key;

	if (!part || !pair)
		return 0;
	key = pair->key;
	bucket = fb_bucket(key);
	taken = part->taken[bucket];
	slot = part->slot + bucket * FB_BUCKET_SLOTS;
#pragma clang loop unroll(full)
	for (int i = 0; i < FB_BUCKET_SLOTS; i++) {
		if (slot[i].key == key && taken >> i & 1) {
			slot[i].value = fb_combine(slot[i].value, pair->value, op, type);
			return 0;
		}
	}
#pragma clang loop unroll(full)
	for (int i = 0; i < FB_BUCKET_SLOTS; i++) {
		if (!(taken >> i & 1)) {
			slot[i] = *pair;
			part->taken[bucket] = taken | 1u << i;
			part->pairs++;
			return 0;
		}
	}
	spilt = part->spilt;
	/* The checked value is the used one: the compiler must not make another of it. */
	__asm__ volatile("" : "+r"(spilt));
	if (spilt >= FB_SPILL)
		return 0;
	part->spill[spilt] = *pair;
	part->spilt = spilt + 1;
	return 1;
}

/* Why nothing comes of a frame of another epoch than this host's; 0: it is of the same. */
static __always_inline int fb_why_other_epoch(const struct fb_frame *frame,
					      const struct fb_table *table)
{
	__u64 epoch = *(volatile const __u64 *)&table->epoch;

	if (frame->message > epoch)
		return FB_WHY(drop_window);
	return frame->message < epoch ? FB_WHY(drop_stale) : 0;
}

/* Pairs have come for a locked part. All are folded, or none. */
static __always_inline int fb_fold_pairs(const struct fb_frame *frame,
					 const struct fb_payload *payload,
					 const struct fb_table *table, struct fb_part *part,
					 struct fb_counters *counters)
{
	const struct fb_pair *pairs = (const struct fb_pair *)payload->data;
	__u64 *held = &part->held[frame->source & (FB_MAX_MEMBERS - 1)];
	__u32 count = frame->length / sizeof(*pairs), spilt = 0;
	int why = fb_why_other_epoch(frame, table);

	if (why)
		return why;
	if (frame->seq <= *held)
		return FB_WHY(duplicates);
	if (frame->seq != *held + 1)
		return FB_WHY(drop_window);
	/* 64 bits: the process may have written anything. */
	if ((__u64)part->spilt + count > FB_SPILL)
		return FB_WHY(drop_full);
	for (__u32 i = 0; i < FB_FRAME_PAIRS; i++) {
		if (i >= count)
			break;
		spilt += fb_put_pair(part, pairs + i, frame->op, frame->type);
	}
	counters->pairs_folded += count;
	counters->pairs_spilt += spilt;
	*held = frame->seq;
	return 0;
}

/* A member has said the last frame of this host's that it holds in a part. The number only grows.
 * If two CPUs do this at once, the lesser may stay, and the process asks again. */
static __always_inline void fb_know(struct fb_part *part, __u8 member, __u64 holds)
{
	__u64 *known = &part->known[member & (FB_MAX_MEMBERS - 1)];

	if (holds > *known)
		*known = holds;
}

/* All parts have got to know what an answer says. The exchange is a full barrier: a process that
 * sees the number of the question sees what the member said. */
static __always_inline int fb_close_question(const struct fb_frame *answer, struct fb_table *table)
{
	__u64 *answered = &table->answered[answer->source & (FB_MAX_MEMBERS - 1)];

	if (answer->seq <= *answered)
		return FB_WHY(duplicates);
	__sync_lock_test_and_set(answered, answer->seq);
	return 0;
}

/* The frame of the answer to a question. Its payload is the last frame of the asker's that each
 * part holds. */
static __always_inline void fb_fill_held(const struct fb_frame *question,
					 const struct fb_group *group,
					 const struct fb_payload *held, const struct fb_key *key,
					 struct fb_frame *out)
{
	*out = (struct fb_frame){
	    .magic = FB_WIRE_MAGIC,
	    .version = FB_WIRE_VERSION,
	    .kind = FB_KIND_HELD,
	    .token = question->token,
	    .seq = question->seq,
	    .source = group->self,
	    .target = question->source,
	    .length = FB_PARTS * 8,
	    .message = question->message,
	};
	out->seal = fb_seal(out, held, fb_sealed_bytes(out), key);
}

#endif
