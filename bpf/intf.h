/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Map keys and values, limits, counters: shared by the BPF programs and user space of one host. The
 * only definition, like wire.h. Bump FB_INTF_VERSION on any change (library and agent compare it).
 */
#ifndef FOLDBACK_INTF_H
#define FOLDBACK_INTF_H

#include "wire.h"

enum {
	FB_INTF_VERSION = 16,
	FB_MAX_GROUPS = 1024, /* per host */
	FB_MAX_WINDOW = 4096, /* cells per group */
	/* skb->mark of frames that the programs made themselves, so that egress lets them out. An
	 * unprivileged process cannot set a mark. */
	FB_MARK = 0x0fb0fb0f,
	/* Tries for a cell's lock before the frame is dropped (and later asked for again). */
	FB_LOCK_TRIES = 512,
	/* The member that stands for all others, of a group that has fewer members. */
	FB_EVERYONE = FB_MAX_MEMBERS - 1,
	/* A member does not hear frames to all if it misses many: a missed one counts for FB_MISS,
	 * and any other makes up for one. */
	FB_MISS = 8,
	FB_DEAF_FROM = 128,
	/* Words of a key: one for each word of a frame, but for the seal, and of its payload; and
	 * one more, since all are hashed twice (seal.h). */
	FB_KEY_WORDS = FB_FRAME_BYTES / 8 - 1 + FB_MOST_BYTES / 8 + 1,
};

/* Value of the map `keys` (key: the group's slot). Written by the agent, before the group is there.
 * A shorter one, of a host whose programs are made for shorter chunks, begins as a longer one. */
struct fb_key {
	__u64 keyed;	 /* 1: frames bear a code; 0: a checksum, and the rest is 0 */
	__u64 finish[2]; /* SipHash's */
	__u64 nh[FB_KEY_WORDS];
};

/* A member as the programs of one host see it. */
struct fb_member {
	__be32 address;
	__u32 reserved;
	/* MAC address towards the member in the first 6 bytes, learnt from its HELLO, and then from
	 * its later frames; all 0: none yet. One word, so that it is replaced at once. */
	__u64 mac;
};

/* Value of the map `groups` (key: the token). Written by the agent; `mac` by ingress. */
struct fb_group {
	__u32 slot;	   /* index into `cells` and `counters` */
	__u32 uid;	   /* owner: only sockets of this user may send for the group */
	__u32 window;	   /* cells, a power of two */
	__u16 chunk_bytes; /* most payload of a frame; cells have room for it */
	__u8 members;
	__u8 self; /* this host's index */
	/* At FB_EVERYONE an IPv4 multicast address and its MAC address, if members are to have
	 * one. */
	struct fb_member member[FB_MAX_MEMBERS];
};

/*
 * A cell: one chunk of one collective, at one host. Chunk s lives in cell s mod window. Cells are
 * mapped by the group's leader process, which owns them; the programs trust them no further than
 * the group itself.
 *
 * States, for chunk s:       seq   ready   data
 *   free or older            < s   < s     -
 *   posted (not aggregator)  s     < s     own contribution      written by user space
 *   folding (aggregator)     s     < s     fold so far           written by the programs
 *   ready                    s     s       result, broadcast     written by the programs, or by
 *                                          or piece              user space at a broadcast's root
 *                                                                and a posted piece's sender
 */
struct fb_cell {
	__u64 seq;
	__u64 ready;   /* published last, with a full barrier */
	__u64 arrived; /* aggregator: members folded in, one bit each; of a broadcast or a piece the
			* seal of its payload */
	__u64 consumed; /* aggregator: least `consumed` so far; then the result's */
	__u32 lock;	/* 1: taken, by a program or by the leader process */
	__u8 kind;	/* FB_KIND_CONTRIBUTION (any fold), FB_KIND_BROADCAST or FB_KIND_PIECE */
	__u8 op;
	__u8 type;
	__u8 target;
	__u16 length; /* bytes of the chunk */
	__u8 flags;
	__u8 fanned_out; /* aggregator: some program took on the fan-out */
	__u16 part;	 /* posted: bytes of the contribution, and where they belong */
	__u16 offset;
	__u64 message; /* as in frames; if they differ, the most bytes and FB_MISMATCHED */
	__u64 asked;   /* aggregator: who has asked since it last asked others, one bit each */
	__u8 data[FB_MOST_BYTES];
};

_Static_assert(sizeof(struct fb_cell) == 64 + FB_MOST_BYTES, "struct fb_cell has a hole");
_Static_assert(__builtin_offsetof(struct fb_cell, data) == 64, "data starts a cache line");

/* Element 0 of a group's cell map, in a cell's place. Chunk s is in element 1 + s mod window. */
struct fb_control {
	__u64 consumed; /* leader: this host has released every chunk up to here */
	__u64 heard;	/* ingress: members whose HELLO arrived, one bit each */
	__u64 token;	/* agent: whose cells these are */
	/* The programs: a chunk of which frames came that cannot be of one collective. */
	__u64 mismatched;
	__u64 overheard; /* ingress: members whose HELLO to everyone arrived, one bit each */
	/* Leader: everyone hears what is sent to everyone; the programs: not any more. */
	__u32 multicast;
	__u32 missed;	/* the programs: how much of that this host has not heard, of late */
	__u64 repeated; /* the programs: frames that said what was known already, if asked for */
	/* Leader, for the agent to show: */
	__u64 calls;   /* operations begun */
	__u64 left;    /* calls left to MPI, which was measured to be faster */
	__u64 asked;   /* times that it asked for something again */
	__u64 rescued; /* chunks ended by the second transport, as of the last look */
};

/* A key and a value, of a payload of FB_KIND_PAIRS and of a table. Every key and every value may
 * be. */
struct fb_pair {
	__u64 key;
	__u64 value;
};

enum {
	FB_BUCKETS = 64,	       /* of a part, a power of two */
	FB_BUCKET_SLOTS = 8,	       /* one bit each in `taken` */
	FB_SPILL = 2 * FB_FRAME_PAIRS, /* room for pairs whose bucket is full */
};

/*
 * A part of a group's table of pairs, at one host: the owner of their keys. The programs combine
 * pairs here as they come, and the leader's process takes them out, as often as it likes. So a part
 * need not have room for all keys. The leader maps the table, and owns it; the programs trust it no
 * further than the group itself.
 */
struct fb_part {
	__u32 lock;  /* 1: taken, by a program or by the leader process */
	__u32 pairs; /* in slots */
	__u32 spilt; /* in `spill`, from its start; never so many that a frame could find no room */
	__u32 reserved[13];
	__u64 held[FB_MAX_MEMBERS];  /* the last frame of each member's that is folded here */
	__u64 known[FB_MAX_MEMBERS]; /* the last frame of this host's that each member has said it
					holds */
	__u8 taken[FB_BUCKETS];	     /* slots of a bucket that have a pair, one bit each */
	struct fb_pair slot[FB_BUCKETS * FB_BUCKET_SLOTS];
	struct fb_pair spill[FB_SPILL];
};

/* Element 0 of a group's table, in a part's place. Part p is element 1 + p. */
struct fb_table {
	__u64 token; /* agent: whose table this is */
	/* Leader: frames of pairs that bear this number are taken, and others are not. */
	__u64 epoch;
	__u64
	    answered[FB_MAX_MEMBERS]; /* ingress: the last question that each member has answered */
};

_Static_assert(sizeof(struct fb_part) == 64 + 16 * FB_MAX_MEMBERS + FB_BUCKETS +
					     16 * (FB_BUCKETS * FB_BUCKET_SLOTS + FB_SPILL),
	       "struct fb_part has a hole");

/*
 * Counters of a group on one host: name, meaning. The one list: the struct below, the names in
 * FOLDBACK_STATS and their documentation are made of it.
 */
#define FB_COUNTERS(X)                                                                             \
	X(frames_in, "frames accepted from the wire")                                              \
	X(frames_out, "frames sent to the wire, by the library or by the programs")                \
	X(contributions_folded, "contributions folded in the kernel")                              \
	X(chunks_completed, "chunks whose last contribution was folded here")                      \
	X(fan_outs, "results, broadcasts and direct contributions sent to all members")            \
	X(multicasts, "frames among these that went to all members at once")                       \
	X(passed_on, "partial folds and results passed on along a ring")                           \
	X(pairs_folded, "pairs of keys and values combined in the kernel")                         \
	X(pairs_spilt, "pairs among these that wait for their owner, since their bucket is full")  \
	X(deposited, "results, broadcasts and pieces put into a cell")                             \
	X(duplicates, "frames that said what was known already")                                   \
	X(retransmissions, "results, broadcasts, contributions and pieces sent again")             \
	X(pulls_sent, "requests to send something again")                                          \
	X(drop_stale, "dropped: of a chunk whose cell moved on")                                   \
	X(drop_window, "dropped: ahead of the window")                                             \
	X(drop_full, "dropped: the owner of pairs has to make room first")                         \
	X(drop_mismatch, "not folded: of another op, type or length than the chunk")               \
	X(drop_malformed, "dropped: field out of range, truncated, or of another version")         \
	X(drop_forged, "dropped: not as a member sent it, by its code: forged, or damaged")        \
	X(drop_corrupt, "dropped: not as it was sent, by its checksum (FOLDBACK_AUTH=off)")        \
	X(drop_stranger, "dropped: not from the address of the member it names")                   \
	X(drop_uid, "dropped: sent by a socket of another user")                                   \
	X(drop_lock, "dropped: the cell stayed locked")                                            \
	X(drop_no_mac, "not sent: MAC address of the member not learnt yet")                       \
	X(drop_kernel, "dropped: a kernel helper refused")                                         \
	X(nanoseconds, "CPU time of the programs, in ns (FOLDBACK_CPU_TIME=on; else 0)")           \
	X(no_group, "passed on: token of no group here (counted for the host)")

/* Value of the per-CPU map `counters`; element FB_MAX_GROUPS counts for no group. */
struct fb_counters {
#define FB_COUNTER_FIELD(name, help) __u64 name;
	FB_COUNTERS(FB_COUNTER_FIELD)
#undef FB_COUNTER_FIELD
};

/* The reason why nothing, or not all, came of a frame: the place of its counter. 0, the place of a
 * counter that is no reason: nothing is wrong. */
#define FB_WHY(name) ((int)(__builtin_offsetof(struct fb_counters, name) / sizeof(__u64)))

#endif
