// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * The lab's faults: loss, corruption, duplication and reordering of frames, at given rates.
 *
 * Hook: TC egress of the fabric's ports, so every frame from host to host passes exactly once, on
 * its way to the host that the port leads to. User space sets the seed, writes `rates`, reads
 * `ports`.
 *
 * The fate of the n-th frame of a port depends on (seed, port, n) alone. The random numbers are a
 * hash of the three (splitmix64), not the state of a generator. So it needs no lock, and the same
 * frames in the same order meet the same faults.
 *
 * Reordering swaps a frame with the one that follows it on its port. A program cannot make a frame
 * out of nothing, so the held frame's bytes are kept in a map. When the next frame comes, a clone
 * of it is sent, and the original is overwritten with the held bytes. A frame with no successor
 * stays held, however long: to a protocol that is a very late frame. The bytes take over the
 * successor's metadata. So checksums must have been filled in before (the lab turns checksum and
 * segmentation offload off for faults), and both must be of one network protocol. The bytes take
 * over its truesize, too, the kernel's measure of its memory. Helpers that lengthen a frame do not
 * change it. TCP's receiver divides by the ratio of the two (tcp_measure_rcv_mss, in 8 bits), and
 * dies of a longer frame. So a longer frame than the successor stays held.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "lab_faults.h"

const volatile __u64 lf_seed = 1;

/* Port number -> its state. Written here, counters read by user space; lives as long as the lab.
 * Not per CPU: a port's frames are numbered across CPUs. Sized by user space before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lf_port);
} ports SEC(".maps");

/* Port number -> its rates. Written by user space, at any time, read here; sized as above. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lf_rates);
} rates SEC(".maps");

#define COUNT(port, name) __sync_fetch_and_add(&(port)->counters.name, 1)

static __u64 mix(__u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* The `which`-th random number of frame `n`. */
static __u64 draw(__u32 port, __u64 n, __u32 which)
{
	return mix(mix(lf_seed ^ ((__u64)port << 32)) + (n * 4 + which) * 0x9e3779b97f4a7c15ULL);
}

/* Whether the frame is UDP over IPv4, to this port, if it is not 0. */
static int is_udp_to(struct __sk_buff *skb, __u32 port)
{
	struct udphdr udp;
	struct iphdr ip;

	if (skb->protocol != bpf_htons(ETH_P_IP) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.protocol != IPPROTO_UDP)
		return 0;
	if (!port)
		return 1;
	return !bpf_skb_load_bytes(skb, ETH_HLEN + ip.ihl * 4, &udp, sizeof(udp)) &&
	       udp.dest == bpf_htons(port);
}

/* Sends a copy to the same port, past this program. */
static long send_clone(struct __sk_buff *skb)
{
	long error;

	skb->mark = LF_MARK;
	error = bpf_clone_redirect(skb, skb->ifindex, 0);
	skb->mark = 0;
	return error;
}

/* Flips one bit behind the IPv4 header, so that the frame still arrives somewhere. */
static void corrupt(struct __sk_buff *skb, struct lf_port *port, __u64 random)
{
	__u32 first = ETH_HLEN + sizeof(struct iphdr), offset;
	__u8 byte;

	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->len <= first)
		return;
	offset = first + (__u32)random % (skb->len - first);
	if (bpf_skb_load_bytes(skb, offset, &byte, 1))
		return;
	byte ^= 1 << (random >> 61);
	if (bpf_skb_store_bytes(skb, offset, &byte, 1, BPF_F_INVALIDATE_HASH))
		return;
	COUNT(port, corrupted);
}

/* Copies the frame into the port's slot. Returns 0 if the slot is taken or the frame does not fit.
 */
static int hold(struct __sk_buff *skb, struct lf_port *port)
{
	__u32 len = skb->len;

	if (skb->gso_size)
		return 0;
	/* Keeps clang from testing one copy of len and passing another to the helper. */
	asm volatile("" : "+r"(len));
	if (len < ETH_HLEN || len > LF_FRAME_BYTES)
		return 0;
	if (__sync_val_compare_and_swap(&port->slot, LF_SLOT_EMPTY, LF_SLOT_BUSY) != LF_SLOT_EMPTY)
		return 0;
	if (bpf_skb_load_bytes(skb, 0, port->held, len)) {
		__sync_lock_test_and_set(&port->slot, LF_SLOT_EMPTY);
		return 0;
	}
	port->held_len = len;
	port->held_protocol = skb->protocol;
	__sync_lock_test_and_set(&port->slot, LF_SLOT_FULL);
	return 1;
}

/* Sends the frame, and behind it the held one, if there is one. */
static int release(struct __sk_buff *skb, struct lf_port *port)
{
	int verdict = TC_ACT_OK;
	__u32 len;

	if (port->slot != LF_SLOT_FULL || skb->gso_size)
		return TC_ACT_OK;
	if (__sync_val_compare_and_swap(&port->slot, LF_SLOT_FULL, LF_SLOT_BUSY) != LF_SLOT_FULL)
		return TC_ACT_OK;
	if (port->held_protocol != skb->protocol ||
	    (port->held_len > skb->len && port->held_len > LF_SURE_BYTES) || send_clone(skb)) {
		__sync_lock_test_and_set(&port->slot, LF_SLOT_FULL);
		return TC_ACT_OK;
	}

	len = port->held_len;
	asm volatile("" : "+r"(len));
	if (len < ETH_HLEN || len > LF_FRAME_BYTES || bpf_skb_change_tail(skb, len, 0) ||
	    bpf_skb_store_bytes(skb, 0, port->held, len, BPF_F_INVALIDATE_HASH)) {
		COUNT(port, failed);
		verdict = TC_ACT_SHOT;
	} else {
		COUNT(port, reordered);
	}
	__sync_lock_test_and_set(&port->slot, LF_SLOT_EMPTY);
	return verdict;
}

SEC("tc")
int lab_faults(struct __sk_buff *skb)
{
	__u32 number = skb->ifindex - LF_FIRST_PORT;
	const struct lf_rates *rate;
	struct lf_port *port;
	__u64 n, first, second;

	if (skb->mark == LF_MARK)
		return TC_ACT_OK;
	port = bpf_map_lookup_elem(&ports, &number);
	rate = bpf_map_lookup_elem(&rates, &number);
	if (!port || !rate || skb->len <= rate->above ||
	    (rate->udp_only && !is_udp_to(skb, rate->udp_port)))
		return TC_ACT_OK;

	n = COUNT(port, frames);
	first = draw(number, n, 0);
	second = draw(number, n, 1);

	if ((__u32)first < rate->loss) {
		COUNT(port, lost);
		return TC_ACT_SHOT;
	}
	if (first >> 32 < rate->corrupt)
		corrupt(skb, port, draw(number, n, 2));
	if ((__u32)second < rate->duplicate) {
		if (!send_clone(skb))
			COUNT(port, duplicated);
	}
	/* Held: the bytes come back in a later frame, this skb is done with. */
	if (second >> 32 < rate->reorder && hold(skb, port))
		return TC_ACT_STOLEN;
	return release(skb, port);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
