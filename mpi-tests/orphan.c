/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A command (--command) takes something away from the job in mid-run, such as its agents.
 * Operations under way go on, and all answers are right.
 *
 * First where it is hardest: a rank that has passed a collective, and now waits in a receive for a
 * rank that has not. The lost thing may come back later (--until).
 */
#include <mpi.h>
#include <stdlib.h>

#include "program.h"
#include "random.h"

enum { MOST = 1024 };

static long calls = 400, seed = 1, dup, compute;
static const char *command = "true", *until, *then;

static const struct option_spec options[] = {
    {"--command", OPTION_TEXT, &command, "that rank 0 runs when all ranks have begun"},
    {"--calls", OPTION_NUMBER, &calls, "collectives after that (400)"},
    {"--until", OPTION_TEXT, &until,
     "command that every rank runs then until it succeeds, and before as many calls again"},
    {"--dup", OPTION_FLAG, &dup, "then make these on a new communicator"},
    {"--then", OPTION_TEXT, &then, "command that succeeds on every rank after these"},
    {"--compute", OPTION_NUMBER, &compute,
     "seconds that the last rank spends on its own, with a collective under way (0)"},
    {"--seed", OPTION_NUMBER, &seed, "of their choice (1)"},
    {0},
};

static long mine[MOST], result[MOST * 64];
static MPI_Comm comm = MPI_COMM_WORLD;

static void expect(const char *what, long call, long got, long want)
{
	if (got != want)
		fail("call %ld: %s: %ld, want %ld (seed %ld)", call, what, got, want, seed);
}

/* Sum over ranks of call + rank. */
static long sum_of(long call)
{
	return world_size * call + (long)world_size * (world_size - 1) / 2;
}

/* The root has long left the broadcast when the last rank gets it. */
static void left_by_the_root(void)
{
	long word = world_rank == 0 ? 4711 : 0;
	int last = world_size - 1;

	watch(PATIENCE, "a broadcast whose root waits for a receiver");
	MPI_Bcast(&word, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	expect("Bcast", 0, word, 4711);
	if (world_rank == last)
		MPI_Send(&word, 1, MPI_LONG, 0, 1, MPI_COMM_WORLD);
	else if (world_rank == 0)
		MPI_Recv(&word, 1, MPI_LONG, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* A contributor has left the reduction when its root misses the contribution. */
static void left_by_a_contributor(void)
{
	long word = world_rank, sum = -1;
	int last = world_size - 1;

	watch(PATIENCE, "a reduction whose contributor waits for the root");
	MPI_Reduce(&word, &sum, 1, MPI_LONG, MPI_SUM, last, MPI_COMM_WORLD);
	if (world_rank == last) {
		expect("Reduce", 0, sum, sum_of(0));
		MPI_Send(&sum, 1, MPI_LONG, 0, 2, MPI_COMM_WORLD);
	} else if (world_rank == 0) {
		MPI_Recv(&sum, 1, MPI_LONG, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

/* A non-blocking collective, while a rank of it waits in a receive for another that waits for it.
 */
static void started_and_left(void)
{
	long word = world_rank, sum = -1;
	int last = world_size - 1;
	MPI_Request request;

	watch(PATIENCE, "a non-blocking reduction whose owner is elsewhere");
	MPI_Iallreduce(&word, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request);
	if (world_rank == 0)
		MPI_Recv(&word, 1, MPI_LONG, last, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (world_rank == last)
		MPI_Send(&word, 1, MPI_LONG, 0, 3, MPI_COMM_WORLD);
	expect("Iallreduce", 0, sum, sum_of(0));
}

/* A non-blocking collective that is under way when the command runs, while a rank of it computes.
 */
static void started_and_computing(void)
{
	long word = world_rank, sum = -1;
	MPI_Request request;

	watch(PATIENCE + (unsigned)compute, "a non-blocking reduction whose owner computes");
	MPI_Iallreduce(&word, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request);
	if (world_rank == 0 && system(command))
		fail("%s fails", command);
	if (world_rank == world_size - 1)
		sleep_ms(1e3 * (double)compute);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	expect("Iallreduce", 0, sum, sum_of(0));
}

static void one(long call)
{
	struct random random = random_start((uint64_t)seed, (uint64_t)call, 0);
	int root = (int)(random_next(&random) % (uint64_t)world_size);
	int count = 1 + (int)random_below(&random, random_below(&random, 8) ? 8 : MOST);

	for (int i = 0; i < count || i < 4; i++)
		mine[i] = call + world_rank;
	switch (random_below(&random, 5)) {
	case 0:
		MPI_Allreduce(mine, result, count, MPI_LONG, MPI_SUM, comm);
		for (int i = 0; i < count; i++)
			expect("Allreduce", call, result[i], sum_of(call));
		break;
	case 1:
		MPI_Reduce(mine, result, count, MPI_LONG, MPI_SUM, root, comm);
		for (int i = 0; i < count && world_rank == root; i++)
			expect("Reduce", call, result[i], sum_of(call));
		break;
	case 2:
		MPI_Bcast(mine, count, MPI_LONG, root, comm);
		for (int i = 0; i < count; i++)
			expect("Bcast", call, mine[i], call + root);
		break;
	case 3:
		MPI_Allgather(mine, 4, MPI_LONG, result, 4, MPI_LONG, comm);
		for (int rank = 0; rank < world_size; rank++)
			expect("Allgather", call, result[4 * rank + 3], call + rank);
		break;
	default:
		MPI_Barrier(comm);
	}
}

static void all(void)
{
	for (long call = 0; call < calls; call++) {
		if (call % 50 == 0)
			watch(PATIENCE, "calls from %ld on, seed %ld", call, seed);
		one(call);
	}
}

int main(int argc, char **argv)
{
	program_start("orphan", &argc, &argv, options);
	watch(PATIENCE, "the first collectives");
	for (long call = 0; call < 50; call++)
		one(call);
	started_and_computing();
	left_by_the_root();
	left_by_a_contributor();
	started_and_left();
	all();
	if (until) {
		watch(PATIENCE, "%s", until);
		while (system(until))
			sleep_ms(50);
		watch(PATIENCE, "a new communicator");
		if (dup)
			MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		all();
		if (then && system(then))
			fail("%s fails", then);
		if (dup)
			MPI_Comm_free(&comm);
	}
	watch(PATIENCE, "MPI_Finalize");
	say("orphan: OK, %ld calls, %d ranks", calls, world_size);

	double before = now();

	MPI_Finalize();
	say("orphan: MPI_Finalize took %.0f ms", 1e3 * (now() - before));
	return 0;
}
