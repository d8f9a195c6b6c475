/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* From a packet to the frame in it. Byte order: as on the wire, where a type says be; else host. */
#ifndef FOLDBACK_PARSE_BPF_H
#define FOLDBACK_PARSE_BPF_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "frame.h"
#include "maps.bpf.h"

/* All headers of a frame. In the packet they start at `eth`; `align` brings the 64-bit fields of
 * the frame onto 64-bit boundaries of the stack, where the verifier wants them. */
struct fb_headers {
	__u8 align[6];
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct fb_frame frame;
};

enum {
	FB_HEADER_BYTES = ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr) + FB_FRAME_BYTES,
};

_Static_assert(__builtin_offsetof(struct fb_headers, eth) == 6, "eth follows align");
_Static_assert(sizeof(struct fb_headers) == 6 + FB_HEADER_BYTES, "headers have a hole");

/* Whether the packet at [data, data_end) is an unfragmented UDP datagram for our port with our
 * magic. Cheap: every packet of the interface is asked. */
static __always_inline int fb_is_ours(const void *data, const void *data_end)
{
	const struct ethhdr *eth = data;
	const struct iphdr *ip = data + sizeof(*eth);
	const struct udphdr *udp = (const void *)ip + sizeof(*ip);
	const __u32 *magic = (const void *)udp + sizeof(*udp);

	return data + FB_HEADER_BYTES <= data_end && eth->h_proto == bpf_htons(ETH_P_IP) &&
	       ip->version == 4 && ip->ihl == 5 && ip->protocol == IPPROTO_UDP &&
	       !(ip->frag_off & bpf_htons(0x3fff)) && udp->dest == bpf_htons(fb_port) &&
	       *magic == FB_WIRE_MAGIC;
}

/* Whether the headers say that the datagram has `udp_bytes`. */
static __always_inline int fb_datagram_of(const struct fb_headers *headers, __u32 udp_bytes)
{
	return bpf_ntohs(headers->udp.len) == udp_bytes &&
	       bpf_ntohs(headers->ip.tot_len) == sizeof(struct iphdr) + udp_bytes;
}

/* Whether the one frame of the packet makes sense, and is all there (a packet may be longer: short
 * Ethernet frames are padded). */
static __always_inline int fb_well_formed(const struct fb_headers *headers, __u64 packet_bytes)
{
	const struct fb_frame *frame = &headers->frame;

	return packet_bytes >= FB_HEADER_BYTES + frame->length && fb_frame_well_formed(frame) &&
	       fb_datagram_of(headers, sizeof(struct udphdr) + sizeof(*frame) + frame->length);
}

#endif
