/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A job of few calls: broadcasts from rank 0, which waits for nobody there. Then a maximum that
 * rank 0 gets, and a barrier, if asked for.
 */
#include <mpi.h>

#include "program.h"

static long broadcasts = 5, maximum, barrier;

static const struct option_spec options[] = {
    {"--broadcasts", OPTION_NUMBER, &broadcasts, "from rank 0 (5)"},
    {"--maximum", OPTION_FLAG, &maximum, "behind these, of real numbers, to rank 0"},
    {"--barrier", OPTION_FLAG, &barrier, "behind that"},
    {0},
};

int main(int argc, char **argv)
{
	program_start("few", &argc, &argv, options);
	for (long i = 0; i < broadcasts; i++) {
		long got = world_rank ? -1 : i;

		watch(PATIENCE, "broadcast %ld", i);
		MPI_Bcast(&got, 1, MPI_LONG, 0, MPI_COMM_WORLD);
		if (got != i)
			fail("broadcast %ld: %ld", i, got);
	}
	watch(PATIENCE, "the end");
	if (maximum) {
		double mine = world_rank, largest = -1;

		MPI_Reduce(&mine, &largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		if (world_rank == 0 && largest != world_size - 1)
			fail("maximum: %g", largest);
	}
	if (barrier)
		MPI_Barrier(MPI_COMM_WORLD);
	say("few: all ok");
	MPI_Finalize();
	return 0;
}
