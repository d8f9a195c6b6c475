/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * The protocol at a cell: the effect of a frame on it, and the answer to the frame.
 *
 * Everything here works on a locked cell and knows neither packets nor maps. The BPF programs wrap
 * it (tc.bpf.h, xdp.bpf.h), and so does user space, natively (native.c), for the second transport
 * and for tests over a simulated network: all run this very code.
 *
 * docs/contributing/protocol.md says what user space relies on, and proves that a cell is never
 * reused early.
 */
#ifndef FOLDBACK_CELL_H
#define FOLDBACK_CELL_H

#include "fold.h"
#include "frame.h"
#include "seal.h"

/* The packet that a frame came in. The file that includes this one defines it. */
struct fb_packet;

/* Brings `length` bytes of the frame's payload, 1 to FB_MOST_BYTES, from the packet. Returns 0, or
 * something else if it cannot. */
static __always_inline long fb_load_payload(const struct fb_packet *packet, struct fb_payload *into,
					    __u32 length);

/* A frame and everything that it concerns. */
struct fb_context {
	const struct fb_frame *frame; /* its seal is right */
	/* The frame's, which its seal is of, and zeroes up to a whole block. None of a broadcast or
	 * a piece. */
	struct fb_payload *payload;
	struct fb_group *group;
	const struct fb_key *key; /* the group's */
	struct fb_control *control;
	struct fb_cell *cell;
	struct fb_counters *counters;
};

/* The frames to send once the cell has been seen to; `mask` 0: none. */
struct fb_reply {
	__u64 mask; /* members to send to, one bit each */
	__u8 kind;
	__u8 flags;	   /* of a PULL */
	__u8 with_payload; /* the cell's data; else an empty frame */
	__u8 to_tc;	   /* only TC can send: let the frame go on to it (set when !can_send) */
};

static __always_inline __u64 fb_all_members(const struct fb_group *group)
{
	return ~0ULL >> (64 - (group->members & 127));
}

static __always_inline __u64 fb_others(const struct fb_group *group)
{
	return fb_all_members(group) & ~(1ULL << (group->self & 63));
}

/* The members that a contribution or a broadcast of this host's is to go to, one bit each. */
static __always_inline __u64 fb_receivers(const struct fb_frame *frame,
					  const struct fb_group *group)
{
	__u64 others = fb_others(group);

	return frame->flags == FB_FLAG_SOME ? others & frame->consumed : others;
}

/* Takes the lock of a cell, or of a part of a table. The holder runs on another CPU, with bottom
 * halves off. Or it is the leader process, filling in a cell or emptying a part. So it holds the
 * lock for some microseconds at most. But a virtual CPU may be put to sleep, hence the bound. */
static __always_inline int fb_lock(__u32 *lock)
{
	for (int i = 0; i < FB_LOCK_TRIES; i++) {
		if (__sync_val_compare_and_swap(lock, 0, 1) == 0)
			return 0;
	}
	return -1;
}

static __always_inline void fb_unlock(__u32 *lock)
{
	__sync_lock_test_and_set(lock, 0);
}

/* Hands the cell to user space. The exchange is a full barrier: a process that sees `ready` sees
 * the data (BPF has no store-release before Linux 6.15). */
static __always_inline void fb_publish(struct fb_cell *cell, __u64 seq)
{
	__sync_lock_test_and_set(&cell->ready, seq);
}

/* Bytes of the chunk that a frame with data speaks of. */
static __always_inline __u16 fb_chunk_length(const struct fb_frame *frame)
{
	return fb_is_placed(frame) ? frame->detail : frame->length;
}

static __always_inline int fb_beyond_window(const struct fb_context *c)
{
	__u64 consumed = *(volatile const __u64 *)&c->control->consumed;

	return c->frame->seq > consumed + c->group->window;
}

static __always_inline void fb_claim(const struct fb_context *c, __u8 kind)
{
	struct fb_cell *cell = c->cell;

	cell->seq = c->frame->seq;
	cell->arrived = 0;
	cell->consumed = ~0ULL;
	cell->kind = kind;
	cell->op = c->frame->op;
	cell->type = c->frame->type;
	cell->target = c->frame->target;
	cell->length = fb_chunk_length(c->frame);
	cell->flags = c->frame->flags;
	cell->fanned_out = 0;
	cell->asked = 0;
	cell->message = c->frame->message;
}

/* To be called where a program is done with a frame: counts why nothing came of it, if so. */
static __always_inline void fb_count(struct fb_counters *counters, int why)
{
	__u64 *counter = (__u64 *)counters;
	__u32 at = why;

	/* The checked value is the used one, also to Linux 6.1: the compiler must not make another
	 * of it, nor one check of both. */
	__asm__ volatile("" : "+r"(at));
	if (at >= sizeof(*counters) / sizeof(*counter))
		return;
	__asm__ volatile("" : "+r"(at));
	if (at)
		counter[at]++;
}

/* Whether the frame may be of the collective that the cell's chunk is of. If not, the program is
 * wrong, and the leader must know: its ranks are in different collectives. */
static __always_inline int fb_same_chunk(const struct fb_context *c, __u8 kind)
{
	const struct fb_cell *cell = c->cell;
	const struct fb_frame *frame = c->frame;

	if (cell->kind == kind && cell->target == frame->target && cell->flags == frame->flags)
		return 1;
	*(volatile __u64 *)&c->control->mismatched = frame->seq;
	return 0;
}

/* Whether the frame speaks of the message that the cell's chunk is of in the same terms. */
static __always_inline int fb_same_message(const struct fb_context *c)
{
	const struct fb_cell *cell = c->cell;
	const struct fb_frame *frame = c->frame;

	return cell->op == frame->op && cell->type == frame->type &&
	       cell->length == fb_chunk_length(frame) && cell->message == frame->message;
}

/* Notes that it does not. */
static __always_inline void fb_mismatch(const struct fb_context *c)
{
	__u64 held = c->cell->message & ~FB_MISMATCHED, heard = c->frame->message & ~FB_MISMATCHED;

	c->cell->message = (held > heard ? held : heard) | FB_MISMATCHED;
}

/* The members, one bit each, whose contributions make the cell's fold complete here: on a ring this
 * one and the one before it. */
static __always_inline __u64 fb_wanted(const struct fb_context *c)
{
	const struct fb_group *group = c->group;
	__u8 self = group->self;

	if (c->cell->flags != FB_FLAG_RING)
		return fb_all_members(group);
	if (self == fb_behind(group, c->cell->target))
		return 1ULL << (self & 63);
	return 1ULL << (self & 63) | 1ULL << (fb_before(group, self) & 63);
}

/* Passes complete data on along the ring, once: the fold so far, up to the target; the result,
 * until all have it. */
static __always_inline void fb_pass_on(const struct fb_context *c, int can_send,
				       struct fb_reply *reply)
{
	struct fb_cell *cell = c->cell;
	__u8 is_result = cell->ready == cell->seq, behind = fb_behind(c->group, c->group->self);

	if (cell->fanned_out > is_result || (is_result && behind == cell->target))
		return;
	if (!can_send) {
		reply->to_tc = 1;
		return;
	}
	cell->fanned_out = 1 + is_result;
	reply->kind = is_result ? FB_KIND_RESULT : FB_KIND_CONTRIBUTION;
	reply->with_payload = 1;
	reply->mask = 1ULL << (behind & 63);
	c->counters->passed_on++;
}

/* A complete cell is asked for its result: by all, if nobody sent it yet, else by `source`. */
static __always_inline void fb_answer(const struct fb_context *c, int can_send,
				      struct fb_reply *reply)
{
	struct fb_cell *cell = c->cell;

	if (cell->flags == FB_FLAG_RING)
		return fb_pass_on(c, can_send, reply);
	if (!(cell->flags & FB_FLAG_RESULT_TO_ALL))
		return;
	if (!can_send) {
		reply->to_tc = 1;
		return;
	}
	reply->kind = FB_KIND_RESULT;
	reply->with_payload = 1;
	if (!cell->fanned_out) {
		cell->fanned_out = 1;
		reply->mask = fb_others(c->group);
		c->counters->fan_outs++;
	} else if (c->frame->source != c->group->self) {
		reply->mask = 1ULL << (c->frame->source & 63);
		c->counters->retransmissions++;
	}
}

/* Why a frame is dropped whose seal is not what it must be. */
static __always_inline int fb_why_unsealed(const struct fb_key *key)
{
	return key->keyed ? FB_WHY(drop_forged) : FB_WHY(drop_corrupt);
}

/* The frame says what is known already: perhaps it was asked for too early, and the leader wants to
 * know. Nobody asks for pieces that are not posted, nor for direct contributions: their sender does
 * not know who misses them. */
static __always_inline int fb_repeated(const struct fb_context *c)
{
	const struct fb_frame *frame = c->frame;

	if ((frame->kind != FB_KIND_PIECE || frame->flags == FB_FLAG_POSTED) &&
	    (frame->kind != FB_KIND_CONTRIBUTION || frame->flags != FB_FLAG_DIRECT))
		c->control->repeated++;
	return FB_WHY(duplicates);
}

/* A contribution has come to this host, the chunk's aggregator; or, on a ring, from the member
 * before it. */
static __always_inline int fb_contribute(const struct fb_context *c, int can_send,
					 struct fb_reply *reply)
{
	const struct fb_frame *frame = c->frame;
	struct fb_cell *cell = c->cell;
	__u64 bit = 1ULL << (frame->source & 63);
	__u32 length = frame->length;
	int why = 0;

	if (frame->seq < cell->seq)
		return FB_WHY(drop_stale);
	if (frame->seq > cell->seq) {
		if (fb_beyond_window(c))
			return FB_WHY(drop_window);
		fb_claim(c, FB_KIND_CONTRIBUTION);
	} else if (!fb_same_chunk(c, FB_KIND_CONTRIBUTION)) {
		return FB_WHY(drop_mismatch);
	}
	if (cell->arrived & bit || cell->ready == frame->seq) {
		/* With XDP in front, the last contribution comes by twice: there it completes the
		 * cell, here, in TC, it makes the result go out. TC counts the frames that XDP
		 * leaves to it. */
		int complete = cell->arrived == fb_wanted(c), first = !cell->fanned_out;

		if (complete)
			fb_answer(c, can_send, reply);
		return reply->to_tc || (reply->kind && first) ? 0 : fb_repeated(c);
	}
	if (!fb_same_message(c)) {
		/* It counts as come, so that all get to know. */
		fb_mismatch(c);
		why = FB_WHY(drop_mismatch);
	} else if (length) {
		struct fb_payload *own = (struct fb_payload *)cell->data;

		if (frame->op == FB_OP_PLACE) {
			fb_place(own, c->payload, frame->offset, length);
		} else if (!cell->arrived) {
			fb_copy(own, c->payload, length);
		} else if (fb_fold(own, c->payload, frame->op, frame->type, length)) {
			return FB_WHY(drop_malformed);
		}
	}
	cell->arrived |= bit;
	if (frame->consumed < cell->consumed)
		cell->consumed = frame->consumed;
	c->counters->contributions_folded++;
	if (cell->arrived == fb_wanted(c)) {
		if (cell->flags != FB_FLAG_RING || cell->target == c->group->self) {
			c->counters->chunks_completed++;
			fb_publish(cell, frame->seq);
		}
		fb_answer(c, can_send, reply);
	}
	return why;
}

/* Whether the frame, of a kind that is deposited, comes from its right sender. */
static __always_inline int fb_may_deposit(const struct fb_context *c)
{
	const struct fb_frame *frame = c->frame;

	if (frame->kind == FB_KIND_PIECE)
		return frame->target == c->group->self &&
		       (frame->flags == 0 || frame->flags == FB_FLAG_POSTED);
	if (frame->kind == FB_KIND_RESULT && frame->flags == FB_FLAG_DIRECT)
		return 1;
	/* Also at its target, which may have asked for the last contribution before that came. */
	if (frame->flags == FB_FLAG_RING)
		return frame->kind == FB_KIND_RESULT &&
		       frame->source == fb_before(c->group, c->group->self);
	return frame->source == frame->target && frame->target != c->group->self;
}

/* Keeps account of whether this host hears frames to all. It has missed and asked for results and
 * broadcasts that come to it alone, though all members were thought to hear them. A frame that was
 * only late has come before the answer. */
static __always_inline void fb_hear(const struct fb_context *c, int alone)
{
	struct fb_control *control = c->control;

	if (!control->multicast || c->frame->kind == FB_KIND_PIECE ||
	    c->frame->flags == FB_FLAG_RING || c->frame->flags == FB_FLAG_SOME)
		return;
	if (!alone)
		control->missed -= control->missed > 0;
	else if (control->missed <= FB_DEAF_FROM)
		control->missed += FB_MISS;
}

/* Lays the payload into the cell. A payload with which the programs do nothing else goes there
 * straight from the packet. Its seal has not been checked. */
static __always_inline int fb_lay(const struct fb_context *c, const struct fb_packet *packet)
{
	struct fb_payload *own = (struct fb_payload *)c->cell->data;
	__u32 length = c->frame->length;

	if (!length)
		return 0;
	if (fb_is_deposited(c->frame))
		return fb_load_payload(packet, own, length) ? -1 : 0;
	return fb_copy(own, c->payload, length);
}

/* A result has come, from the aggregator, a broadcast, from its root, or a piece for this host;
 * `alone`: sent to this host and no other. */
static __always_inline int fb_deposit(const struct fb_context *c, const struct fb_packet *packet,
				      int alone, int can_send, struct fb_reply *reply)
{
	const struct fb_frame *frame = c->frame;
	struct fb_cell *cell = c->cell;
	__u8 kind = frame->kind == FB_KIND_RESULT ? FB_KIND_CONTRIBUTION : frame->kind;

	if (!fb_may_deposit(c))
		return FB_WHY(drop_malformed);
	if (frame->seq < cell->seq)
		return FB_WHY(drop_stale);
	if (frame->seq > cell->seq) {
		/* A broadcast or a piece may come before this host got to it; a result cannot,
		 * since this host's contribution is in it. */
		if (kind == FB_KIND_CONTRIBUTION || fb_beyond_window(c))
			return FB_WHY(drop_window);
		fb_claim(c, kind);
	} else if (cell->ready == frame->seq) {
		/* As in fb_contribute(). */
		if (cell->flags == FB_FLAG_RING && frame->flags == FB_FLAG_RING)
			fb_pass_on(c, can_send, reply);
		return reply->to_tc || reply->kind ? 0 : fb_repeated(c);
	} else if (!fb_same_chunk(c, kind)) {
		return FB_WHY(drop_mismatch);
	} else if (!fb_same_message(c)) {
		/* Only the result of contributions that differ may differ from what was posted. */
		if (!(frame->message & FB_MISMATCHED))
			return FB_WHY(drop_mismatch);
		cell->message = frame->message;
	}
	if (fb_lay(c, packet))
		return FB_WHY(drop_kernel);
	if (fb_is_deposited(frame))
		cell->arrived = frame->detail;
	cell->consumed = frame->consumed;
	c->counters->deposited++;
	fb_hear(c, alone);
	fb_publish(cell, frame->seq);
	if (frame->flags == FB_FLAG_RING)
		fb_pass_on(c, can_send, reply);
	return 0;
}

/* The member behind waits for frames along a ring. */
static __always_inline void fb_pull_ring(const struct fb_context *c, struct fb_reply *reply)
{
	const struct fb_frame *frame = c->frame;
	struct fb_cell *cell = c->cell;
	__u8 self = c->group->self, before = fb_before(c->group, self);
	int has_result = cell->ready == frame->seq, is_complete;

	if (cell->seq != frame->seq || cell->kind != FB_KIND_CONTRIBUTION ||
	    cell->flags != FB_FLAG_RING || frame->source != fb_behind(c->group, self))
		return;
	is_complete = cell->arrived == fb_wanted(c);
	if (has_result || (is_complete && !(frame->flags & FB_FLAG_RESULT_TO_ALL))) {
		reply->kind = has_result ? FB_KIND_RESULT : FB_KIND_CONTRIBUTION;
		reply->with_payload = 1;
		reply->mask = 1ULL << (frame->source & 63);
		c->counters->retransmissions++;
	} else if (!cell->asked) {
		/* It is missing here, too, and this host's leader mostly asks for it. */
		cell->asked = 1;
	} else if (cell->arrived >> (self & 63) & 1) {
		reply->kind = FB_KIND_PULL;
		reply->flags = FB_FLAG_RING | (is_complete ? FB_FLAG_RESULT_TO_ALL : 0);
		reply->mask = 1ULL << (before & 63);
	}
}

/* Somebody waits for a direct chunk. The fold is the same everywhere, so any member that has it can
 * tell. Members without it wait too, and send their contributions again unasked. */
static __always_inline void fb_pull_direct(const struct fb_context *c, struct fb_reply *reply)
{
	const struct fb_cell *cell = c->cell;

	if (cell->ready != c->frame->seq || cell->flags != FB_FLAG_DIRECT)
		return;
	reply->kind = FB_KIND_RESULT;
	reply->mask = 1ULL << (c->frame->source & 63);
	reply->with_payload = 1;
	c->counters->retransmissions++;
}

/* A member waits for a piece of a parcel for it, which this host has posted. A piece that came here
 * was for this host alone. */
static __always_inline void fb_pull_piece(const struct fb_context *c, struct fb_reply *reply)
{
	const struct fb_cell *cell = c->cell;

	if (cell->target == c->group->self || cell->target != c->frame->source)
		return;
	reply->kind = FB_KIND_PIECE;
	reply->mask = 1ULL << (c->frame->source & 63);
	reply->with_payload = 1;
	c->counters->retransmissions++;
}

/*
 * A member waits for the chunk and asks for what is held of it here.
 * With this the kernel answers for a process that computes, or has long gone on.
 */
static __always_inline int fb_pull(const struct fb_context *c, struct fb_reply *reply)
{
	const struct fb_frame *frame = c->frame;
	struct fb_cell *cell = c->cell;
	__u64 asker = 1ULL << (frame->source & 63);

	if (frame->flags & FB_FLAG_DEAF)
		c->control->multicast = 0;
	if (frame->seq < cell->seq)
		return FB_WHY(drop_stale);
	if (frame->flags & FB_FLAG_DIRECT) {
		fb_pull_direct(c, reply);
		return 0;
	}
	if (frame->flags & FB_FLAG_RING) {
		fb_pull_ring(c, reply);
		return 0;
	}
	if (frame->seq > cell->seq) {
		/* Nothing has come here yet, so the asker's own contribution was lost too. Its
		 * kernel has it. (Only the aggregator asks back, or two hosts would for ever.) */
		if (frame->target == c->group->self) {
			reply->kind = FB_KIND_PULL;
			reply->mask = asker;
		}
		return 0;
	}
	if (cell->ready == frame->seq) {
		if (cell->kind == FB_KIND_PIECE) {
			fb_pull_piece(c, reply);
			return 0;
		}
		if (cell->kind == FB_KIND_CONTRIBUTION && cell->target != c->group->self)
			return 0; /* only the aggregator's word is a result */
		if (cell->kind == FB_KIND_CONTRIBUTION) {
			fb_answer(c, 1, reply);
			return 0;
		}
		if (cell->target != c->group->self)
			return 0; /* only the root's word is a broadcast */
		reply->kind = FB_KIND_BROADCAST;
		reply->mask = asker;
		reply->with_payload = 1;
		c->counters->retransmissions++;
	} else if (cell->kind != FB_KIND_CONTRIBUTION) {
		return 0;
	} else if (cell->target == c->group->self) {
		/* All wait for a contribution that one member has lost, and ask for it at about the
		 * same time. Once is enough, until somebody asks again. */
		if (cell->asked && !(cell->asked & asker)) {
			cell->asked |= asker;
			return 0;
		}
		cell->asked = asker;
		reply->kind = FB_KIND_PULL;
		reply->mask = fb_others(c->group) & ~cell->arrived;
	} else if (frame->source == cell->target) {
		reply->kind = FB_KIND_CONTRIBUTION;
		reply->mask = asker;
		reply->with_payload = 1;
		c->counters->retransmissions++;
	}
	return 0;
}

/* The frame of a reply. Called with the cell still locked; the payload is its data. */
static __always_inline void fb_fill_reply(const struct fb_context *c, const struct fb_reply *reply,
					  struct fb_frame *out)
{
	const struct fb_cell *cell = c->cell;

	*out = (struct fb_frame){
	    .magic = FB_WIRE_MAGIC,
	    .version = FB_WIRE_VERSION,
	    .kind = reply->kind,
	    .token = c->frame->token,
	    .seq = c->frame->seq,
	    .source = c->group->self,
	    .target = c->frame->target,
	    .flags = reply->flags,
	};
	if (reply->with_payload) {
		out->op = cell->op;
		out->type = cell->type;
		out->target = cell->target;
		out->flags = cell->flags;
		out->consumed = cell->consumed;
		out->length = cell->length;
		out->message = cell->message;
		if (fb_is_deposited(out))
			out->detail = cell->arrived;
		if (reply->kind == FB_KIND_CONTRIBUTION && cell->flags != FB_FLAG_RING) {
			out->length = cell->part;
			if (cell->op == FB_OP_PLACE) {
				out->offset = cell->offset;
				out->detail = cell->length;
			}
		}
	}
	out->seal =
	    fb_seal(out, (const struct fb_payload *)cell->data, fb_sealed_bytes(out), c->key);
}

#endif
