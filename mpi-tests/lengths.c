/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Wrong programs: a rank whose message is of another length than the others'. Some real MPIs return
 * an error on some rank, others give wrong data or wait for ever. With foldback nobody waits. A
 * rank that gets a message of another length than its own is told by MPI_ERR_TRUNCATE, and the next
 * collective is right.
 *
 * With --long the messages are of many frames. There is no going on from that: the job must end.
 */
#include <mpi.h>
#include <stdlib.h>

#include "program.h"

static long is_long, of_floats, stall = PATIENCE;

static const struct option_spec options[] = {
    {"--long", OPTION_FLAG, &is_long, "messages from which there is no going on"},
    {"--floats", OPTION_NUMBER, &of_floats,
     "with --long: so many of them, and one more at all ranks but the first (0: of integers)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds without progress (300)"},
    {0},
};

enum collective { BCAST, REDUCE, ALLREDUCE, ALLGATHER, GATHER, SCATTER, COLLECTIVES };

static const char *const names[] = {"Bcast",	 "Reduce", "Allreduce",
				    "Allgather", "Gather", "Scatter"};

enum { MOST = 10000 };

static int *from, *to;

static int call(enum collective collective, int count)
{
	switch (collective) {
	case BCAST:
		return MPI_Bcast(to, count, MPI_INT, 0, MPI_COMM_WORLD);
	case REDUCE:
		return MPI_Reduce(from, to, count, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	case ALLREDUCE:
		return MPI_Allreduce(from, to, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	case ALLGATHER:
		return MPI_Allgather(from, count, MPI_INT, to, count, MPI_INT, MPI_COMM_WORLD);
	case GATHER:
		return MPI_Gather(from, count, MPI_INT, to, count, MPI_INT, 0, MPI_COMM_WORLD);
	default:
		return MPI_Scatter(from, count, MPI_INT, to, count, MPI_INT, 0, MPI_COMM_WORLD);
	}
}

/* Whether this rank gets a message that is not of the length that it expects. */
static int is_concerned(enum collective collective, int differs_from_root)
{
	switch (collective) {
	case BCAST:
	case SCATTER:
		return differs_from_root;
	case REDUCE:
	case GATHER:
		return world_rank == 0;
	default:
		return 1;
	}
}

static void fill(int count)
{
	for (int i = 0; i < count * world_size; i++) {
		from[i] = world_rank + i;
		to[i] = world_rank == 0 ? i : -1;
	}
}

/* Rank `odd` has a message of `its` integers, all others of `theirs`. */
static void disagree(enum collective collective, int odd, int its, int theirs)
{
	int count = world_rank == odd ? its : theirs;
	int differs = count != (odd == 0 ? its : theirs);
	int error, class = MPI_SUCCESS, one = 1, sum = 0;

	watch((unsigned)stall, "%s of %d integers at rank %d, %d at the others", names[collective],
	      its, odd, theirs);
	fill(its > theirs ? its : theirs);
	error = call(collective, count);
	if (error != MPI_SUCCESS)
		MPI_Error_class(error, &class);
	if (is_concerned(collective, differs)) {
		if (class != MPI_ERR_TRUNCATE)
			fail("%s of %d integers at rank %d, %d at the others: error class %d, not "
			     "%d",
			     names[collective], its, odd, theirs, class, MPI_ERR_TRUNCATE);
	} else if (class != MPI_SUCCESS && class != MPI_ERR_TRUNCATE) {
		fail("%s: error class %d", names[collective], class);
	} else if (class == MPI_SUCCESS && collective == BCAST) {
		for (int i = 0; i < count; i++)
			if (to[i] != i)
				fail("Bcast, element %d: %d", i, to[i]);
	}
	if (MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS ||
	    sum != world_size)
		fail("the Allreduce behind a %s: %d", names[collective], sum);
}

/* The same of a non-blocking Bcast, which has no way to tell but MPI_COMM_WORLD's handler. */
static void disagree_later(int odd, int its, int theirs)
{
	MPI_Request request;

	watch((unsigned)stall, "Ibcast of %d integers at rank %d, %d at the others", its, odd,
	      theirs);
	fill(its > theirs ? its : theirs);
	MPI_Ibcast(to, world_rank == odd ? its : theirs, MPI_INT, 0, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Messages from which there is no going on. */
static void differ_for_good(void)
{
	int one = 1, sum;

	if (of_floats > 0) {
		int count = (int)of_floats + (world_rank > 0);
		float *numbers = calloc((size_t)count, sizeof(float));

		watch((unsigned)stall, "Allreduce of %ld floats at rank 0, one more at the others",
		      of_floats);
		MPI_Allreduce(MPI_IN_PLACE, numbers, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		free(numbers);
	} else {
		watch((unsigned)stall, "Bcast of %d integers at the root, 1000 at the others",
		      MOST);
		MPI_Bcast(to, world_rank == 0 ? MOST : 1000, MPI_INT, 0, MPI_COMM_WORLD);
	}
	for (int i = 0; i < 100; i++)
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	static const int lengths[][2] = {{1, 10}, {10, 1}, {2, 1}, {43, 44}};
	int calls = 0, one = 1, sum;

	program_start("lengths", &argc, &argv, options);
	from = calloc((size_t)MOST * world_size, sizeof(int));
	to = calloc((size_t)MOST * world_size, sizeof(int));
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int i = 0; i < 16; i++)
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (is_long) {
		differ_for_good();
		say("lengths: went on");
		MPI_Finalize();
		return 0;
	}
	for (int collective = 0; collective < COLLECTIVES; collective++)
		for (int odd = 0; odd < world_size; odd += world_size - 1)
			for (int i = 0; i < (int)(sizeof(lengths) / sizeof(*lengths)); i++, calls++)
				disagree(collective, odd, lengths[i][0], lengths[i][1]);
	for (int odd = 0; odd < world_size; odd += world_size - 1, calls++)
		disagree_later(odd, 10, 1);
	say("lengths: %d calls ok, %d ranks", calls, world_size);
	MPI_Finalize();
	return 0;
}
