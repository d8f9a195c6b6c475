/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reductions over neighbours by foldback's own functions, on all kinds of topologies: with a cache
 * and without, blocking and not. The ops are of the kernel's, exact, of the MPI's and its own.
 *
 * Each rank knows the vectors of all, so it works every answer out for itself. The last part has
 * vectors of 1,000 blocks, of which each rank changes one or none at random, and then all.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bigsum.h"
#include "preloaded.h"
#include "random.h"

enum { MOST = 600, MOST_EDGES = 64, BLOCKS = 1000, BLOCK = 4, FAILED_AS = 77 };

static long seed = 1, rounds = 6, stream = 10000;

static const struct option_spec options[] = {
    {"--seed", OPTION_NUMBER, &seed, "which graphs and vectors (1)"},
    {"--rounds", OPTION_NUMBER, &rounds, "reductions of each kind on each topology (6)"},
    {"--stream", OPTION_NUMBER, &stream, "reductions of vectors of 1,000 blocks (10,000)"},
    {0},
};

static __typeof__(foldback_neighbor_reduce) *neighbor_reduce;
static __typeof__(foldback_ineighbor_reduce) *ineighbor_reduce;
static __typeof__(foldback_neighbor_cache_create) *cache_create;
static __typeof__(foldback_neighbor_cache_reduce) *cache_reduce;
static __typeof__(foldback_neighbor_cache_ireduce) *cache_ireduce;
static __typeof__(foldback_neighbor_cache_counts) *cache_counts;
static __typeof__(foldback_neighbor_cache_free) *cache_free;
static __typeof__(foldback_wait) *request_wait;
static __typeof__(foldback_test) *request_test;

/* x -> a x + b modulo 2^32, whose composition is associative, and does not commute. */
struct map {
	uint32_t a, b;
};

static void compose(void *in, void *inout, int *count, MPI_Datatype *datatype)
{
	const struct map *left = in;
	struct map *right = inout;
	MPI_Aint lower, extent;

	MPI_Type_get_extent(*datatype, &lower, &extent);
	for (int i = 0; i < *count; i++) {
		*right = (struct map){left->a * right->a, left->a * right->b + left->b};
		left = (const void *)((const char *)left + extent);
		right = (void *)((char *)right + extent);
	}
}

struct place {
	double value;
	int at;
};

union element {
	int32_t i;
	uint64_t w;
	uint8_t c;
	double d;
	long double l;
	struct map map;
	struct place place;
};

enum what { SUM_INT, XOR_WORD, MAX_BYTE, SUM_DOUBLE, MIN_DOUBLE, SUM_LONG, MAPS, GAPS, MAXLOC };

static struct {
	const char *name;
	size_t extent;
	MPI_Datatype datatype;
	MPI_Op op;
} kinds[] = {
    [SUM_INT] = {"sum of int", 4, 0, 0},
    [XOR_WORD] = {"xor of uint64_t", 8, 0, 0},
    [MAX_BYTE] = {"max of uint8_t", 1, 0, 0},
    [SUM_DOUBLE] = {"sum of double", 8, 0, 0},
    [MIN_DOUBLE] = {"min of double", 8, 0, 0},
    [SUM_LONG] = {"sum of long double", 16, 0, 0},
    [MAPS] = {"maps", sizeof(struct map), 0, 0},
    [GAPS] = {"maps with gaps", 12, 0, 0},
    [MAXLOC] = {"maxloc", sizeof(struct place), 0, 0},
};

enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

static void make_kinds(void)
{
	MPI_Datatype maps, gaps;
	MPI_Op own;

	MPI_Type_contiguous(2, MPI_UINT32_T, &maps);
	MPI_Type_create_resized(maps, 0, 12, &gaps);
	MPI_Type_commit(&maps);
	MPI_Type_commit(&gaps);
	MPI_Op_create(compose, 0, &own);
	MPI_Datatype types[] = {MPI_INT,    MPI_UINT64_T, MPI_UINT8_T,
				MPI_DOUBLE, MPI_DOUBLE,	  MPI_LONG_DOUBLE,
				maps,	    gaps,	  MPI_DOUBLE_INT};
	MPI_Op ops[] = {MPI_SUM, MPI_BXOR, MPI_MAX, MPI_SUM,   MPI_MIN,
			MPI_SUM, own,	   own,	    MPI_MAXLOC};

	for (int kind = 0; kind < KINDS; kind++) {
		kinds[kind].datatype = types[kind];
		kinds[kind].op = ops[kind];
	}
}

/* The element that a rank brings, with version `version` of it. */
static union element element(enum what kind, int rank, int index, uint64_t version)
{
	struct random random =
	    random_start((uint64_t)seed, version * 31 + kind, rank * 4099 + index);
	uint64_t some = random_next(&random);
	union element element;

	memset(&element, 0, sizeof(element));
	switch (kind) {
	case SUM_INT:
		element.i = (int32_t)some;
		break;
	case XOR_WORD:
		element.w = some;
		break;
	case MAX_BYTE:
		element.c = (uint8_t)some;
		break;
	case SUM_DOUBLE:
		/* Sums in another order, or rounded twice, differ. */
		element.d = (double)(int64_t)some * (some % 3 ? 1 : 1e-14);
		break;
	case MIN_DOUBLE:
		element.d = (double)(int64_t)some;
		break;
	case SUM_LONG:
		element.l = (long double)(some % 1000);
		break;
	case MAPS:
	case GAPS:
		element.map = (struct map){(uint32_t)some | 1, (uint32_t)(some >> 32)};
		break;
	case MAXLOC:
		element.place = (struct place){(double)(some % 4), rank};
		break;
	}
	return element;
}

static union element combine(enum what kind, union element left, union element right)
{
	switch (kind) {
	case SUM_INT:
		left.i = (int32_t)((uint32_t)left.i + (uint32_t)right.i);
		break;
	case XOR_WORD:
		left.w ^= right.w;
		break;
	case MAX_BYTE:
		left.c = left.c > right.c ? left.c : right.c;
		break;
	case MIN_DOUBLE:
		left.d = left.d < right.d ? left.d : right.d;
		break;
	case SUM_LONG:
		left.l += right.l;
		break;
	case MAPS:
	case GAPS:
		left.map =
		    (struct map){left.map.a * right.map.a, left.map.a * right.map.b + left.map.b};
		break;
	case MAXLOC:
		if (right.place.value > left.place.value ||
		    (right.place.value == left.place.value && right.place.at < left.place.at))
			left.place = right.place;
		break;
	case SUM_DOUBLE:
		break;
	}
	return left;
}

/* Bytes of an element that mean something. */
static size_t meaning(enum what kind)
{
	switch (kind) {
	case SUM_LONG:
		return 10;
	case GAPS:
		return sizeof(struct map);
	case MAXLOC:
		return offsetof(struct place, at) + sizeof(int);
	default:
		return kinds[kind].extent;
	}
}

struct graph {
	const char *name;
	MPI_Comm comm;
	int edges; /* in-neighbours, without MPI_PROC_NULL */
	int sources[MOST_EDGES];
};

static union element expected(enum what kind, const struct graph *graph, int index,
			      uint64_t (*version)(int rank, int index))
{
	union element sum;
	struct bigsum exact = {0};

	memset(&sum, 0, sizeof(sum));
	for (int edge = 0; edge < graph->edges; edge++) {
		int rank = graph->sources[edge];
		union element one = element(kind, rank, index, version(rank, index));

		if (kind == SUM_DOUBLE)
			bigsum_add(&exact, one.d);
		sum = edge ? combine(kind, sum, one) : one;
	}
	if (kind == SUM_DOUBLE)
		sum.d = bigsum_double(&exact);
	return sum;
}

static uint64_t round_number;
static int per_block;

static uint64_t all_new(int rank, int index)
{
	(void)rank, (void)index;
	return round_number;
}

/* The last round, up to this one, in which a rank has changed a block: every one at first, then
 * few. */
static uint64_t few_new(int rank, int index)
{
	for (uint64_t round = round_number; round > 1; round--) {
		struct random random =
		    random_start((uint64_t)seed, round, (uint64_t)rank * 65537 + index / per_block);

		if (round % 4 != 0 && random_below(&random, 8) == 0)
			return round;
	}
	return 1;
}

static unsigned char sent[MOST * 16], got[MOST * 16];

static void load(enum what kind, int count, uint64_t (*version)(int rank, int index))
{
	for (int i = 0; i < count; i++) {
		union element one = element(kind, world_rank, i, version(world_rank, i));

		memcpy(sent + i * kinds[kind].extent, &one, meaning(kind));
	}
	memset(got, 0x5a, sizeof(got));
}

static void check(enum what kind, const struct graph *graph, int count, const char *form,
		  uint64_t (*version)(int rank, int index))
{
	size_t extent = kinds[kind].extent, size = meaning(kind);
	unsigned char untouched[16];

	memset(untouched, 0x5a, sizeof(untouched));
	for (int i = 0; i < count; i++) {
		union element want = expected(kind, graph, i, version);

		if (memcmp(got + i * extent, graph->edges ? (void *)&want : untouched, size) != 0)
			fail("%s, %s, %s: element %d of %d is wrong in round %llu", graph->name,
			     kinds[kind].name, form, i, count, (unsigned long long)round_number);
		if (kind == GAPS && got[i * extent + size] != 0x5a)
			fail("%s: a gap was written", graph->name);
	}
	for (size_t i = count * extent; i < sizeof(got); i++)
		if (got[i] != 0x5a)
			fail("%s, %s, %s: byte %zu was written", graph->name, kinds[kind].name,
			     form, i);
}

static void finish(foldback_request *request, bool waits)
{
	for (int flag = 0; !waits && !flag;)
		ok(request_test(&request, &flag), "foldback_test");
	ok(request_wait(&request), "foldback_wait");
	if (request)
		fail("a request that is complete is not NULL");
}

static void plain(enum what kind, const struct graph *graph, int count)
{
	MPI_Datatype datatype = kinds[kind].datatype;
	foldback_request *request;
	int mine = world_rank, all;

	load(kind, count, all_new);
	ok(neighbor_reduce(sent, got, count, datatype, kinds[kind].op, graph->comm), "reduce");
	check(kind, graph, count, "blocking", all_new);
	load(kind, count, all_new);
	ok(ineighbor_reduce(sent, got, count, datatype, kinds[kind].op, graph->comm, &request),
	   "ireduce");
	/* Others on the same communicator may come in between. */
	MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, graph->comm);
	finish(request, round_number % 2);
	check(kind, graph, count, "non-blocking", all_new);
	if (kind == SUM_INT) {
		load(kind, count, all_new);
		memcpy(got, sent, count * sizeof(int));
		ok(neighbor_reduce(got, got, count, datatype, kinds[kind].op, graph->comm), "own");
		if (graph->edges)
			check(kind, graph, count, "in one buffer", all_new);
	}
}

static int changed_blocks(int count, int *blocks)
{
	int changed = 0;

	for (int block = 0; block * per_block < count; block++)
		if (few_new(world_rank, block * per_block) == round_number)
			blocks[changed++] = block;
	/* Named twice, and in another order. */
	if (changed) {
		blocks[changed] = blocks[0];
		changed++;
	}
	return changed;
}

static void cached(enum what kind, const struct graph *graph, int count)
{
	foldback_neighbor_cache *cache;
	struct foldback_neighbor_counts counts;
	foldback_request *request;
	int blocks[MOST + 1], mine = 0, all;

	per_block = 1 + count / 10;
	ok(cache_create(count, kinds[kind].datatype, kinds[kind].op, per_block, graph->comm,
			&cache),
	   "create");
	for (round_number = 1; round_number <= (uint64_t)rounds; round_number++) {
		int changed = round_number % 3 ? changed_blocks(count, blocks) : FOLDBACK_COMPARE;

		load(kind, count, few_new);
		if (round_number % 2) {
			ok(cache_reduce(cache, sent, got, changed, blocks), "cached");
		} else {
			ok(cache_ireduce(cache, sent, got, changed, blocks, &request), "icached");
			MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, graph->comm);
			finish(request, round_number % 4);
		}
		check(kind, graph, count, "cached", few_new);
	}
	cache_counts(cache, &counts);
	if (counts.reductions != (uint64_t)rounds)
		fail("%llu reductions are counted", (unsigned long long)counts.reductions);
	/* Every fourth round changes nothing. */
	if (counts.reused < counts.reductions / 4)
		fail("%llu reductions are said to be reused", (unsigned long long)counts.reused);
	ok(cache_free(&cache), "free");
	if (cache)
		fail("a cache that is freed is not NULL");
}

static void try_graph(struct graph *graph)
{
	static const int lengths[] = {1, 0, 33, MOST};

	for (int kind = 0; kind < KINDS; kind++) {
		watch(PATIENCE, "%s, %s", graph->name, kinds[kind].name);
		for (round_number = 1; round_number <= (uint64_t)rounds; round_number++)
			plain(kind, graph, lengths[round_number % 4]);
		for (int i = 0; i < 4; i++)
			cached(kind, graph, lengths[i]);
	}
	MPI_Comm_free(&graph->comm);
}

/* In-neighbours as MPI_Neighbor_allgather has them; one that is nobody leaves its block alone. */
static void find_sources(struct graph *graph, int blocks)
{
	int ranks[MOST_EDGES];

	memset(ranks, 0xff, sizeof(ranks));
	MPI_Neighbor_allgather(&world_rank, 1, MPI_INT, ranks, 1, MPI_INT, graph->comm);
	graph->edges = 0;
	for (int i = 0; i < blocks; i++)
		if (ranks[i] >= 0)
			graph->sources[graph->edges++] = ranks[i];
}

static void grid(const char *name, int dimensions, int periodic)
{
	struct graph graph = {.name = name};
	int dims[3] = {0}, periods[] = {periodic, periodic, periodic};

	MPI_Dims_create(world_size, dimensions, dims);
	MPI_Cart_create(MPI_COMM_WORLD, dimensions, dims, periods, 0, &graph.comm);
	find_sources(&graph, 2 * dimensions);
	try_graph(&graph);
}

/* A ring with a chord, each edge both ways. */
static void ring(void)
{
	struct graph graph = {.name = "graph"};
	int index[MOST_EDGES], edges[2 * MOST_EDGES];

	for (int rank = 0; rank < world_size; rank++) {
		edges[2 * rank] = (rank + world_size - 1) % world_size;
		edges[2 * rank + 1] = (rank + 1) % world_size;
		index[rank] = 2 * (rank + 1);
	}
	MPI_Graph_create(MPI_COMM_WORLD, world_size, index, edges, 0, &graph.comm);
	find_sources(&graph, 2);
	try_graph(&graph);
}

/* Edges by chance, some twice, some to oneself. Rank 0 has no in-neighbour in every second one. */
static void chance(int number)
{
	struct graph graph = {.name = "distributed graph"};
	int sources[MOST_EDGES], targets[MOST_EDGES], weights[MOST_EDGES] = {0}, ins = 0, outs = 0;

	for (int from = 0; from < world_size; from++) {
		for (int to = 0; to < world_size; to++) {
			struct random random =
			    random_start((uint64_t)seed, number, from * 4096 + to);
			uint64_t edges = random_below(&random, 3);

			for (; edges && !(to == 0 && number % 2); edges--) {
				if (from == world_rank && outs < MOST_EDGES)
					targets[outs++] = to;
				if (to == world_rank && ins < MOST_EDGES)
					sources[ins++] = from;
			}
		}
	}
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, ins, sources, weights, outs, targets,
				       weights, MPI_INFO_NULL, 0, &graph.comm);
	find_sources(&graph, ins);
	try_graph(&graph);
}

/* Wrong arguments are told by a code, on all ranks alike. */
static void errors(void)
{
	int value = 1, sum = 0, dims[] = {0}, periods[] = {1}, beyond[] = {FAILED_AS};
	foldback_neighbor_cache *cache = NULL;
	foldback_request *request = NULL;
	MPI_Comm line, none;

	watch(PATIENCE, "errors");
	MPI_Dims_create(world_size, 1, dims);
	MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &line);
	MPI_Comm_dup(MPI_COMM_WORLD, &none);
	MPI_Comm_set_errhandler(line, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(none, MPI_ERRORS_RETURN);
	/* Open MPI asks this one where a communicator has no topology. */
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (neighbor_reduce(&value, &sum, 1, MPI_INT, MPI_SUM, none) == MPI_SUCCESS)
		fail("a communicator without topology was taken");
	if (ineighbor_reduce(&value, &sum, 1, MPI_INT, MPI_SUM, none, &request) == MPI_SUCCESS)
		fail("a communicator without topology was taken by a request");
	if (neighbor_reduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, line) == MPI_SUCCESS)
		fail("MPI_IN_PLACE was taken");
	if (neighbor_reduce(&value, &sum, 1, MPI_DOUBLE, MPI_BXOR, line) == MPI_SUCCESS)
		fail("an exclusive or of double was taken");
	if (neighbor_reduce(&value, &sum, -1, MPI_INT, MPI_SUM, line) == MPI_SUCCESS)
		fail("a negative count was taken");
	if (cache_create(1, MPI_INT, MPI_SUM, 1, none, &cache) == MPI_SUCCESS)
		fail("a cache was made without a topology");
	if (cache_create(-1, MPI_INT, MPI_SUM, 1, line, &cache) == MPI_SUCCESS)
		fail("a cache was made for a negative count");
	ok(cache_create(1, MPI_INT, MPI_SUM, 0, line, &cache), "create");
	ok(cache_reduce(cache, &value, &sum, 0, NULL), "the first call compares");
	if (sum != 2)
		fail("%d is no sum of two", sum);
	if (cache_reduce(cache, &value, &sum, 1, beyond) == MPI_SUCCESS)
		fail("a block that is not there was taken");
	ok(cache_ireduce(cache, &value, &sum, 0, NULL, &request),
	   "a call after one that was refused");
	if (cache_free(&cache) == MPI_SUCCESS || !cache)
		fail("a cache was freed with a request under way");
	finish(request, true);
	ok(cache_free(&cache), "free");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Comm_free(&line);
	MPI_Comm_free(&none);
}

/* Whether a rank changes a block in a round, and which. */
static int change_of(int rank, uint64_t round)
{
	struct random random = random_start((uint64_t)seed, round, 1000003 + rank);

	return random_below(&random, 4) ? (int)random_below(&random, BLOCKS) : -1;
}

/* Vectors of 1,000 blocks. The right answer follows the changes. */
static void follow(MPI_Datatype datatype, MPI_Op op, bool names, const char *name)
{
	int dims[2] = {0}, periods[] = {1, 1}, (*vectors)[BLOCKS * BLOCK], *result;
	struct foldback_neighbor_counts counts;
	foldback_neighbor_cache *cache;
	struct graph graph = {.name = name};
	long quiet = 0;

	MPI_Dims_create(world_size, 2, dims);
	MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &graph.comm);
	find_sources(&graph, 4);
	vectors = calloc(world_size, sizeof(*vectors));
	result = malloc(sizeof(*vectors));
	if (!vectors || !result)
		fail("no memory");
	ok(cache_create(BLOCKS * BLOCK, datatype, op, BLOCK, graph.comm, &cache), "create");
	for (long round = 1; round <= stream; round++) {
		int mine = -1, at = (int)(round * 7919 % (BLOCKS * BLOCK));
		bool is_quiet = true;

		if (round % 1000 == 1)
			watch(PATIENCE, "%s, round %ld", name, round);
		for (int rank = 0; rank < world_size; rank++) {
			int block = change_of(rank, (uint64_t)round);

			if (block < 0)
				continue;
			for (int i = 0; i < BLOCK; i++)
				vectors[rank][block * BLOCK + i] +=
				    (int)(round * 31 + rank * 7 + i);
			if (rank == world_rank)
				mine = block;
			for (int edge = 0; edge < graph.edges; edge++)
				is_quiet &= graph.sources[edge] != rank;
		}
		quiet += is_quiet;
		ok(cache_reduce(cache, vectors[world_rank], result,
				names ? mine >= 0 : FOLDBACK_COMPARE, &mine),
		   name);
		/* All of it now and then, else a part: the changed ones are among what is looked
		 * at. */
		for (int i = 0; i < BLOCKS * BLOCK; i++) {
			int want = vectors[graph.sources[0]][i];

			if (round % 100 && round < stream && i / 64 != at / 64)
				continue;
			for (int edge = 1; edge < graph.edges; edge++) {
				int other = vectors[graph.sources[edge]][i];

				if (op == MPI_SUM)
					want = (int)((unsigned)want + (unsigned)other);
				else
					want = want > other ? want : other;
			}
			if (result[i] != want)
				fail("%s, round %ld: element %d is %d, not %d", name, round, i,
				     result[i], want);
		}
	}
	cache_counts(cache, &counts);
	if (counts.reused != (uint64_t)quiet)
		fail("%s: %llu reductions are said to be reused, not %ld", name,
		     (unsigned long long)counts.reused, quiet);
	if (counts.bytes_sent > counts.bytes / 50)
		fail("%s: %llu bytes were sent of %llu", name,
		     (unsigned long long)counts.bytes_sent, (unsigned long long)counts.bytes);
	ok(cache_free(&cache), "free");
	free(vectors);
	free(result);
	MPI_Comm_free(&graph.comm);
}

int main(int argc, char **argv)
{
	program_start("neighbors", &argc, &argv, options);
	find(&neighbor_reduce, "foldback_neighbor_reduce");
	find(&ineighbor_reduce, "foldback_ineighbor_reduce");
	find(&cache_create, "foldback_neighbor_cache_create");
	find(&cache_reduce, "foldback_neighbor_cache_reduce");
	find(&cache_ireduce, "foldback_neighbor_cache_ireduce");
	find(&cache_counts, "foldback_neighbor_cache_counts");
	find(&cache_free, "foldback_neighbor_cache_free");
	find(&request_wait, "foldback_wait");
	find(&request_test, "foldback_test");
	make_kinds();
	grid("periodic grid", 2, 1);
	grid("open grid", 3, 0);
	ring();
	chance(1);
	chance(2);
	errors();
	follow(MPI_INT, MPI_SUM, true, "a sum by named blocks");
	follow(MPI_INT, MPI_SUM, false, "a sum by comparison");
	follow(MPI_INT, MPI_MAX, true, "a maximum by named blocks");
	say("neighbors: all ok");
	MPI_Finalize();
	return 0;
}
