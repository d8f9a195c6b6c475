/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * Super-frames: many frames in one packet (wire.h). Broadcasts, pieces and pairs only: nothing is
 * answered. A question for pairs comes alone.
 *
 * The loops call functions that are global, not static: the verifier checks each once, not at every
 * turn. bpf_loop() would call through a pointer at every turn.
 */
#ifndef FOLDBACK_SUPER_BPF_H
#define FOLDBACK_SUPER_BPF_H

#include "table.bpf.h"

enum {
	FB_OUTER_BYTES = FB_HEADER_BYTES - FB_FRAME_BYTES,
};

/* Whether the packet, which the kernel has not cut up, is a super-frame, by its headers and the
 * first of its frames. */
static __always_inline int fb_super_well_formed(const struct __sk_buff *skb,
						const struct fb_headers *headers)
{
	const struct fb_frame *frame = &headers->frame;

	return (fb_is_deposited(frame) || frame->kind == FB_KIND_PAIRS) &&
	       skb->gso_size >= FB_FRAME_BYTES && skb->gso_size <= FB_FRAME_BYTES + FB_MOST_BYTES &&
	       skb->gso_size == FB_FRAME_BYTES + (__u32)frame->length &&
	       skb->len <= FB_OUTER_BYTES + FB_MOST_FRAMES * skb->gso_size &&
	       fb_frame_well_formed(frame) &&
	       fb_datagram_of(headers, skb->len - ETH_HLEN - sizeof(struct iphdr));
}

/* Frames that the packet carries. */
static __always_inline __u32 fb_frames_of(const struct __sk_buff *skb)
{
	return skb->gso_size ? skb->gso_segs : 1;
}

/* Whether a frame speaks for the group and the member that another does, and is of its kind. */
static __always_inline int fb_speaks_for(const struct fb_frame *frame, const struct fb_frame *other)
{
	return frame->magic == FB_WIRE_MAGIC && frame->token == other->token &&
	       frame->source == other->source && frame->kind == other->kind;
}

/* Whether the frame at byte `at` of the packet speaks for whom the first one does. */
int fb_is_like(struct __sk_buff *skb, const struct fb_frame *first, __u32 at)
{
	struct fb_frame frame;

	if (!first || bpf_skb_load_bytes(skb, at, &frame, sizeof(frame)))
		return 0;
	return fb_speaks_for(&frame, first) && frame.target == first->target;
}

/* Whether all frames of a super-frame speak for the same: a leader may send for its own group only.
 */
static __always_inline int fb_uniform(struct __sk_buff *skb, const struct fb_frame *first)
{
	__u32 at = FB_OUTER_BYTES;

	for (int i = 1; i < FB_MOST_FRAMES; i++) {
		at += skb->gso_size;
		if (at >= skb->len)
			break;
		if (!fb_is_like(skb, first, at))
			return 0;
	}
	return 1;
}

/* Takes in the frame at byte `at` of the packet, if it is of the group and the member that the
 * first one is of. */
int fb_take_one(struct __sk_buff *skb, const struct fb_frame *first, struct fb_group *group,
		__u32 at, int alone)
{
	struct fb_scratch *here = fb_scratch_here();
	struct fb_packet packet = {.ctx = skb, .payload = at + FB_FRAME_BYTES};
	struct fb_context c = {.group = group};
	/* Frames along a ring come one by one. */
	struct fb_reply none = {};
	int why;

	if (!first || !group || !here)
		return -1;
	c.frame = &here->frame;
	c.key = fb_key_of(group->slot);
	c.counters = fb_counters_of(group->slot);
	if (!c.key || !c.counters)
		return -1;
	if (bpf_skb_load_bytes(skb, at, &here->frame, sizeof(here->frame)) ||
	    !fb_speaks_for(c.frame, first) || !fb_frame_well_formed(c.frame) ||
	    c.frame->length > skb->gso_size - FB_FRAME_BYTES || !fb_is_for_us(c.frame, group) ||
	    fb_is_question(c.frame)) {
		why = FB_WHY(drop_malformed);
	} else {
		c.counters->frames_in++;
		if (fb_is_tabled(c.frame)) {
			c.payload = &here->payload;
			why = fb_receive(&packet, &c, 1);
			if (!why)
				why = fb_enter_table(group->slot);
			fb_count(c.counters, why);
			return why;
		}
		why = fb_enter_cell(&packet, &c, 1);
		if (!why) {
			why = fb_deposit(&c, &packet, alone, 0, &none);
			fb_unlock(&c.cell->lock);
		}
	}
	fb_count(c.counters, why);
	return why;
}

/* Takes in all frames of a super-frame. */
static __always_inline void fb_take_all(struct __sk_buff *skb, const struct fb_headers *headers,
					struct fb_group *group)
{
	__u32 at = FB_OUTER_BYTES;

	for (int i = 0; i < FB_MOST_FRAMES; i++) {
		if (at >= skb->len)
			break;
		fb_take_one(skb, &headers->frame, group, at, !fb_is_multicast(headers));
		at += skb->gso_size;
	}
}

#endif
