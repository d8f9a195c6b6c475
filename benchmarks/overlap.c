/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How much of a non-blocking collective passes while the program computes: the overlap, as the OSU
 * micro-benchmarks (osu_iallreduce and its kin) define it. CSV on stdout.
 *
 *     pure     start the collective, wait for it
 *     compute  compute
 *     total    start it, compute for about as long as `pure` takes, wait for it
 *
 *     overlap = max(0, 100 - (total - compute) / pure * 100)
 *
 * Each timed on each rank, a barrier after each, untimed; means over calls and ranks. There is no
 * MPI_Test unless --tests asks for some. --sizes are as in latency.c.
 *
 * This program differs from OSU's in three ways:
 *
 * Computing is a number of turns of a loop, and not a time by the clock. If hosts share CPUs,
 * time passes for a rank that does not run, and the clock would count it as work. The turns are
 * calibrated here by the fastest of many runs, which nobody interrupted. Each rank computes for as
 * long as its own part of the pure collective takes, as in OSU. --clock computes until that much
 * time has passed, as OSU does.
 *
 * `compute` is measured in calls without a collective, on all ranks at once and with the same
 * barriers. OSU measures it between start and wait. The collective may take time from the
 * computation, by interrupts, a thread, or another rank that is woken on this CPU. OSU calls that
 * time computation, so it is hidden by definition. `osu` is OSU's figure: 100 - (start + wait) /
 * pure * 100, where `start` and `wait` are the times of these two calls in `total`.
 *
 * The three are measured in blocks, in turns, so that a drift hits all of them.
 *
 * Two limits hold for every number here. First, where hosts share CPUs, a rank may stand ready to
 * compute and not run. Of two ranks on a CPU the second begins when the first gives the CPU away.
 * The first then waits in MPI_Wait until the second has computed as well, and cannot tell that from
 * waiting for a message. So with twice as many ranks as CPUs, even a collective that costs nothing
 * can leave overlap at about 50. `loop` is free of that. It takes whole iterations, with their
 * barriers. It asks how much longer {start, compute, wait} is than {compute}, relative to how much
 * longer {start, wait} is than nothing. Of each it takes the median block:
 *
 *     loop = max(0, 100 - (L(total) - L(compute)) / (L(pure) - L(nothing)) * 100)
 *
 * Second, the CPU's own work for the collective overlaps with nothing, unless another CPU is idle.
 * In the lab that is nearly all of it, since the "wires" are CPU work, too. The system call that
 * sends a frame takes it through both hosts' interfaces.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>

#include "program.h"
#include "sizes.h"

static long iterations = 1000, warmup = 100, tests, by_clock, stall = PATIENCE;
static const char *only = "iallreduce";
static const char *size_list = "4,64,1024,4096,16384,65536";

static const struct option_spec options[] = {
    {"--collective", OPTION_TEXT, &only, "names, with commas between, or all (iallreduce)"},
    {"--sizes", OPTION_TEXT, &size_list, "bytes, with commas between"},
    {"--iterations", OPTION_NUMBER, &iterations, "timed, of up to 8 KiB; a quarter above (1000)"},
    {"--warmup", OPTION_NUMBER, &warmup, "untimed calls before them (100)"},
    {"--tests", OPTION_NUMBER, &tests, "calls of MPI_Test while computing (0)"},
    {"--clock", OPTION_FLAG, &by_clock, "compute until the time is over, not a number of turns"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one size may take (300)"},
    {0},
};

static char *from, *to;

static void iallreduce(int count, MPI_Request *request)
{
	MPI_Iallreduce(from, to, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request);
}

static void ireduce(int count, MPI_Request *request)
{
	MPI_Ireduce(from, to, count, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, request);
}

static void ibcast(int count, MPI_Request *request)
{
	MPI_Ibcast(to, count, MPI_INT, 0, MPI_COMM_WORLD, request);
}

static void ibarrier(int count, MPI_Request *request)
{
	(void)count;
	MPI_Ibarrier(MPI_COMM_WORLD, request);
}

static void iallgather(int count, MPI_Request *request)
{
	MPI_Iallgather(from, count, MPI_INT, to, count, MPI_INT, MPI_COMM_WORLD, request);
}

static void igather(int count, MPI_Request *request)
{
	MPI_Igather(from, count, MPI_INT, to, count, MPI_INT, 0, MPI_COMM_WORLD, request);
}

static void iscatter(int count, MPI_Request *request)
{
	MPI_Iscatter(from, count, MPI_INT, to, count, MPI_INT, 0, MPI_COMM_WORLD, request);
}

static void ireduce_scatter_block(int count, MPI_Request *request)
{
	int each = count / world_size > 0 ? count / world_size : 1;

	MPI_Ireduce_scatter_block(from, to, each, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request);
}

static void ialltoall(int count, MPI_Request *request)
{
	MPI_Ialltoall(from, count, MPI_INT, to, count, MPI_INT, MPI_COMM_WORLD, request);
}

typedef void starter(int count, MPI_Request *request);

static const struct {
	const char *name;
	starter *start;
} collectives[] = {
    {"iallreduce", iallreduce}, {"ireduce", ireduce},
    {"ibcast", ibcast},		{"ibarrier", ibarrier},
    {"iallgather", iallgather}, {"igather", igather},
    {"iscatter", iscatter},	{"ireduce_scatter_block", ireduce_scatter_block},
    {"ialltoall", ialltoall},
};

enum { COLLECTIVES = sizeof(collectives) / sizeof(*collectives), BLOCKS = 10, UNTIMED = 2 };

static double turn; /* seconds */

/* A turn depends on the one before, and takes a few cycles. */
static void take_turns(long turns)
{
	uint64_t x = (uint64_t)turns;

	for (long i = 0; i < turns; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(x));
	}
}

static void compute(long turns)
{
	double end;

	if (!by_clock) {
		take_turns(turns);
		return;
	}
	end = now() + (double)turns * turn;
	while (now() < end)
		take_turns(100);
}

/* Of many short runs the fastest was not interrupted. */
static void calibrate(void)
{
	const long turns = 20000;
	double fastest = 1;

	for (int i = 0; i < 200; i++) {
		double start = now();

		take_turns(turns);
		if (now() - start < fastest)
			fastest = now() - start;
	}
	turn = fastest / (double)turns;
}

enum phase { NOTHING, PURE, COMPUTE, TOTAL, PHASES };

/* The times of each call: a phase from its start to its end, and the two calls in TOTAL. */
enum { START = PHASES, WAIT, SERIES };

/* Of one size on one rank, in seconds. */
struct times {
	long n;		      /* calls of each phase */
	double *call[SERIES]; /* of each call */
	double loop[PHASES];  /* of an iteration with its barrier, the median of the blocks */
};

/* Sums of these over all ranks are what is reported. */
struct results {
	double mean[SERIES];
	double median[SERIES];
	double loop[PHASES];
};

/* The subject of a measurement. */
struct subject {
	starter *start;
	int count;
	long turns; /* of this rank's computation */
};

static void work(const struct subject *subject, MPI_Request *request)
{
	int done;

	if (tests == 0)
		compute(subject->turns);
	for (long i = 0; i < tests; i++) {
		compute(subject->turns / tests);
		MPI_Test(request, &done, MPI_STATUS_IGNORE);
	}
}

/* One iteration without its barrier. */
static void once(const struct subject *subject, enum phase phase, double times[SERIES])
{
	MPI_Request request = MPI_REQUEST_NULL;
	double begin = now(), started = begin, computed = begin, end;

	if (phase == PURE || phase == TOTAL)
		subject->start(subject->count, &request);
	if (phase == TOTAL) {
		started = now();
		work(subject, &request);
		computed = now();
	} else if (phase == COMPUTE) {
		compute(subject->turns);
	}
	if (phase == PURE || phase == TOTAL)
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	end = now();
	times[phase] = end - begin;
	if (phase == TOTAL) {
		times[START] = started - begin;
		times[WAIT] = end - computed;
	}
}

/* `n` calls, each with its barrier, behind some that do not count. Returns the time of an
 * iteration. */
static double block(const struct subject *subject, enum phase phase, long n, struct times *times)
{
	double one[SERIES] = {0}, begin = 0;

	for (long i = -UNTIMED; i < n; i++) {
		if (i == 0)
			begin = now();
		once(subject, phase, one);
		if (i >= 0) {
			times->call[phase][times->n + i] = one[phase];
			for (int series = START; series < SERIES && phase == TOTAL; series++)
				times->call[series][times->n + i] = one[series];
		}
		MPI_Barrier(MPI_COMM_WORLD);
	}
	return (now() - begin) / (double)n;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts. */
static double median(double *values, long n)
{
	qsort(values, (size_t)n, sizeof(*values), ascending);
	return (values[n / 2] + values[(n - 1) / 2]) / 2;
}

static void sum_up(struct times *times, struct results *results)
{
	struct results mine = {0};

	for (int series = 0; series < SERIES; series++) {
		for (long i = 0; i < times->n; i++)
			mine.mean[series] += times->call[series][i] / (double)times->n;
		mine.median[series] = median(times->call[series], times->n);
	}
	for (int phase = 0; phase < PHASES; phase++)
		mine.loop[phase] = times->loop[phase];
	MPI_Reduce(&mine, results, sizeof(mine) / sizeof(double), MPI_DOUBLE, MPI_SUM, 0,
		   MPI_COMM_WORLD);
}

static double percent(double longer, double pure)
{
	double overlap = pure > 0 ? 100 - longer / pure * 100 : 0;

	return overlap > 0 ? overlap : 0;
}

static void print(const char *name, int bytes, long n, long calls, const struct results *results)
{
	const double *mean = results->mean, *med = results->median, *loop = results->loop;
	double us = 1e6 / world_size;

	say("%s,%d,%d,%ld,%ld,%.2f,%.2f,%.2f,%.1f,%.2f,%.2f,%.2f,%.2f,%.2f,%.1f,%.1f,%.1f", name,
	    bytes, world_size, n, calls, mean[PURE] * us, mean[COMPUTE] * us, mean[TOTAL] * us,
	    percent(mean[TOTAL] - mean[COMPUTE], mean[PURE]), med[PURE] * us, med[COMPUTE] * us,
	    med[TOTAL] * us, med[START] * us, med[WAIT] * us,
	    percent(med[TOTAL] - med[COMPUTE], med[PURE]),
	    percent(mean[START] + mean[WAIT], mean[PURE]),
	    percent(loop[TOTAL] - loop[COMPUTE], loop[PURE] - loop[NOTHING]));
}

static void measure(const char *name, starter *start, int bytes)
{
	long divisor = bytes > LARGE ? 4 : 1;
	long n = iterations / divisor / BLOCKS > 0 ? iterations / divisor / BLOCKS : 1;
	long first = warmup / divisor > 0 ? warmup / divisor : 1;
	long most = first > n * BLOCKS ? first : n * BLOCKS;
	struct subject subject = {start, bytes / 4, 0};
	struct times times = {0};
	double loops[PHASES][BLOCKS];
	struct results results;

	watch((unsigned)stall, "%s of %d bytes", name, bytes);
	for (int series = 0; series < SERIES; series++)
		times.call[series] = calloc((size_t)most, sizeof(double));
	block(&subject, PURE, first, &times);
	block(&subject, PURE, first, &times);
	subject.turns = (long)(median(times.call[PURE], first) / turn);
	for (int i = 0; i < BLOCKS; i++) {
		for (enum phase phase = 0; phase < PHASES; phase++)
			loops[phase][i] = block(&subject, phase, n, &times);
		times.n += n;
	}
	for (int phase = 0; phase < PHASES; phase++)
		times.loop[phase] = median(loops[phase], BLOCKS);
	sum_up(&times, &results);
	if (world_rank == 0)
		print(name, bytes, times.n, 2 * (first + UNTIMED) + 2 * BLOCKS * (n + UNTIMED),
		      &results);
	for (int series = 0; series < SERIES; series++)
		free(times.call[series]);
}

int main(int argc, char **argv)
{
	int sizes[MOST_SIZES], n_sizes, most = 0;

	program_start("overlap", &argc, &argv, options);
	check_listed(only, collectives, COLLECTIVES, sizeof(*collectives));
	n_sizes = parse_sizes(size_list, sizes);
	for (int i = 0; i < n_sizes; i++)
		most = sizes[i] > most ? sizes[i] : most;
	from = buffer((long)most * world_size, 1);
	to = buffer((long)most * world_size, 0);
	calibrate();

	say("collective,bytes,ranks,iterations,calls,pure_us,compute_us,total_us,overlap,"
	    "pure_median_us,compute_median_us,total_median_us,start_median_us,wait_median_us,"
	    "typical,osu,loop");
	for (int i = 0; i < COLLECTIVES; i++) {
		if (!is_listed(only, collectives[i].name))
			continue;
		for (int j = 0; j < n_sizes && collectives[i].start != ibarrier; j++)
			measure(collectives[i].name, collectives[i].start, sizes[j]);
		if (collectives[i].start == ibarrier)
			measure("ibarrier", ibarrier, 0);
	}
	MPI_Finalize();
	return 0;
}
