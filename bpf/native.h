/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The protocol of the programs in user space: see native.c. */
#ifndef FOLDBACK_NATIVE_H
#define FOLDBACK_NATIVE_H

#include "intf.h"

/* What a hook sends: `frame` with `payload` to each member of `mask`. */
struct fb_native_reply {
	__u64 mask;
	__u64 to_tc; /* nothing yet: TC must see the frame too */
	struct fb_frame frame;
	__u8 payload[FB_CHUNK_BYTES];
};

/* Whether a frame that came in a datagram of `bytes` bytes, from the member that it names, is to
 * be taken in by this host. HELLOs are the kernel's alone. */
int fb_native_admits(const struct fb_frame *frame, __u64 bytes, const struct fb_group *group);

/* What a hook does with a frame: sees to the cell, and fills in what is to be sent. The payload is
 * of `frame->length` bytes. */
void fb_native_cell(const struct fb_frame *frame, const void *payload, const struct fb_group *group,
		    struct fb_control *control, struct fb_cell *cell, struct fb_counters *counters,
		    int can_send, struct fb_native_reply *out);

__u32 fb_check(const struct fb_frame *frame, const struct fb_payload *payload, __u32 length);

int fb_fold(struct fb_payload *into, const struct fb_payload *from, __u32 op, __u32 type,
	    __u32 length);

#endif
