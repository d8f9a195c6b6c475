// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The protocol of the programs, compiled for user space. The second transport works the same cells
 * with it where the programs do not; tests use it over a simulated network.
 */
#include <stddef.h>
#include <string.h>

#include "native.h"
#include "cell.h"

int fb_native_admits(const struct fb_frame *frame, __u64 bytes, const struct fb_group *group)
{
	return frame->magic == FB_WIRE_MAGIC && fb_frame_well_formed(frame) &&
	       bytes == sizeof(*frame) + frame->length && fb_is_for_us(frame, group) &&
	       frame->source != group->self && frame->kind != FB_KIND_HELLO;
}

void fb_native_cell(const struct fb_frame *frame, const void *payload, const struct fb_group *group,
		    const struct fb_key *key, struct fb_control *control, struct fb_cell *cell,
		    struct fb_counters *counters, int can_send, struct fb_native_reply *out)
{
	struct fb_payload *taken = &out->taken;
	struct fb_reply reply = {};
	struct fb_context c = {
	    .frame = frame,
	    .payload = taken,
	    /* cell.h reads it only; ingress, which learns MAC addresses, writes. */
	    .group = (struct fb_group *)group,
	    .key = key,
	    .control = control,
	    .cell = cell,
	    .counters = counters,
	};

	memset(out, 0, offsetof(struct fb_native_reply, payload));
	memcpy(taken->data, payload, frame->length);
	/* A fold takes whole blocks. */
	memset(taken->data + frame->length, 0,
	       (FB_FOLD_BLOCK - frame->length % FB_FOLD_BLOCK) % FB_FOLD_BLOCK);
	if (frame->source != group->self &&
	    fb_seal(frame, taken, fb_sealed_bytes(frame), key) != frame->seal)
		return fb_count(counters, fb_why_unsealed(key));
	if (fb_lock(cell))
		return fb_count(counters, FB_WHY(drop_lock));
	if (frame->kind == FB_KIND_CONTRIBUTION)
		fb_count(counters, fb_contribute(&c, can_send, &reply));
	else if (frame->kind == FB_KIND_PULL)
		fb_count(counters, fb_pull(&c, &reply));
	else
		fb_count(counters, fb_deposit(&c, 0, can_send, &reply));
	out->to_tc = reply.to_tc;
	out->mask = reply.mask;
	if (reply.mask) {
		fb_fill_reply(&c, &reply, &out->frame);
		memcpy(out->payload, cell->data, out->frame.length);
	}
	fb_unlock(cell);
}
