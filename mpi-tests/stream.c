/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A long stream of small collectives, as fast as they go: the soak under loss, duplication and
 * reordering. Answers have a closed form, so that checking costs next to nothing.
 */
#include <mpi.h>

#include "program.h"
#include "random.h"
#include "team.h"

enum { MOST = 512 }; /* longs: 4 KiB, three chunks */

static long seed = 1, calls = 100000, seconds, stall = PATIENCE;

static const struct option_spec options[] = {
    {"--seed", OPTION_NUMBER, &seed, "of the choices (1)"},
    {"--calls", OPTION_NUMBER, &calls, "how many collectives (100000)"},
    {"--seconds", OPTION_NUMBER, &seconds, "for so long, whatever --calls says"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that 1000 calls may take (300)"},
    {0},
};

static long mine[MOST], result[MOST], more[64];

static void expect(long call, const char *what, int i, long want)
{
	if (result[i] != want)
		fail("call %ld: %s: index %d is %ld, want %ld (seed %ld)", call, what, i, result[i],
		     want, seed);
}

/* Rank r brings call + r (i + 1) at index i. */
static void bring(const struct team *team, long call, int count)
{
	for (int i = 0; i < count; i++) {
		mine[i] = call + (long)team->rank * (i + 1);
		result[i] = -1;
	}
}

static void check_sum(const struct team *team, long call, const char *what, int count)
{
	long n = team->size;

	for (int i = 0; i < count; i++)
		expect(call, what, i, n * call + n * (n - 1) / 2 * (i + 1));
}

static void check_max(const struct team *team, long call, const char *what, int count)
{
	for (int i = 0; i < count; i++)
		expect(call, what, i, call + (long)(team->size - 1) * (i + 1));
}

/* Non-blocking, each rank waiting for the second first. */
static void two_at_once(const struct team *team, long call, int count, int root)
{
	MPI_Request requests[2];
	long word = team->rank == root ? call : -1;

	MPI_Iallreduce(mine, result, count, MPI_LONG, MPI_SUM, team->comm, &requests[0]);
	MPI_Ibcast(&word, 1, MPI_LONG, root, team->comm, &requests[1]);
	MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	check_sum(team, call, "Iallreduce MPI_SUM", count);
	if (word != call)
		fail("call %ld: Ibcast: %ld (seed %ld)", call, word, seed);
}

static void one(const struct team *teams, long call)
{
	struct random random = random_start((uint64_t)seed, (uint64_t)call, 0);
	uint64_t kind = random_below(&random, 100);
	uint64_t where = random_below(&random, 10);
	const struct team *team = &teams[where < 7   ? TEAM_WORLD
					 : where < 9 ? TEAM_REVERSED
						     : TEAM_PARITY];
	/* Mostly a few elements; one call in eight up to all. */
	int count = 1 + (int)random_below(&random, random_below(&random, 8) ? 8 : MOST);
	int root = (int)(random_next(&random) % (uint64_t)team->size);

	bring(team, call, count);
	if (kind < 35) {
		MPI_Allreduce(mine, result, count, MPI_LONG, MPI_SUM, team->comm);
		check_sum(team, call, "Allreduce MPI_SUM", count);
	} else if (kind < 45) {
		MPI_Allreduce(mine, result, count, MPI_LONG, MPI_MAX, team->comm);
		check_max(team, call, "Allreduce MPI_MAX", count);
	} else if (kind < 58) {
		MPI_Reduce(mine, result, count, MPI_LONG, MPI_SUM, root, team->comm);
		if (team->rank == root)
			check_sum(team, call, "Reduce MPI_SUM", count);
	} else if (kind < 75) {
		for (int i = 0; i < count && team->rank == root; i++)
			result[i] = call * (i + 1);
		MPI_Bcast(result, count, MPI_LONG, root, team->comm);
		for (int i = 0; i < count; i++)
			expect(call, "Bcast", i, call * (i + 1));
	} else if (kind < 85) {
		MPI_Barrier(team->comm);
	} else if (kind < 92 && team->size <= 64) {
		MPI_Allgather(mine, 1, MPI_LONG, more, 1, MPI_LONG, team->comm);
		for (int rank = 0; rank < team->size; rank++)
			if (more[rank] != call + rank)
				fail("call %ld: Allgather: %ld of rank %d (seed %ld)", call,
				     more[rank], rank, seed);
	} else {
		two_at_once(team, call, count, root);
	}
}

/* Whether there is time left, as rank 0 sees it. */
static int goes_on(double start, long call)
{
	int on = now() - start < (double)seconds;

	if (!seconds)
		return call < calls;
	if (call % 1000)
		return 1;
	MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return on;
}

int main(int argc, char **argv)
{
	struct team teams[TEAMS];
	double start, longest = 0, last;
	long call;

	program_start("stream", &argc, &argv, options);
	teams_make(teams);
	start = last = now();
	for (call = 0; goes_on(start, call); call++) {
		if (call % 1000 == 0)
			watch((unsigned)stall, "calls %ld to %ld, seed %ld", call, call + 999,
			      seed);
		one(teams, call);
		if ((call + 1) % (seconds ? 1000000 : 10000) == 0)
			say("stream: %ld calls, %.1f s", call + 1, now() - start);
		if (now() - last > longest)
			longest = now() - last;
		last = now();
	}
	watch((unsigned)stall, "MPI_Finalize");
	say("stream: %ld calls ok, %d ranks, seed %ld, %.1f s, longest call %.1f ms", call,
	    world_size, seed, now() - start, longest * 1e3);
	teams_free(teams);
	MPI_Finalize();
	return 0;
}
