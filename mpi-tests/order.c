/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reductions whose answer depends on the order of the ranks, or on the brackets. Some are of
 * floating point of unlike magnitudes. Others are by the program's own operations, some of which do
 * not commute. Every rank gathers all input by messages, folds it from the left, and counts the
 * answers whose bits are others. With --exact there may be none, so all ranks have the same bits;
 * MPI alone leaves both open.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "issue.h"
#include "kind.h"
#include "program.h"
#include "team.h"

enum { CHUNK = 1408, LONG = 12000, MOST_RANKS = 64, ROOM = 16 << 10, TAG = 77 };

static long seed = 1, rounds = 20, settle = 16, exact, only_long;

static const struct option_spec options[] = {
    {"--seed", OPTION_NUMBER, &seed, "of all random data (1)"},
    {"--rounds", OPTION_NUMBER, &rounds, "how often to make each call (20)"},
    {"--settle", OPTION_NUMBER, &settle, "Allreduces on each communicator first (16)"},
    {"--exact", OPTION_FLAG, &exact, "every answer must be that of the fold in rank order"},
    {"--long", OPTION_FLAG, &only_long, "only what is folded of more than a frame, and that long"},
    {0},
};

static unsigned long n_calls, n_other;

/* Everyone's `bytes` bytes, by messages: from nobody's collective. */
static void gather(const struct team *team, const void *mine, void *all, int bytes)
{
	for (int i = 0; i < team->size; i++) {
		int to = (team->rank + i) % team->size;
		int from = (team->rank - i + team->size) % team->size;

		MPI_Sendrecv(mine, bytes, MPI_BYTE, to, TAG, (char *)all + from * bytes, bytes,
			     MPI_BYTE, from, TAG, team->comm, MPI_STATUS_IGNORE);
	}
}

static bool same(const struct kind *kind, const void *got, const void *want, size_t count)
{
	const unsigned char *x = got, *y = want;

	for (size_t i = 0; i < count * kind->extent; i++)
		if (x[i] != y[i] && kind->significant >> i % kind->extent & 1)
			return false;
	return true;
}

struct
try {
	const struct team *team;
	const struct kind *kind;
	enum op op;
	enum collective collective;
	enum form form;
	bool in_place;
	int root;
};

/* The ranks whose contributions are folded: below this one. */
static int last_folded(const struct try *try)
{
	if (try->collective == REDUCE)
		return try->team->rank == try->root ? try->team->size : 0;
	if (try->collective == SCAN)
		return try->team->rank + 1;
	return try->collective == EXSCAN ? try->team->rank : try->team->size;
}

static void run(const struct try *try, struct random *random)
{
	static _Alignas(64) char mine[ROOM], all[MOST_RANKS * ROOM], want[ROOM], got[ROOM];
	const struct team *team = try->team;
	const struct kind *kind = try->kind;
	bool scatters =
	    try->collective == REDUCE_SCATTER || try->collective == REDUCE_SCATTER_BLOCK;
	size_t ranks = (size_t)team->size, blocks = scatters ? ranks : 1;
	/* All that all bring fits into one frame, with what hosts are rounded up to. */
	size_t room = only_long ? LONG : CHUNK / ranks - 8;
	size_t most = room / kind->extent / blocks;
	size_t count = most ? 1 + random_below(random, most) : 0, whole = count * blocks;
	struct random own = random_start((uint64_t)seed, random_next(random), (uint64_t)team->rank);
	bool special = random_next(random) & 1, receives = last_folded(try) > 0;
	int counts[MOST_RANKS];
	MPI_Count large_counts[MOST_RANKS];
	MPI_Request request = MPI_REQUEST_NULL;

	if (!count)
		return;
	for (size_t i = 0; i < ranks; i++)
		large_counts[i] = counts[i] = (int)count;
	memset(mine, 0, whole * kind->extent);
	memset(got, 0, whole * kind->extent);
	for (size_t i = 0; i < whole; i++)
		kind->fill(mine + i * kind->extent, &own, try->op, special);
	gather(team, mine, all, (int)(whole * kind->extent));
	for (int rank = 0; rank < last_folded(try); rank++) {
		const char *part = all + (size_t)rank * whole * kind->extent +
				   (scatters ? (size_t)team->rank * count * kind->extent : 0);

		if (!rank)
			memcpy(want, part, count * kind->extent);
		for (size_t i = 0; i < count && rank; i++)
			kind->fold(want + i * kind->extent, part + i * kind->extent, try->op);
	}
	if (try->in_place && receives)
		memcpy(got, mine, whole * kind->extent);
	bool in_place = try->in_place && (try->collective != REDUCE || team->rank == try->root);
	struct arguments arguments = {.send = in_place ? MPI_IN_PLACE : mine,
				      .recv = got,
				      .recv_count = (int)count,
				      .recv_counts = counts,
				      .recv_counts_large = large_counts,
				      .recv_type = kind->type,
				      .op = kind_op(kind, try->op),
				      .root = try->root,
				      .comm = team->comm};
	if (in_place)
		memcpy(got, mine, whole * kind->extent);
	issue(try->collective, try->form, false, &arguments, &request);
	issue_complete(try->form, &request);
	n_calls++;
	if (!receives || same(kind, got, want, count))
		return;
	n_other++;
	if (exact)
		fail("%s of %zu %s (op %d), form %d, on %s: not the fold in rank order",
		     collectives[try->collective].name, count, kind->name, (int)try->op,
		     (int)try->form, team->name);
}

static void run_all(const struct team *team, struct random *random)
{
	static const enum collective reductions[] = {
	    ALLREDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN};

	for (int i = 0; i < n_kinds * 4 * 6; i++) {
		struct try try = {
		    team, &kinds[i % n_kinds], SUM, reductions[i / n_kinds / 4], BLOCKING, false,
		    0};
		uint64_t choice = random_next(random);

		if (i / n_kinds % 4 >= try.kind->n_ops)
			continue;
		/* Data that MPI folds for the library is never long. */
		if (only_long && (!try.kind->waits_too || (try.collective != ALLREDUCE &&
							   try.collective != REDUCE_SCATTER_BLOCK)))
			continue;
		try.op = try.kind->ops[i / n_kinds % 4];
		try.root = (int)(choice % (uint64_t)team->size);
		try.in_place = choice >> 20 & 1;
		if (try.kind->waits_too && choice >> 24 & 1)
			try.form = NONBLOCKING;
		/* Few: each has a group of its own. */
		if (try.kind->waits_too && try.collective == ALLREDUCE &&
		    (choice >> 32) % 64 == 0 && issue_has(ALLREDUCE, PERSISTENT, false))
			try.form = PERSISTENT;
		watch(PATIENCE, "%s of %s on %s", collectives[try.collective].name, try.kind->name,
		      team->name);
		run(&try, random);
	}
}

int main(int argc, char **argv)
{
	struct team teams[2];

	program_start("order", &argc, &argv, options);
	if (world_size > MOST_RANKS)
		fail("at most %d ranks", MOST_RANKS);
	kinds_make();
	teams_make_both(teams, settle);
	for (long round = 0; round < rounds; round++) {
		struct random random = random_start((uint64_t)seed, (uint64_t)round, 0);

		run_all(&teams[round % 2], &random);
	}
	if (n_other)
		say("order: %lu answers are not the fold in rank order (on rank 0)", n_other);
	say("order: all ok, %lu calls, %d ranks", n_calls, world_size);
	kinds_free();
	teams_free_both(teams);
	MPI_Finalize();
	return 0;
}
