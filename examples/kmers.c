/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts the k-mers of a random genome: all its substrings of k bases, where one and its reverse
 * complement are the same. Half the genome is copies, with errors, of a few families, on either
 * strand; so counts differ.
 *
 *   mpicc -O2 -Iinclude -o kmers examples/kmers.c
 *   foldback run -- mpirun -n 4 ./kmers [--k 21] [--bases 100000000] [--seed 1] [--top K]
 *                                    [--plain | --naive] [--check]
 *
 * Rank r of R makes the r-th of R parts, and has the k-mers that begin there. The output is the
 * same in all ways, and with any number of ranks. With --check rank 0 counts all again by sorting.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdbool.h>

#include "pairs.h"

/* A block of the genome may be a copy of a family's. One base of ERRORS differs. */
enum { BLOCK = 1000, FAMILIES = 1000, ERRORS = 100 };
/* The last bin of the histogram has all that is beyond. */
enum { BINS = 1000, BATCH = 65536 };

static int64_t k = 21, bases = 100000000, most = 10;
static uint64_t seed = 1;
static bool is_checked;

/* Numbers by chance, by what they are for and by place. */
enum purpose { OF_BASE, OF_BLOCK, OF_FAMILY, OF_ERROR };

static uint64_t chance(enum purpose purpose, uint64_t place)
{
	return mix(mix(4 * seed + purpose) + place * 0x9e3779b97f4a7c15u);
}

/* The base at a place: A, C, G or T as 0 to 3. The complement is 3 less it. */
static unsigned base_at(int64_t place)
{
	uint64_t block = chance(OF_BLOCK, place / BLOCK), error;
	int64_t at = place % BLOCK;
	bool is_reversed = block & 2;
	unsigned base;

	if (block & 1)
		return chance(OF_BASE, place) >> 62;
	if (is_reversed)
		at = BLOCK - 1 - at;
	base = chance(OF_FAMILY, (block >> 2) % FAMILIES * BLOCK + at) >> 62;
	if (is_reversed)
		base = 3 - base;
	error = chance(OF_ERROR, place);
	if (error % ERRORS == 0)
		base = (base + 1 + (error >> 32) % 3) & 3;
	return base;
}

/* A k-mer has two bits a base, the first base highest. */
static char *letters(uint64_t kmer, char *text)
{
	for (int64_t i = 0; i < k; i++)
		text[i] = "ACGT"[kmer >> 2 * (k - 1 - i) & 3];
	text[k] = 0;
	return text;
}

/* A k-mer and how often it occurs; also sent between ranks, as two MPI_UINT64_T. */
struct kmer {
	uint64_t key, count;
};

/* k-mers by hash: open addressing, at most half full. A slot with count 0 is free. */
struct table {
	struct kmer *slots;
	size_t room, used; /* room: a power of two, or 0 */
};

static struct kmer *slot_of(struct table *table, uint64_t key)
{
	size_t i = mix(key) & (table->room - 1);

	while (table->slots[i].count && table->slots[i].key != key)
		i = (i + 1) & (table->room - 1);
	return &table->slots[i];
}

static void grow(struct table *table)
{
	struct kmer *old = table->slots;
	size_t before = table->room;

	table->room = before ? 2 * before : 1024;
	table->slots = calloc(table->room, sizeof(*table->slots));
	if (!table->slots)
		fail("no memory");
	for (size_t i = 0; i < before; i++)
		if (old[i].count)
			*slot_of(table, old[i].key) = old[i];
	free(old);
}

static void table_add(struct table *table, uint64_t key, uint64_t count)
{
	struct kmer *slot;

	if (2 * table->used >= table->room)
		grow(table);
	slot = slot_of(table, key);
	if (!slot->count)
		table->used++;
	slot->key = key;
	slot->count += count;
}

static void table_free(struct table *table)
{
	free(table->slots);
	*table = (struct table){0};
}

/* PLAIN: the k-mers that this rank has made; then, also NAIVE: its own. */
static struct table table;

static void add(const uint64_t *keys, int64_t count)
{
	static int64_t ones[BATCH];
	double begin = MPI_Wtime();

	for (int i = 0; i < BATCH && !ones[BATCH - 1]; i++)
		ones[i] = 1;
	if (way == BY_FOLDBACK)
		ok(pairs_api.add(pairs, keys, ones, count), "foldback_pairs_add");
	for (int64_t i = 0; way == PLAIN && i < count; i++)
		table_add(&table, keys[i], 1);
	/* Counts are not sent: all are 1. */
	for (int64_t i = 0; way == NAIVE && i < count; i++)
		append(&parts[owner_of(mix(keys[i]))], &keys[i], sizeof(keys[i]));
	spend(COUNTING, begin);
	seconds[READING] -= MPI_Wtime() - begin;
}

/* The k-mers that begin in this rank's part. */
static void make_kmers(void)
{
	static uint64_t keys[BATCH];
	int64_t all = bases - k + 1, from = all * rank / ranks, to = all * (rank + 1) / ranks;
	uint64_t mask = ((uint64_t)1 << 2 * k) - 1, forward = 0, backward = 0;
	double begin = MPI_Wtime();
	int64_t count = 0;

	for (int64_t place = from; from < to && place < to + k - 1; place++) {
		uint64_t base = base_at(place);

		forward = (forward << 2 | base) & mask;
		backward = backward >> 2 | (3 - base) << 2 * (k - 1);
		if (place < from + k - 1)
			continue;
		keys[count++] = forward < backward ? forward : backward;
		if (count == BATCH) {
			add(keys, count);
			count = 0;
		}
	}
	add(keys, count);
	spend(READING, begin);
}

/* Each k-mer to its owner, by MPI alone. */
static void shuffle(void)
{
	struct bytes received;

	for (size_t i = 0; i < table.room; i++)
		if (table.slots[i].count)
			append(&parts[owner_of(mix(table.slots[i].key))], &table.slots[i],
			       sizeof(*table.slots));
	table_free(&table);
	received = exchange(parts, MPI_UINT64_T);
	if (way == PLAIN) {
		const struct kmer *list = (const void *)received.at;

		for (size_t i = 0; i < received.length / sizeof(*list); i++)
			table_add(&table, list[i].key, list[i].count);
	} else {
		const uint64_t *keys = (const void *)received.at;

		for (size_t i = 0; i < received.length / sizeof(*keys); i++)
			table_add(&table, keys[i], 1);
	}
	free(received.at);
}

/* The greatest count first, then by key. */
static int by_count(const void *a, const void *b)
{
	const struct kmer *left = a, *right = b;

	if (left->count != right->count)
		return left->count < right->count ? 1 : -1;
	return (left->key > right->key) - (left->key < right->key);
}

/* The answers. The list is at rank 0. */
struct result {
	int64_t different, bins[BINS + 1];
	struct kmer *list;
	int64_t count;
};

static void bin(struct result *result, uint64_t count)
{
	result->bins[count < BINS ? count : BINS]++;
	result->different++;
}

static struct kmer *with_counts(const foldback_pairs *from, int64_t *count)
{
	struct kmer *list;
	uint64_t *keys;
	int64_t *counts;

	*count = count_of(from);
	list = allocate(NULL, *count * sizeof(*list));
	keys = allocate(NULL, *count * sizeof(*keys));
	counts = allocate(NULL, *count * sizeof(*counts));
	ok(pairs_api.get(from, keys, counts), "foldback_pairs_get");
	for (int64_t i = 0; i < *count; i++)
		list[i] = (struct kmer){keys[i], counts[i]};
	free(keys);
	free(counts);
	return list;
}

static struct kmer *share_of_table(int64_t *count)
{
	struct kmer *list = allocate(NULL, table.used * sizeof(*list));

	*count = 0;
	for (size_t i = 0; i < table.room; i++)
		if (table.slots[i].count)
			list[(*count)++] = table.slots[i];
	return list;
}

static struct result result;

/* The bins and the list of all ranks from their shares. */
static struct result evaluate(void)
{
	struct result mine = {0}, all = {0};
	struct kmer *share;
	int64_t count;

	share = way == BY_FOLDBACK ? with_counts(pairs, &count) : share_of_table(&count);
	for (int64_t i = 0; i < count; i++)
		bin(&mine, share[i].count);
	all.different = sum_of(mine.different);
	MPI_Allreduce(mine.bins, all.bins, BINS + 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	if (way == BY_FOLDBACK) {
		foldback_pairs *gathered = gather(pairs, most, FOLDBACK_BY_VALUE);

		all.list = with_counts(gathered, &all.count);
		ok(pairs_api.free(&gathered), "foldback_pairs_free");
	} else {
		struct bytes own = {0}, lists;

		append(&own, share,
		       choose(share, count, sizeof(*share), most, by_count) * sizeof(*share));
		lists = gather_bytes(&own, MPI_UINT64_T);
		free(own.at);
		all.list = (struct kmer *)lists.at;
		all.count = choose(all.list, lists.length / sizeof(*all.list), sizeof(*all.list),
				   most, by_count);
	}
	free(share);
	return all;
}

static void print(const struct result *result)
{
	char text[32];

	for (int64_t n = 1; n <= BINS; n++)
		if (result->bins[n])
			printf("%lld%s times: %lld\n", (long long)n, n < BINS ? "" : " or more",
			       (long long)result->bins[n]);
	for (int64_t i = 0; i < result->count; i++)
		printf("%s %llu\n", letters(result->list[i].key, text),
		       (unsigned long long)result->list[i].count);
	printf("%lld k-mers, %lld different\n", (long long)(bases - k + 1),
	       (long long)result->different);
	fflush(stdout);
}

static void answer(void)
{
	result = evaluate();
	if (rank == 0)
		print(&result);
}

static int by_number(const void *a, const void *b)
{
	const uint64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

/* Each k-mer from its own bases, as both strands have it. */
static uint64_t kmer_at(const unsigned char *genome, int64_t place)
{
	uint64_t forward = 0, backward = 0;

	for (int64_t i = 0; i < k; i++) {
		forward = 4 * forward + genome[place + i];
		backward = 4 * backward + 3 - genome[place + k - 1 - i];
	}
	return forward < backward ? forward : backward;
}

/* The same from the whole genome, by sorting. */
static struct result count_serially(void)
{
	int64_t all = bases - k + 1;
	unsigned char *genome = allocate(NULL, bases);
	uint64_t *keys = allocate(NULL, all * sizeof(*keys));
	struct result result = {0};
	struct bytes list = {0};

	for (int64_t place = 0; place < bases; place++)
		genome[place] = base_at(place);
	for (int64_t place = 0; place < all; place++)
		keys[place] = kmer_at(genome, place);
	qsort(keys, all, sizeof(*keys), by_number);
	for (int64_t from = 0, to; from < all; from = to) {
		for (to = from; to < all && keys[to] == keys[from];)
			to++;
		struct kmer kmer = {keys[from], to - from};

		bin(&result, kmer.count);
		append(&list, &kmer, sizeof(kmer));
	}
	result.list = (struct kmer *)list.at;
	result.count = choose(result.list, list.length / sizeof(struct kmer), sizeof(struct kmer),
			      most, by_count);
	free(genome);
	free(keys);
	return result;
}

static bool is_equal(const struct result *a, const struct result *b)
{
	return a->different == b->different && a->count == b->count &&
	       memcmp(a->bins, b->bins, sizeof(a->bins)) == 0 &&
	       memcmp(a->list, b->list, a->count * sizeof(*a->list)) == 0;
}

static void take_options(int argc, char **argv)
{
	static const struct option options[] = {
	    {"k", required_argument, NULL, 'k'},    {"bases", required_argument, NULL, 'b'},
	    {"seed", required_argument, NULL, 's'}, {"top", required_argument, NULL, 't'},
	    {"plain", no_argument, NULL, 'p'},	    {"naive", no_argument, NULL, 'n'},
	    {"check", no_argument, NULL, 'c'},	    {0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 'k':
			k = number(optarg, 1, 31, "k");
			break;
		case 'b':
			bases = number(optarg, 1, (int64_t)1 << 40, "bases");
			break;
		case 's':
			seed = number(optarg, 0, (int64_t)1 << 60, "seed");
			break;
		case 't':
			most = number(optarg, 0, INT64_MAX, "top");
			break;
		case 'p':
			way = PLAIN;
			break;
		case 'n':
			way = NAIVE;
			break;
		case 'c':
			is_checked = true;
			break;
		default:
			optind = argc + 1;
		}
	}
	if (optind != argc)
		refuse("usage: kmers [--k 21] [--bases 100000000] [--seed 1] [--top K] "
		       "[--plain | --naive] [--check]");
	if (bases < k)
		refuse("a genome of %lld bases has no k-mer", (long long)bases);
}

int main(int argc, char **argv)
{
	int is_wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	take_options(argc, argv);
	run(make_kmers, shuffle, answer, "making");
	if (is_checked && rank == 0) {
		struct result right = count_serially();

		is_wrong = !is_equal(&result, &right);
		fprintf(stderr, "kmers: %s\n",
			is_wrong ? "the counts differ from rank 0's own" : "all is right");
	}
	MPI_Bcast(&is_wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Finalize();
	return is_wrong;
}
