/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Whether sense can be made of a frame, whichever way it came. */
#ifndef FOLDBACK_FRAME_H
#define FOLDBACK_FRAME_H

#include "intf.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* Whether offset and extent of a frame make sense. */
static __always_inline int fb_part_well_formed(const struct fb_frame *frame)
{
	if (frame->kind != FB_KIND_CONTRIBUTION || frame->op != FB_OP_PLACE)
		return frame->offset == 0 && frame->extent == 0;
	return frame->offset % 8 == 0 && frame->extent <= FB_MOST_BYTES &&
	       (__u32)frame->offset + frame->length <= frame->extent;
}

/* Whether nothing is where later versions may have something to say. */
static __always_inline int fb_reserved_is_zero(const struct fb_frame *frame)
{
	return (frame->reserved | frame->reserved_2 | frame->reserved_4) == 0;
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
	       flags == FB_FLAG_RING;
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
	       fb_part_well_formed(frame) && fb_reserved_is_zero(frame) &&
	       fb_flags_well_formed(frame);
}

/* Whether a frame from the wire names members, has no more than a chunk of theirs, and may come to
 * this one. */
static __always_inline int fb_is_for_us(const struct fb_frame *frame, const struct fb_group *group)
{
	return frame->source < group->members && frame->target < group->members &&
	       frame->length <= group->chunk_bytes && frame->extent <= group->chunk_bytes &&
	       frame->kind >= FB_KIND_CONTRIBUTION && frame->kind <= FB_KIND_PIECE &&
	       (frame->kind != FB_KIND_CONTRIBUTION || frame->flags == FB_FLAG_DIRECT ||
		(frame->flags == FB_FLAG_RING ? frame->source == fb_before(group, group->self)
					      : frame->target == group->self));
}

#endif
