/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The XDP program: TC ingress before there is an skb, as far as nothing needs sending. */
#ifndef FOLDBACK_XDP_BPF_H
#define FOLDBACK_XDP_BPF_H

#include "admit.bpf.h"

/* A frame from the wire, and its packet's fate. Says why nothing came of it, if so. Frames that XDP
 * cannot see to go on to TC ingress, uncounted here. */
static __always_inline int fb_xdp_take(struct xdp_md *xdp, struct fb_frame *frame,
				       struct fb_context *c, int *verdict)
{
	struct fb_headers headers;
	struct fb_packet packet = {
	    .ctx = xdp,
	    .bytes = bpf_xdp_get_buff_len(xdp),
	    .payload = FB_HEADER_BYTES,
	    .xdp = 1,
	};
	struct fb_reply reply = {};
	int why;

	if (!fb_is_ours((void *)(long)xdp->data, (void *)(long)xdp->data_end) ||
	    bpf_xdp_load_bytes(xdp, 0, &headers.eth, FB_HEADER_BYTES))
		return 0;
	*frame = headers.frame;
	if (frame->kind == FB_KIND_PULL || frame->kind == FB_KIND_HELLO || fb_is_tabled(frame))
		return 0;
	fb_begin();
	if (fb_find_group(c, 1))
		return 0;
	*verdict = XDP_DROP;
	why = fb_admit(&headers, c, fb_well_formed(&headers, packet.bytes));
	if (why)
		return why;
	if (fb_find_cell(c)) {
		*verdict = XDP_PASS;
		return 0;
	}
	why = fb_receive_locked(&packet, c, 1);
	if (why)
		return why;
	if (frame->kind == FB_KIND_CONTRIBUTION)
		why = fb_contribute(c, 0, &reply);
	else
		why = fb_deposit(c, &packet, !fb_is_multicast(&headers), 0, &reply);
	if (!why)
		fb_learn(c, &headers);
	fb_unlock(&c->cell->lock);
	if (reply.to_tc)
		*verdict = XDP_PASS;
	else
		c->counters->frames_in++;
	return why;
}

static __always_inline int fb_xdp(struct xdp_md *xdp)
{
	struct fb_frame frame;
	struct fb_context c = {.frame = &frame};
	int verdict = XDP_PASS;
	int why = fb_xdp_take(xdp, &frame, &c, &verdict);

	if (why)
		fb_count(c.counters, why);
	if (c.counters)
		fb_end(c.counters);
	return verdict;
}

#endif
