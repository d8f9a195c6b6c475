/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Whether a frame makes sense, whichever way it came. */
#ifndef FOLDBACK_FRAME_H
#define FOLDBACK_FRAME_H

#include "intf.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* Whether a frame's payload goes into a cell unchanged. Programs do nothing else with it, so the
 * process that gets the payload checks it, far faster. */
static __always_inline int fb_is_deposited(const struct fb_frame *frame)
{
	return frame->kind == FB_KIND_BROADCAST || frame->kind == FB_KIND_PIECE;
}

/* Bytes of a frame's payload that its seal is of, too. */
static __always_inline __u32 fb_sealed_bytes(const struct fb_frame *frame)
{
	return fb_is_deposited(frame) ? 0 : frame->length;
}

static __always_inline int fb_is_placed(const struct fb_frame *frame)
{
	return frame->kind == FB_KIND_CONTRIBUTION && frame->op == FB_OP_PLACE;
}

/* Whether a frame concerns a table of pairs, not a cell. */
static __always_inline int fb_is_tabled(const struct fb_frame *frame)
{
	return frame->kind == FB_KIND_PAIRS || frame->kind == FB_KIND_HELD;
}

/* Whether a frame asks for what the owner holds of its sender's pairs. */
static __always_inline int fb_is_question(const struct fb_frame *frame)
{
	return frame->kind == FB_KIND_PAIRS && frame->length == 0;
}

/* Whether a frame makes sense as one that concerns a table, if it does. */
static __always_inline int fb_table_well_formed(const struct fb_frame *frame)
{
	if (!fb_is_tabled(frame))
		return 1;
	if (frame->flags || frame->consumed)
		return 0;
	if (frame->kind == FB_KIND_HELD)
		return frame->length == FB_PARTS * 8 && frame->op == FB_OP_NONE && frame->type == 0;
	if (fb_is_question(frame))
		return frame->detail == 0;
	return frame->detail < FB_PARTS && frame->length % sizeof(struct fb_pair) == 0 &&
	       frame->length <= FB_FRAME_PAIRS * sizeof(struct fb_pair) &&
	       frame->op != FB_OP_NONE && frame->op != FB_OP_PLACE && frame->type >= FB_TYPE_I64;
}

/* Whether offset and detail of a frame make sense. */
static __always_inline int fb_part_well_formed(const struct fb_frame *frame)
{
	if (!fb_is_placed(frame))
		return frame->offset == 0 && (frame->detail == 0 || fb_is_deposited(frame) ||
					      frame->kind == FB_KIND_PAIRS);
	return frame->offset % 8 == 0 && frame->detail <= FB_MOST_BYTES &&
	       (__u32)frame->offset + frame->length <= frame->detail;
}

static __always_inline int fb_flags_well_formed(const struct fb_frame *frame)
{
	__u8 flags = frame->flags;

	if (frame->kind == FB_KIND_PULL) {
		flags &= ~FB_FLAG_DEAF;
		if (flags == (FB_FLAG_RING | FB_FLAG_RESULT_TO_ALL))
			return 1;
	}
	return flags == 0 || flags == FB_FLAG_RESULT_TO_ALL || flags == FB_FLAG_DIRECT ||
	       flags == FB_FLAG_RING || (flags == FB_FLAG_POSTED && frame->kind == FB_KIND_PIECE) ||
	       (flags == FB_FLAG_SOME && frame->kind == FB_KIND_BROADCAST);
}

/* Neighbours on a ring. */
static __always_inline __u8 fb_before(const struct fb_group *group, __u8 member)
{
	return (member ? member : group->members) - 1;
}

static __always_inline __u8 fb_behind(const struct fb_group *group, __u8 member)
{
	return member + 1 < group->members ? member + 1 : 0;
}

/* Whether the fields are in range and agree with each other. */
static __always_inline int fb_frame_well_formed(const struct fb_frame *frame)
{
	return frame->version == FB_WIRE_VERSION && frame->op < FB_OP_COUNT &&
	       frame->type < FB_TYPE_COUNT && frame->source < FB_MAX_MEMBERS &&
	       frame->target < FB_MAX_MEMBERS && frame->length <= FB_MOST_BYTES &&
	       frame->length % (1u << (frame->type >> 1)) == 0 && frame->seq != 0 &&
	       fb_part_well_formed(frame) && frame->reserved == 0 && fb_flags_well_formed(frame) &&
	       fb_table_well_formed(frame);
}

/* Whether a frame from the wire names members, has no more than a chunk of theirs, and may come to
 * this one. */
static __always_inline int fb_is_for_us(const struct fb_frame *frame, const struct fb_group *group)
{
	return frame->source < group->members && frame->target < group->members &&
	       frame->length <= group->chunk_bytes &&
	       (!fb_is_placed(frame) || frame->detail <= group->chunk_bytes) &&
	       frame->kind >= FB_KIND_CONTRIBUTION && frame->kind <= FB_KIND_HELD &&
	       (!fb_is_tabled(frame) || frame->target == group->self) &&
	       (frame->kind != FB_KIND_CONTRIBUTION || frame->flags == FB_FLAG_DIRECT ||
		(frame->flags == FB_FLAG_RING ? frame->source == fb_before(group, group->self)
					      : frame->target == group->self));
}

#endif
