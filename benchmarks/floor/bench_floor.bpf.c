// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * The programs of `foldback bench floor` and `foldback bench waiting`: the least that hooks can do
 * with a frame.
 *
 *   process ──send──▶ wire ──▶ TC ingress of the peer: floor_bounce    sent back, or dropped
 *      ▲                                 │
 *      └── mmap ── floor_deposit: TC ingress ◀── wire
 *
 *   process ──send──▶ wire ──▶ TC ingress of the peer: floor_take, or floor_pass, by which the
 *                                                      frame goes on to the peer's socket
 *
 * A frame is UDP over IPv4 without options, to one of these ports, and begins with its number.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Frames to these ports go back to the sender, or no further. Set by user space. */
const volatile __u16 floor_back_port = 1;
const volatile __u16 floor_drop_port = 2;
/* The first of as many ports as there may be pairs of processes. */
const volatile __u16 floor_pair_port = 3;

enum {
	FLOOR_MOST_PAIRS = 256,
	FLOOR_LINE = 8, /* numbers in a line of the cache */
};

/* The number of the frame that came last. Read by user space, which maps it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} last SEC(".maps");

/* The same of each end of each pair, in a line of its own. The ends are told apart by the last bit
 * of their addresses. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * FLOOR_MOST_PAIRS * FLOOR_LINE);
	__type(key, __u32);
	__type(value, __u64);
} ends SEC(".maps");

struct frame {
	struct ethhdr ethernet;
	struct iphdr ip;
	struct udphdr udp;
	__u64 number;
} __attribute__((packed));

/* The frame, if it is one of ours. */
static struct frame *parse(struct __sk_buff *skb)
{
	struct frame *frame = (void *)(long)skb->data;

	if ((void *)(frame + 1) > (void *)(long)skb->data_end ||
	    frame->ethernet.h_proto != bpf_htons(ETH_P_IP) || frame->ip.ihl != 5 ||
	    frame->ip.protocol != IPPROTO_UDP)
		return 0;
	return frame;
}

SEC("tc")
int floor_bounce(struct __sk_buff *skb)
{
	struct frame *frame = parse(skb);
	unsigned char mac[ETH_ALEN];
	__be32 address;

	if (frame && frame->udp.dest == bpf_htons(floor_drop_port))
		return TC_ACT_SHOT;
	if (!frame || frame->udp.dest != bpf_htons(floor_back_port))
		return TC_ACT_OK;
	__builtin_memcpy(mac, frame->ethernet.h_dest, ETH_ALEN);
	__builtin_memcpy(frame->ethernet.h_dest, frame->ethernet.h_source, ETH_ALEN);
	__builtin_memcpy(frame->ethernet.h_source, mac, ETH_ALEN);
	/* The sum of both stays, and so does the checksum. */
	address = frame->ip.daddr;
	frame->ip.daddr = frame->ip.saddr;
	frame->ip.saddr = address;
	return bpf_redirect(skb->ifindex, 0);
}

SEC("tc")
int floor_deposit(struct __sk_buff *skb)
{
	struct frame *frame = parse(skb);
	__u32 first = 0;
	__u64 *number;

	if (!frame || frame->udp.dest != bpf_htons(floor_back_port))
		return TC_ACT_OK;
	number = bpf_map_lookup_elem(&last, &first);
	if (number)
		__sync_lock_test_and_set(number, frame->number);
	return TC_ACT_SHOT;
}

/* Writes the number of a frame of a pair to where its receiver looks. */
static __always_inline int deposit_at_end(struct __sk_buff *skb)
{
	struct frame *frame = parse(skb);
	__u32 pair, place;
	__u64 *number;

	if (!frame)
		return 0;
	pair = bpf_ntohs(frame->udp.dest) - (__u32)floor_pair_port;
	if (pair >= FLOOR_MOST_PAIRS)
		return 0;
	place = (2 * pair + (bpf_ntohl(frame->ip.daddr) & 1)) * FLOOR_LINE;
	number = bpf_map_lookup_elem(&ends, &place);
	if (number)
		__sync_lock_test_and_set(number, frame->number);
	return 1;
}

SEC("tc")
int floor_take(struct __sk_buff *skb)
{
	return deposit_at_end(skb) ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("tc")
int floor_pass(struct __sk_buff *skb)
{
	deposit_at_end(skb);
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
