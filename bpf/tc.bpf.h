/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The TC programs: ingress (frames of other hosts) and egress (frames of this host's leaders). */
#ifndef FOLDBACK_TC_BPF_H
#define FOLDBACK_TC_BPF_H

#include <linux/pkt_cls.h>
#include "super.bpf.h"

enum {
	/* Not our business: let the next program, or the stack, see the packet. In tcx this is
	 * TCX_NEXT. */
	FB_TC_NEXT = TC_ACT_UNSPEC,
	/* Taken. Not TC_ACT_STOLEN, which tcx does not know. */
	FB_TC_TAKEN = TC_ACT_SHOT,
};

/* Turns the headers of the packet in hand into headers of a packet of `bytes` bytes from this host
 * to nobody yet. The packet in hand came to this host, or is leaving it (`egress`). */
static __always_inline void fb_fill_headers(struct fb_headers *headers, __u32 bytes,
					    const struct fb_group *group, int egress)
{
	__u16 udp_bytes = bytes - ETH_HLEN - sizeof(struct iphdr);

	if (!egress)
		__builtin_memcpy(headers->eth.h_source, headers->eth.h_dest, ETH_ALEN);
	headers->ip.tos = 0;
	headers->ip.tot_len = bpf_htons(sizeof(struct iphdr) + udp_bytes);
	headers->ip.id = 0;
	headers->ip.frag_off = bpf_htons(0x4000); /* don't fragment */
	headers->ip.ttl = 64;
	headers->ip.check = 0;
	headers->ip.saddr = group->member[group->self & (FB_MAX_MEMBERS - 1)].address;
	headers->ip.daddr = 0;
	headers->udp.source = bpf_htons(fb_port);
	headers->udp.len = bpf_htons(udp_bytes);
	headers->udp.check = 0;
}

/* One's-complement sum of the IPv4 header, RFC 1071. */
static __always_inline __u32 fb_ip_sum(const struct iphdr *ip)
{
	__u16 words[10];
	__u32 sum = 0;

	__builtin_memcpy(words, ip, sizeof(words));
	for (int i = 0; i < 10; i++)
		sum += words[i];
	return sum;
}

/* The same of the pseudo-header of UDP, without the destination. */
static __always_inline __u32 fb_pseudo_sum(const struct fb_headers *headers)
{
	__be32 from = headers->ip.saddr;

	return (from & 0xffff) + (from >> 16) + bpf_htons(IPPROTO_UDP) + headers->udp.len;
}

static __always_inline __u16 fb_fold_sum(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/*
 * Sends the packet in hand to every member of `mask`, with `headers` made out to each. All but the
 * last get a clone; the last gets the packet itself, by the verdict that fb_sent() gives. Returns
 * whether there was a last.
 *
 * Source MAC and IP are this host's: a bridge drops a frame that claims to come from behind the
 * port it leaves by.
 *
 * Global, not static: the verifier then walks its turns once, not on every path that leads here.
 */
int fb_send(struct __sk_buff *skb, struct fb_headers *headers, const struct fb_group *group,
	    __u64 mask, struct fb_counters *counters)
{
	__u32 base, pseudo, frames;
	int pending = 0;

	if (!headers || !group || !counters)
		return 0;
	base = fb_ip_sum(&headers->ip);
	/* Segmentation completes UDP checksums from the sum of the pseudo-header, RFC 768. */
	pseudo = skb->gso_size ? fb_pseudo_sum(headers) : 0;
	frames = fb_frames_of(skb);
	skb->mark = FB_MARK;
	for (int i = 0; i < FB_MAX_MEMBERS; i++) {
		if (!(mask >> i & 1))
			continue;

		__u64 mac = group->member[i].mac;
		__be32 address = group->member[i].address;

		if (!mac) {
			counters->drop_no_mac++;
			continue;
		}
		if (pending && bpf_clone_redirect(skb, skb->ifindex, 0))
			counters->drop_kernel++;
		__builtin_memcpy(headers->eth.h_dest, &mac, ETH_ALEN);
		headers->ip.daddr = address;
		headers->ip.check = fb_fold_sum(base + (address & 0xffff) + (address >> 16));
		if (pseudo)
			headers->udp.check =
			    ~fb_fold_sum(pseudo + (address & 0xffff) + (address >> 16));
		pending = bpf_skb_store_bytes(skb, 0, &headers->eth, FB_HEADER_BYTES, 0) == 0;
		if (pending)
			counters->frames_out += frames;
		else
			counters->drop_kernel++;
	}
	return pending;
}

/* The receivers of a frame for the members of `mask`: all others at once, if all hear it. */
static __always_inline __u64 fb_audience(const struct fb_context *c, __u64 mask, __u32 frames)
{
	if (!*(volatile const __u32 *)&c->control->multicast || mask != fb_others(c->group))
		return mask;
	c->counters->multicasts += frames;
	return 1ULL << FB_EVERYONE;
}

static __always_inline int fb_sent(struct __sk_buff *skb, int pending, int egress)
{
	if (!pending)
		return FB_TC_TAKEN;
	if (egress)
		return FB_TC_NEXT;
	return bpf_redirect(skb->ifindex, 0);
}

/* A frame for the cell's chunk: sees to the cell, and sends the answer by the packet in hand, whose
 * verdict it gives. Says why nothing came of the frame, if so. */
static __always_inline int fb_tc_cell(struct __sk_buff *skb, struct fb_headers *headers,
				      const struct fb_packet *packet, struct fb_context *c,
				      int egress, int *verdict)
{
	struct fb_reply reply = {};
	struct fb_frame *out = &headers->frame;
	int why = fb_enter_cell(packet, c, !egress);

	if (why)
		return why;
	switch (c->frame->kind) {
	case FB_KIND_CONTRIBUTION:
		why = fb_contribute(c, 1, &reply);
		break;
	case FB_KIND_PULL:
		why = fb_pull(c, &reply);
		break;
	default:
		why = fb_deposit(c, packet, !fb_is_multicast(headers), 1, &reply);
	}
	if (!egress && !why)
		fb_learn(c, headers);
	if (!reply.mask) {
		fb_unlock(&c->cell->lock);
		return why;
	}

	int failed = 0;
	__u32 length;

	fb_fill_reply(c, &reply, out);
	length = out->length;
	if (skb->len != FB_HEADER_BYTES + length)
		failed = bpf_skb_change_tail(skb, FB_HEADER_BYTES + length, 0);
	/* As in fb_load_payload: one copy of the length is checked and used, without "!= 0".
	 * While the lock is held: nothing may replace the data meanwhile. */
	length--;
	barrier_var(length);
	if (!failed && length < FB_MOST_BYTES)
		failed = bpf_skb_store_bytes(skb, FB_HEADER_BYTES, c->cell->data, length + 1, 0);
	fb_unlock(&c->cell->lock);
	if (failed)
		return FB_WHY(drop_kernel);
	if (reply.kind == FB_KIND_PULL)
		c->counters->pulls_sent++;
	else
		reply.mask = fb_audience(c, reply.mask, 1);
	fb_fill_headers(headers, FB_HEADER_BYTES + out->length, c->group, egress);
	*verdict = fb_sent(skb, fb_send(skb, headers, c->group, reply.mask, c->counters), egress);
	return why;
}

/* A frame that concerns the group's table of pairs: sees to that, and answers a question by the
 * packet in hand, whose verdict it gives. Says why nothing came of the frame, if so. */
static __always_inline int fb_tc_table(struct __sk_buff *skb, struct fb_headers *headers,
				       const struct fb_packet *packet, struct fb_context *c,
				       int *verdict)
{
	struct fb_scratch *here = fb_scratch_here();
	int why;

	if (!here)
		return FB_WHY(drop_kernel);
	c->payload = &here->payload;
	why = fb_receive(packet, c, 1);
	if (!why)
		why = fb_enter_table(c->group->slot);
	if (why)
		return why;
	fb_learn(c, headers);
	if (!fb_is_question(c->frame))
		return 0;
	fb_fill_held(c->frame, c->group, c->payload, c->key, &headers->frame);
	if (bpf_skb_change_tail(skb, FB_HEADER_BYTES + FB_PARTS * 8, 0) ||
	    bpf_skb_store_bytes(skb, FB_HEADER_BYTES, c->payload->data, FB_PARTS * 8, 0))
		return FB_WHY(drop_kernel);
	fb_fill_headers(headers, FB_HEADER_BYTES + FB_PARTS * 8, c->group, 0);
	*verdict = fb_sent(
	    skb, fb_send(skb, headers, c->group, 1ULL << (c->frame->source & 63), c->counters), 0);
	return 0;
}

/* The leader's contribution to a chunk that every member folds for itself: here, first. */
static __always_inline int fb_fold_own(const struct fb_packet *packet, struct fb_context *c)
{
	struct fb_reply none = {};
	int why = fb_enter_cell(packet, c, 0);

	if (why)
		return why;
	why = fb_contribute(c, 1, &none);
	fb_unlock(&c->cell->lock);
	return why;
}

/* Sends the leader's packet to all members that it is for. */
static __always_inline int fb_fan_out(struct __sk_buff *skb, struct fb_headers *headers,
				      struct fb_context *c)
{
	__u32 bytes = skb->gso_size ? skb->len : FB_HEADER_BYTES + headers->frame.length;
	__u32 frames = fb_frames_of(skb);
	__u64 mask = fb_receivers(&headers->frame, c->group);

	c->counters->fan_outs += frames;
	if (!fb_find_cell(c))
		mask = fb_audience(c, mask, frames);
	fb_fill_headers(headers, bytes, c->group, 1);
	return fb_sent(skb, fb_send(skb, headers, c->group, mask, c->counters), 1);
}

/* From Linux 6.9 on, a packet that generic XDP has copied comes to TC without its Ethernet header:
 * the copy does not know how long that is. A packet for our port gets it back. */
static __always_inline int fb_restore_ethernet(struct __sk_buff *skb, struct fb_headers *headers)
{
	const struct iphdr *ip = (void *)(long)skb->data;
	const struct udphdr *udp = (void *)(ip + 1);

	return (void *)(udp + 1) <= (void *)(long)skb->data_end && ip->version == 4 &&
	       ip->ihl == 5 && ip->protocol == IPPROTO_UDP && udp->dest == bpf_htons(fb_port) &&
	       !bpf_skb_load_bytes_relative(skb, 0, &headers->eth, ETH_HLEN, BPF_HDR_START_MAC) &&
	       headers->eth.h_proto == bpf_htons(ETH_P_IP) &&
	       !bpf_skb_change_head(skb, ETH_HLEN, 0) &&
	       !bpf_skb_store_bytes(skb, 0, &headers->eth, ETH_HLEN, 0);
}

/* Brings headers into the linear part, if the packet is for our port. That costs. */
static __always_inline int fb_make_linear(struct __sk_buff *skb)
{
	__be16 port;

	return skb->len >= FB_HEADER_BYTES && skb->protocol == bpf_htons(ETH_P_IP) &&
	       skb->data_end - skb->data < FB_HEADER_BYTES &&
	       !bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(struct iphdr) + 2, &port, sizeof(port)) &&
	       port == bpf_htons(fb_port) && !bpf_skb_pull_data(skb, FB_HEADER_BYTES);
}

/* Copies the headers of the packet in hand, if it is a frame. */
static __always_inline int fb_tc_headers(struct __sk_buff *skb, struct fb_headers *headers,
					 int egress)
{
	if (!fb_is_ours((void *)(long)skb->data, (void *)(long)skb->data_end) &&
	    !((fb_make_linear(skb) || (!egress && fb_restore_ethernet(skb, headers))) &&
	      fb_is_ours((void *)(long)skb->data, (void *)(long)skb->data_end)))
		return 0;
	return bpf_skb_load_bytes(skb, 0, &headers->eth, FB_HEADER_BYTES) == 0;
}

/* A HELLO: its sender's frames arrive, and its MAC address is known from now on. One to everyone
 * says that what its sender sends to everyone arrives. The first counts; a later one has nothing to
 * say. */
static __always_inline int fb_hello(const struct fb_packet *packet, struct fb_context *c,
				    const struct fb_headers *headers)
{
	int why, multicast = fb_is_multicast(headers);

	if ((!multicast && fb_is_heard(c->group, c->frame->source)) || fb_find_cell(c))
		return 0;
	why = fb_receive(packet, c, 1);
	if (why)
		return why;
	if (multicast) {
		__sync_fetch_and_or(&c->control->overheard, 1ULL << c->frame->source);
		return 0;
	}
	fb_learn(c, headers);
	__sync_fetch_and_or(&c->control->heard, 1ULL << c->frame->source);
	return 0;
}

/* A frame of a group of this host's, and what becomes of it. */
struct fb_passage {
	struct fb_headers headers; /* of what is sent, in the end */
	struct fb_context c;
	int verdict;
};

/* Frames from the wire. Says why nothing came of one, if so. */
static __always_inline int fb_take_in(struct __sk_buff *skb, struct fb_passage *p)
{
	struct fb_packet packet = {.ctx = skb, .bytes = skb->len, .payload = FB_HEADER_BYTES};
	struct fb_context *c = &p->c;
	int why;

	if (skb->gso_size) {
		why = fb_admit(&p->headers, c, fb_super_well_formed(skb, &p->headers));
		if (!why)
			fb_take_all(skb, &p->headers, c->group);
		return why;
	}
	why = fb_admit(&p->headers, c, fb_well_formed(&p->headers, packet.bytes));
	if (why)
		return why;
	c->counters->frames_in++;
	if (c->frame->kind == FB_KIND_HELLO)
		return fb_hello(&packet, c, &p->headers);
	if (fb_is_tabled(c->frame))
		return fb_tc_table(skb, &p->headers, &packet, c, &p->verdict);
	return fb_tc_cell(skb, &p->headers, &packet, c, 0, &p->verdict);
}

/* Gives a packet of the leader's the source port of all frames, which is root's. No checksum has it
 * yet: there is none, or it is completed when the packet is segmented. */
static __always_inline long fb_set_port(struct __sk_buff *skb)
{
	__be16 port = bpf_htons(fb_port);

	return bpf_skb_store_bytes(skb, ETH_HLEN + sizeof(struct iphdr), &port, sizeof(port), 0);
}

/* Frames of this host's leaders. Says why nothing came of one, if so. */
static __always_inline int fb_let_out(struct __sk_buff *skb, struct fb_passage *p)
{
	struct fb_packet packet = {.ctx = skb, .bytes = skb->len, .payload = FB_HEADER_BYTES};
	struct fb_context *c = &p->c;
	const struct fb_frame *frame = c->frame;
	int why = 0;

	if (bpf_get_socket_uid(skb) != c->group->uid)
		return FB_WHY(drop_uid);
	if (!(skb->gso_size ? fb_super_well_formed(skb, &p->headers) && fb_uniform(skb, frame)
			    : fb_well_formed(&p->headers, packet.bytes)) ||
	    frame->source != c->group->self || frame->target >= c->group->members)
		return FB_WHY(drop_malformed);
	switch (frame->kind) {
	case FB_KIND_CONTRIBUTION:
		if (frame->flags == FB_FLAG_DIRECT) {
			why = fb_fold_own(&packet, c);
			p->verdict = fb_fan_out(skb, &p->headers, c);
			return why;
		}
		if (frame->target == c->group->self)
			return fb_tc_cell(skb, &p->headers, &packet, c, 1, &p->verdict);
		break;
	case FB_KIND_PULL:
		c->counters->pulls_sent++;
		break;
	case FB_KIND_BROADCAST:
		if (frame->target != c->group->self)
			return FB_WHY(drop_malformed);
		p->verdict = fb_fan_out(skb, &p->headers, c);
		return 0;
	case FB_KIND_HELLO:
		if (frame->flags == FB_FLAG_DIRECT) {
			fb_fill_headers(&p->headers, FB_HEADER_BYTES, c->group, 1);
			p->verdict = fb_sent(
			    skb,
			    fb_send(skb, &p->headers, c->group, 1ULL << FB_EVERYONE, c->counters),
			    1);
			return 0;
		}
		break;
	case FB_KIND_RESULT:
		/* On a ring the leader adds its own contribution, and passes on what comes of it.
		 */
		if (frame->flags != FB_FLAG_RING)
			return FB_WHY(drop_malformed);
		break;
	case FB_KIND_PIECE:
		break;
	case FB_KIND_PAIRS:
		if (frame->target == c->group->self)
			return FB_WHY(drop_malformed);
		break;
	default:
		return FB_WHY(drop_malformed);
	}
	if (fb_set_port(skb))
		return FB_WHY(drop_kernel);
	c->counters->frames_out += fb_frames_of(skb);
	p->verdict = FB_TC_NEXT;
	return 0;
}

/* The programs, from the wire and to it: the one place where they count why nothing came of a
 * frame. */
static __always_inline int fb_tc(struct __sk_buff *skb, int egress)
{
	/* The programs' own. The mark stays: another agent's program may come after ours. */
	if (egress && skb->mark == FB_MARK)
		return FB_TC_NEXT;

	struct fb_scratch *here = fb_scratch_here();
	struct fb_passage p;
	int why;

	if (!here || !fb_tc_headers(skb, &p.headers, egress))
		return FB_TC_NEXT;
	here->frame = p.headers.frame;
	p.c = (struct fb_context){.frame = &here->frame};
	fb_begin();
	if (fb_find_group(&p.c, 0))
		return FB_TC_NEXT;
	p.verdict = FB_TC_TAKEN;
	why = egress ? fb_let_out(skb, &p) : fb_take_in(skb, &p);
	if (why)
		fb_count(p.c.counters, why);
	fb_end(p.c.counters);
	return p.verdict;
}

#endif
