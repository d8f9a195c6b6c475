/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How far MPI_Allreduce's sums of floating point are from the exact ones: numbers between -1 and 1,
 * evenly spread, others on each rank. Prints a line for each size:
 *
 *     bytes,ranks,mean_error,max_error
 *
 * both as parts of 1, which no number exceeds. With --one-magnitude the numbers are between 1 and
 * 2. The line then goes on with a histogram: the sums that are off by at most 0.5, 1, 1.5, 2 units
 * in their last place, and by more.
 */
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "random.h"
#include "sizes.h"

#define BINS 5

static long seed = 1, one_magnitude;
static const char *type_name = "float";
static const char *size_list = "65536,1048576";

static const struct option_spec options[] = {
    {"--sizes", OPTION_TEXT, &size_list, "bytes, with commas between"},
    {"--type", OPTION_TEXT, &type_name, "float or double (float)"},
    {"--seed", OPTION_NUMBER, &seed, "of all numbers (1)"},
    {"--one-magnitude", OPTION_FLAG, &one_magnitude, "numbers between 1 and 2, and a histogram"},
    {0},
};

static double number(int rank, int at, int width)
{
	struct random random = random_start((uint64_t)seed, (uint64_t)rank, (uint64_t)at);
	double x = (double)(int64_t)random_next(&random) * 0x1p-63;

	if (one_magnitude)
		x = 1.5 + x / 2;
	return width == 4 ? (double)(float)x : x;
}

static void measure(int bytes, int width)
{
	MPI_Datatype type = width == 4 ? MPI_FLOAT : MPI_DOUBLE;
	char *sums = buffer(bytes, 0);
	int count = bytes / width;
	double all = 0, most = 0;
	long bins[BINS] = {0};

	watch(PATIENCE, "%d bytes", bytes);
	for (int i = 0; i < count; i++) {
		double x = number(world_rank, i, width);

		if (width == 4)
			((float *)sums)[i] = (float)x;
		else
			((double *)sums)[i] = x;
	}
	MPI_Allreduce(MPI_IN_PLACE, sums, count, type, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count && world_rank == 0; i++) {
		long double exact = 0, got;
		double error;

		for (int rank = 0; rank < world_size; rank++)
			exact += number(rank, i, width);
		got = width == 4 ? (long double)((float *)sums)[i] : ((double *)sums)[i];
		error = (double)fabsl(got - exact);
		all += error;
		most = fmax(most, error);
		/* In halves of a unit, rounded up. */
		error = ceil(2 * error / ldexp(1, ilogb((double)exact) - (width == 4 ? 23 : 52)));
		bins[error <= 1 ? 0 : error < BINS ? (int)error - 1 : BINS - 1]++;
	}
	if (one_magnitude)
		say("%d,%d,%.3g,%.3g,%ld,%ld,%ld,%ld,%ld", bytes, world_size, all / count, most,
		    bins[0], bins[1], bins[2], bins[3], bins[4]);
	else
		say("%d,%d,%.3g,%.3g", bytes, world_size, all / count, most);
	free(sums);
}

int main(int argc, char **argv)
{
	int sizes[MOST_SIZES], n_sizes, width;

	program_start("accuracy", &argc, &argv, options);
	width = strcmp(type_name, "double") ? 4 : 8;
	if (width == 4 && strcmp(type_name, "float"))
		fail("--type: there is no %s", type_name);
	n_sizes = parse_sizes(size_list, sizes);
	for (int i = 0; i < n_sizes; i++)
		if (sizes[i] % width)
			fail("--sizes: %d is no number of whole elements", sizes[i]);
	say("bytes,ranks,mean_error,max_error%s",
	    one_magnitude ? ",units_0.5,units_1,units_1.5,units_2,more" : "");
	for (int i = 0; i < n_sizes; i++)
		measure(sizes[i], width);
	watch(0, "MPI_Finalize");
	MPI_Finalize();
	return 0;
}
