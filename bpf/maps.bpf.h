/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Every map of the programs: who writes it, who reads it, how long it lives, why it has its type.
 */
#ifndef FOLDBACK_MAPS_BPF_H
#define FOLDBACK_MAPS_BPF_H

#include "fold.h"
#include "intf.h"

/* UDP port of all frames. Set by the agent before it loads the programs, in a section of its own,
 * which holds nothing else. */
const volatile __u16 fb_port SEC(".rodata.port") = FB_UDP_PORT;

/* Whether the CPU time of each group is counted. Set like the port. The verifier takes out what is
 * never done. */
const volatile __u8 fb_times SEC(".rodata.times") = 0;

/*
 * token -> group. The agent adds and removes groups; ingress writes the members' MAC addresses.
 * A hash, so that a frame with a token of no group finds nothing to touch.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FB_MAX_GROUPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct fb_group);
} groups SEC(".maps");

/*
 * slot -> cells of the group. The inner maps are made by the agent, one for each group, and handed
 * to the group's leader, who maps that one and no other. BPF_F_INNER_MAP: they differ in size
 * (Linux 5.10).
 */
struct fb_cell_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct fb_cell));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FB_MAX_GROUPS);
	__type(key, __u32);
	__array(values, struct fb_cell_map);
} cells SEC(".maps");

/*
 * slot -> the group's table of pairs, if it has one. As cells: made by the agent, when the group
 * asks for it, and mapped by the group's leader. All are of one size, so the programs find an
 * element without a call.
 */
struct fb_table_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 + FB_PARTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct fb_part));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FB_MAX_GROUPS);
	__type(key, __u32);
	__array(values, struct fb_table_map);
} tables SEC(".maps");

/* slot -> the group's key. Written by the agent before the group is in `groups`; no rank has a
 * descriptor. An array, since every frame looks there; a slot has a grace period between two
 * groups, so no program finds the key of another than its own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FB_MAX_GROUPS);
	__type(key, __u32);
	__type(value, struct fb_key);
} keys SEC(".maps");

/* slot -> counters. Written by the programs, per CPU so that counting costs no shared cache line;
 * read and summed by the agent. The last element counts what belongs to no group. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FB_MAX_GROUPS + 1);
	__type(key, __u32);
	__type(value, struct fb_counters);
} counters SEC(".maps");

/* The frame at hand, for which the programs' stack of 512 bytes has no room, and its payload, while
 * it is folded; the time. The programs run with bottom halves off, so no other run of theirs comes
 * in between on the same CPU. */
struct fb_scratch {
	struct fb_frame frame;
	struct fb_payload payload;
	__u64 began; /* when the program did, if that is wanted */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fb_scratch);
} scratch SEC(".maps");

#endif
