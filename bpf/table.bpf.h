/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* From a frame that concerns pairs to the group's table, and to the part of it that it is for. */
#ifndef FOLDBACK_TABLE_BPF_H
#define FOLDBACK_TABLE_BPF_H

#include "admit.bpf.h"
#include "pairs.h"

/* Pairs have come: folds them into their part. */
static __always_inline int fb_enter_part(struct fb_scratch *here, void *parts,
					 const struct fb_table *table, struct fb_counters *counters)
{
	__u32 index = 1 + (__u32)here->frame.detail;
	struct fb_part *part = bpf_map_lookup_elem(parts, &index);
	int why;

	if (!part)
		return FB_WHY(drop_kernel);
	if (fb_lock(&part->lock))
		return FB_WHY(drop_lock);
	why = fb_fold_pairs(&here->frame, &here->payload, table, part, counters);
	fb_unlock(&part->lock);
	return why;
}

/* A question or an answer has come: reads what the payload is to say of every part, or writes what
 * it says. Any epoch will do, since numbers run on: a member that has gone to the next one still
 * answers. No part is locked. The process changes neither number, and numbers only grow: one that
 * is just growing may be read too small, and is asked for again. */
static __always_inline int fb_every_part(struct fb_scratch *here, void *parts,
					 struct fb_table *table)
{
	__u8 source = here->frame.source & (FB_MAX_MEMBERS - 1);
	int is_answer = here->frame.kind == FB_KIND_HELD;
	__u64 *words = (__u64 *)here->payload.data;

	for (__u32 i = 0; i < FB_PARTS; i++) {
		__u32 index = 1 + i;
		struct fb_part *part = bpf_map_lookup_elem(parts, &index);

		if (!part)
			return FB_WHY(drop_kernel);
		if (is_answer)
			fb_know(part, source, words[i]);
		else
			words[i] = part->held[source];
	}
	return is_answer ? fb_close_question(&here->frame, table) : 0;
}

/*
 * The frame at hand, with its payload, for the table of the group in this slot; a question gets
 * what its answer is to say for a payload. A table is one group's alone, and says whose, as cells
 * do. Global, not static: the verifier then checks it once for both callers.
 */
int fb_enter_table(__u32 slot)
{
	__u32 zero = 0;
	struct fb_scratch *here = fb_scratch_here();
	struct fb_counters *counted = fb_counters_of(slot);
	void *parts = bpf_map_lookup_elem(&tables, &slot);
	struct fb_table *table;

	if (!here || !counted)
		return FB_WHY(drop_kernel);
	if (!parts)
		return FB_WHY(drop_window);
	table = bpf_map_lookup_elem(parts, &zero);
	if (!table || table->token != here->frame.token)
		return FB_WHY(drop_window);
	if (fb_is_question(&here->frame) || here->frame.kind == FB_KIND_HELD)
		return fb_every_part(here, parts, table);
	return fb_enter_part(here, parts, table, counted);
}

#endif
