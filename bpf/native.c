// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The protocol of the programs, compiled for user space. The second transport works the same cells
 * with it where the programs do not; tests use it over a simulated network.
 */
#include <stddef.h>
#include <string.h>

#include "native.h"
#include "cell.h"
#include "pairs.h"

struct fb_packet {
	const void *payload;
};

static __always_inline long fb_load_payload(const struct fb_packet *packet, struct fb_payload *into,
					    __u32 length)
{
	memcpy(into->data, packet->payload, length);
	return 0;
}

int fb_native_admits(const struct fb_frame *frame, __u64 bytes, const struct fb_group *group)
{
	return frame->magic == FB_WIRE_MAGIC && fb_frame_well_formed(frame) &&
	       bytes == sizeof(*frame) + frame->length && fb_is_for_us(frame, group) &&
	       frame->source != group->self && frame->kind != FB_KIND_HELLO;
}

/* Takes in what a frame brings to a fold, with zeroes behind it, since that takes whole blocks.
 * Says why not, if frame and payload are not as a member sent them. This host's own need no seal.
 */
static int fb_native_receive(const struct fb_frame *frame, const void *payload,
			     const struct fb_group *group, const struct fb_key *key,
			     struct fb_native_reply *out)
{
	struct fb_payload *taken = &out->taken;

	memset(out, 0, offsetof(struct fb_native_reply, payload));
	if (!fb_is_deposited(frame)) {
		memcpy(taken->data, payload, frame->length);
		memset(taken->data + frame->length, 0,
		       (FB_FOLD_BLOCK - frame->length % FB_FOLD_BLOCK) % FB_FOLD_BLOCK);
	}
	if (frame->source != group->self &&
	    fb_seal(frame, taken, fb_sealed_bytes(frame), key) != frame->seal)
		return fb_why_unsealed(key);
	return 0;
}

void fb_native_cell(const struct fb_frame *frame, const void *payload, const struct fb_group *group,
		    const struct fb_key *key, struct fb_control *control, struct fb_cell *cell,
		    struct fb_counters *counters, int can_send, struct fb_native_reply *out)
{
	const struct fb_packet packet = {.payload = payload};
	struct fb_reply reply = {};
	struct fb_context c = {
	    .frame = frame,
	    .payload = &out->taken,
	    /* cell.h reads it only; ingress, which learns MAC addresses, writes. */
	    .group = (struct fb_group *)group,
	    .key = key,
	    .control = control,
	    .cell = cell,
	    .counters = counters,
	};
	int why = fb_native_receive(frame, payload, group, key, out);

	if (why)
		return fb_count(counters, why);
	if (fb_lock(&cell->lock))
		return fb_count(counters, FB_WHY(drop_lock));
	if (frame->kind == FB_KIND_CONTRIBUTION)
		fb_count(counters, fb_contribute(&c, can_send, &reply));
	else if (frame->kind == FB_KIND_PULL)
		fb_count(counters, fb_pull(&c, &reply));
	else
		fb_count(counters, fb_deposit(&c, &packet, 0, can_send, &reply));
	out->to_tc = reply.to_tc;
	out->mask = reply.mask;
	if (reply.mask) {
		fb_fill_reply(&c, &reply, &out->frame);
		memcpy(out->payload, cell->data, out->frame.length);
	}
	fb_unlock(&cell->lock);
}

/* Pairs have come, as in fb_enter_part(). */
static int fb_native_part(const struct fb_frame *frame, const struct fb_payload *taken,
			  const struct fb_table *table, struct fb_part *part,
			  struct fb_counters *counters)
{
	int why;

	if (fb_lock(&part->lock))
		return FB_WHY(drop_lock);
	why = fb_fold_pairs(frame, taken, table, part, counters);
	fb_unlock(&part->lock);
	return why;
}

void fb_native_table(const struct fb_frame *frame, const void *payload,
		     const struct fb_group *group, const struct fb_key *key, struct fb_table *table,
		     struct fb_counters *counters, struct fb_native_reply *out)
{
	struct fb_part *parts = (struct fb_part *)table + 1;
	__u8 source = frame->source & (FB_MAX_MEMBERS - 1);
	int is_answer = frame->kind == FB_KIND_HELD;
	int why = fb_native_receive(frame, payload, group, key, out);

	if (!why && !is_answer && !fb_is_question(frame))
		return fb_count(counters, fb_native_part(frame, &out->taken, table,
							 parts + frame->detail, counters));
	if (why)
		return fb_count(counters, why);
	for (int i = 0; i < FB_PARTS; i++) {
		__u64 *word = (__u64 *)out->taken.data + i;

		if (is_answer)
			fb_know(parts + i, source, *word);
		else
			*word = parts[i].held[source];
	}
	if (is_answer)
		return fb_count(counters, fb_close_question(frame, table));
	fb_fill_held(frame, group, &out->taken, key, &out->frame);
	memcpy(out->payload, out->taken.data, out->frame.length);
	out->mask = 1ULL << source;
}
