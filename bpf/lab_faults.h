/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared definitions of the lab's fault program and user space. The only definition. */
#ifndef FOLDBACK_LAB_FAULTS_H
#define FOLDBACK_LAB_FAULTS_H

#include <linux/types.h>

enum {
	/* ifindex of the fabric's port to host 0; the port to host i has i more. The fabric is a
	 * network namespace of the lab's own, so the numbers are free. */
	LF_FIRST_PORT = 100,
	/* Longest frame that can be held back: MTU 9000, Ethernet header, VLAN tags. */
	LF_FRAME_BYTES = 9216,
	/* No frame has a smaller truesize: struct sk_buff, struct skb_shared_info, the smallest
	   data. */
	LF_SURE_BYTES = 640,
	/* skb->mark of the program's own clones. Marks are cleared where a frame enters another
	 * namespace, so no host can set it and none sees it. */
	LF_MARK = 0x1abfa017,
};

/* Counters of a port, name and meaning. The one list: the struct is made of it. */
#define LF_COUNTERS(X)                                                                             \
	X(frames, "frames that faults could befall, so also the number of the next one")           \
	X(lost, "frames dropped")                                                                  \
	X(duplicated, "frames sent twice")                                                         \
	X(reordered, "frames held back until one had passed that is no shorter")                   \
	X(corrupted, "frames with one bit flipped")                                                \
	X(failed, "frames dropped because a kernel helper refused")

struct lf_counters {
#define LF_COUNTER_FIELD(name, help) __u64 name;
	LF_COUNTERS(LF_COUNTER_FIELD)
#undef LF_COUNTER_FIELD
};

/* The faults of the frames to a port: rates, in fixed point with 32 bits after the point, and the
 * frames that suffer them. */
struct lf_rates {
	__u64 loss;
	__u64 corrupt;
	__u64 duplicate;
	__u64 reorder;
	__u32 udp_only; /* only UDP over IPv4 */
	__u32 udp_port; /* and only to this port; 0: to any */
	__u32 above;	/* and only frames of more bytes, their Ethernet header included */
	__u32 reserved;
};

/* State of a port's one slot for a frame that is held back. */
enum lf_slot { LF_SLOT_EMPTY, LF_SLOT_BUSY, LF_SLOT_FULL };

struct lf_port {
	struct lf_counters counters;
	__u64 slot; /* enum lf_slot; 64 bits for the atomic exchange */
	__u32 held_len;
	__u32 held_protocol; /* skb->protocol of the held frame */
	__u8 held[LF_FRAME_BYTES];
};

_Static_assert(sizeof(struct lf_port) == sizeof(struct lf_counters) + 16 + LF_FRAME_BYTES,
	       "struct lf_port has a hole");

#endif
