/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Random collectives on random data, every answer compared bit for bit with one computed here.
 *
 * Each rank knows the input of every rank (elements_input), so it folds all of it and needs no MPI
 * to know the answer. Around each buffer are guards, and in derived datatypes gaps, that must stay
 * as they were; so must the send buffer, and what lies at a root alone.
 *
 * With --compare each call is made a second time through PMPI_*, which an interposed library leaves
 * to the real MPI. The real answers are checked in the same way, and are therefore equal, except
 * for deviations that lib/deviation.c names. The option --real-above says which calls of MPI_* end
 * up in the real MPI too, so that these are expected of them.
 */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "deviation.h"
#include "image.h"
#include "plan.h"
#include "program.h"

static long seed = 1, calls = 1000, first = 0, stall = PATIENCE, real_above = LONG_MAX;
static long settle = 128, compare, verbose, many_clocks;
static struct plan_limits limits = {.max_bytes = 8192, .big_every = 500, .big_bytes = 4 << 20};

static const struct option_spec options[] = {
    {"--seed", OPTION_NUMBER, &seed, "of all random choices and data (1)"},
    {"--calls", OPTION_NUMBER, &calls, "how many collectives (1000)"},
    {"--first", OPTION_NUMBER, &first, "number of the first, to repeat one alone (0)"},
    {"--max-bytes", OPTION_NUMBER, &limits.max_bytes, "most bytes of most calls (8192)"},
    {"--big-every", OPTION_NUMBER, &limits.big_every, "one call in N is big; 0: none (500)"},
    {"--big-bytes", OPTION_NUMBER, &limits.big_bytes, "most bytes of a big call (4194304)"},
    {"--settle", OPTION_NUMBER, &settle,
     "Allreduces on each communicator before the first call (128)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one call may take (300)"},
    {"--compare", OPTION_FLAG, &compare, "make each call through PMPI_* too"},
    {"--real-above", OPTION_NUMBER, &real_above,
     "MPI_* reaches the real MPI in calls of more than N bytes (-1: in all): allow what it is "
     "known "
     "to do wrong"},
    {"--many-clocks", OPTION_FLAG, &many_clocks, "the ranks do not share one machine's clock"},
    {"--verbose", OPTION_FLAG, &verbose, "print each call before it is made"},
    {0},
};

/* One way into MPI. */
struct entry {
	const char *name;
	long real_above; /* bytes: larger calls reach the real MPI; -1: all */
	int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
	int (*reduce)(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
	int (*bcast)(void *, int, MPI_Datatype, int, MPI_Comm);
	int (*barrier)(MPI_Comm);
};

static struct image send, send_before, recv, want, expected, brought;
static unsigned long tolerated, left_out;

static const char *where_to(char *text, size_t size, const struct plan *plan,
			    const struct layout *layout, ptrdiff_t where)
{
	if (where < 0)
		snprintf(text, size, "guard byte %td before the buffer", -where);
	else if ((size_t)where >= want.bytes)
		snprintf(text, size, "guard byte %zu after the buffer", (size_t)where - want.bytes);
	else
		snprintf(text, size, "byte %td, in a gap of the datatype", where);
	for (size_t i = 0; i < plan->elements && where >= 0; i++) {
		size_t position = layout ? layout_position(layout, i) : i * plan->type->size;

		if ((size_t)where - position < plan->type->size) {
			snprintf(
			    text, size, "index %zu (got 0x%llx, want 0x%llx)", i,
			    (unsigned long long)elements_bits(recv.data + position, plan->type),
			    (unsigned long long)elements_bits(want.data + position, plan->type));
			break;
		}
	}
	return text;
}

static void check(const struct entry *entry, const struct plan *plan, const struct layout *layout)
{
	ptrdiff_t where;
	char text[160];

	if (image_differs(&recv, &want, &where))
		fail("%s, by %s: wrong at %s; rank %d there", plan_describe(plan), entry->name,
		     where_to(text, sizeof(text), plan, layout, where), plan->team->rank);
	if (send_before.used && image_differs(&send, &send_before, &where))
		fail("%s, by %s: the send buffer changed at byte %td; rank %d there",
		     plan_describe(plan), entry->name, where, plan->team->rank);
}

/* Whether the real MPI may answer: a call that reaches no other host is its business too. */
static bool is_real(const struct entry *entry, const struct plan *plan)
{
	return plan->team->hosts == 1 ||
	       (long)(plan->elements * plan->type->size) > entry->real_above;
}

/* The answer, into `expected`. */
static void reference(const struct plan *plan)
{
	size_t bytes = plan->elements * plan->type->size;

	image_prepare(&expected, bytes, 0);
	image_prepare(&brought, bytes, 0);
	for (int i = 0; i < plan->team->size; i++) {
		elements_input(i ? brought.data : expected.data, plan->type, plan->elements,
			       plan->flavour, plan->seed, plan->call, plan->team->world[i]);
		if (i)
			elements_fold(expected.data, brought.data, plan->type, plan->elements,
				      plan->op);
	}
}

/* Buffers of this rank start off a cache line by some elements. */
static size_t shift(const struct plan *plan, struct random *local)
{
	return random_below(local, 4) * plan->type->size;
}

/* Both reductions: what is sent, what the receive buffer must be afterwards. */
static void prepare_reduction(const struct plan *plan, bool receives, struct random *local)
{
	bool in_place = plan->in_place && receives;
	size_t bytes = plan->elements * plan->type->size;
	struct image *input = in_place ? &recv : &send;

	image_prepare(&recv, bytes, shift(plan, local));
	send_before.used = 0;
	if (!in_place)
		image_prepare(&send, bytes, shift(plan, local));
	elements_input(input->data, plan->type, plan->elements, plan->flavour, plan->seed,
		       plan->call, world_rank);
	if (!in_place)
		image_copy(&send_before, &send);
	image_copy(&want, &recv);
	if (receives) {
		reference(plan);
		memcpy(want.data, expected.data, bytes);
	}
}

/* Takes the real MPI's word where it is known to be wrong; the guards still count. */
static void tolerate(const struct entry *entry, const struct plan *plan)
{
	if (!is_real(entry, plan) || !deviation_answer(plan))
		return;
	if (memcmp(want.data, recv.data, want.bytes))
		tolerated++;
	memcpy(want.data, recv.data, want.bytes);
}

static void run_allreduce(const struct entry *entry, const struct plan *plan, struct random *local)
{
	prepare_reduction(plan, true, local);
	entry->allreduce(plan->in_place ? MPI_IN_PLACE : send.data, recv.data, (int)plan->elements,
			 plan->type->handle, elements_op(plan->op), plan->team->comm);
	tolerate(entry, plan);
	check(entry, plan, NULL);
}

static void run_reduce(const struct entry *entry, const struct plan *plan, struct random *local)
{
	bool is_root = plan->team->rank == plan->root;
	/* Not significant but at the root: NULL, or a buffer that must not change. */
	bool no_buffer = !is_root && random_below(local, 2);

	prepare_reduction(plan, is_root, local);
	entry->reduce(is_root && plan->in_place ? MPI_IN_PLACE : send.data,
		      no_buffer ? NULL : recv.data, (int)plan->elements, plan->type->handle,
		      elements_op(plan->op), plan->root, plan->team->comm);
	if (is_root)
		tolerate(entry, plan);
	check(entry, plan, NULL);
}

static void run_bcast(const struct entry *entry, const struct plan *plan, struct random *local)
{
	struct random same = random_start(plan->seed, plan->call, 1);
	enum layout_kind kind = LAYOUT_PLAIN;
	struct layout layout;

	if (plan->signature == SIGNATURE_SAME)
		kind = plan->layout;
	else if (plan->signature == SIGNATURE_MIXED)
		kind = (enum layout_kind)random_below(local, LAYOUTS);
	layout = layout_make(kind, plan->type, plan->elements,
			     plan->signature == SIGNATURE_SAME ? &same : local);

	send_before.used = 0;
	image_prepare(&recv, layout_bytes(&layout), shift(plan, local));
	image_copy(&want, &recv);
	image_prepare(&expected, plan->elements * plan->type->size, 0);
	elements_input(expected.data, plan->type, plan->elements, plan->flavour, plan->seed,
		       plan->call, plan->team->world[plan->root]);
	if (plan->elements)
		layout_scatter(&layout, want.data, expected.data);
	if (plan->team->rank == plan->root)
		memcpy(recv.data, want.data, want.bytes);
	entry->bcast(recv.data, layout.count, layout.handle, plan->root, plan->team->comm);
	check(entry, plan, &layout);
	layout_free(&layout);
}

/* Nobody may leave before everybody has come. Ranks that share a clock can tell. */
static void run_barrier(const struct entry *entry, const struct plan *plan)
{
	double times[2], latest[2];

	times[0] = now();
	entry->barrier(plan->team->comm);
	times[1] = -now();
	if (many_clocks)
		return;
	PMPI_Allreduce(times, latest, 2, MPI_DOUBLE, MPI_MAX, plan->team->comm);
	if (latest[0] > -latest[1])
		fail("%s, by %s: somebody left %.1f us before the last one came",
		     plan_describe(plan), entry->name, (latest[0] + latest[1]) * 1e6);
}

static void run(const struct entry *entry, const struct plan *plan)
{
	/* Choices of this rank alone. */
	struct random local = random_start(plan->seed, plan->call, 0x100u + (uint64_t)world_rank);

	if (is_real(entry, plan) && deviation_break(plan)) {
		left_out++;
		return;
	}
	watch((unsigned)stall, "%s, by %s; rank %d there", plan_describe(plan), entry->name,
	      plan->team->rank);
	if (plan->late == plan->team->rank)
		sleep_ms(1);
	switch (plan->collective) {
	case ALLREDUCE:
		run_allreduce(entry, plan, &local);
		break;
	case REDUCE:
		run_reduce(entry, plan, &local);
		break;
	case BCAST:
		run_bcast(entry, plan, &local);
		break;
	default:
		run_barrier(entry, plan);
	}
}

int main(int argc, char **argv)
{
	struct team teams[TEAMS];
	double start;

	program_start("conformance", &argc, &argv, options);
	limits.n_types = elements_types(&limits.types, &limits.n_reducible);
	teams_make(teams);
	limits.teams = teams;

	const struct entry entries[2] = {
	    {"MPI_", real_above, MPI_Allreduce, MPI_Reduce, MPI_Bcast, MPI_Barrier},
	    {"PMPI_", -1, PMPI_Allreduce, PMPI_Reduce, PMPI_Bcast, PMPI_Barrier},
	};

	teams_settle(teams, settle, (unsigned)stall);
	start = now();
	for (long call = first; call < first + calls; call++) {
		struct plan plan = plan_call(&limits, (uint64_t)seed, (uint64_t)call);

		if (verbose)
			say("%s", plan_describe(&plan));
		run(&entries[0], &plan);
		if (compare)
			run(&entries[1], &plan);
	}
	if (tolerated || left_out)
		say("conformance: of the real MPI, %lu wrong answers known of it, %lu calls left "
		    "out that it cannot take (on rank 0)",
		    tolerated, left_out);
	say("conformance: %ld calls ok, %d ranks, %d types, seed %ld, %.1f s", calls, world_size,
	    limits.n_types, seed, now() - start);
	watch((unsigned)stall, "MPI_Finalize");
	teams_free(teams);
	MPI_Finalize();
	return 0;
}
