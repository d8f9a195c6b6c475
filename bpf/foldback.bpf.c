// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * The fast path: broadcast, fold and acknowledge in the kernel.
 *
 *   leader ──sendmsg──▶ tc egress ──▶ wire ──▶ [xdp] ──▶ tc ingress
 *                          │                     │           │
 *                          └──── cells ◀─────────┴───────────┘   (fold, deposit, answer)
 *                                  ▲
 *   leader ────────mmap────────────┘
 *
 * A star fold: every member sends its contribution to the chunk's aggregator. There it is folded
 * into the cell: by XDP or TC ingress as it comes from the wire, or by TC egress when the
 * aggregator's own leader sends it. The last contribution completes the cell. Its frame is made the
 * result and cloned to all members, where ingress deposits it. A broadcast is cloned to all members
 * at the root's egress.
 *
 * Nothing here keeps time. A leader that waits too long sends a PULL; the programs answer it from
 * the cells, on behalf of processes that are busy elsewhere (cell.h).
 *
 * XDP cannot clone: it folds and deposits what it can and lets the frame that completes a cell go
 * on to TC ingress, which sends the result. We deliberately do not mark that frame in any way: to
 * TC it is a contribution that the cell has already, with a result that has not been sent yet.
 *
 * Compiled twice: here for chunks that fit the usual MTU, and by foldback_jumbo.bpf.c for longer
 * ones, whose cells take six times the memory.
 */
#ifndef FB_MOST_BYTES
#define FB_MOST_BYTES FB_CHUNK_BYTES
#endif

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "tc.bpf.h"
#include "xdp.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("tc")
int fb_tc_ingress(struct __sk_buff *skb)
{
	return fb_tc(skb, 0);
}

SEC("tc")
int fb_tc_egress(struct __sk_buff *skb)
{
	return fb_tc(skb, 1);
}

SEC("xdp")
int fb_xdp_ingress(struct xdp_md *xdp)
{
	return fb_xdp(xdp);
}
