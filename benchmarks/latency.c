/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Latency of collectives, in the manner of the OSU micro-benchmarks: each call timed on each rank,
 * a barrier after each, untimed. CSV on stdout.
 *
 * An iteration took as long as on its slowest rank: min, median and p99 are those of that maximum.
 * mean is what OSU prints: the mean over ranks of each rank's mean.
 *
 * --sizes are what OSU's are: bytes of the vector for Allreduce, Reduce, Bcast, Scan and Exscan,
 * and of the whole vector for both Reduce_scatters (in whole integers for each rank, one at least,
 * of the block form); what each rank sends for Allgather, Allgatherv and Gather, and gets for
 * Scatter; what each sends to each for Alltoall.
 *
 * Integers only (MPI_INT, MPI_SUM), root 0, and no answer is checked: that is what mpi-tests are
 * for.
 */
#include <mpi.h>
#include <stdlib.h>

#include "program.h"
#include "sizes.h"

static long iterations = 1000, warmup = 200, stall = 120;
static const char *only = "allreduce";
static const char *size_list = "4,16,64,256,1024,1400,4096,16384,65536";

static const struct option_spec options[] = {
    {"--collective", OPTION_TEXT, &only, "names, with commas between, or all (allreduce)"},
    {"--sizes", OPTION_TEXT, &size_list, "bytes, with commas between"},
    {"--iterations", OPTION_NUMBER, &iterations, "timed, of up to 8 KiB; a quarter above (1000)"},
    {"--warmup", OPTION_NUMBER, &warmup, "untimed, likewise (200)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one size may take (120)"},
    {0},
};

static char *from, *to;
static int *counts, *displs;

static void allreduce(int count)
{
	MPI_Allreduce(from, to, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce(int count)
{
	MPI_Reduce(from, to, count, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void bcast(int count)
{
	MPI_Bcast(to, count, MPI_INT, 0, MPI_COMM_WORLD);
}

static void barrier(int count)
{
	(void)count;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void allgather(int count)
{
	MPI_Allgather(from, count, MPI_INT, to, count, MPI_INT, MPI_COMM_WORLD);
}

static void allgatherv(int count)
{
	MPI_Allgatherv(from, count, MPI_INT, to, counts, displs, MPI_INT, MPI_COMM_WORLD);
}

static void gather(int count)
{
	MPI_Gather(from, count, MPI_INT, to, count, MPI_INT, 0, MPI_COMM_WORLD);
}

static void scatter(int count)
{
	MPI_Scatter(from, count, MPI_INT, to, count, MPI_INT, 0, MPI_COMM_WORLD);
}

static void reduce_scatter(int count)
{
	(void)count;
	MPI_Reduce_scatter(from, to, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce_scatter_block(int count)
{
	int each = count / world_size > 0 ? count / world_size : 1;

	MPI_Reduce_scatter_block(from, to, each, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void scan(int count)
{
	MPI_Scan(from, to, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void exscan(int count)
{
	MPI_Exscan(from, to, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(int count)
{
	MPI_Alltoall(from, count, MPI_INT, to, count, MPI_INT, MPI_COMM_WORLD);
}

static const struct {
	const char *name;
	void (*run)(int count);
} collectives[] = {
    {"allreduce", allreduce},
    {"reduce", reduce},
    {"bcast", bcast},
    {"barrier", barrier},
    {"allgather", allgather},
    {"allgatherv", allgatherv},
    {"gather", gather},
    {"scatter", scatter},
    {"reduce_scatter", reduce_scatter},
    {"reduce_scatter_block", reduce_scatter_block},
    {"scan", scan},
    {"exscan", exscan},
    {"alltoall", alltoall},
};

enum { COLLECTIVES = sizeof(collectives) / sizeof(*collectives) };

/* By rank: `count` elements each, or, as OSU does, `count` in all. */
static void set_counts(int count, int divided)
{
	for (int rank = 0; rank < world_size; rank++) {
		counts[rank] = divided ? count / world_size + (rank < count % world_size) : count;
		displs[rank] = rank ? displs[rank - 1] + counts[rank - 1] : 0;
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(const char *name, int bytes, long n, double *slowest, double mean)
{
	qsort(slowest, (size_t)n, sizeof(*slowest), ascending);
	say("%s,%d,%d,%ld,%ld,%.2f,%.2f,%.2f,%.2f", name, bytes, world_size, n,
	    n + (bytes > LARGE ? warmup / 4 : warmup), slowest[0] * 1e6, slowest[n / 2] * 1e6,
	    slowest[n * 99 / 100] * 1e6, mean * 1e6);
}

static void measure(const char *name, void (*run)(int), int bytes)
{
	long divisor = bytes > LARGE ? 4 : 1;
	long n = iterations / divisor > 0 ? iterations / divisor : 1;
	double *mine = malloc((size_t)n * sizeof(double));
	double *slowest = malloc((size_t)n * sizeof(double));
	double sum = 0, mean = 0;

	watch((unsigned)stall, "%s of %d bytes", name, bytes);
	set_counts(bytes / 4, run == reduce_scatter);
	for (long i = -(warmup / divisor); i < n; i++) {
		double start = now();

		run(bytes / 4);
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

int main(int argc, char **argv)
{
	int sizes[MOST_SIZES], n_sizes, most = 0;

	program_start("latency", &argc, &argv, options);
	check_listed(only, collectives, COLLECTIVES, sizeof(*collectives));
	n_sizes = parse_sizes(size_list, sizes);
	for (int i = 0; i < n_sizes; i++)
		most = sizes[i] > most ? sizes[i] : most;
	from = buffer((long)most * world_size, 1);
	to = buffer((long)most * world_size, 0);
	counts = calloc((size_t)world_size, sizeof(*counts));
	displs = calloc((size_t)world_size, sizeof(*displs));

	say("collective,bytes,ranks,iterations,calls,min_us,median_us,p99_us,mean_us");
	for (int i = 0; i < COLLECTIVES; i++) {
		if (!is_listed(only, collectives[i].name))
			continue;
		for (int j = 0; j < n_sizes && collectives[i].run != barrier; j++)
			measure(collectives[i].name, collectives[i].run, sizes[j]);
		if (collectives[i].run == barrier)
			measure("barrier", barrier, 0);
	}
	MPI_Finalize();
	return 0;
}
