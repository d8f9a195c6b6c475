/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The protocol of the programs in user space: see native.c. */
#ifndef FOLDBACK_NATIVE_H
#define FOLDBACK_NATIVE_H

#include "exact.h"
#include "intf.h"

/* A hook's output: `frame` with `payload`, of `frame.length` bytes, to each member of `mask`. */
struct fb_native_reply {
	__u64 mask;
	__u64 to_tc; /* nothing yet: TC must see the frame too */
	struct fb_frame frame;
	__u8 payload[FB_MOST_BYTES];
	struct fb_payload taken; /* what was taken in, with zeroes behind it */
};

/* Whether a frame that came in a datagram of `bytes` bytes, from the member that it names, is to
 * be taken in by this host. HELLOs are the kernel's alone. */
int fb_native_admits(const struct fb_frame *frame, __u64 bytes, const struct fb_group *group);

/* The work of a hook on a frame: sees to the cell, and fills in the frames to send. The payload is
 * of `frame->length` bytes. This host's own frame needs no seal. */
void fb_native_cell(const struct fb_frame *frame, const void *payload, const struct fb_group *group,
		    const struct fb_key *key, struct fb_control *control, struct fb_cell *cell,
		    struct fb_counters *counters, int can_send, struct fb_native_reply *out);

/* The same, of a frame that concerns pairs, at a table and its parts: 1 + FB_PARTS elements of the
 * size of struct fb_part. */
void fb_native_table(const struct fb_frame *frame, const void *payload,
		     const struct fb_group *group, const struct fb_key *key, struct fb_table *table,
		     struct fb_counters *counters, struct fb_native_reply *out);

__u64 fb_seal(const struct fb_frame *frame, const struct fb_payload *payload, __u32 length,
	      const struct fb_key *key);

int fb_fold(struct fb_payload *into, const struct fb_payload *from, __u32 op, __u32 type,
	    __u32 length);

/* The means of exact sums, where the CPU's arithmetic suffices; on other CPUs than x86-64 integers.
 * The caller knows what this CPU has. */
enum fb_exact_by {
	FB_EXACT_BY_INTEGERS,
	FB_EXACT_BY_SSE2,
	FB_EXACT_BY_AVX2,
	FB_EXACT_BY_AVX512, /* F and DQ */
};

/* The exact sum of each of `elements` elements over `count` parts, rounded once: binary64 for a
 * `width` of 8, binary32 for one of 4. Nothing need be aligned, and `into` may be one of the parts.
 * No parts: +0. The thread's floating-point environment does not matter, and does not change. */
void fb_exact_sum(void *into, const void *const *parts, __u64 count, __u64 elements, __u64 width,
		  enum fb_exact_by by);

/* The operations of exact.h. */
#define FB_NATIVE_EXACT(width)                                                                     \
	void fb_native_exact##width##_add(struct fb_exact##width *sum, __u##width bits);           \
	void fb_native_exact##width##_merge(struct fb_exact##width *sum,                           \
					    const struct fb_exact##width *from);                   \
	void fb_native_exact##width##_carry(struct fb_exact##width *sum);                          \
	__u##width fb_native_exact##width##_round(struct fb_exact##width *sum);                    \
	void fb_native_exact##width##_clear(struct fb_exact##width *sum)

FB_NATIVE_EXACT(64);
FB_NATIVE_EXACT(32);
#undef FB_NATIVE_EXACT

#endif
