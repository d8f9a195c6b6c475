/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Allreduce and Bcast of one size for some time, every answer checked, and the mean latency of each
 * stretch of it on stdout: for networks that change meanwhile.
 */
#include <mpi.h>
#include <stdlib.h>

#include "program.h"

static long bytes = 1024, seconds = 6, least = 400, stall = PATIENCE;

static const struct option_spec options[] = {
    {"--bytes", OPTION_NUMBER, &bytes, "of a message (1024)"},
    {"--seconds", OPTION_NUMBER, &seconds, "to go on for (6)"},
    {"--least", OPTION_NUMBER, &least, "of each, however long that takes (400)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds without progress (300)"},
    {0},
};

static int *values, *sums;
static int count;

/* One of each, number `n`. */
static void collectives(int n)
{
	for (int i = 0; i < count; i++)
		values[i] = world_rank + n + i;
	MPI_Allreduce(values, sums, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++) {
		int want = world_size * (world_size - 1) / 2 + world_size * (n + i);

		if (sums[i] != want)
			fail("Allreduce %d, element %d: %d, not %d", n, i, sums[i], want);
	}

	int root = n % world_size;

	for (int i = 0; i < count; i++)
		values[i] = world_rank == root ? n ^ i : -1;
	MPI_Bcast(values, count, MPI_INT, root, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		if (values[i] != (n ^ i))
			fail("Bcast %d, element %d: %d, not %d", n, i, values[i], n ^ i);
}

int main(int argc, char **argv)
{
	double begin, stretch;
	int n = 0, calls = 0, last = 0;

	program_start("drift", &argc, &argv, options);
	count = bytes / sizeof(int) > 0 ? bytes / sizeof(int) : 1;
	values = malloc(count * sizeof(int));
	sums = malloc(count * sizeof(int));
	begin = stretch = now();
	while (!last) {
		watch((unsigned)stall, "collectives %d to %d", n, n + 99);
		for (int i = 0; i < 100; i++, n++, calls++)
			collectives(n);
		last = n >= least && now() - begin > seconds;
		MPI_Bcast(&last, 1, MPI_INT, 0, MPI_COMM_WORLD);
		if (world_rank == 0 && (last || now() - stretch > 0.5)) {
			say("%.1f s: %.1f us", now() - begin, 1e6 * (now() - stretch) / calls);
			stretch = now();
			calls = 0;
		}
	}
	say("drift: %d of each ok, %d ranks", n, world_size);
	MPI_Finalize();
	return 0;
}
