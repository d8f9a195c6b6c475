/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Latency of collectives, in the manner of the OSU micro-benchmarks: each call timed on each rank,
 * a barrier after each, untimed. CSV on stdout.
 *
 * An iteration took as long as on its slowest rank: min, median and p99 are those of that maximum.
 * mean is what OSU prints: the mean over ranks of each rank's mean.
 *
 * Integers only (MPI_INT, MPI_SUM), and no answer is checked: that is what mpi-tests are for.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum { MOST_SIZES = 32, LARGE = 8192 };

static long iterations = 1000, warmup = 200, stall = 120;
static const char *only = "allreduce";
static const char *size_list = "4,16,64,256,1024,1400,4096,16384,65536";

static const struct option_spec options[] = {
    {"--collective", OPTION_TEXT, &only, "allreduce, reduce, bcast, barrier or all (allreduce)"},
    {"--sizes", OPTION_TEXT, &size_list, "bytes, with commas between"},
    {"--iterations", OPTION_NUMBER, &iterations, "timed, of up to 8 KiB; a quarter above (1000)"},
    {"--warmup", OPTION_NUMBER, &warmup, "untimed, likewise (200)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one size may take (120)"},
    {0},
};

static char *from, *to;

static void allreduce(int bytes)
{
	MPI_Allreduce(from, to, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce(int bytes)
{
	MPI_Reduce(from, to, bytes / 4, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void bcast(int bytes)
{
	MPI_Bcast(to, bytes / 4, MPI_INT, 0, MPI_COMM_WORLD);
}

static void barrier(int bytes)
{
	(void)bytes;
	MPI_Barrier(MPI_COMM_WORLD);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(const char *name, int bytes, long n, double *slowest, double mean)
{
	qsort(slowest, (size_t)n, sizeof(*slowest), ascending);
	say("%s,%d,%d,%ld,%.2f,%.2f,%.2f,%.2f", name, bytes, world_size, n, slowest[0] * 1e6,
	    slowest[n / 2] * 1e6, slowest[n * 99 / 100] * 1e6, mean * 1e6);
}

static void measure(const char *name, void (*run)(int), int bytes)
{
	long divisor = bytes > LARGE ? 4 : 1;
	long n = iterations / divisor > 0 ? iterations / divisor : 1;
	double *mine = malloc((size_t)n * sizeof(double));
	double *slowest = malloc((size_t)n * sizeof(double));
	double sum = 0, mean = 0;

	watch((unsigned)stall, "%s of %d bytes", name, bytes);
	for (long i = -warmup / divisor; i < n; i++) {
		double start = now();

		run(bytes);
		if (i >= 0)
			mine[i] = now() - start;
		if (run != barrier)
			MPI_Barrier(MPI_COMM_WORLD);
	}
	for (long i = 0; i < n; i++)
		sum += mine[i] / (double)n;
	MPI_Reduce(mine, slowest, (int)n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(&sum, &mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (world_rank == 0)
		print(name, bytes, n, slowest, mean / world_size);
	free(mine);
	free(slowest);
}

static int parse_sizes(int sizes[MOST_SIZES])
{
	char *text = strdup(size_list), *save = NULL;
	int n = 0;

	for (char *word = strtok_r(text, ",", &save); word && n < MOST_SIZES;
	     word = strtok_r(NULL, ",", &save)) {
		sizes[n] = atoi(word);
		if (sizes[n] < 4 || sizes[n] % 4)
			fail("--sizes: %s is not a number of whole integers", word);
		n++;
	}
	free(text);
	return n;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(int bytes);
	} collectives[] = {
	    {"allreduce", allreduce}, {"reduce", reduce}, {"bcast", bcast}, {"barrier", barrier}};
	int sizes[MOST_SIZES], n_sizes, most = 0, known = 0;

	program_start("latency", &argc, &argv, options);
	n_sizes = parse_sizes(sizes);
	for (int i = 0; i < n_sizes; i++)
		most = sizes[i] > most ? sizes[i] : most;
	from = aligned_alloc(64, (size_t)(most + 63) / 64 * 64);
	to = aligned_alloc(64, (size_t)(most + 63) / 64 * 64);
	memset(from, 1, (size_t)most);
	memset(to, 0, (size_t)most);

	say("collective,bytes,ranks,iterations,min_us,median_us,p99_us,mean_us");
	for (size_t i = 0; i < sizeof(collectives) / sizeof(*collectives); i++) {
		if (strcmp(only, "all") && strcmp(only, collectives[i].name))
			continue;
		known = 1;
		for (int j = 0; j < n_sizes && collectives[i].run != barrier; j++)
			measure(collectives[i].name, collectives[i].run, sizes[j]);
		if (collectives[i].run == barrier)
			measure("barrier", barrier, 0);
	}
	if (!known)
		fail("--collective %s: allreduce, reduce, bcast, barrier or all", only);
	MPI_Finalize();
	return 0;
}
