/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Calls whose instructions callgrind counts, one dump for each: see scripts/instructions.sh.
 *
 *     --what fold       Allreduce of one int by two hosts, on rank 1 with the others there before
 *     --what toolong    Allreduce of 100 ints, beyond the limit that is set for it
 *     --what nogroup    Allreduce of one int on MPI_COMM_SELF, which has no group
 *     --what nodata     Allreduce of nothing
 *
 * Rank 1 comes late to each fold, so that all contributions are there, and nothing is polled for.
 */
#include <mpi.h>
#include <string.h>

#include "program.h"

static long calls = 20;
static const char *what = "fold";

static const struct option_spec options[] = {
    {"--what", OPTION_TEXT, &what, "fold, toolong, nogroup or nodata (fold)"},
    {"--calls", OPTION_NUMBER, &calls, "to count (20)"},
    {0},
};

static int from[100] = {1, 1}, to[100];

/* Callgrind collects in here alone, and dumps behind it. */
__attribute__((noinline)) void counted_call(int count, MPI_Comm comm)
{
	MPI_Allreduce(from, to, count, MPI_INT, MPI_SUM, comm);
	__asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
	MPI_Comm comm = MPI_COMM_WORLD;
	int count = 1;

	program_start("instructions", &argc, &argv, options);
	if (!strcmp(what, "toolong"))
		count = 100;
	else if (!strcmp(what, "nogroup"))
		comm = MPI_COMM_SELF;
	else if (!strcmp(what, "nodata"))
		count = 0;
	else if (strcmp(what, "fold") != 0)
		fail("--what: there is no %s", what);
	watch(PATIENCE, "%s", what);
	for (long i = 0; i < calls; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (world_rank == 1)
			sleep_ms(30);
		counted_call(count, comm);
	}
	MPI_Finalize();
	return 0;
}
