/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A job of few calls: broadcasts from rank 0, which waits for nobody there. Then a barrier, if
 * asked for.
 */
#include <mpi.h>

#include "program.h"

static long broadcasts = 5, barrier;

static const struct option_spec options[] = {
    {"--broadcasts", OPTION_NUMBER, &broadcasts, "from rank 0 (5)"},
    {"--barrier", OPTION_FLAG, &barrier, "behind these"},
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
	if (barrier)
		MPI_Barrier(MPI_COMM_WORLD);
	say("few: all ok");
	MPI_Finalize();
	return 0;
}
