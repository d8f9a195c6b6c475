/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Communicators that are freed give back what was made for them, while the program goes on with
 * others: a command that lists it (--groups) is asked on every rank until it prints as many lines
 * as before.
 */
#include <mpi.h>
#include <stdio.h>

#include "program.h"

static long communicators = 3, most = 200;
static const char *groups = "true";

static const struct option_spec options[] = {
    {"--communicators", OPTION_NUMBER, &communicators, "to make, use and free (3)"},
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

static int lines(void)
{
	FILE *pipe = popen(groups, "r");
	int count = 0;

	if (!pipe)
		fail("cannot run %s", groups);
	for (int c; (c = fgetc(pipe)) != EOF;)
		count += c == '\n';
	if (pclose(pipe))
		fail("%s fails", groups);
	return count;
}

int main(int argc, char **argv)
{
	program_start("freed", &argc, &argv, options);

	int want = world_size * (world_size - 1) / 2, before, all = 0;

	watch(PATIENCE, "the first collectives");
	if (sum_on(MPI_COMM_WORLD, 100) != want)
		fail("a wrong sum");
	before = lines();
	for (long i = 0; i < communicators; i++) {
		MPI_Comm comm;

		watch(PATIENCE, "communicator %ld", i);
		/* In another order: what is made for duplicates stays, for the next. */
		MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm);
		if (sum_on(comm, 100) != want)
			fail("a wrong sum on communicator %ld", i);
		if (i == 0 && lines() == before)
			say("freed: no group was made");
		MPI_Comm_free(&comm);
	}
	for (long round = 0; round < most && !all; round++) {
		watch(PATIENCE, "round %ld", round);
		if (sum_on(MPI_COMM_WORLD, 64) != want)
			fail("a wrong sum in round %ld", round);

		int mine = lines() <= before;

		MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	}
	watch(0, "the end");
	if (!all)
		fail("%d groups, %d before", lines(), before);
	say("freed: all gone, %d ranks", world_size);
	MPI_Finalize();
	return 0;
}
