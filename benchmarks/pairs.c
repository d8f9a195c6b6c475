/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Pairs that are reduced by key: by foldback if it is there, else by plain MPI in two ways, in
 * turns. CSV on stdout, a line for each skew, number of keys and way:
 *
 *     foldback    foldback_pairs_add, foldback_pairs_flush and foldback_pairs_get
 *     combined    each rank adds up equal keys before it sends them: plain_pairs.h
 *     uncombined  it sends the pairs as they come
 *
 * The pairs are made beforehand, and are the same with any number of ranks. Keys are numbers of 64
 * bits without an order; values are 1 to 1000. How often the keys come is
 *
 *     uniform     all as often
 *     zipf        the n-th one 1/n as often as the first
 *     hot         one of them 99 times of 100, the others as often as each other
 *
 * The times are of the slowest rank, in seconds, medians of the iterations.
 *
 *     add_s       foldback takes the pairs, plain MPI combines them
 *     shuffle_s   owners get and reduce the pairs, between two barriers
 *     all_s       all of it, until arrays on all ranks have keys and values
 *
 * The creation of foldback's object is not among them. Costs are counted from its end to the last
 * barrier, over all hosts. cpu_s is the CPU time of all ranks in seconds. The hosts' interfaces
 * sent frames and wire_bytes, of which latency.c tells more.
 *
 * The answers are checked: the sum of all values here; the number of different keys, and a hash of
 * all keys and values, by foldback bench.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "costs.h"
#include "plain_pairs.h"
#include "preloaded.h"
#include "sizes.h"

static long pairs = 10000000, iterations = 3, seed = 1, stall = PATIENCE;
static const char *key_list = "1000,100000,10000000", *skew_list = "uniform";

static const struct option_spec options[] = {
    {"--keys", OPTION_TEXT, &key_list, "numbers of different keys, with commas between"},
    {"--pairs", OPTION_NUMBER, &pairs, "of all ranks (10,000,000)"},
    {"--skew", OPTION_TEXT, &skew_list, "uniform, zipf, hot, with commas between (uniform)"},
    {"--iterations", OPTION_NUMBER, &iterations, "timed, behind one that is not (3)"},
    {"--seed", OPTION_NUMBER, &seed, "of all pairs (1)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one iteration may take (300)"},
    {0},
};

static __typeof__(foldback_pairs_create) *pairs_create;
static __typeof__(foldback_pairs_add) *pairs_add;
static __typeof__(foldback_pairs_flush) *pairs_flush;
static __typeof__(foldback_pairs_count) *pairs_count;
static __typeof__(foldback_pairs_get) *pairs_get;
static __typeof__(foldback_pairs_free) *pairs_free;

static bool find_foldback(void)
{
	if (!dlsym(RTLD_DEFAULT, "foldback_pairs_create"))
		return false;
	find(&pairs_create, "foldback_pairs_create");
	find(&pairs_add, "foldback_pairs_add");
	find(&pairs_flush, "foldback_pairs_flush");
	find(&pairs_count, "foldback_pairs_count");
	find(&pairs_get, "foldback_pairs_get");
	find(&pairs_free, "foldback_pairs_free");
	return true;
}

/* The numbers of a key among `keys`, by chance. */
static uint64_t uniform(uint64_t chance, uint64_t keys)
{
	return (uint64_t)((unsigned __int128)chance * keys >> 64);
}

static uint64_t zipf(uint64_t chance, uint64_t keys)
{
	double number = exp((double)chance * 0x1p-64 * log((double)keys + 1));

	return number < (double)keys + 1 ? (uint64_t)number - 1 : keys - 1;
}

static uint64_t hot(uint64_t chance, uint64_t keys)
{
	return chance % 100 ? 0 : uniform(random_mix(chance), keys);
}

static const struct skew {
	const char *name;
	uint64_t (*number)(uint64_t chance, uint64_t keys);
} skews[] = {{"uniform", uniform}, {"zipf", zipf}, {"hot", hot}};

enum { SKEWS = sizeof(skews) / sizeof(*skews) };

/* The pairs of this rank, and their sum on all ranks. */
struct stream {
	uint64_t *keys;
	int64_t *values;
	size_t count;
	int64_t sum;
};

static struct stream make_stream(const struct skew *skew, uint64_t keys)
{
	uint64_t from = (uint64_t)(pairs * world_rank / world_size);
	uint64_t to = (uint64_t)(pairs * (world_rank + 1) / world_size);
	uint64_t key_seed = random_mix((uint64_t)seed);
	struct stream stream = {.count = to - from};
	int64_t sum = 0;

	stream.keys = map(stream.count * sizeof(*stream.keys));
	stream.values = map(stream.count * sizeof(*stream.values));
	for (size_t i = 0; i < stream.count; i++) {
		struct random random = random_start((uint64_t)seed, keys, from + i);

		stream.keys[i] = random_mix(key_seed + skew->number(random_next(&random), keys));
		stream.values[i] = 1 + (int64_t)random_below(&random, 1000);
		sum += stream.values[i];
	}
	MPI_Allreduce(&sum, &stream.sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	return stream;
}

static void free_stream(struct stream *stream)
{
	unmap(stream->keys, stream->count * sizeof(*stream->keys));
	unmap(stream->values, stream->count * sizeof(*stream->values));
}

/* A way to reduce, by functions that are called in the order of begin, add, shuffle, count, get,
 * end. */
struct way {
	const char *name;
	void (*add)(const struct stream *stream);
	void (*shuffle)(void);
	size_t (*count)(void);
	void (*get)(uint64_t *keys, int64_t *values);
	void (*begin)(void), (*end)(void);
};

static foldback_pairs *object;

static void foldback_begin(void)
{
	ok(pairs_create(MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &object), "foldback_pairs_create");
}

static void foldback_add(const struct stream *stream)
{
	ok(pairs_add(object, stream->keys, stream->values, (int64_t)stream->count),
	   "foldback_pairs_add");
}

static void foldback_shuffle(void)
{
	ok(pairs_flush(object), "foldback_pairs_flush");
}

static size_t foldback_count(void)
{
	int64_t count;

	ok(pairs_count(object, &count), "foldback_pairs_count");
	return (size_t)count;
}

static void foldback_get(uint64_t *keys, int64_t *values)
{
	ok(pairs_get(object, keys, values), "foldback_pairs_get");
}

static void foldback_end(void)
{
	ok(pairs_free(&object), "foldback_pairs_free");
}

static struct combined mine;
static struct table table;

static void plain_begin(void)
{
}

static void combined_add(const struct stream *stream)
{
	combine(&mine, stream->keys, stream->values, stream->count);
}

static void uncombined_add(const struct stream *stream)
{
	mine = (struct combined){stream->keys, stream->values, stream->count, 0, {0}};
}

static void plain_shuffle(void)
{
	table = shuffle(&mine);
}

static size_t plain_count(void)
{
	return table.used;
}

static void plain_get(uint64_t *keys, int64_t *values)
{
	size_t count = 0;

	for (size_t i = 0; i < table.room; i++) {
		if (!table.slots[i].value)
			continue;
		keys[count] = table.slots[i].key;
		values[count++] = table.slots[i].value;
	}
}

static void plain_end(void)
{
	table_free(&table);
}

static const struct way with_foldback[] = {{"foldback", foldback_add, foldback_shuffle,
					    foldback_count, foldback_get, foldback_begin,
					    foldback_end},
					   {0}};
static const struct way without[] = {
    {"combined", combined_add, plain_shuffle, plain_count, plain_get, plain_begin, plain_end},
    {"uncombined", uncombined_add, plain_shuffle, plain_count, plain_get, plain_begin, plain_end},
    {0}};

/* The times of one iteration, in seconds, then its costs. */
enum { ADD, SHUFFLE, ALL, TIMES, VALUES = TIMES + COSTS };

/* The answer of all ranks. The hash does not depend on an order. */
struct answer {
	uint64_t different, sum, hash;
};

static struct answer answer_of(const uint64_t *keys, const int64_t *values, size_t count)
{
	struct answer part = {count, 0, 0}, answer;

	for (size_t i = 0; i < count; i++) {
		part.sum += (uint64_t)values[i];
		part.hash += random_mix(keys[i] ^ random_mix((uint64_t)values[i]));
	}
	MPI_Allreduce(&part, &answer, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	return answer;
}

/* Runs a way once. Rank 0 gets times of the slowest rank and costs of all. */
static struct answer run(const struct way *way, const struct stream *stream, double values[VALUES])
{
	double before[COSTS], after[COSTS], times[TIMES], start, middle;
	struct answer answer;
	int64_t *got_values;
	uint64_t *got_keys;
	size_t count;

	way->begin();
	MPI_Barrier(MPI_COMM_WORLD);
	read_costs(before);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	way->add(stream);
	times[ADD] = now() - start;
	MPI_Barrier(MPI_COMM_WORLD);
	middle = now();
	way->shuffle();
	MPI_Barrier(MPI_COMM_WORLD);
	times[SHUFFLE] = now() - middle;
	count = way->count();
	got_keys = map(count * sizeof(*got_keys));
	got_values = map(count * sizeof(*got_values));
	way->get(got_keys, got_values);
	MPI_Barrier(MPI_COMM_WORLD);
	times[ALL] = now() - start;
	read_costs(after);
	for (int i = 0; i < COSTS; i++)
		after[i] -= before[i];
	MPI_Reduce(times, values, TIMES, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(after, values + TIMES, COSTS, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	answer = answer_of(got_keys, got_values, count);
	unmap(got_keys, count * sizeof(*got_keys));
	unmap(got_values, count * sizeof(*got_values));
	way->end();
	return answer;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, (size_t)iterations, sizeof(*values), ascending);
	return (values[(iterations - 1) / 2] + values[iterations / 2]) / 2;
}

static void print(const struct skew *skew, uint64_t keys, const struct way *way,
		  const struct answer *answer, double *columns)
{
	double values[VALUES];

	for (int i = 0; i < VALUES; i++)
		values[i] = median(columns + i * iterations);
	say("%s,%llu,%s,%d,%ld,%llu,%llu,%016llx,%.6f,%.6f,%.6f,%.6f,%.0f,%.0f", skew->name,
	    (unsigned long long)keys, way->name, world_size, pairs,
	    (unsigned long long)answer->different, (unsigned long long)answer->sum,
	    (unsigned long long)answer->hash, values[ADD], values[SHUFFLE], values[ALL],
	    values[TIMES + CPU] / 1e6, values[TIMES + FRAMES], values[TIMES + BYTES]);
}

/* All ways in turns. */
static void measure(const struct way *ways, const struct skew *skew, uint64_t keys)
{
	struct stream stream = make_stream(skew, keys);
	/* By way, value and iteration. */
	double *columns[2], values[VALUES];
	struct answer answer = {0}, other;

	for (int w = 0; w < 2; w++)
		columns[w] = calloc((size_t)(VALUES * iterations), sizeof(double));
	for (long i = -1; i < iterations; i++) {
		for (int w = 0; ways[w].name; w++) {
			watch((unsigned)stall, "%s of %llu keys, %s", ways[w].name,
			      (unsigned long long)keys, skew->name);
			other = run(&ways[w], &stream, values);
			if (other.sum != (uint64_t)stream.sum)
				fail("%s: the sum is %llu, not %lld", ways[w].name,
				     (unsigned long long)other.sum, (long long)stream.sum);
			if ((i >= 0 || w > 0) && memcmp(&answer, &other, sizeof(answer)))
				fail("%s of %llu keys: the answer differs", ways[w].name,
				     (unsigned long long)keys);
			answer = other;
			for (int v = 0; v < VALUES && i >= 0; v++)
				columns[w][v * iterations + i] = values[v];
		}
	}
	for (int w = 0; ways[w].name; w++)
		if (world_rank == 0)
			print(skew, keys, &ways[w], &answer, columns[w]);
	free(columns[0]);
	free(columns[1]);
	free_stream(&stream);
}

/* The next number of a list. */
static uint64_t next_number(const char **list)
{
	char *end;
	long long number = strtoll(*list, &end, 10);

	if (end == *list || (*end && *end != ',') || number < 1 || number > 1LL << 32)
		fail("--keys: %s begins with no number of 1 to 2^32", *list);
	*list = *end ? end + 1 : end;
	return (uint64_t)number;
}

int main(int argc, char **argv)
{
	const struct way *ways;

	program_start("pairs", &argc, &argv, options);
	check_listed(skew_list, skews, SKEWS, sizeof(*skews));
	if (pairs < 1 || pairs > 1L << 32)
		fail("--pairs: 1 to 2^32");
	if (iterations < 1)
		fail("--iterations: one at least");
	find_first_of_host();
	ways = find_foldback() ? with_foldback : without;
	say("skew,keys,way,ranks,pairs,different,sum,hash,add_s,shuffle_s,all_s,cpu_s,frames,"
	    "wire_bytes");
	for (int i = 0; i < SKEWS; i++) {
		if (!is_listed(skew_list, skews[i].name))
			continue;
		for (const char *list = key_list; *list;)
			measure(ways, &skews[i], next_number(&list));
	}
	watch(0, "MPI_Finalize");
	MPI_Finalize();
	return 0;
}
