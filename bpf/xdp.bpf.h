/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The XDP program: TC ingress before there is an skb, as far as nothing needs sending. */
#ifndef FOLDBACK_XDP_BPF_H
#define FOLDBACK_XDP_BPF_H

#include "admit.bpf.h"

/* Frames from the wire. What XDP cannot see to goes on to TC ingress, uncounted here. */
static __always_inline int fb_xdp(struct xdp_md *xdp)
{
	struct fb_headers headers;
	struct fb_frame frame;
	struct fb_packet packet = {
	    .ctx = xdp,
	    .bytes = bpf_xdp_get_buff_len(xdp),
	    .payload = FB_HEADER_BYTES,
	    .xdp = 1,
	};
	struct fb_context c = {.frame = &frame};
	struct fb_reply reply = {};

	if (!fb_is_ours((void *)(long)xdp->data, (void *)(long)xdp->data_end) ||
	    bpf_xdp_load_bytes(xdp, 0, &headers.eth, FB_HEADER_BYTES))
		return XDP_PASS;
	frame = headers.frame;
	if (frame.kind == FB_KIND_PULL || frame.kind == FB_KIND_HELLO)
		return XDP_PASS;
	if (fb_find_group(&c, 1))
		return XDP_PASS;
	if (fb_admit(&headers, &c, fb_well_formed(&headers, packet.bytes)))
		return XDP_DROP;
	if (fb_find_cell(&c))
		return XDP_PASS;
	if (fb_receive_locked(&packet, &c, 1))
		return XDP_DROP;
	fb_learn(&c, &headers);
	if (frame.kind == FB_KIND_CONTRIBUTION)
		fb_contribute(&c, 0, &reply);
	else
		fb_deposit(&c);
	fb_unlock(c.cell);
	if (reply.to_tc)
		return XDP_PASS;
	c.counters->frames_in++;
	return XDP_DROP;
}

#endif
