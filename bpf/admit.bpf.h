/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The admission of frames: from a frame to its group and cell, for frames that come from where they
 * say. */
#ifndef FOLDBACK_ADMIT_BPF_H
#define FOLDBACK_ADMIT_BPF_H

#include "cell.h"
#include "parse.bpf.h"

/* A packet of either hook; TC and XDP load bytes by helpers of their own. `xdp` is a constant where
 * it is set, so that each program is compiled with its helper alone. */
struct fb_packet {
	void *ctx;     /* struct xdp_md or struct __sk_buff */
	__u64 bytes;   /* the packet's, from the Ethernet header on */
	__u32 payload; /* where the frame's payload begins */
	int xdp;
};

static __always_inline long fb_load_payload(const struct fb_packet *packet, struct fb_payload *into,
					    __u32 length)
{
	/* Linux 6.1 concludes nothing from "length != 0", so that is said in another way. One copy
	 * of the length is checked and used. */
	length--;
	barrier_var(length);
	if (length >= FB_MOST_BYTES)
		return -1;
	if (packet->xdp)
		return bpf_xdp_load_bytes(packet->ctx, packet->payload, into->data, length + 1);
	return bpf_skb_load_bytes(packet->ctx, packet->payload, into->data, length + 1);
}

static __always_inline struct fb_scratch *fb_scratch_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

static __always_inline struct fb_counters *fb_counters_of(__u32 slot)
{
	return bpf_map_lookup_elem(&counters, &slot);
}

/* A program begins: keeps the time, if it is wanted, beside the stack, which has no room. */
static __always_inline void fb_begin(void)
{
	struct fb_scratch *here;

	if (!fb_times)
		return;
	here = fb_scratch_here();
	if (here)
		here->began = bpf_ktime_get_ns();
}

/* It ends, and its time counts for a group. */
static __always_inline void fb_end(struct fb_counters *counters)
{
	struct fb_scratch *here;

	if (!fb_times)
		return;
	here = fb_scratch_here();
	if (here)
		counters->nanoseconds += bpf_ktime_get_ns() - here->began;
}

static __always_inline const struct fb_key *fb_key_of(__u32 slot)
{
	return bpf_map_lookup_elem(&keys, &slot);
}

/* Finds the group that the frame's token names, its key and its counters. A frame of no group is
 * passed on: a second agent may have its programs behind ours. XDP leaves the counting to TC, where
 * the frame comes next. */
static __always_inline int fb_find_group(struct fb_context *c, int xdp)
{
	c->group = bpf_map_lookup_elem(&groups, &c->frame->token);
	if (!c->group) {
		struct fb_counters *none = fb_counters_of(FB_MAX_GROUPS);

		if (none && !xdp)
			none->no_group++;
		return -1;
	}
	c->key = fb_key_of(c->group->slot);
	c->counters = fb_counters_of(c->group->slot);
	return c->key && c->counters ? 0 : -1;
}

/* Finds the cell of the frame's chunk. The memory of a destroyed group may become the next one's at
 * once (hash maps since Linux 6.1), perhaps while this program is held up between two look-ups. A
 * map of cells is one group's alone, and says whose. */
static __always_inline int fb_find_cell(struct fb_context *c)
{
	__u32 zero = 0, slot = c->group->slot;
	__u32 index = 1 + ((__u32)c->frame->seq & (c->group->window - 1));
	void *inner = bpf_map_lookup_elem(&cells, &slot);
	struct fb_scratch *here = fb_scratch_here();

	if (!inner || !here)
		return -1;
	c->payload = &here->payload;
	c->control = bpf_map_lookup_elem(inner, &zero);
	c->cell = bpf_map_lookup_elem(inner, &index);
	return c->control && c->cell && c->control->token == c->frame->token ? 0 : -1;
}

/* Whether the packet was sent to all members at once. */
static __always_inline int fb_is_multicast(const struct fb_headers *headers)
{
	return headers->eth.h_dest[0] & 1;
}

/* Whether a packet from the wire is for this host. The address of all members serves only frames
 * without an answer: an answer is sent from the address that the frame came to. */
static __always_inline int fb_is_to_us(const struct fb_headers *headers,
				       const struct fb_frame *frame, const struct fb_group *group)
{
	__be32 to = headers->ip.daddr;

	if (!fb_is_multicast(headers))
		return to == group->member[group->self & (FB_MAX_MEMBERS - 1)].address;
	return to && group->members < FB_EVERYONE && to == group->member[FB_EVERYONE].address &&
	       (frame->kind == FB_KIND_RESULT || frame->kind == FB_KIND_BROADCAST ||
		(frame->kind != FB_KIND_PULL && frame->flags == FB_FLAG_DIRECT));
}

/* Brings the payload to where the cell's programs want it, unless they only lay it there. Says why
 * not, if that fails, or if the frame, and the payload as far as its seal is of that, are not as a
 * member sent them. A frame from this host's leader has not been underway: its seal is not checked.
 */
static __always_inline int fb_receive(const struct fb_packet *packet, struct fb_context *c,
				      int from_wire)
{
	__u32 length = c->frame->length;

	if (length && !fb_is_deposited(c->frame)) {
		fb_clear_last_block(c->payload, length);
		if (fb_load_payload(packet, c->payload, length))
			return FB_WHY(drop_kernel);
	}
	if (from_wire &&
	    fb_seal(c->frame, c->payload, fb_sealed_bytes(c->frame), c->key) != c->frame->seal)
		return fb_why_unsealed(c->key);
	return 0;
}

/* The same, and takes the cell's lock. */
static __always_inline int fb_receive_locked(const struct fb_packet *packet, struct fb_context *c,
					     int from_wire)
{
	int why = fb_receive(packet, c, from_wire);

	if (why)
		return why;
	return fb_lock(&c->cell->lock) ? FB_WHY(drop_lock) : 0;
}

/* The same, and finds the cell first. */
static __always_inline int fb_enter_cell(const struct fb_packet *packet, struct fb_context *c,
					 int from_wire)
{
	if (fb_find_cell(c))
		return FB_WHY(drop_kernel);
	return fb_receive_locked(packet, c, from_wire);
}

static __always_inline volatile __u64 *fb_mac_of(struct fb_group *group, __u8 member)
{
	return &group->member[member & (FB_MAX_MEMBERS - 1)].mac;
}

/* Whether the member has said HELLO. */
static __always_inline int fb_is_heard(struct fb_group *group, __u8 member)
{
	return *fb_mac_of(group, member) != 0;
}

/* Keeps the MAC address that a frame of a member's came from, since a bond, or a virtual machine
 * that moves, takes another in mid-run. The frame has said something new: a copy of an older one,
 * which anybody could send again, says nothing. Super-frames teach nothing: a member that misses
 * frames to its old address asks for them, by a frame of its own. */
static __always_inline void fb_learn(const struct fb_context *c, const struct fb_headers *headers)
{
	volatile __u64 *mac = fb_mac_of(c->group, c->frame->source);
	__u64 from = 0;

	__builtin_memcpy(&from, headers->eth.h_source, ETH_ALEN);
	if (from && *mac != from)
		*mac = from;
}

/* Judges a packet from the wire, whose group is known. Says why not, if the packet is not from a
 * member's address and root's port there, or not to this host, or makes no sense (`sound`: its
 * headers do). A member that has not said HELLO can have nothing else to say: its host's programs
 * did not know the group yet, so anybody there could have sent the frame. */
static __always_inline int fb_admit(const struct fb_headers *headers, struct fb_context *c,
				    int sound)
{
	const struct fb_frame *frame = c->frame;
	struct fb_group *group = c->group;
	__u8 source = frame->source & (FB_MAX_MEMBERS - 1);

	if (!sound || !fb_is_for_us(frame, group))
		return FB_WHY(drop_malformed);
	if (group->member[source].address != headers->ip.saddr ||
	    headers->udp.source != bpf_htons(fb_port) || !fb_is_to_us(headers, frame, group) ||
	    frame->source == group->self ||
	    (frame->kind != FB_KIND_HELLO && !fb_is_heard(group, source)))
		return FB_WHY(drop_stranger);
	return 0;
}

#endif
