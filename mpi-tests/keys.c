/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Pairs that are reduced by key, by foldback's own functions. Values are integers of all sizes,
 * floating point, pairs for MPI_MAXLOC, and a struct with gaps and an op of its own. Keys are
 * numbers or strings.
 *
 * Each rank knows the pairs of all, so it works every answer out for itself, one pair at a time.
 */
#include <complex.h>
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bigsum.h"
#include "preloaded.h"
#include "random.h"

enum { WIDEST = 16, LONGEST = 48, FLUSHES = 3 };

static long seed = 1, count = 400, large = 900000;
static const char *command;

static const struct option_spec options[] = {
    {"--seed", OPTION_NUMBER, &seed, "which pairs (1)"},
    {"--count", OPTION_NUMBER, &count, "pairs of a rank, at most (400)"},
    {"--large", OPTION_NUMBER, &large, "keys of the long exchange (900,000)"},
    {"--command", OPTION_TEXT, &command, "that rank 0 runs during the long exchange"},
    {0},
};

static __typeof__(foldback_reduce_by_key) *reduce_by_key;
static __typeof__(foldback_reduce_by_string) *reduce_by_string;
static __typeof__(foldback_pairs_create) *pairs_create;
static __typeof__(foldback_pairs_add) *pairs_add;
static __typeof__(foldback_pairs_add_strings) *pairs_add_strings;
static __typeof__(foldback_pairs_flush) *pairs_flush;
static __typeof__(foldback_pairs_count) *pairs_count;
static __typeof__(foldback_pairs_get) *pairs_get;
static __typeof__(foldback_pairs_get_strings) *pairs_get_strings;
static __typeof__(foldback_pairs_gather) *pairs_gather;
static __typeof__(foldback_pairs_free) *pairs_free;

static void *room(size_t bytes)
{
	void *memory = calloc(bytes ? bytes : 1, 1);

	if (!memory)
		fail("no memory");
	return memory;
}

/* How values are combined, plainly. */
typedef void fold(void *into, const void *from);

#define FOLD(name, type, expression)                                                               \
	static void name##_##type(void *into, const void *from)                                    \
	{                                                                                          \
		type *x = into, y = *(const type *)from;                                           \
                                                                                                   \
		*x = (type)(expression);                                                           \
	}

#define INTEGER(type)                                                                              \
	FOLD(sum, type, (uint64_t)*x + (uint64_t)y)                                                \
	FOLD(prod, type, (uint64_t)*x *(uint64_t)y)                                                \
	FOLD(min, type, *x < y ? *x : y)                                                           \
	FOLD(max, type, *x > y ? *x : y)                                                           \
	FOLD(band, type, *x &y)                                                                    \
	FOLD(bor, type, *x | y)                                                                    \
	FOLD(bxor, type, *x ^ y)                                                                   \
	FOLD(land, type, *x &&y)                                                                   \
	FOLD(lxor, type, !*x != !y)

INTEGER(int8_t)
INTEGER(uint8_t)
INTEGER(int16_t)
INTEGER(uint16_t)
INTEGER(int32_t)
INTEGER(uint32_t)
INTEGER(int64_t)
INTEGER(uint64_t)
FOLD(min, double, *x < y ? *x : y)
FOLD(max, double, *x > y ? *x : y)
FOLD(prod, double, *x *y)
FOLD(max, float, *x > y ? *x : y)

struct place {
	double value;
	int at;
};

static void maxloc_place(void *into, const void *from)
{
	struct place *x = into;
	const struct place *y = from;

	if (y->value > x->value || (y->value == x->value && y->at < x->at)) {
		x->value = y->value;
		x->at = y->at;
	}
}

/* With gaps behind both members. */
struct own {
	uint8_t least;
	uint32_t sum;
	uint32_t gap;
};

static void own_own(void *into, const void *from)
{
	struct own *x = into;
	const struct own *y = from;

	x->least = x->least < y->least ? x->least : y->least;
	x->sum += y->sum;
}

static void own_op(void *in, void *inout, int *n, MPI_Datatype *datatype)
{
	MPI_Aint lower, extent;

	MPI_Type_get_extent(*datatype, &lower, &extent);
	for (int i = 0; i < *n; i++)
		own_own((char *)inout + i * extent, (const char *)in + i * extent);
}

/* The exact sums are worked out from all terms at once. */
enum terms { NO_TERMS, DOUBLES, FLOATS, COMPLEXES };

struct kind {
	const char *name;
	MPI_Datatype datatype;
	MPI_Op op;
	size_t extent;
	fold *fold;
	enum terms terms;
	bool ordered;
};

static struct kind kinds[96];
static int n_kinds;

static void add_kind(const char *name, MPI_Datatype datatype, MPI_Op op, size_t extent, fold *fold,
		     enum terms terms, bool ordered)
{
	kinds[n_kinds++] = (struct kind){name, datatype, op, extent, fold, terms, ordered};
}

#define ADD(type, datatype)                                                                        \
	add_kind("sum of " #type, datatype, MPI_SUM, sizeof(type), sum_##type, NO_TERMS, true);    \
	add_kind("prod of " #type, datatype, MPI_PROD, sizeof(type), prod_##type, NO_TERMS, true); \
	add_kind("min of " #type, datatype, MPI_MIN, sizeof(type), min_##type, NO_TERMS, true);    \
	add_kind("max of " #type, datatype, MPI_MAX, sizeof(type), max_##type, NO_TERMS, true);    \
	add_kind("band of " #type, datatype, MPI_BAND, sizeof(type), band_##type, NO_TERMS, true); \
	add_kind("bor of " #type, datatype, MPI_BOR, sizeof(type), bor_##type, NO_TERMS, true);    \
	add_kind("bxor of " #type, datatype, MPI_BXOR, sizeof(type), bxor_##type, NO_TERMS, true); \
	add_kind("land of " #type, datatype, MPI_LAND, sizeof(type), land_##type, NO_TERMS, true); \
	add_kind("lxor of " #type, datatype, MPI_LXOR, sizeof(type), lxor_##type, NO_TERMS, true)

static void make_kinds(void)
{
	int lengths[] = {1, 1};
	MPI_Aint places[] = {offsetof(struct own, least), offsetof(struct own, sum)};
	MPI_Datatype members[] = {MPI_UINT8_T, MPI_UINT32_T}, plain, own;
	MPI_Op op;

	ADD(int8_t, MPI_INT8_T);
	ADD(uint8_t, MPI_UINT8_T);
	ADD(int16_t, MPI_INT16_T);
	ADD(uint16_t, MPI_UINT16_T);
	ADD(int32_t, MPI_INT32_T);
	ADD(uint32_t, MPI_UINT32_T);
	ADD(int64_t, MPI_INT64_T);
	ADD(uint64_t, MPI_UINT64_T);
	add_kind("sum of double", MPI_DOUBLE, MPI_SUM, 8, NULL, DOUBLES, true);
	add_kind("sum of float", MPI_FLOAT, MPI_SUM, 4, NULL, FLOATS, true);
	add_kind("sum of complex", MPI_C_DOUBLE_COMPLEX, MPI_SUM, 16, NULL, COMPLEXES, false);
	add_kind("min of double", MPI_DOUBLE, MPI_MIN, 8, min_double, NO_TERMS, true);
	add_kind("max of double", MPI_DOUBLE, MPI_MAX, 8, max_double, NO_TERMS, true);
	add_kind("max of float", MPI_FLOAT, MPI_MAX, 4, max_float, NO_TERMS, true);
	add_kind("prod of double", MPI_DOUBLE, MPI_PROD, 8, prod_double, NO_TERMS, false);
	add_kind("maxloc", MPI_DOUBLE_INT, MPI_MAXLOC, sizeof(struct place), maxloc_place, NO_TERMS,
		 false);
	MPI_Type_create_struct(2, lengths, places, members, &plain);
	MPI_Type_create_resized(plain, 0, sizeof(struct own), &own);
	MPI_Type_commit(&own);
	MPI_Op_create(own_op, 1, &op);
	add_kind("an op of its own", own, op, sizeof(struct own), own_own, NO_TERMS, false);
}

/* How keys are spread. */
enum spread { FEW, DISTINCT, ONE, EXTREMES, SPREADS };

struct pair {
	uint64_t key;
	long order;
	uint8_t value[WIDEST];
	uint8_t string[LONGEST];
	size_t length;
};

/* Pairs of a rank in one flush: none on some ranks. */
static long pairs_of(int rank, int flush)
{
	struct random random = random_start((uint64_t)seed, 77 + flush, rank);

	return random_below(&random, 4) ? (long)random_below(&random, count + 1) : 0;
}

static double some_double(uint64_t bits)
{
	/* Sums in another order, or rounded twice, differ; and some cancel. */
	static const double special[] = {1e300, -1e300, 1, -0.0, 0, 5e-324, -1};

	if (bits % 5 == 0)
		return special[(bits >> 8) % 7];
	return (double)(int64_t)bits * (bits % 3 ? 1 : 1e-14);
}

static void make_value(const struct kind *kind, struct random *random, uint8_t *value)
{
	uint64_t bits = random_next(random);
	double complex z;
	struct place place;
	struct own own;
	double d;
	float f;

	memset(value, 0, WIDEST);
	if (kind->terms == COMPLEXES) {
		z = some_double(bits) + some_double(random_next(random)) * I;
		memcpy(value, &z, sizeof(z));
	} else if (kind->datatype == MPI_FLOAT) {
		f = (float)(int32_t)bits * (bits >> 40 & 1 ? 1 : 1e-9f);
		memcpy(value, &f, sizeof(f));
	} else if (kind->datatype == MPI_DOUBLE) {
		d = some_double(bits);
		if (kind->op == MPI_PROD)
			d = bits % 2 ? 2 : 0.5;
		if (kind->op != MPI_SUM && d == 0)
			d = 3;
		memcpy(value, &d, sizeof(d));
	} else if (kind->datatype == MPI_DOUBLE_INT) {
		memset(&place, 0, sizeof(place));
		place.value = (double)(bits % 7);
		place.at = (int)(bits >> 33);
		memcpy(value, &place.value, sizeof(place.value));
		memcpy(value + offsetof(struct place, at), &place.at, sizeof(place.at));
	} else if (kind->fold == own_own) {
		own = (struct own){(uint8_t)bits, (uint32_t)(bits >> 32), 0};
		value[0] = own.least;
		memcpy(value + offsetof(struct own, sum), &own.sum, sizeof(own.sum));
	} else {
		/* Zeros matter to logical ops. */
		memcpy(value, &bits, kind->extent);
		if (bits >> 62 == 0)
			memset(value, 0, kind->extent);
	}
}

static uint64_t make_key(enum spread spread, struct random *random, int rank, long number)
{
	uint64_t any = random_next(random);

	switch (spread) {
	case FEW:
		return any % 50;
	case DISTINCT:
		return random_mix((uint64_t)rank << 32 | (uint64_t)number);
	case ONE:
		return any % 100 ? 12345 : any >> 32;
	default:
		return any % 2 ? 0 : any % 4 ? UINT64_MAX : any % 3;
	}
}

/* Strings with much in common, empty ones, and some with zeros inside. */
static void make_string(struct random *random, struct pair *pair)
{
	uint64_t any = random_next(random);

	pair->length = any % 7 * (any >> 8) % 41;
	memset(pair->string, any % 3 ? 'a' : 0, LONGEST);
	if (pair->length && any % 2)
		pair->string[pair->length - 1] = (uint8_t)('a' + (any >> 16) % 20);
}

static struct pair *make_pairs(const struct kind *kind, enum spread spread, int rank, int flush,
			       long *n)
{
	struct random random =
	    random_start((uint64_t)seed, 1000 * (uint64_t)spread + flush, rank + 500);
	struct pair *pairs;

	*n = pairs_of(rank, flush);
	pairs = room(*n * sizeof(*pairs));
	for (long i = 0; i < *n; i++) {
		pairs[i].key = make_key(spread, &random, rank, i + flush * 1000000);
		make_value(kind, &random, pairs[i].value);
		make_string(&random, &pairs[i]);
	}
	return pairs;
}

static int by_key(const void *one, const void *other)
{
	const struct pair *x = one, *y = other;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

static int compare_strings(const struct pair *x, const struct pair *y)
{
	size_t least = x->length < y->length ? x->length : y->length;
	int order = memcmp(x->string, y->string, least);

	return order ? order : x->length < y->length ? -1 : x->length > y->length;
}

static int by_string(const void *one, const void *other)
{
	const struct pair *x = one, *y = other;
	int order = compare_strings(x, y);

	return order ? order : x->order < y->order ? -1 : x->order > y->order;
}

/* The value of pairs of one key. */
static void fold_all(const struct kind *kind, const struct pair *pairs, long n, uint8_t *value)
{
	struct bigsum sums[2];
	double d, z[2];
	float f;

	memcpy(value, pairs[0].value, WIDEST);
	if (kind->fold) {
		for (long i = 1; i < n; i++)
			kind->fold(value, pairs[i].value);
		return;
	}
	memset(sums, 0, sizeof(sums));
	for (long i = 0; i < n; i++) {
		if (kind->terms == FLOATS) {
			memcpy(&f, pairs[i].value, sizeof(f));
			bigsum_add(&sums[0], f);
		} else {
			memcpy(z, pairs[i].value, sizeof(z));
			bigsum_add(&sums[0], z[0]);
			if (kind->terms == COMPLEXES)
				bigsum_add(&sums[1], z[1]);
		}
	}
	if (kind->terms == FLOATS) {
		f = bigsum_float(&sums[0]);
		memcpy(value, &f, sizeof(f));
		return;
	}
	d = bigsum_double(&sums[0]);
	memcpy(value, &d, sizeof(d));
	if (kind->terms == COMPLEXES) {
		d = bigsum_double(&sums[1]);
		memcpy(value + sizeof(d), &d, sizeof(d));
	}
}

/* The pairs that all ranks have added in the first flushes, by key or string. */
static struct pair *expect(const struct kind *kind, enum spread spread, bool strings, int flushes,
			   long *n)
{
	long all = 0, have = 0, distinct = 0;
	struct pair *pairs;

	for (int flush = 0; flush < flushes; flush++)
		for (int rank = 0; rank < world_size; rank++)
			all += pairs_of(rank, flush);
	pairs = room(all * sizeof(*pairs));
	for (int flush = 0; flush < flushes; flush++)
		for (int rank = 0; rank < world_size; rank++) {
			long some;
			struct pair *of = make_pairs(kind, spread, rank, flush, &some);

			memcpy(pairs + have, of, some * sizeof(*of));
			have += some;
			free(of);
		}
	for (long i = 0; i < all; i++)
		pairs[i].order = i;
	qsort(pairs, all, sizeof(*pairs), strings ? by_string : by_key);
	for (long i = 0, next; i < all; i = next) {
		uint8_t value[WIDEST];

		for (next = i + 1; next < all; next++)
			if (strings ? compare_strings(&pairs[i], &pairs[next]) != 0
				    : pairs[i].key != pairs[next].key)
				break;
		fold_all(kind, &pairs[i], next - i, value);
		pairs[distinct] = pairs[i];
		memcpy(pairs[distinct++].value, value, WIDEST);
	}
	*n = distinct;
	return pairs;
}

/* The pairs of an object. */
struct contents {
	int64_t n;
	uint64_t *keys;
	uint8_t *values;
	const char **strings;
	size_t *lengths;
};

static struct contents contents(const struct kind *kind, foldback_pairs *pairs, bool strings)
{
	struct contents have;

	ok(pairs_count(pairs, &have.n), "count");
	have.keys = room(have.n * sizeof(*have.keys));
	have.values = room(have.n * kind->extent);
	have.strings = room(have.n * sizeof(*have.strings));
	have.lengths = room(have.n * sizeof(*have.lengths));
	ok(pairs_get(pairs, have.keys, NULL), "get keys");
	ok(pairs_get(pairs, NULL, have.values), "get values");
	if (strings)
		ok(pairs_get_strings(pairs, have.strings, have.lengths), "get strings");
	return have;
}

static void forget(struct contents *have)
{
	free(have->keys);
	free(have->values);
	free(have->strings);
	free(have->lengths);
}

/* Whether pair `i` is this one. */
static bool is_pair(const struct kind *kind, const struct contents *have, long i, bool strings,
		    const struct pair *want)
{
	if (memcmp(have->values + i * kind->extent, want->value, kind->extent))
		return false;
	if (!strings)
		return have->keys[i] == want->key;
	return have->lengths[i] == want->length && !have->strings[i][want->length] &&
	       !memcmp(have->strings[i], want->string, want->length);
}

/* The number of pair `i` among `n` in order, or -1. */
static long find_pair(const struct contents *have, long i, bool strings, const struct pair *want,
		      long n)
{
	struct pair pair = {.key = have->keys[i]};
	long from = 0;

	if (strings) {
		pair.length = have->lengths[i];
		if (pair.length > LONGEST)
			return -1;
		memcpy(pair.string, have->strings[i], pair.length);
	}
	while (n > 0) {
		const struct pair *middle = &want[from + n / 2];
		int order = strings		     ? compare_strings(&pair, middle)
			    : pair.key < middle->key ? -1
						     : pair.key > middle->key;

		if (order == 0)
			return from + n / 2;
		if (order > 0) {
			from += n / 2 + 1;
			n -= n / 2 + 1;
		} else {
			n /= 2;
		}
	}
	return -1;
}

/* Shares are disjoint and complete, and all in them is right. */
static void check_shares(const struct kind *kind, foldback_pairs *pairs, bool strings,
			 const struct pair *want, long n)
{
	struct contents have = contents(kind, pairs, strings);
	uint64_t own[2] = {(uint64_t)have.n, 0}, all[2], marks = 0;
	bool *seen = room(n * sizeof(*seen));

	memset(seen, 0, n * sizeof(*seen));
	for (long i = 0; i < have.n; i++) {
		long at = find_pair(&have, i, strings, want, n);

		if (at < 0 || seen[at] || !is_pair(kind, &have, i, strings, &want[at]))
			fail("%s: pair %ld of %ld in the share is wrong or twice", kind->name, i,
			     (long)have.n);
		seen[at] = true;
		own[1] += random_mix((uint64_t)at + 1);
	}
	free(seen);
	for (long i = 0; i < n; i++)
		marks += random_mix((uint64_t)i + 1);
	MPI_Allreduce(own, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	if (all[0] != (uint64_t)n || all[1] != marks)
		fail("%s: shares have %llu keys, not %ld, or one twice", kind->name,
		     (unsigned long long)all[0], n);
	forget(&have);
}

static void check_gathered(const struct kind *kind, foldback_pairs *pairs, bool strings,
			   const struct pair *want, long n, int64_t most, int root)
{
	bool here = root == FOLDBACK_EVERY_RANK || root == world_rank;
	struct contents have;
	foldback_pairs *gathered;

	ok(pairs_gather(pairs, most, FOLDBACK_BY_KEY, root, &gathered), "gather");
	have = contents(kind, gathered, strings);
	if (most >= 0 && most < n)
		n = most;
	if (have.n != (here ? n : 0))
		fail("%s: %ld pairs were gathered, not %ld", kind->name, (long)have.n, n);
	for (long i = 0; i < have.n; i++)
		if (!is_pair(kind, &have, i, strings, &want[i]))
			fail("%s: pair %ld that was gathered is wrong", kind->name, i);
	forget(&have);
	ok(pairs_free(&gathered), "free what was gathered");
}

/* A number in the order of values, of the kinds whose values are looked at by it. */
static double magnitude(const struct kind *kind, const uint8_t *value)
{
	int32_t i;
	float f;
	double d;

	if (kind->datatype == MPI_DOUBLE) {
		memcpy(&d, value, sizeof(d));
		return d;
	}
	if (kind->datatype == MPI_FLOAT) {
		memcpy(&f, value, sizeof(f));
		return f;
	}
	memcpy(&i, value, sizeof(i));
	return i;
}

static const struct kind *sorted_kind;
static bool sorted_strings;

static int by_value(const void *one, const void *other)
{
	const struct pair *x = one, *y = other;
	double u = magnitude(sorted_kind, x->value), v = magnitude(sorted_kind, y->value);

	if (u != v)
		return u > v ? -1 : 1;
	return sorted_strings ? compare_strings(x, y) : x->key < y->key ? -1 : x->key > y->key;
}

/* The greatest values come first. A zero may be of either sign, so sums of double are left out. */
static void check_greatest(const struct kind *kind, foldback_pairs *pairs, bool strings,
			   struct pair *want, long n)
{
	bool is_known = kind->datatype == MPI_INT32_T || kind->datatype == MPI_FLOAT;

	if (!is_known || kind->terms != NO_TERMS)
		return;
	sorted_kind = kind;
	sorted_strings = strings;
	qsort(want, n, sizeof(*want), by_value);
	for (int64_t most = -1; most < 20; most += 7) {
		foldback_pairs *gathered;
		struct contents have;
		int root = most < 7 ? FOLDBACK_EVERY_RANK : world_size - 1;
		bool here = root == FOLDBACK_EVERY_RANK || root == world_rank;
		long some = most >= 0 && most < n ? most : n;

		ok(pairs_gather(pairs, most, FOLDBACK_BY_VALUE, root, &gathered), "gather");
		have = contents(kind, gathered, strings);
		if (have.n != (here ? some : 0))
			fail("%s: %ld greatest values, not %ld", kind->name, (long)have.n, some);
		for (long i = 0; i < have.n; i++)
			if (!is_pair(kind, &have, i, strings, &want[i]))
				fail("%s: greatest value %ld is wrong", kind->name, i);
		forget(&have);
		ok(pairs_free(&gathered), "free what was gathered");
	}
}

/* Adds this rank's pairs of a flush, in two parts. */
static void add(const struct kind *kind, foldback_pairs *pairs, enum spread spread, bool strings,
		int flush)
{
	long n;
	struct pair *own = make_pairs(kind, spread, world_rank, flush, &n);
	uint64_t *keys = room(n * sizeof(*keys));
	uint8_t *values = room(n * kind->extent);
	const char **texts = room(n * sizeof(*texts));
	size_t *lengths = room(n * sizeof(*lengths));

	for (long i = 0; i < n; i++) {
		keys[i] = own[i].key;
		memcpy(values + i * kind->extent, own[i].value, kind->extent);
		texts[i] = (const char *)own[i].string;
		lengths[i] = own[i].length;
	}
	for (long part = 0, first = 0; part < 2; part++) {
		long some = part ? n - first : n / 3;

		if (strings)
			ok(pairs_add_strings(pairs, texts + first, lengths + first,
					     values + first * kind->extent, some),
			   "add strings");
		else
			ok(pairs_add(pairs, keys + first, values + first * kind->extent, some),
			   "add");
		first += some;
	}
	free(own);
	free(keys);
	free(values);
	free(texts);
	free(lengths);
}

/* A stream of additions, with a look at the shares after each flush. */
static void stream(const struct kind *kind, enum spread spread, bool strings)
{
	foldback_pairs *pairs;

	watch(PATIENCE, "%s, spread %d, strings %d", kind->name, spread, strings);
	ok(pairs_create(kind->datatype, kind->op, MPI_COMM_WORLD, &pairs), "create");
	for (int flush = 0; flush < FLUSHES; flush++) {
		long n;
		struct pair *want;

		add(kind, pairs, spread, strings, flush);
		/* Pairs that have not been flushed are in no share. */
		want = expect(kind, spread, strings, flush, &n);
		check_shares(kind, pairs, strings, want, n);
		free(want);
		ok(pairs_flush(pairs), "flush");
		want = expect(kind, spread, strings, flush + 1, &n);
		check_shares(kind, pairs, strings, want, n);
		check_gathered(kind, pairs, strings, want, n, -1, FOLDBACK_EVERY_RANK);
		check_gathered(kind, pairs, strings, want, n, 5, flush % world_size);
		if (kind->ordered)
			check_greatest(kind, pairs, strings, want, n);
		free(want);
	}
	ok(pairs_free(&pairs), "free");
	if (pairs)
		fail("what is freed is not NULL");
}

/* In one call, with strings that end with a zero. */
static void at_once(void)
{
	static const char *const words[] = {"fold", "", "back", "fold", "folds", "fold"};
	static const char *const sorted[] = {"", "back", "fold", "folds"};
	uint64_t keys[] = {7, 0, UINT64_MAX, 7};
	int64_t ones[] = {1, 1, 1, 1, 1, 1}, values[4];
	const int64_t want[] = {1, 1, 3, 1};
	const char *found[4];
	foldback_pairs *pairs, *all;
	int64_t n;

	watch(PATIENCE, "in one call");
	ok(reduce_by_key(keys, ones, 4, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &pairs), "by key");
	ok(pairs_gather(pairs, -1, FOLDBACK_BY_KEY, 0, &all), "gather");
	ok(pairs_count(all, &n), "count");
	if (n != (world_rank ? 0 : 3))
		fail("%ld keys, not 3", (long)n);
	ok(pairs_get(all, keys, values), "get");
	if (n && (keys[0] != 0 || keys[1] != 7 || keys[2] != UINT64_MAX))
		fail("keys are out of order");
	if (n && values[1] != 2 * world_size)
		fail("7 came %ld times", (long)values[1]);
	ok(pairs_free(&all), "free");
	ok(pairs_free(&pairs), "free");
	ok(reduce_by_string(words, NULL, ones, 6, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &pairs),
	   "by string");
	ok(pairs_gather(pairs, -1, FOLDBACK_BY_KEY, FOLDBACK_EVERY_RANK, &all), "gather");
	ok(pairs_count(all, &n), "count");
	if (n != 4)
		fail("%ld words, not 4", (long)n);
	ok(pairs_get(all, NULL, values), "get");
	ok(pairs_get_strings(all, found, NULL), "get strings");
	for (int i = 0; i < 4; i++)
		if (strcmp(found[i], sorted[i]) || values[i] != want[i] * world_size)
			fail("%s came %ld times", found[i], (long)values[i]);
	ok(pairs_free(&all), "free");
	ok(pairs_free(&pairs), "free");
}

static uint64_t value_of(uint64_t key)
{
	return key * 3 + 1;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Shares of keys, each of which a rank has added once at most. Returns the number of pairs. */
static uint64_t check_large(foldback_pairs *pairs, uint64_t *marks)
{
	int64_t n;
	uint64_t own[2] = {0, 0}, all[2], *keys, *values;

	ok(pairs_count(pairs, &n), "count");
	keys = room(n * sizeof(*keys));
	values = room(n * sizeof(*values));
	ok(pairs_get(pairs, keys, values), "get");
	for (int64_t i = 0; i < n; i++) {
		uint64_t times = values[i] / value_of(keys[i]);

		if (!times || times > (uint64_t)world_size ||
		    times * value_of(keys[i]) != values[i])
			fail("the value of key %ld is wrong", (long)i);
		own[0] += times;
		own[1] += times * random_mix(keys[i]);
	}
	qsort(keys, n, sizeof(*keys), by_number);
	for (int64_t i = 1; i < n; i++)
		if (keys[i] == keys[i - 1])
			fail("key %llu comes twice", (unsigned long long)keys[i]);
	free(keys);
	free(values);
	MPI_Allreduce(own, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	*marks = all[1];
	return all[0];
}

/* Keys of 44 bits, so that the sum of all ranks' values has room in a word. */
static uint64_t large_key(long i)
{
	return random_mix((uint64_t)i) >> 20;
}

/* Several rounds of the exchange. */
static void long_exchange(void)
{
	uint64_t *keys = room(large * sizeof(*keys)), *values = room(large * sizeof(*values));
	uint64_t want = 0, marks, n;
	foldback_pairs *pairs;
	FILE *running = NULL;

	watch(PATIENCE, "a long exchange");
	for (long i = 0; i < large; i++) {
		keys[i] = large_key(i);
		values[i] = value_of(keys[i]);
		want += random_mix(keys[i]) * (uint64_t)world_size;
	}
	if (command && world_rank == 0) {
		running = popen(command, "r");
		if (!running)
			fail("%s does not start", command);
	}
	ok(reduce_by_key(keys, values, large, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD, &pairs),
	   "by key");
	if (running && pclose(running))
		fail("%s fails", command);
	n = check_large(pairs, &marks);
	if (n != (uint64_t)large * (uint64_t)world_size || marks != want)
		fail("%llu pairs, not %ld", (unsigned long long)n, large * world_size);
	ok(pairs_free(&pairs), "free");
	free(keys);
	free(values);
}

static void is_of_class(int code, int class, const char *what)
{
	int is = -1;

	MPI_Error_class(code, &is);
	if (is != class)
		fail("%s: an error of class %d, not %d", what, is, class);
}

static void left(void *in, void *inout, int *n, MPI_Datatype *datatype)
{
	(void)in, (void)inout, (void)n, (void)datatype;
}

/* Wrong arguments are told by a code. */
static void errors(MPI_Comm comm)
{
	static const char *const words[] = {"word"};
	const struct kind *own = &kinds[n_kinds - 1];
	uint64_t key = 1;
	int64_t one = 1, n;
	uint8_t value[WIDEST] = {0};
	foldback_pairs *pairs, *gathered;
	MPI_Op op;
	int code;

	watch(PATIENCE, "errors");
	MPI_Op_create(left, 0, &op);
	is_of_class(pairs_create(MPI_INT, op, comm, &pairs), MPI_ERR_OP, "an op with an order");
	if (pairs)
		fail("pairs of a wrong op are not NULL");
	if (pairs_create(MPI_DOUBLE, MPI_BXOR, comm, &pairs) == MPI_SUCCESS)
		fail("an exclusive or of double was taken");
	ok(pairs_create(MPI_INT64_T, MPI_SUM, comm, &pairs), "create");
	is_of_class(pairs_add(pairs, &key, &one, -1), MPI_ERR_COUNT, "a negative count");
	ok(pairs_add(pairs, &key, &one, 1), "add");
	is_of_class(pairs_add_strings(pairs, words, NULL, &one, 1), MPI_ERR_ARG,
		    "keys and strings");
	ok(pairs_flush(pairs), "flush");
	if (pairs_gather(pairs, -1, 2, 0, &gathered) == MPI_SUCCESS)
		fail("an unknown order was taken");
	is_of_class(pairs_gather(pairs, -1, FOLDBACK_BY_KEY, world_size, &gathered), MPI_ERR_ROOT,
		    "a root that is not there");
	ok(pairs_gather(pairs, -1, FOLDBACK_BY_KEY, FOLDBACK_EVERY_RANK, &gathered), "gather");
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	is_of_class(pairs_add(gathered, &key, &one, 1), MPI_ERR_ARG,
		    "an addition to gathered pairs");
	is_of_class(pairs_flush(gathered), MPI_ERR_ARG, "a flush of gathered pairs");
	ok(pairs_count(gathered, &n), "count");
	if (n != 1)
		fail("%ld keys after errors", (long)n);
	ok(pairs_free(&gathered), "free");
	ok(pairs_free(&pairs), "free");
	/* Kinds of keys that differ: all ranks hear of it. */
	if (world_size > 1) {
		ok(pairs_create(MPI_INT64_T, MPI_SUM, comm, &pairs), "create");
		if (world_rank == 1)
			ok(pairs_add_strings(pairs, words, NULL, &one, 1), "add strings");
		else
			ok(pairs_add(pairs, &key, &one, 1), "add");
		is_of_class(pairs_flush(pairs), MPI_ERR_ARG,
			    "numbers on a rank, strings on another");
		ok(pairs_free(&pairs), "free");
	}
	ok(pairs_create(own->datatype, own->op, comm, &pairs), "create");
	ok(pairs_add(pairs, &key, value, 1), "add");
	ok(pairs_flush(pairs), "flush");
	if (pairs_gather(pairs, -1, FOLDBACK_BY_VALUE, 0, &gathered) == MPI_SUCCESS)
		fail("structs were sorted by value");
	ok(pairs_free(&pairs), "free");
	/* An argument that is wrong on one rank is an error on all. */
	code = reduce_by_key(&key, &one, world_rank ? 1 : -1, MPI_INT64_T, MPI_SUM, comm, &pairs);
	if (code == MPI_SUCCESS || pairs)
		fail("a count that is wrong on rank 0 was taken");
	MPI_Op_free(&op);
}

/* Rank 0 has little memory. It refuses pairs without room, and no others are lost. */
static void memory(MPI_Comm comm)
{
	enum { FEW_KEYS = 1000, MANY_KEYS = 200000 };
	uint64_t *keys = room(MANY_KEYS * sizeof(*keys)),
		 *values = room(MANY_KEYS * sizeof(*values));
	uint64_t marks, n;
	foldback_pairs *pairs;

	watch(PATIENCE, "memory");
	if (world_rank == 0)
		setenv("FOLDBACK_PAIRS_MEMORY", "1000000", 1);
	ok(pairs_create(MPI_UINT64_T, MPI_SUM, comm, &pairs), "create");
	unsetenv("FOLDBACK_PAIRS_MEMORY");
	for (long i = 0; i < MANY_KEYS; i++) {
		keys[i] = large_key(i);
		values[i] = value_of(keys[i]);
	}
	ok(pairs_add(pairs, keys, values, FEW_KEYS), "few keys");
	if (world_rank == 0)
		is_of_class(pairs_add(pairs, keys, values, MANY_KEYS), MPI_ERR_NO_MEM,
			    "too many keys");
	ok(pairs_flush(pairs), "flush");
	n = check_large(pairs, &marks);
	if (n != (uint64_t)FEW_KEYS * (uint64_t)world_size)
		fail("%llu pairs, not %d of each rank", (unsigned long long)n, FEW_KEYS);
	if (world_rank == 0) {
		/* Many pairs of one key have room. */
		memset(keys, 0, MANY_KEYS * sizeof(*keys));
		memset(values, 0, MANY_KEYS * sizeof(*values));
		ok(pairs_add(pairs, keys, values, MANY_KEYS), "many pairs of one key");
	} else {
		ok(pairs_add(pairs, keys, values, MANY_KEYS), "many keys elsewhere");
	}
	if (world_size > 1)
		is_of_class(pairs_flush(pairs), MPI_ERR_NO_MEM, "an owner without room");
	ok(pairs_free(&pairs), "free");
	free(keys);
	free(values);
}

int main(int argc, char **argv)
{
	MPI_Comm comm;

	program_start("keys", &argc, &argv, options);
	find(&reduce_by_key, "foldback_reduce_by_key");
	find(&reduce_by_string, "foldback_reduce_by_string");
	find(&pairs_create, "foldback_pairs_create");
	find(&pairs_add, "foldback_pairs_add");
	find(&pairs_add_strings, "foldback_pairs_add_strings");
	find(&pairs_flush, "foldback_pairs_flush");
	find(&pairs_count, "foldback_pairs_count");
	find(&pairs_get, "foldback_pairs_get");
	find(&pairs_get_strings, "foldback_pairs_get_strings");
	find(&pairs_gather, "foldback_pairs_gather");
	find(&pairs_free, "foldback_pairs_free");
	make_kinds();
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	at_once();
	for (int kind = 0; kind < n_kinds; kind++)
		for (enum spread spread = 0; spread < SPREADS; spread++)
			/* Logical ops make 0 and 1 of a value that comes twice; it is left alone
			 * where it comes once. */
			if (kinds[kind].terms || spread == (enum spread)kind % SPREADS ||
			    kind >= n_kinds - 6)
				stream(&kinds[kind], spread, false);
	for (int kind = 0; kind < n_kinds; kind += kind < n_kinds - 12 ? 11 : 1)
		stream(&kinds[kind], DISTINCT, true);
	long_exchange();
	errors(comm);
	memory(comm);
	MPI_Comm_free(&comm);
	say("keys: all ok");
	MPI_Finalize();
	return 0;
}
