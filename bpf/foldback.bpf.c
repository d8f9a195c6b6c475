// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("tc")
int fb_tc_egress(struct __sk_buff *skb)
{
	return -1;
}

SEC("tc")
int fb_tc_ingress(struct __sk_buff *skb)
{
	return -1;
}

SEC("xdp")
int fb_xdp_ingress(struct xdp_md *xdp)
{
	return XDP_PASS;
}
