/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The foldback frame between hosts, as the payload of one IPv4 UDP datagram.
 *
 *   Ethernet | IPv4 (no options) | UDP, checksum 0 | struct fb_frame | payload (0..FB_JUMBO_BYTES)
 *
 * A super-frame is many frames, put together by UDP segmentation offload: of one kind, from one
 * member to one other, of equal size but for the last. They lie one after the other in a datagram
 * that the NIC cuts up or, between namespaces, nobody. Each frame is whole, and judged alone.
 *
 * This header is the only definition: the BPF programs include it, and build.rs turns it into
 * Rust with bindgen. Fields are in host byte order; a group whose members differ in byte order is
 * refused when it is set up, so no frame ever needs swapping.
 *
 * Bump FB_WIRE_VERSION on any change of layout or meaning. Members compare it at set-up, and a
 * frame of another version is dropped and counted.
 */
#ifndef FOLDBACK_WIRE_H
#define FOLDBACK_WIRE_H

#include <linux/types.h>

enum {
	FB_WIRE_MAGIC = 0x4b434246, /* "FBCK" in memory on a little-endian host */
	FB_WIRE_VERSION = 14,
	/* Default; unassigned by IANA. Below 1024, so that no user but root may have it while no
	 * agent is there; and below 512, where no system call draws a port by chance
	 * (bindresvport). */
	FB_UDP_PORT = 337,

	FB_MAX_MEMBERS = 64, /* one bit each in a 64-bit map */
	FB_FRAME_BYTES = 64,
	/* Most payload that a frame carries at the usual MTU: 1500 (MTU) - 20 (IPv4) - 8 (UDP) -
	 * FB_FRAME_BYTES, which is also a multiple of FB_FOLD_BLOCK. */
	FB_CHUNK_BYTES = 1408,
	/* The same at the usual MTU of jumbo frames, 9000, where all members have that. */
	FB_JUMBO_BYTES = 8896,
	/* Most bytes of a super-frame: a UDP datagram over IPv4. And most frames that it has, which
	 * is as many usual ones. */
	FB_SUPER_BYTES = 65507,
	FB_MOST_FRAMES = 44,
	/* Bytes that the fold works on at once. Buffers are padded to it. */
	FB_FOLD_BLOCK = 64,
	/* Parts of a table of pairs. A frame is for one part, whichever keys its pairs have. */
	FB_PARTS = 128,
	/* Most pairs of a frame: of 16 bytes, a chunk at the usual MTU. */
	FB_FRAME_PAIRS = 88,
};

/* Most payload that the code compiled here is made for: the programs for the usual MTU, which take
 * a sixth of the memory, say less. */
#ifndef FB_MOST_BYTES
#define FB_MOST_BYTES FB_JUMBO_BYTES
#endif

enum fb_kind {
	FB_KIND_CONTRIBUTION = 1, /* member -> aggregator: fold this in */
	FB_KIND_RESULT = 2,	  /* aggregator -> member: the fold of all contributions */
	FB_KIND_BROADCAST = 3,	  /* root -> member: a copy of the root's buffer */
	FB_KIND_PULL = 4,	  /* anyone -> anyone: send me what you hold of this chunk */
	FB_KIND_HELLO = 5,	  /* set-up: learn my MAC address, and that my frames arrive */
	FB_KIND_PIECE = 6,	  /* member -> member: a part of my buffer, for you alone */
	FB_KIND_PAIRS =
	    7, /* member -> owner: reduce these by key; none: what do you hold of mine? */
	FB_KIND_HELD = 8, /* owner -> member: the frames of your pairs that I hold, by part */
};

/* Fold operations, MPI-4.1 section 6.9.2. FB_OP_NONE folds nothing (barriers), FB_OP_PLACE puts
 * the members' parts side by side (gathers). */
enum fb_op {
	FB_OP_NONE = 0,
	FB_OP_SUM = 1,
	FB_OP_PROD = 2,
	FB_OP_MIN = 3,
	FB_OP_MAX = 4,
	FB_OP_BAND = 5,
	FB_OP_BOR = 6,
	FB_OP_BXOR = 7,
	FB_OP_LAND = 8,
	FB_OP_LOR = 9,
	FB_OP_LXOR = 10,
	FB_OP_PLACE = 11,
	FB_OP_COUNT = 12,
};

/* Element types: two's-complement integers. The low bit tells signed from unsigned, the rest is
 * log2 of the size in bytes. */
enum fb_type {
	FB_TYPE_I8 = 0,
	FB_TYPE_U8 = 1,
	FB_TYPE_I16 = 2,
	FB_TYPE_U16 = 3,
	FB_TYPE_I32 = 4,
	FB_TYPE_U32 = 5,
	FB_TYPE_I64 = 6,
	FB_TYPE_U64 = 7,
	FB_TYPE_COUNT = 8,
};

enum fb_flag {
	/* The result of this chunk goes to every member (Allreduce, Barrier); without it, it stays
	 * with the aggregator (Reduce). */
	FB_FLAG_RESULT_TO_ALL = 1,
	/* Every member folds the chunk for itself: contributions go to everyone, a result only to a
	 * member that asks. The target is 0. Of a HELLO: it is to go to everyone at once. */
	FB_FLAG_DIRECT = 2,
	/* Of a PULL, beside these: its sender does not hear what goes to everyone at once. */
	FB_FLAG_DEAF = 4,
	/* Contributions go along a ring, from the member behind the target to the target: each adds
	 * its own to what the one before it passes on. The result goes on the same way. Of a PULL
	 * with FB_FLAG_RESULT_TO_ALL: its sender has passed on what it had, and misses the result.
	 */
	FB_FLAG_RING = 8,
	/* Of a piece: its sender keeps it in its cell, and sends it again if it is asked. */
	FB_FLAG_POSTED = 16,
	/* Of a broadcast: it goes to some members only, one bit each in `consumed`. */
	FB_FLAG_SOME = 32,
};

/* A bit of `message`. */
enum fb_message {
	FB_MISMATCHED = 1ULL << 63,
};

/*
 *  0      4    5    6    7    8        16       24       32
 *  +------+----+----+----+----+--------+--------+--------+
 *  |magic |ver |kind|op  |type|token   |seq     |consumed|
 *  +------+----+----+----+----+--------+--------+--------+
 *  32     33     34     36    37  38     40       48      56      64
 *  +------+------+------+-----+---+------+--------+-------+-------+
 *  |source|target|length|flags| 0 |offset|detail  |message|seal   |
 *  +------+------+------+-----+---+------+--------+-------+-------+
 */
struct fb_frame {
	__u32 magic;
	__u8 version;
	__u8 kind;   /* enum fb_kind */
	__u8 op;     /* enum fb_op */
	__u8 type;   /* enum fb_type */
	__u64 token; /* random, per group: names the group, and admits nobody */
	__u64 seq;   /* chunk sequence number, from 1, never wraps */
	/* Contribution: the sender has released every chunk up to here.
	 * Result: the least of the contributions', so all members have.
	 * Broadcast with FB_FLAG_SOME: the members that it goes to. */
	__u64 consumed;
	__u8 source;   /* member that sent the frame */
	__u8 target;   /* member that aggregates the chunk, is its root (broadcast), or gets it
			  (piece) */
	__u16 length;  /* bytes of payload */
	__u8 flags;    /* enum fb_flag */
	__u8 reserved; /* zero */
	/* Of a contribution by FB_OP_PLACE: where in the chunk the payload belongs, a multiple of
	 * 8. Else 0. */
	__u16 offset;
	/* Of a contribution by FB_OP_PLACE: bytes of the chunk. Of a broadcast or a piece: the seal
	 * of its payload, for the process that gets it (src/wire/seal.rs). Else 0. */
	__u64 detail;
	/* Bytes of the whole message that the chunk is of, on which all members must agree; and
	 * FB_MISMATCHED, if somebody knows that they do not. */
	__u64 message;
	__u64 seal; /* fb_seal(), of all the rest and what it sees of the payload */
};

/* The payload behind a frame. */
struct fb_payload {
	__u8 data[FB_MOST_BYTES];
};

_Static_assert(sizeof(struct fb_frame) == FB_FRAME_BYTES, "struct fb_frame has a hole");
_Static_assert(__builtin_offsetof(struct fb_frame, token) == 8 &&
		   __builtin_offsetof(struct fb_frame, source) == 32 &&
		   __builtin_offsetof(struct fb_frame, flags) == 36 &&
		   __builtin_offsetof(struct fb_frame, offset) == 38 &&
		   __builtin_offsetof(struct fb_frame, detail) == 40 &&
		   __builtin_offsetof(struct fb_frame, message) == 48 &&
		   __builtin_offsetof(struct fb_frame, seal) == FB_FRAME_BYTES - 8,
	       "struct fb_frame is as drawn");
_Static_assert(FB_CHUNK_BYTES % FB_FOLD_BLOCK == 0 && FB_JUMBO_BYTES % FB_FOLD_BLOCK == 0,
	       "chunks are whole fold blocks");
_Static_assert(20 + 8 + FB_FRAME_BYTES + FB_CHUNK_BYTES <= 1500, "a chunk fits the usual MTU");
_Static_assert(20 + 8 + FB_FRAME_BYTES + FB_JUMBO_BYTES <= 9000, "a jumbo chunk fits its MTU");
_Static_assert(FB_MOST_FRAMES == FB_SUPER_BYTES / (FB_FRAME_BYTES + FB_CHUNK_BYTES),
	       "a super-frame is a datagram");

#endif
