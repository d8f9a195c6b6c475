/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "job.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deviation.h"
#include "operation.h"
#include "program.h"

static char context[256];

void job_context(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(context, sizeof(context), format, arguments);
	va_end(arguments);
}

const char *job_doing(void)
{
	return context;
}

static uint64_t stream(const struct call *call, int from, int to)
{
	return (uint64_t)call->team->world[from] * 4096 + (uint64_t)to;
}

/* The input that rank `from` brings for `to` (of a reduction: for all). */
static void input(const struct job *job, unsigned round, int from, int to, size_t elements,
		  void *at)
{
	const struct call *call = &job->call;

	operand_input(at, call->operand, elements, call->flavour, call->op, call->seed,
		      call->id + round, stream(call, from, to));
}

static bool sends(const struct call *call)
{
	bool root = call->team->rank == call->root;

	if (call->collective == BCAST || call->collective == BARRIER)
		return false;
	if (call->traits->rooted && call->traits->sends_blocks)
		return root;
	if (call->traits->rooted)
		return !(root && call->in_place);
	return !call->in_place;
}

static bool receives(const struct call *call)
{
	bool root = call->team->rank == call->root;

	if (call->collective == BARRIER)
		return false;
	if (call->collective == BCAST || !call->traits->rooted)
		return true;
	return call->traits->sends_blocks ? !(root && call->in_place) : root;
}

/* In place means something at this rank. */
static bool in_place(const struct call *call)
{
	return call->in_place && (!call->traits->rooted || call->team->rank == call->root);
}

/* The blocks of a side: their number, and their elements. */
static int blocks(const struct job *job, bool sending, size_t *elements)
{
	const struct call *call = &job->call;
	int rank = call->team->rank, size = call->team->size;

	if (sending ? !job->sends : !job->receives)
		return 0;
	if (sending ? call->traits->sends_blocks : call->traits->receives_blocks) {
		for (int i = 0; i < size; i++)
			elements[i] =
			    sending ? call_block(call, rank, i) : call_block(call, i, rank);
		return size;
	}
	if (call->traits->reduces && (sending || job->in_place))
		elements[0] = call_total(call);
	else if (call->collective == REDUCE_SCATTER)
		elements[0] = call_block(call, 0, rank);
	else if (call->traits->rooted && call->traits->sends_blocks)
		elements[0] = call_block(call, call->root, rank);
	else
		elements[0] = call_block(call, rank, 0);
	return 1;
}

static void make_side(struct job *job, struct side *side, bool sending, struct random *local)
{
	const struct call *call = &job->call;
	size_t *elements = calloc((size_t)call->team->size, sizeof(size_t));
	bool many = sending ? call->traits->sends_blocks : call->traits->receives_blocks;
	struct unit_choice unit = {.elements = 1};
	int n = blocks(job, sending, elements);

	if (n && call->units != UNITS_PLAIN)
		unit = call->units == UNITS_ALIKE ? call->unit : call_unit(call, local);
	side_make(side, call->operand, &unit, n, elements, many && call->traits->vector, local);
	free(elements);
}

/* Arguments that MPI must not look at here. */
static void insignificant(struct arguments *a, struct side *side, bool sending,
			  struct random *local)
{
	bool absurd = random_below(local, 2);
	MPI_Datatype type = absurd ? MPI_DATATYPE_NULL : side->operand->handle;
	int count = absurd ? 0 : 3;

	if (sending) {
		a->send_count = count;
		a->send_type = type;
		a->send_counts = a->send_displs = NULL;
		a->send_counts_large = NULL;
		a->send_displs_large = NULL;
	} else {
		a->recv_count = count;
		a->recv_type = type;
		a->recv_counts = a->recv_displs = NULL;
		a->recv_counts_large = NULL;
		a->recv_displs_large = NULL;
	}
}

static void make_arguments(struct job *job, struct random *local)
{
	const struct call *call = &job->call;
	struct side *send = &job->send, *recv = &job->recv;
	struct arguments *a = &job->arguments;

	*a = (struct arguments){
	    .send = send->address,
	    .recv = recv->address,
	    .send_count = send->count,
	    .recv_count = recv->count,
	    .send_counts = send->counts,
	    .send_displs = send->displs,
	    .recv_counts = recv->counts,
	    .recv_displs = recv->displs,
	    .send_counts_large = send->large_counts,
	    .recv_counts_large = recv->large_counts,
	    .send_displs_large = send->large_displs,
	    .recv_displs_large = recv->large_displs,
	    .send_type = send->handle,
	    .recv_type = recv->handle,
	    .op = call->traits->reduces ? operation_handle(call->op) : MPI_OP_NULL,
	    .root = call->root,
	    .comm = call->team->comm,
	};
	if (!job->sends) {
		insignificant(a, send, true, local);
		a->send = job->in_place ? MPI_IN_PLACE : random_below(local, 2) ? NULL : a->send;
	}
	if (!job->receives) {
		insignificant(a, recv, false, local);
		a->recv = random_below(local, 2) ? NULL : a->recv;
		if (call->in_place && call->traits->sends_blocks && job->in_place)
			a->recv = MPI_IN_PLACE;
	}
	if (call->traits->reduces) {
		a->recv_count = (int)call->elements;
		a->recv_type = call->operand->handle;
	}
}

/* Reduce_scatter takes an array, not of blocks of a side. */
static void make_counts(struct job *job)
{
	const struct call *call = &job->call;
	int size = call->team->size;

	if (call->collective != REDUCE_SCATTER)
		return;
	job->recv.counts = realloc(job->recv.counts, (size_t)size * sizeof(int));
	job->recv.large_counts = realloc(job->recv.large_counts, (size_t)size * sizeof(MPI_Count));
	for (int i = 0; i < size; i++) {
		job->recv.counts[i] = (int)call_block(call, 0, i);
		job->recv.large_counts[i] = job->recv.counts[i];
	}
	job->arguments.recv_counts = job->recv.counts;
	job->arguments.recv_counts_large = job->recv.large_counts;
}

void job_make(struct job *job, const struct call *call, struct random *local)
{
	job->call = *call;
	job->sends = sends(call);
	job->receives = receives(call);
	job->in_place = in_place(call);
	make_side(job, &job->send, true, local);
	make_side(job, &job->recv, false, local);
	make_arguments(job, local);
	make_counts(job);
}

void job_free_types(struct job *job)
{
	struct side *sides[] = {&job->send, &job->recv};

	for (int i = 0; i < 2; i++)
		if (sides[i]->handle != sides[i]->operand->handle)
			MPI_Type_free(&sides[i]->handle);
}

void job_free(struct job *job)
{
	side_free(&job->send);
	side_free(&job->recv);
}

/* Scratch memory for the elements of one block or reduction. */
static void *scratch(int which, size_t bytes)
{
	static struct {
		void *memory;
		size_t bytes;
	} places[2];

	if (places[which].bytes < bytes + 64) {
		free(places[which].memory);
		places[which].bytes = 2 * bytes + 4096;
		places[which].memory = aligned_alloc(64, (places[which].bytes + 63) / 64 * 64);
		if (!places[which].memory)
			abort();
	}
	return places[which].memory;
}

/* One block of `image`, which is like the image of `side`, as rank `from` brings it for `to`. */
static void put_block(const struct job *job, const struct side *side, struct image *image,
		      unsigned round, int block, int from, int to)
{
	size_t elements = side->elements[block];
	void *at = scratch(0, elements * job->call.operand->size);

	input(job, round, from, to, elements, at);
	side_put(side, image, block, at, elements);
}

/* This rank's input to a call that moves data: in the send buffer, or in place. */
static void load_moved(struct job *job, unsigned round)
{
	const struct call *call = &job->call;
	int rank = call->team->rank;

	if (job->sends)
		for (int i = 0; i < job->send.blocks; i++)
			put_block(job, &job->send, &job->send.image, round, i, rank, i);
	if (call->collective == BCAST && rank == call->root)
		put_block(job, &job->recv, &job->recv.image, round, 0, rank, 0);
	if (!job->in_place || !job->receives)
		return;
	if (call->traits->sends_blocks) /* Alltoall */
		for (int i = 0; i < job->recv.blocks; i++)
			put_block(job, &job->recv, &job->recv.image, round, i, rank, i);
	else
		put_block(job, &job->recv, &job->recv.image, round, rank, rank, 0);
}

static void want_moved(struct job *job, unsigned round)
{
	const struct call *call = &job->call;
	int rank = call->team->rank;

	for (int i = 0; i < job->recv.blocks; i++) {
		int from = call->traits->receives_blocks ? i : call->root;

		put_block(job, &job->recv, &job->want, round, i, from,
			  call->traits->sends_blocks ? rank : 0);
	}
}

/* The ranks whose contributions make the answer here: first <= rank < last. */
static int last_folded(const struct call *call)
{
	if (call->collective == SCAN)
		return call->team->rank + 1;
	return call->collective == EXSCAN ? call->team->rank : call->team->size;
}

static void want_reduced(struct job *job, unsigned round)
{
	const struct call *call = &job->call;
	size_t total = call_total(call), size = call->operand->size, skipped = 0, mine = total;
	char *all = scratch(0, total * size), *one = scratch(1, total * size);
	int rank = call->team->rank;

	if (call->collective == REDUCE_SCATTER || call->collective == REDUCE_SCATTER_BLOCK) {
		for (int i = 0; i < rank; i++)
			skipped += call_block(call, 0, i);
		mine = call_block(call, 0, rank);
	}
	for (int i = 0; i < last_folded(call); i++) {
		input(job, round, i, 0, total, i ? one : all);
		if (i)
			operation_fold(all, one, call->operand, total, call->op);
	}
	if (last_folded(call))
		side_put(&job->recv, &job->want, 0, all + skipped * size, mine);
}

void job_load(struct job *job, unsigned round)
{
	const struct call *call = &job->call;
	struct side *input_side = job->sends ? &job->send : &job->recv;

	side_clear(&job->send);
	side_clear(&job->recv);
	if (call->collective != BARRIER && !call->traits->reduces)
		load_moved(job, round);
	else if (call->traits->reduces) {
		void *at = scratch(0, call_total(call) * call->operand->size);

		input(job, round, call->team->rank, 0, call_total(call), at);
		side_put(input_side, &input_side->image, 0, at, call_total(call));
	}
	image_copy(&job->sent, &job->send.image);
	image_copy(&job->want, &job->recv.image);
	if (!job->receives)
		return;
	if (call->traits->reduces)
		want_reduced(job, round);
	else
		want_moved(job, round);
}

/* Takes undefined bytes over from the answer: padding, the sign of 0, places left undefined. */
static void forgive(struct job *job, bool answers)
{
	const struct call *call = &job->call;
	size_t size = call->operand->size, defined;

	for (int block = 0; block < job->recv.blocks; block++) {
		/* Exscan leaves rank 0's undefined; Reduce_scatter in place what is not its own. */
		defined = job->recv.elements[block];
		if (call->collective == EXSCAN && call->team->rank == 0)
			defined = 0;
		if (call->collective == REDUCE_SCATTER || call->collective == REDUCE_SCATTER_BLOCK)
			defined = call_block(call, 0, call->team->rank);
		for (size_t i = 0; i < job->recv.elements[block]; i++) {
			size_t at = side_position(&job->recv, block, i);
			unsigned char *got = job->recv.image.data + at, *want = job->want.data + at;

			if (memcmp(got, want, size) &&
			    (answers || i >= defined || operand_same(got, want, call->operand)))
				memcpy(want, got, size);
		}
	}
}

static const char *where_to(const struct job *job, ptrdiff_t where)
{
	static char text[320];
	char got[80], want[80];
	size_t size = job->call.operand->size;

	snprintf(text, sizeof(text), "byte %td of %zu, where nothing is received", where,
		 job->recv.bytes);
	for (int block = 0; block < job->recv.blocks; block++)
		for (size_t i = 0; i < job->recv.elements[block]; i++) {
			size_t at = side_position(&job->recv, block, i);

			if (where < (ptrdiff_t)at || where >= (ptrdiff_t)(at + size))
				continue;
			snprintf(text, sizeof(text),
				 "block %d of %d, element %zu of %zu (got %s, want %s)", block,
				 job->recv.blocks, i, job->recv.elements[block],
				 operand_text(got, sizeof(got), job->recv.image.data + at,
					      job->call.operand),
				 operand_text(want, sizeof(want), job->want.data + at,
					      job->call.operand));
		}
	return text;
}

bool job_check(struct job *job, unsigned round, bool real)
{
	bool tolerated = false;
	ptrdiff_t where;

	if (operation_misused)
		fail("%s: %s: an operation of the program was called with another datatype",
		     context, call_describe(&job->call));
	if (memcmp(job->recv.image.base, job->want.base, job->want.used))
		forgive(job, false);
	if (real && image_differs(&job->recv.image, &job->want, &where) &&
	    deviation_call_answer(&job->call)) {
		forgive(job, true);
		tolerated = true;
	}
	if (image_differs(&job->recv.image, &job->want, &where))
		fail("%s: %s, round %u: wrong at %s; rank %d there, %s", context,
		     call_describe(&job->call), round, where_to(job, where), job->call.team->rank,
		     unit_name(job->recv.unit.kind));
	if (image_differs(&job->send.image, &job->sent, &where))
		fail("%s: %s, round %u: the send buffer changed at byte %td; rank %d there",
		     context, call_describe(&job->call), round, where, job->call.team->rank);
	return tolerated;
}
