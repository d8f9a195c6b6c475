/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sums of floating point that may be quantized (FOLDBACK_QUANTIZE). No answer may be further off
 * than docs/using/quantization.md says. Each collective must give all ranks the same bits.
 * Infinities and NaNs must add as in IEEE 754. Each rank's input follows from the seed.
 */
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include "persistent.h"
#include "program.h"
#include "random.h"

static long calls = 200, seed = 1, longest = 20000, bits = 16, block = 256, settle = 16;
static long halves = 1, times = 1, step = 74, afresh, shorts, form;
static MPI_Comm comm;

static const struct option_spec options[] = {
    {"--calls", OPTION_NUMBER, &calls, "how many (200)"},
    {"--longest", OPTION_NUMBER, &longest, "most numbers of a call (20000)"},
    {"--bits", OPTION_NUMBER, &bits, "of the integers (16)"},
    {"--block", OPTION_NUMBER, &block, "numbers that have an exponent in common (256)"},
    {"--halves", OPTION_NUMBER, &halves,
     "of a unit, that each rank's number may be off: 2 if chance rounds (1)"},
    {"--times", OPTION_NUMBER, &times,
     "that each sum is made; with error feedback all together are off by no more than one (1)"},
    {"--step", OPTION_NUMBER, &step,
     "numbers that each call has more than the one before it, if sums are made several times (74)"},
    {"--afresh", OPTION_FLAG, &afresh,
     "each time on a new duplicate of MPI_COMM_WORLD: nothing is carried from one to the next"},
    {"--shorts", OPTION_NUMBER, &shorts,
     "kinds of 16 bits too: 1 MPIX_C_FLOAT16, 2 and MPIX_BFLOAT16 (0)"},
    {"--form", OPTION_NUMBER, &form,
     "of the calls: 0 blocking, 1 non-blocking, 2 persistent, 3 one after the other (0)"},
    {"--settle", OPTION_NUMBER, &settle, "Allreduces first (16)"},
    {"--seed", OPTION_NUMBER, &seed, "of all numbers (1)"},
    {0},
};

static const struct numbers {
	const char *name;
	size_t width;	/* bytes of a real number */
	int parts;	/* 2: complex */
	int exponents;	/* of two, that numbers are drawn from, with 0 in their middle */
	double epsilon; /* half of that of 1 */
} kinds[] = {
    {"float", 4, 1, 60, 0x1p-24},	  {"double", 8, 1, 60, 0x1p-53},
    {"float complex", 4, 2, 60, 0x1p-24}, {"double complex", 8, 2, 60, 0x1p-53},
    {"binary16", 2, 1, 16, 0x1p-11},	  {"bfloat16", 2, 1, 60, 0x1p-8},
};

enum { BINARY16 = 4, BFLOAT16, LONG_KINDS = 4 };

static MPI_Datatype type_of(int kind)
{
	MPI_Datatype types[] = {MPI_FLOAT, MPI_DOUBLE, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX};

	if (kind < LONG_KINDS)
		return types[kind];
#ifdef MPIX_C_FLOAT16
	if (kind == BINARY16)
		return MPIX_C_FLOAT16;
#endif
#ifdef MPIX_BFLOAT16
	if (kind == BFLOAT16)
		return MPIX_BFLOAT16;
#endif
	fail("--shorts %ld: this MPI has no such type", shorts);
}

enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };

enum collective { ALLREDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, COLLECTIVES };

/* The kind of a call, alike on all ranks. */
struct plan {
	enum collective collective;
	int root;
	int kind, in_place;
	int odd;      /* some numbers may not be finite */
	int special;  /* some are not */
	size_t count; /* real numbers */
};

static struct plan plan_of(long call)
{
	struct random random = random_start((uint64_t)seed, (uint64_t)call, 0);
	struct plan plan = {.kind = (int)random_below(&random, LONG_KINDS + (uint64_t)shorts)};
	size_t most = (size_t)longest >> random_below(&random, 12);

	plan.in_place = random_below(&random, 3) == 0;
	plan.odd = random_below(&random, 8) == 0;
	plan.count = 2 * (1 + random_below(&random, most / 2 + 1));
	plan.collective = (enum collective)random_below(&random, COLLECTIVES);
	plan.root = (int)random_below(&random, (uint64_t)world_size);
	/* Rounding errors of another call are not to be added. */
	if (times > 1)
		plan.count = 2 * (size_t)(step / 2) * (size_t)(call + 1);
	if (plan.collective == REDUCE_SCATTER_BLOCK)
		plan.count += 2 * (size_t)world_size - plan.count % (2 * (size_t)world_size);
	return plan;
}

/* The elements that each rank gets of MPI_Reduce_scatter: some none, the last one the rest. */
static void split(long call, int elements, int counts[])
{
	struct random random = random_start((uint64_t)seed, (uint64_t)call, UINT64_MAX);
	int left = elements;

	for (int rank = 0; rank < world_size; rank++) {
		int most = left < 2 * elements / world_size ? left : 2 * elements / world_size;

		counts[rank] = (int)random_below(&random, (uint64_t)most + 1);
		if (random_below(&random, 4) == 0)
			counts[rank] = 0;
		if (rank == world_size - 1)
			counts[rank] = left;
		left -= counts[rank];
	}
}

static double load(const void *numbers, int kind, size_t i)
{
	uint16_t half;
	uint32_t bits;
	float number;

	if (kinds[kind].width == 8)
		return ((const double *)numbers)[i];
	if (kinds[kind].width == 4)
		return (double)((const float *)numbers)[i];
	half = ((const uint16_t *)numbers)[i];
	/* A float's bits; binary16 has another bias, and fewer bits of the exponent. */
	bits = (uint32_t)(half & 0x7fff) << (kind == BINARY16 ? 13 : 16);
	if (kind == BINARY16 && (half & 0x7c00) == 0x7c00)
		bits |= 0x7f800000;
	memcpy(&number, &bits, sizeof(number));
	if (kind == BINARY16 && isfinite(number))
		number *= 0x1p112f;
	return half & 0x8000 ? -(double)number : (double)number;
}

/* Of 16 bits it is cut off, towards zero. */
static void store(void *numbers, int kind, size_t i, double x)
{
	float number = (float)x, magnitude = fabsf(number);
	uint32_t bits;

	if (kinds[kind].width == 8) {
		((double *)numbers)[i] = x;
		return;
	}
	if (kinds[kind].width == 4) {
		((float *)numbers)[i] = number;
		return;
	}
	if (kind == BINARY16 && isfinite(number))
		magnitude *= 0x1p-112f;
	memcpy(&bits, &magnitude, sizeof(bits));
	bits >>= kind == BINARY16 ? 13 : 16;
	if (kind == BINARY16 && !isfinite(number))
		bits = isnan(number) ? 0x7e00 : 0x7c00;
	((uint16_t *)numbers)[i] = (uint16_t)(bits | (signbit(number) ? 0x8000u : 0));
}

static double number(long call, const struct plan *plan, int rank, size_t i)
{
	struct random shared = random_start((uint64_t)seed, (uint64_t)call, 1 + i / 100);
	struct random own =
	    random_start((uint64_t)seed ^ i << 20, (uint64_t)call, (uint64_t)rank + 1);
	uint64_t drawn = random_next(&own);
	int exponents = kinds[plan->kind].exponents;
	int exponent = (int)(random_next(&shared) % (uint64_t)exponents) - exponents / 2;
	double x = (double)(int64_t)drawn * 0x1p-63, stored;

	/* Sometimes numbers that are not finite, of some ranks. */
	if (plan->odd && drawn % 997 == 0)
		return drawn & 1024 ? INFINITY : drawn & 2048 ? -INFINITY : NAN;
	store(&stored, plan->kind, 0, ldexp(x, exponent));
	return load(&stored, plan->kind, 0);
}

/* The unit of numbers none of which is greater. */
static double unit_of(double greatest)
{
	long room = INT32_MAX >> (32 - bits);
	int most = (int)floor(log2((double)(room / world_size)));

	return greatest > 0 ? ldexp(1, ilogb(greatest) + 1 - most) : 0;
}

/* Real numbers of a call, from the first to before the last. */
struct range {
	size_t first, last;
};

/*
 * Compares a block of this rank, all times together. Returns the number of values that are not the
 * exact sum, rounded.
 */
static long check(long call, const struct plan *plan, const long double *got, struct range own,
		  size_t first, size_t last)
{
	size_t width = kinds[plan->kind].width;
	double greatest = 0, epsilon = kinds[plan->kind].epsilon;
	long off = 0;

	for (size_t i = first; i < last; i++)
		for (int rank = 0; rank < world_size; rank++)
			greatest = fmax(greatest, fabs(number(call, plan, rank, i)));
	if (first < own.first)
		first = own.first;
	if (last > own.last)
		last = own.last;
	for (size_t i = first; i < last; i++) {
		long double sum = 0, all = 0;
		long double x = got[i];
		double bound;

		for (int rank = 0; rank < world_size; rank++) {
			sum += number(call, plan, rank, i);
			all += fabs(number(call, plan, rank, i));
		}
		sum *= times;
		all *= times;
		if (!isfinite((double)sum)) {
			if (isnan((double)sum) ? isnan(x) : x == sum)
				continue;
			fail("call %ld: element %zu is %Lg, not %g", call, i, x, (double)sum);
		}
		/* Of what is not quantized each step is rounded. */
		bound = world_size * unit_of(times > 1 ? 2 * greatest : greatest) * halves / 2;
		if (plan->special)
			bound = 0;
		bound += (double)all * epsilon * (plan->special ? world_size : 2);
		/* Of what is less than normal. */
		if (plan->kind == BINARY16)
			bound += 0x1p-25 * (double)times;
		if (!(fabs((double)(x - sum)) <= bound))
			fail("call %ld, %zu x %s: element %zu is %.17Lg, and not %.17g, more than "
			     "%g off",
			     call, plan->count, kinds[plan->kind].name, i, x, (double)sum, bound);
		if (width == 2)
			off += fabs((double)(x - sum)) > fabs((double)sum) * epsilon;
		else
			off += x != (width == 4 ? (float)sum : (double)sum);
	}
	return off;
}

static uint64_t hash_of(const unsigned char *bytes, size_t count)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

	for (size_t i = 0; i < count; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3u;
	return hash;
}

/* The arguments of a call. */
struct arguments {
	const void *from;
	void *to;
	int elements, length, root;
	const int *counts;
	MPI_Datatype type;
};

static void call_blocking(enum collective collective, const struct arguments *a)
{
	switch (collective) {
	case REDUCE:
		MPI_Reduce(a->from, a->to, a->elements, a->type, MPI_SUM, a->root, comm);
		break;
	case REDUCE_SCATTER:
		MPI_Reduce_scatter(a->from, a->to, a->counts, a->type, MPI_SUM, comm);
		break;
	case REDUCE_SCATTER_BLOCK:
		MPI_Reduce_scatter_block(a->from, a->to, a->length, a->type, MPI_SUM, comm);
		break;
	default:
		MPI_Allreduce(a->from, a->to, a->elements, a->type, MPI_SUM, comm);
	}
}

static MPI_Request call_nonblocking(enum collective collective, const struct arguments *a)
{
	MPI_Request request;

	switch (collective) {
	case REDUCE:
		MPI_Ireduce(a->from, a->to, a->elements, a->type, MPI_SUM, a->root, comm, &request);
		break;
	case REDUCE_SCATTER:
		MPI_Ireduce_scatter(a->from, a->to, a->counts, a->type, MPI_SUM, comm, &request);
		break;
	case REDUCE_SCATTER_BLOCK:
		MPI_Ireduce_scatter_block(a->from, a->to, a->length, a->type, MPI_SUM, comm,
					  &request);
		break;
	default:
		MPI_Iallreduce(a->from, a->to, a->elements, a->type, MPI_SUM, comm, &request);
	}
	return request;
}

#if HAVE_PERSISTENT
static MPI_Request make_persistent(enum collective collective, const struct arguments *a)
{
	MPI_Info none = MPI_INFO_NULL;
	MPI_Request request;

	switch (collective) {
	case REDUCE:
		PERSISTENT_NAME(Reduce)
		(a->from, a->to, a->elements, a->type, MPI_SUM, a->root, comm, none, &request);
		break;
	case REDUCE_SCATTER:
		PERSISTENT_NAME(Reduce_scatter)
		(a->from, a->to, a->counts, a->type, MPI_SUM, comm, none, &request);
		break;
	case REDUCE_SCATTER_BLOCK:
		PERSISTENT_NAME(Reduce_scatter_block)
		(a->from, a->to, a->length, a->type, MPI_SUM, comm, none, &request);
		break;
	default:
		PERSISTENT_NAME(Allreduce)
		(a->from, a->to, a->elements, a->type, MPI_SUM, comm, none, &request);
	}
	return request;
}

#else
static MPI_Request make_persistent(enum collective collective, const struct arguments *a)
{
	(void)collective;
	(void)a;
	fail("--form: this MPI has no persistent collectives");
}
#endif

/* Made at the first time of a call, for all its times. */
static MPI_Request persistent;

/*
 * Makes other calls on the same communicator while a sum is under way. They have their answers,
 * whichever ranks are still at the sum.
 */
static void others(long call)
{
	struct random random = random_start((uint64_t)seed, (uint64_t)call, UINT64_MAX - 1);
	uint64_t drawn = random_below(&random, 8);
	int ranks = world_size * (world_size - 1) / 2, root = (int)(call % world_size);
	int one = world_rank, all = world_rank, told = world_rank == root ? (int)call : -1;
	MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};

	if (drawn & 1)
		MPI_Iallreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, comm, &requests[0]);
	if (drawn & 2)
		MPI_Ibcast(&told, 1, MPI_INT, root, comm, &requests[1]);
	if (drawn & 4)
		MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_SUM, comm);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	if (drawn & 1 && one != ranks)
		fail("call %ld: MPI_Iallreduce behind a sum gives %d, not %d", call, one, ranks);
	if (drawn & 2 && told != (int)call)
		fail("call %ld: MPI_Ibcast behind a sum gives %d", call, told);
	if (drawn & 4 && all != ranks)
		fail("call %ld: MPI_Allreduce behind a sum gives %d, not %d", call, all, ranks);
}

static void make(long call, enum form how, enum collective collective,
		 const struct arguments *arguments)
{
	MPI_Request request = MPI_REQUEST_NULL;

	if (how == BLOCKING) {
		call_blocking(collective, arguments);
		return;
	}
	if (how == NONBLOCKING) {
		request = call_nonblocking(collective, arguments);
		others(call);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		return;
	}
	if (persistent == MPI_REQUEST_NULL)
		persistent = make_persistent(collective, arguments);
	MPI_Start(&persistent);
	others(call);
	MPI_Wait(&persistent, MPI_STATUS_IGNORE);
}

/*
 * Makes the call, of numbers that are not written to. Returns which of the sums are in the buffer.
 */
static struct range sum(long call, enum form how, const struct plan *plan, const void *mine,
			unsigned char *got)
{
	size_t parts = (size_t)kinds[plan->kind].parts, size = kinds[plan->kind].width * parts;
	size_t bytes = plan->count / parts * size, before = 0, brought;
	int in_place = plan->in_place, elements = (int)(plan->count / parts), length = elements;
	/* As long as the request, see `persistent`. */
	static int *counts;
	struct arguments arguments = {
	    .to = got, .elements = elements, .root = plan->root, .type = type_of(plan->kind)};

	counts = realloc(counts, sizeof(*counts) * (size_t)world_size);
	if (plan->collective == REDUCE && world_rank != plan->root) {
		in_place = 0;
		length = 0;
	}
	if (plan->collective == REDUCE_SCATTER_BLOCK) {
		length = elements / world_size;
		before = (size_t)(length * world_rank);
	}
	if (plan->collective == REDUCE_SCATTER) {
		split(call, elements, counts);
		for (int rank = 0; rank < world_rank; rank++)
			before += (size_t)counts[rank];
		length = counts[world_rank];
	}
	brought = in_place ? bytes : 0;
	arguments.from = in_place ? MPI_IN_PLACE : mine;
	arguments.length = length;
	arguments.counts = counts;
	memset(got, 0xa5, bytes);
	memcpy(got, mine, brought);
	make(call, how, plan->collective, &arguments);
	/* MPIs may leave anything behind the result of a call in place. */
	for (size_t at = (size_t)length * size; !in_place && at < bytes; at++)
		if (got[at] != 0xa5)
			fail("call %ld: byte %zu was written, of %zu", call, at,
			     (size_t)length * size);
	return (struct range){before * parts, (before + (size_t)length) * parts};
}

static long one(long call)
{
	struct plan plan = plan_of(call), all;
	size_t width = kinds[plan.kind].width, bytes = plan.count * width;
	unsigned char *mine = malloc(bytes), *got = malloc(bytes), *again = malloc(bytes);
	long double *sums = calloc(plan.count, sizeof(*sums));
	uint64_t hash, *hashes = malloc(sizeof(*hashes) * (size_t)world_size);
	enum form how = form == FORMS ? (enum form)(call % FORMS) : (enum form)form;
	struct range own = {0, 0};
	long off = 0;

	for (size_t i = 0; i < plan.count; i++)
		store(mine, plan.kind, i, number(call, &plan, world_rank, i));
	for (size_t i = 0; plan.odd && i < plan.count; i++)
		for (int rank = 0; rank < world_size; rank++)
			plan.special |= !isfinite(number(call, &plan, rank, i));
	for (long time = 0; time < times; time++) {
		if (afresh)
			MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		own = sum(call, how, &plan, mine, got);
		if (afresh) {
			MPI_Comm_free(&comm);
			if (time > 0 && !plan.special && memcmp(got, again, bytes) != 0)
				fail("call %ld: other bits the next time", call);
			memcpy(again, got, bytes);
		}
		for (size_t i = own.first; i < own.last; i++)
			sums[i] += load(got, plan.kind, i - own.first);
	}
	if (persistent != MPI_REQUEST_NULL)
		MPI_Request_free(&persistent);
	for (size_t first = 0; first < plan.count; first += (size_t)block) {
		size_t last =
		    first + (size_t)block < plan.count ? first + (size_t)block : plan.count;

		off += check(call, &plan, sums, own, first, last);
	}
	/* By chance, and with what was left out, no two calls are alike. */
	all = plan;
	all.collective = ALLREDUCE;
	if (times == 1 && halves == 1 && !afresh) {
		sum(call, BLOCKING, &all, mine, again);
		if (!plan.special &&
		    memcmp(again + own.first * width, got, (own.last - own.first) * width))
			fail("call %ld: MPI_Allreduce has other bits", call);
		memcpy(got, again, bytes);
	}
	/* The MPIs' own sums have NaNs of any kind. */
	for (size_t i = 0; i < plan.count; i++)
		if (isnan(load(got, plan.kind, i)))
			store(got, plan.kind, i, NAN);
	hash = plan.collective == ALLREDUCE || times * halves == 1 ? hash_of(got, bytes) : 0;
	MPI_Allgather(&hash, 8, MPI_BYTE, hashes, 8, MPI_BYTE, MPI_COMM_WORLD);
	for (int rank = 0; rank < world_size; rank++)
		if (hashes[rank] != hash)
			fail("call %ld: rank %d has other bits", call, rank);
	free(mine);
	free(sums);
	free(got);
	free(again);
	free(hashes);
	return plan.special ? 0 : off;
}

int main(int argc, char **argv)
{
	long off = 0;

	program_start("quantized", &argc, &argv, options);
	comm = MPI_COMM_WORLD;
	persistent = MPI_REQUEST_NULL;
	if (form < 0 || form > FORMS)
		fail("--form: 0 to 3");
	if (shorts < 0 || shorts > 2)
		fail("--shorts: 0, 1 or 2");
	for (long i = 0; i < settle; i++)
		MPI_Allreduce(MPI_IN_PLACE, &(int){1}, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (long call = 0; call < calls; call++) {
		watch(PATIENCE, "call %ld, seed %ld", call, seed);
		off += one(call);
	}
	watch(0, "MPI_Finalize");
	say("quantized: %ld calls ok, %ld numbers are not the nearest to the sum", calls, off);
	MPI_Finalize();
	return 0;
}
