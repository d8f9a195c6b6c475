/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sums of floating point that must be exact, rounded once (FOLDBACK_SUM=exact). Every answer of
 * every reduction is compared, bit for bit, with a sum of everyone's numbers that is made here, by
 * long numbers. Each rank's input follows from the seed, so no messages are needed to know it.
 *
 * Any other way of summing these numbers shows. They have unlike magnitudes, pairs that cancel but
 * for the last bit, ties, subnormals, and sums that leave the range and come back. Sometimes there
 * are infinities and NaNs.
 */
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "bigsum.h"
#include "issue.h"
#include "program.h"
#include "random.h"
#include "team.h"

enum { MOST_RANKS = 64 };

static long calls = 300, seed = 1, settle = 16, longest = 4096, waits = 32768, first, blocking;

static const struct option_spec options[] = {
    {"--calls", OPTION_NUMBER, &calls, "how many (300)"},
    {"--first", OPTION_NUMBER, &first, "the call to begin with (0)"},
    {"--longest", OPTION_NUMBER, &longest, "most bytes that a rank brings (4096)"},
    {"--blocking", OPTION_FLAG, &blocking, "only calls that block"},
    {"--waits", OPTION_NUMBER, &waits,
     "most bytes that all bring of calls that do not block (32768)"},
    {"--settle", OPTION_NUMBER, &settle, "Allreduces on each communicator first (16)"},
    {"--seed", OPTION_NUMBER, &seed, "of all random data (1)"},
    {0},
};

static const struct numbers {
	const char *name;
	size_t width; /* bytes of a real number */
	size_t parts; /* 2: complex */
} kinds[] = {{"float", 4, 1}, {"double", 8, 1}, {"float complex", 4, 2}, {"double complex", 8, 2}};

static MPI_Datatype type_of(int kind)
{
	MPI_Datatype types[] = {MPI_FLOAT, MPI_DOUBLE, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX};

	return types[kind];
}

/* Element `i` of a call by `rank` of `ranks`. */
static double number(long call, int rank, int ranks, size_t i, size_t width)
{
	/* The common part of all ranks, and this one's own. */
	struct random shared = random_start((uint64_t)seed, (uint64_t)call, i);
	struct random own =
	    random_start((uint64_t)seed ^ i << 20, (uint64_t)call, (uint64_t)rank + 1);
	uint64_t how = random_next(&shared), bits = random_next(&own);
	int least = width == 4 ? -126 : -1022, most = width == 4 ? 127 : 1023;
	double sign = bits & 1 ? -1 : 1, one = 1 + (double)(bits >> 12) * 0x1p-52;
	double common = 1 + (double)(random_next(&shared) >> 12) * 0x1p-52, x;

	switch (how % 8) {
	case 0: /* like magnitudes */
		x = sign * ldexp(one, (int)(bits >> 2 & 3));
		break;
	case 1: /* any exponent */
		x = sign * ldexp(one, least + (int)((bits >> 1) % (uint64_t)(most - least)));
		break;
	case 2: /* pairs cancel, and the last rank adds a little */
		x = rank == ranks - 1 && ranks % 2 ? ldexp(one, -60) : rank % 2 ? -common : common;
		x = rank < 2 && how >> 8 & 1 ? x + (rank ? 0x1p-52 : 0) : x;
		break;
	case 3: /* a tie, and what decides it */
		x = rank == 0	? common
		    : rank == 1 ? ldexp(1, width == 4 ? -24 : -53)
				: sign * 0x1p-120;
		break;
	case 4: /* beyond the range, and back */
		x = rank % 2 ? -ldexp(one, most) : ldexp(common, most);
		break;
	case 5: /* subnormal */
		x = sign * ldexp((double)(bits >> 52), width == 4 ? -149 : -1074);
		break;
	case 6: /* zeros */
		x = how >> 8 & 1 ? -0.0 : sign * 0.0;
		break;
	default: /* now and then not finite */
		x = bits >> 8 & 7    ? one
		    : bits >> 11 & 1 ? sign * INFINITY
		    : how >> 8 & 1   ? NAN
				     : one;
	}
	return width == 4 ? (double)(float)x : x;
}

static void put(void *buffer, size_t i, size_t width, double x)
{
	if (width == 4)
		((float *)buffer)[i] = (float)x;
	else
		((double *)buffer)[i] = x;
}

struct sum {
	const struct team *team;
	const struct numbers *kind;
	enum collective collective;
	enum form form;
	bool in_place;
	int root;
	long number;
};

static bool scatters(enum collective collective)
{
	return collective == REDUCE_SCATTER || collective == REDUCE_SCATTER_BLOCK;
}

/* The number of ranks whose numbers are summed here. */
static int ranks_below(const struct sum *call)
{
	const struct team *team = call->team;

	if (call->collective == REDUCE)
		return team->rank == call->root ? team->size : 0;
	if (call->collective == SCAN)
		return team->rank + 1;
	return call->collective == EXSCAN ? team->rank : team->size;
}

/* The real numbers `got` must be those from `from` on. */
static void check(const struct sum *call, const void *got, size_t from, size_t count)
{
	size_t width = call->kind->width;

	for (size_t i = 0; i < count; i++) {
		struct bigsum sum = {0};
		double want, have;

		for (int rank = 0; rank < ranks_below(call); rank++)
			bigsum_add(&sum,
				   number(call->number, rank, call->team->size, from + i, width));
		want = width == 4 ? bigsum_float(&sum) : bigsum_double(&sum);
		have = width == 4 ? ((const float *)got)[i] : ((const double *)got)[i];
		if (isnan(want) ? !isnan(have) : memcmp(&want, &have, sizeof(want)) != 0)
			fail("call %ld (seed %ld): %s of %zu %s on %s, form %d: number %zu is %a, "
			     "not %a",
			     call->number, seed, collectives[call->collective].name, count,
			     call->kind->name, call->team->name, (int)call->form, i, have, want);
	}
}

static void run(const struct sum *call, MPI_Datatype type, size_t count)
{
	const struct team *team = call->team;
	const struct numbers *kind = call->kind;
	size_t element = kind->width * kind->parts, all = count;
	int counts[MOST_RANKS];
	MPI_Count large_counts[MOST_RANKS];
	MPI_Request request = MPI_REQUEST_NULL;
	size_t before = 0, mine = count;

	if (scatters(call->collective)) {
		all = 0;
		for (int rank = 0; rank < team->size; rank++) {
			size_t of_rank = count;

			/* Of unlike length, some of them empty. */
			if (call->collective == REDUCE_SCATTER)
				of_rank = (size_t)(call->number + rank) % (count + 1);
			counts[rank] = (int)of_rank;
			large_counts[rank] = counts[rank];
			if (rank < team->rank)
				before += of_rank;
			if (rank == team->rank)
				mine = of_rank;
			all += of_rank;
		}
	}
	bool in_place = call->in_place && (call->collective != REDUCE || team->rank == call->root);
	char *from = malloc(all * element + 8), *to = malloc(all * element + 8);

	if (!from || !to)
		fail("out of memory");
	memset(to, 0x77, all * element);
	for (size_t i = 0; i < all * kind->parts; i++)
		put(in_place ? to : from, i, kind->width,
		    number(call->number, team->rank, team->size, i, kind->width));
	struct arguments arguments = {.send = in_place ? MPI_IN_PLACE : from,
				      .recv = to,
				      .recv_count = (int)count,
				      .recv_counts = counts,
				      .recv_counts_large = large_counts,
				      .recv_type = type,
				      .op = MPI_SUM,
				      .root = call->root,
				      .comm = team->comm};

	issue(call->collective, call->form, false, &arguments, &request);
	issue_complete(call->form, &request);
	if (ranks_below(call))
		check(call, to, before * kind->parts, mine * kind->parts);
	free(from);
	free(to);
}

static void one(const struct team *teams, long number)
{
	static const enum collective reductions[] = {
	    ALLREDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK,
	    SCAN,      EXSCAN, ALLREDUCE,      REDUCE};
	struct random random = random_start((uint64_t)seed, (uint64_t)number, ~0ULL);
	uint64_t choice = random_next(&random);
	int kind = (int)(choice >> 4 & 3);
	const struct team *team = &teams[choice >> 6 & 1];
	size_t element = kinds[kind].width * kinds[kind].parts;
	struct sum call = {.team = team,
			   .kind = &kinds[kind],
			   .collective = reductions[choice & 7],
			   .form = BLOCKING,
			   .in_place = choice >> 7 & 1,
			   .root = (int)((choice >> 8) % (uint64_t)team->size),
			   .number = number};
	/* As many short ones as long. */
	size_t most = 1 + random_below(&random, (uint64_t)longest / element);
	size_t count = 1 + random_below(&random, most);
	size_t ranks = (size_t)team->size;

	if (blocking)
		;
	else if (choice >> 20 & 1)
		call.form = NONBLOCKING;
	else if ((choice >> 21) % 16 == 0 && issue_has(ALLREDUCE, PERSISTENT, false) &&
		 call.collective == ALLREDUCE)
		call.form = PERSISTENT;
	if (call.form != BLOCKING && count * element * ranks > (size_t)waits)
		count = (size_t)waits / element / ranks;
	if (scatters(call.collective))
		count = (count + ranks - 1) / ranks;
	watch(PATIENCE, "call %ld, seed %ld", number, seed);
	run(&call, type_of(kind), count ? count : 1);
}

int main(int argc, char **argv)
{
	struct team teams[2];

	program_start("sums", &argc, &argv, options);
	if (world_size > MOST_RANKS)
		fail("at most %d ranks", MOST_RANKS);
	teams_make_both(teams, settle);
	for (long call = first; call < first + calls; call++)
		one(teams, call);
	watch(PATIENCE, "the end");
	say("sums: %ld calls ok, %d ranks", calls, world_size);
	teams_free_both(teams);
	MPI_Finalize();
	return 0;
}
