/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Communicators that are freed give back their resources, while the program goes on with others;
 * some are kept for the next ones (--kept). A command that lists the resources (--groups) is asked
 * on every rank until it prints as few lines.
 */
#include <mpi.h>

#include "program.h"

enum { MOST = 256 };

static long communicators = 36, kept = 32, most = 200;
static const char *groups = "true";

static const struct option_spec options[] = {
    {"--communicators", OPTION_NUMBER, &communicators,
     "to make, use and free, all at a time (36; at most 256)"},
    {"--kept", OPTION_NUMBER, &kept, "groups of these that may stay (32)"},
    {"--rounds", OPTION_NUMBER, &most, "of 64 collectives, after which all must be gone (200)"},
    {"--groups", OPTION_TEXT, &groups, "command that prints a line for each group of this host"},
    {0},
};

static int sum_on(MPI_Comm comm, int calls)
{
	int sum = -1;

	for (int call = 0; call < calls; call++)
		MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, comm);
	return sum;
}

int main(int argc, char **argv)
{
	program_start("freed", &argc, &argv, options);

	int want = world_size * (world_size - 1) / 2, before, all = 0;
	static MPI_Comm comm[MOST];

	if (communicators < 1 || communicators > MOST)
		fail("--communicators is 1 to %d", MOST);

	watch(PATIENCE, "the first collectives");
	if (sum_on(MPI_COMM_WORLD, 100) != want)
		fail("a wrong sum");
	before = lines_of(groups);
	for (long i = 0; i < communicators; i++) {
		watch(PATIENCE, "communicator %ld", i);
		MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
		if (sum_on(comm[i], 100) != want)
			fail("a wrong sum on communicator %ld", i);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (lines_of(groups) != before + communicators)
		fail("%d groups, %d before, for %ld communicators", lines_of(groups), before,
		     communicators);
	MPI_Barrier(MPI_COMM_WORLD);
	for (long i = 0; i < communicators; i++)
		MPI_Comm_free(&comm[i]);
	for (long round = 0; round < most && !all; round++) {
		watch(PATIENCE, "round %ld", round);
		if (sum_on(MPI_COMM_WORLD, 64) != want)
			fail("a wrong sum in round %ld", round);

		int mine = lines_of(groups) <= before + kept;

		MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	}
	watch(0, "the end");
	if (!all)
		fail("%d groups, %d before", lines_of(groups), before);
	say("freed: all others gone, %d ranks", world_size);
	MPI_Finalize();
	return 0;
}
