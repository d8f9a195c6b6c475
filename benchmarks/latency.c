/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Latency of collectives, in the manner of the OSU micro-benchmarks: each call timed on each rank,
 * a barrier after each, untimed. CSV on stdout.
 *
 * An iteration took as long as on its slowest rank: min, median and p99 are of that maximum. mean
 * is OSU's: the mean over ranks of each rank's mean.
 *
 * --sizes are OSU's, in bytes:
 *
 *     Allreduce, Reduce, Bcast, Scan, Exscan    the vector
 *     both Reduce_scatters                      the whole vector; of the block form in whole
 *                                               integers for each rank, one at least
 *     Allgather, Allgatherv, Gather, Gatherv    each rank sends them
 *     Scatter, Scatterv                         each rank gets them
 *     Alltoall, Alltoallv, Alltoallw            each rank sends them to each
 *     halo1d to halo3d, halo2dv                 they go over one face
 *     Neighbor_allgather                        a rank sends them to each neighbour
 *
 * halo1d to halo3d are MPI_Neighbor_alltoall on a periodic Cartesian grid of as many dimensions.
 * halo2dv is MPI_Neighbor_alltoallv on the grid of two, as is Neighbor_allgather.
 *
 * Then come a quarter as many calls (50 at least of up to 8 KiB), one behind the other with no
 * barrier between. Their cost is counted over all hosts and divided by their number:
 *
 *     cpu_us      microseconds of CPU time, user and system, of all threads of all ranks. A rank
 *                 that waits polls, so waiting counts. The kernel's time for a frame inside a
 *                 rank's system call counts. So does its time in an interrupt on top of that rank,
 *                 unless the kernel keeps such time apart (IRQ_TIME_ACCOUNTING). Its time on top
 *                 of a process that is no rank, or in ksoftirqd, does not count.
 *     frames      that the hosts' interfaces (all but lo) sent. A segment that TCP leaves to the
 *                 interface to cut up counts as one.
 *     wire_bytes  of these, with their headers.
 *     stream_us   microseconds from one of these calls to the next, the mean over ranks.
 *
 * The one barrier that ends them is in there.
 *
 * MPI_SUM of int, or --op of --type; root 0. No answer is checked: that is what mpi-tests are for.
 * Sizes whose buffers take more than --memory on all ranks together are left out, with a line on
 * stderr.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "costs.h"
#include "program.h"
#include "sizes.h"

static long iterations = 1000, warmup = 200, stall = PATIENCE, memory = 2048;
static const char *only = "allreduce";
static const char *type_name = "int32", *op_name = "sum";
static const char *size_list = "4,16,64,256,1024,1400,4096,16384,65536";

static const struct option_spec options[] = {
    {"--collective", OPTION_TEXT, &only, "names, with commas between, or all (allreduce)"},
    {"--sizes", OPTION_TEXT, &size_list, "bytes, with commas between"},
    {"--type", OPTION_TEXT, &type_name,
     "int32, int64, float, double, complex (of doubles) or longdouble (int32)"},
    {"--op", OPTION_TEXT, &op_name, "sum, prod, max, band, or user: a sum by a function (sum)"},
    {"--iterations", OPTION_NUMBER, &iterations, "timed, of up to 8 KiB; fewer above (1000)"},
    {"--warmup", OPTION_NUMBER, &warmup, "untimed calls before them (200)"},
    {"--memory", OPTION_NUMBER, &memory, "MiB of all ranks' buffers, at most (2048)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one size may take (300)"},
    {0},
};

static char *from, *to;
/* By rank, or by neighbour. */
static int *counts, *displs, *byte_displs;
static MPI_Datatype *types;
static MPI_Datatype type;
static int width;	/* bytes of it */
static const void *one; /* of it, in the type's own way */
static MPI_Op op;

static void allreduce(int count)
{
	MPI_Allreduce(from, to, count, type, op, MPI_COMM_WORLD);
}

static void reduce(int count)
{
	MPI_Reduce(from, to, count, type, op, 0, MPI_COMM_WORLD);
}

static void bcast(int count)
{
	MPI_Bcast(to, count, type, 0, MPI_COMM_WORLD);
}

static void barrier(int count)
{
	(void)count;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void allgather(int count)
{
	MPI_Allgather(from, count, type, to, count, type, MPI_COMM_WORLD);
}

static void allgatherv(int count)
{
	MPI_Allgatherv(from, count, type, to, counts, displs, type, MPI_COMM_WORLD);
}

static void gather(int count)
{
	MPI_Gather(from, count, type, to, count, type, 0, MPI_COMM_WORLD);
}

static void scatter(int count)
{
	MPI_Scatter(from, count, type, to, count, type, 0, MPI_COMM_WORLD);
}

static void reduce_scatter(int count)
{
	(void)count;
	MPI_Reduce_scatter(from, to, counts, type, op, MPI_COMM_WORLD);
}

static void reduce_scatter_block(int count)
{
	int each = count / world_size > 0 ? count / world_size : 1;

	MPI_Reduce_scatter_block(from, to, each, type, op, MPI_COMM_WORLD);
}

static void scan(int count)
{
	MPI_Scan(from, to, count, type, op, MPI_COMM_WORLD);
}

static void exscan(int count)
{
	MPI_Exscan(from, to, count, type, op, MPI_COMM_WORLD);
}

static void alltoall(int count)
{
	MPI_Alltoall(from, count, type, to, count, type, MPI_COMM_WORLD);
}

static void gatherv(int count)
{
	MPI_Gatherv(from, count, type, to, counts, displs, type, 0, MPI_COMM_WORLD);
}

static void scatterv(int count)
{
	MPI_Scatterv(from, counts, displs, type, to, count, type, 0, MPI_COMM_WORLD);
}

static void alltoallv(int count)
{
	(void)count;
	MPI_Alltoallv(from, counts, displs, type, to, counts, displs, type, MPI_COMM_WORLD);
}

static void alltoallw(int count)
{
	(void)count;
	MPI_Alltoallw(from, counts, byte_displs, types, to, counts, byte_displs, types,
		      MPI_COMM_WORLD);
}

/* Periodic grids of one to three dimensions. */
enum { DIMENSIONS = 3 };

static MPI_Comm grids[1 + DIMENSIONS];

static MPI_Comm grid(int dimensions)
{
	int dims[DIMENSIONS] = {0}, periods[DIMENSIONS] = {1, 1, 1};

	if (grids[dimensions] == MPI_COMM_NULL) {
		MPI_Dims_create(world_size, dimensions, dims);
		MPI_Cart_create(MPI_COMM_WORLD, dimensions, dims, periods, 0, &grids[dimensions]);
	}
	return grids[dimensions];
}

static void halo(int dimensions, int count)
{
	MPI_Neighbor_alltoall(from, count, type, to, count, type, grid(dimensions));
}

static void halo1d(int count)
{
	halo(1, count);
}

static void halo2d(int count)
{
	halo(2, count);
}

static void halo3d(int count)
{
	halo(3, count);
}

static void halo2dv(int count)
{
	(void)count;
	MPI_Neighbor_alltoallv(from, counts, displs, type, to, counts, displs, type, grid(2));
}

static void neighbor_allgather(int count)
{
	MPI_Neighbor_allgather(from, count, type, to, count, type, grid(2));
}

/* The size of a collective's buffers, on every rank or on the root alone. */
enum parts { ONE, RECEIVE_ALL, BOTH_ALL, ROOT_SENDS, ROOT_RECEIVES, FACES };

static const struct {
	const char *name;
	void (*run)(int count);
	enum parts parts;
} collectives[] = {
    {"allreduce", allreduce, ONE},
    {"reduce", reduce, ONE},
    {"bcast", bcast, ONE},
    {"barrier", barrier, ONE},
    {"allgather", allgather, RECEIVE_ALL},
    {"allgatherv", allgatherv, RECEIVE_ALL},
    {"gather", gather, ROOT_RECEIVES},
    {"scatter", scatter, ROOT_SENDS},
    {"reduce_scatter", reduce_scatter, ONE},
    {"reduce_scatter_block", reduce_scatter_block, ONE},
    {"scan", scan, ONE},
    {"exscan", exscan, ONE},
    {"alltoall", alltoall, BOTH_ALL},
    {"gatherv", gatherv, ROOT_RECEIVES},
    {"scatterv", scatterv, ROOT_SENDS},
    {"alltoallv", alltoallv, BOTH_ALL},
    {"alltoallw", alltoallw, BOTH_ALL},
    {"neighbor_allgather", neighbor_allgather, FACES},
    {"halo1d", halo1d, FACES},
    {"halo2d", halo2d, FACES},
    {"halo3d", halo3d, FACES},
    {"halo2dv", halo2dv, FACES},
};

enum { COLLECTIVES = sizeof(collectives) / sizeof(*collectives) };

/* Of the arrays: as many as there are ranks, or neighbours. */
static int most_parts(void)
{
	return world_size > 2 * DIMENSIONS ? world_size : 2 * DIMENSIONS;
}

static void make_arrays(void)
{
	size_t parts = (size_t)most_parts();

	counts = calloc(parts, sizeof(*counts));
	displs = calloc(parts, sizeof(*displs));
	byte_displs = calloc(parts, sizeof(*byte_displs));
	types = calloc(parts, sizeof(MPI_Datatype));
	for (int i = 0; i <= DIMENSIONS; i++)
		grids[i] = MPI_COMM_NULL;
}

/* Of each part: `count` elements each, or, as OSU does, `count` in all. */
static void set_counts(int count, int divided)
{
	for (int part = 0; part < most_parts(); part++) {
		counts[part] = divided ? count / world_size + (part < count % world_size) : count;
		displs[part] = part ? displs[part - 1] + counts[part - 1] : 0;
		byte_displs[part] = displs[part] * width;
		types[part] = type;
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Bytes of this rank's buffers, and of all ranks'. A block of Reduce_scatter_block is an element at
 * least, hence a vector of one for each rank. */
static double set_buffers(enum parts parts, long bytes, long lengths[2])
{
	long vector = bytes > (long)width * world_size ? bytes : (long)width * world_size;
	long all = bytes * world_size, root = world_rank == 0 ? all : bytes;
	double each = 2.0 * (double)vector;

	lengths[0] = lengths[1] = vector;
	if (parts == BOTH_ALL)
		lengths[0] = all;
	if (parts == ROOT_SENDS)
		lengths[0] = root;
	if (parts == RECEIVE_ALL || parts == BOTH_ALL)
		lengths[1] = all;
	if (parts == ROOT_RECEIVES)
		lengths[1] = root;
	if (parts == FACES)
		lengths[0] = lengths[1] = 2 * DIMENSIONS * bytes;
	switch (parts) {
	case BOTH_ALL:
		return 2.0 * (double)all * world_size;
	case FACES:
		return 4.0 * DIMENSIONS * (double)bytes * world_size;
	case RECEIVE_ALL:
		return (double)(all + vector) * world_size;
	case ROOT_SENDS:
	case ROOT_RECEIVES:
		return each * world_size + (double)all;
	default:
		return each * world_size;
	}
}

/* So many times fewer calls: a quarter above 8 KiB, and above 64 KiB so many that they move as much
 * in all. */
static long fewer(int bytes)
{
	return bytes <= LARGE ? 1 : bytes <= 65536 ? 4 : 4L * (bytes / 65536);
}

/* `n` of them, five at least unless fewer were asked for. */
static long scaled(long n, int bytes)
{
	long fine = n / fewer(bytes);

	return fine >= 5 ? fine : n < 5 ? n : 5;
}

enum { SETTLED = 60 };

/* The time that has passed is a cost, too. */
enum { STREAM = COSTS, ALL_COSTS };

static void read_all_costs(double costs[ALL_COSTS])
{
	costs[STREAM] = now() * 1e6 / world_size;
	read_costs(costs);
}

/* Of one call, over all hosts; on rank 0. */
static void count_costs(void (*run)(int), int count, long n, double costs[ALL_COSTS])
{
	double before[ALL_COSTS], mine[ALL_COSTS];

	MPI_Barrier(MPI_COMM_WORLD);
	read_all_costs(before);
	MPI_Barrier(MPI_COMM_WORLD);
	for (long i = 0; i < n; i++)
		run(count);
	MPI_Barrier(MPI_COMM_WORLD);
	read_all_costs(mine);
	for (int i = 0; i < ALL_COSTS; i++)
		mine[i] = (mine[i] - before[i]) / (double)n;
	MPI_Reduce(mine, costs, ALL_COSTS, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}

/* How often each rank calls: untimed, timed, counted. */
struct calls {
	long untimed, timed, counted;
};

static void print(const char *name, int bytes, const struct calls *calls, double *slowest,
		  double mean, const double costs[ALL_COSTS])
{
	long n = calls->timed;

	qsort(slowest, (size_t)n, sizeof(*slowest), ascending);
	say("%s,%d,%d,%ld,%ld,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.0f,%.2f", name, bytes, world_size, n,
	    calls->untimed + n + calls->counted, slowest[0] * 1e6, slowest[n / 2] * 1e6,
	    slowest[n * 99 / 100] * 1e6, mean * 1e6, costs[CPU], costs[FRAMES], costs[BYTES],
	    costs[STREAM]);
}

static void time_calls(const char *name, void (*run)(int), int bytes)
{
	struct calls calls = {scaled(warmup, bytes), scaled(iterations, bytes), 0};
	/* So that a library that tries its ways on the first calls has chosen by then. */
	long settled = warmup < SETTLED ? warmup : SETTLED;
	long n = calls.timed;
	double *mine = malloc((size_t)n * sizeof(double));
	double *slowest = malloc((size_t)n * sizeof(double));
	double sum = 0, mean = 0, costs[ALL_COSTS];
	int count = bytes / width;

	if (calls.untimed < settled)
		calls.untimed = settled;
	calls.counted = (n + 3) / 4;
	if (bytes <= LARGE && calls.counted < 50)
		calls.counted = 50;
	watch((unsigned)stall, "%s of %d bytes", name, bytes);
	set_counts(count, run == reduce_scatter);
	for (long i = -calls.untimed; i < n; i++) {
		double start = now();

		run(count);
		if (i >= 0)
			mine[i] = now() - start;
		if (run != barrier)
			MPI_Barrier(MPI_COMM_WORLD);
	}
	count_costs(run, count, calls.counted, costs);
	for (long i = 0; i < n; i++)
		sum += mine[i] / (double)n;
	MPI_Reduce(mine, slowest, (int)n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(&sum, &mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (world_rank == 0)
		print(name, bytes, &calls, slowest, mean / world_size, costs);
	free(mine);
	free(slowest);
}

static void measure(int which, int bytes)
{
	long lengths[2];
	double all = set_buffers(collectives[which].parts, bytes, lengths);

	if (all > (double)memory * 1048576) {
		if (world_rank == 0)
			fprintf(stderr,
				"latency: %s of %d bytes is left out: it takes %.0f MiB in all, "
				"--memory allows %ld\n",
				collectives[which].name, bytes, all / 1048576, memory);
		return;
	}
	from = buffer(lengths[0], 1);
	to = buffer(lengths[1], 0);
	/* Not the slow kinds of numbers. */
	for (long i = 0; i + width <= lengths[0]; i += width)
		memcpy(from + i, one, (size_t)width);
	time_calls(collectives[which].name, collectives[which].run, bytes);
	free(from);
	free(to);
}

static void set_type(void)
{
	static const int32_t one_int32 = 1;
	static const int64_t one_int64 = 1;
	static const float one_float = 1;
	static const double one_double = 1, one_complex[] = {1, 0};
	static const long double one_longdouble = 1;
	const struct {
		const char *name;
		MPI_Datatype type;
		size_t width;
		const void *one;
	} types[] = {
	    {"int32", MPI_INT32_T, sizeof(one_int32), &one_int32},
	    {"int64", MPI_INT64_T, sizeof(one_int64), &one_int64},
	    {"float", MPI_FLOAT, sizeof(one_float), &one_float},
	    {"double", MPI_DOUBLE, sizeof(one_double), &one_double},
	    {"complex", MPI_C_DOUBLE_COMPLEX, sizeof(one_complex), one_complex},
	    {"longdouble", MPI_LONG_DOUBLE, sizeof(one_longdouble), &one_longdouble},
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		if (strcmp(type_name, types[i].name) != 0)
			continue;
		type = types[i].type;
		width = (int)types[i].width;
		one = types[i].one;
	}
	if (!width)
		fail("--type: there is no %s", type_name);
}

static void add_doubles(void *in, void *inout, int *count, MPI_Datatype *datatype)
{
	(void)datatype;
	for (int i = 0; i < *count; i++)
		((double *)inout)[i] += ((double *)in)[i];
}

static void set_op(void)
{
	static const char *const names[] = {"sum", "prod", "max", "band"};
	const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_BAND};

	op = MPI_OP_NULL;
	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
		if (!strcmp(op_name, names[i]))
			op = ops[i];
	if (!strcmp(op_name, "user")) {
		if (strcmp(type_name, "double") != 0)
			fail("--op user: it adds doubles");
		MPI_Op_create(add_doubles, 1, &op);
	}
	if (op == MPI_OP_NULL)
		fail("--op: there is no %s", op_name);
}

int main(int argc, char **argv)
{
	int sizes[MOST_SIZES], n_sizes;

	program_start("latency", &argc, &argv, options);
	check_listed(only, collectives, COLLECTIVES, sizeof(*collectives));
	set_type();
	set_op();
	n_sizes = parse_sizes(size_list, sizes);
	for (int i = 0; i < n_sizes; i++)
		if (sizes[i] % width)
			fail("--sizes: %d is no number of whole elements", sizes[i]);
	if (iterations < 1)
		fail("--iterations: one at least");
	make_arrays();
	find_first_of_host();

	say("collective,bytes,ranks,iterations,calls,min_us,median_us,p99_us,mean_us,cpu_us,frames,"
	    "wire_bytes,stream_us");
	for (int i = 0; i < COLLECTIVES; i++) {
		if (!is_listed(only, collectives[i].name))
			continue;
		for (int j = 0; j < n_sizes && collectives[i].run != barrier; j++)
			measure(i, sizes[j]);
		if (collectives[i].run == barrier)
			measure(i, 0);
	}
	MPI_Finalize();
	return 0;
}
