/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts the words of all files in directories that all ranks see: maximal runs of ASCII letters
 * and digits, as `tr -cs '[:alnum:]' '\n' | sort | uniq -c` does in the C locale.
 *
 *   mpicc -O2 -Iinclude -o wordcount examples/wordcount.c
 *   foldback run -- mpirun -n 4 ./wordcount [--top K | --all] [--plain | --naive] DIRECTORY...
 *
 * Rank r of R reads the r-th of R parts of all bytes. A word belongs to the part in which it
 * begins. The output is the same in all ways.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <fts.h>
#include <getopt.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pairs.h"

enum { BATCH = 4096 };

static int64_t most = 20; /* -1: all, by key */
static char **directories;

struct files {
	int64_t count;
	int64_t *sizes;
	struct bytes paths; /* each with its NUL */
};

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Files that are not empty. */
static void walk(struct files *files)
{
	struct bytes sizes = {0};
	FTS *tree = fts_open(directories, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
	FTSENT *entry;

	if (!tree)
		fail("%s", strerror(errno));
	while ((entry = fts_read(tree))) {
		if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR ||
		    entry->fts_info == FTS_NS)
			fail("%s: %s", entry->fts_path, strerror(entry->fts_errno));
		if (entry->fts_info != FTS_F || entry->fts_statp->st_size == 0)
			continue;
		int64_t size = entry->fts_statp->st_size;

		append(&sizes, &size, sizeof(size));
		append(&files->paths, entry->fts_path, entry->fts_pathlen + 1);
		files->count++;
	}
	fts_close(tree);
	files->sizes = (int64_t *)sizes.at;
}

/* Rank 0 looks, so that all ranks agree. */
static struct files list_files(void)
{
	struct files files = {0};
	int64_t lengths[2];

	if (rank == 0)
		walk(&files);
	lengths[0] = files.count;
	lengths[1] = (int64_t)files.paths.length;
	MPI_Bcast(lengths, 2, MPI_INT64_T, 0, MPI_COMM_WORLD);
	if (lengths[1] > INT_MAX)
		fail("too many files");
	if (rank != 0) {
		files.count = lengths[0];
		files.sizes = allocate(NULL, lengths[0] * sizeof(*files.sizes));
		extend(&files.paths, lengths[1]);
	}
	MPI_Bcast(files.sizes, (int)lengths[0], MPI_INT64_T, 0, MPI_COMM_WORLD);
	MPI_Bcast(files.paths.at, (int)lengths[1], MPI_CHAR, 0, MPI_COMM_WORLD);
	return files;
}

/* A word and how often it occurs. */
struct word {
	const char *text;
	size_t length;
	int64_t count;
};

static uint64_t hash_of(const char *text, size_t length)
{
	uint64_t hash = length, piece;

	for (; length >= 8; text += 8, length -= 8) {
		memcpy(&piece, text, 8);
		hash = mix(hash ^ piece);
	}
	piece = 0;
	memcpy(&piece, text, length);
	return mix(hash ^ piece);
}

/* Words by hash: open addressing, at most half full. Their bytes are in `texts`. */
struct table {
	struct slot {
		uint64_t hash;
		size_t at, length;
		int64_t count; /* 0: free */
	} * slots;
	size_t room, used; /* room: a power of two, or 0 */
	struct bytes texts;
};

static struct slot *free_slot(struct table *table, uint64_t hash)
{
	size_t i = hash & (table->room - 1);

	while (table->slots[i].count)
		i = (i + 1) & (table->room - 1);
	return &table->slots[i];
}

static void grow(struct table *table)
{
	struct slot *old = table->slots;
	size_t before = table->room;

	table->room = before ? 2 * before : 1024;
	table->slots = calloc(table->room, sizeof(*table->slots));
	if (!table->slots)
		fail("no memory");
	for (size_t i = 0; i < before; i++)
		if (old[i].count)
			*free_slot(table, old[i].hash) = old[i];
	free(old);
}

static void table_add(struct table *table, const char *text, size_t length, int64_t count)
{
	uint64_t hash = hash_of(text, length);
	struct slot *slot;

	if (2 * table->used >= table->room)
		grow(table);
	for (size_t i = hash;; i++) {
		slot = &table->slots[i & (table->room - 1)];
		if (!slot->count)
			break;
		if (slot->hash == hash && slot->length == length &&
		    memcmp(table->texts.at + slot->at, text, length) == 0) {
			slot->count += count;
			return;
		}
	}
	*slot = (struct slot){hash, table->texts.length, length, count};
	append(&table->texts, text, length);
	table->used++;
}

static void table_free(struct table *table)
{
	free(table->slots);
	free(table->texts.at);
	*table = (struct table){0};
}

static foldback_pairs *gathered;
static struct table table; /* PLAIN: the words that this rank has read; then, also NAIVE: its own */
static int64_t words;	   /* that this rank has read */

/* A count, seven bits a byte, and the word with a NUL. */
static void pack(struct bytes *part, const char *text, size_t length, int64_t count)
{
	for (; count > 127; count >>= 7)
		*extend(part, 1) = (unsigned char)(count | 128);
	*extend(part, 1) = (unsigned char)count;
	append(part, text, length);
	*extend(part, 1) = 0;
}

static struct word unpack(const unsigned char **at)
{
	struct word word = {0};
	int shift = 0;

	for (; **at > 127; shift += 7)
		word.count |= (int64_t)(*(*at)++ & 127) << shift;
	word.count |= (int64_t) * (*at)++ << shift;
	word.text = (const char *)*at;
	word.length = strlen(word.text);
	*at += word.length + 1;
	return word;
}

static void add(const char *const *texts, const size_t *lengths, int64_t count)
{
	static int64_t ones[BATCH];
	double begin = MPI_Wtime();

	for (int i = 0; i < BATCH && !ones[BATCH - 1]; i++)
		ones[i] = 1;
	if (way == BY_FOLDBACK)
		ok(pairs_api.add_strings(pairs, texts, lengths, ones, count),
		   "foldback_pairs_add_strings");
	for (int64_t i = 0; way == PLAIN && i < count; i++)
		table_add(&table, texts[i], lengths[i], 1);
	for (int64_t i = 0; way == NAIVE && i < count; i++) {
		struct bytes *part = &parts[owner_of(hash_of(texts[i], lengths[i]))];

		/* Counts are not sent: all are 1. */
		append(part, texts[i], lengths[i]);
		*extend(part, 1) = 0;
	}
	words += count;
	spend(COUNTING, begin);
	seconds[READING] -= MPI_Wtime() - begin;
}

/* The words that begin in a part of a file. */
static void read_part(const char *path, int64_t size, int64_t begin, int64_t end)
{
	const char *texts[BATCH], *text;
	size_t lengths[BATCH];
	int64_t count = 0;
	double start = MPI_Wtime();
	int file = open(path, O_RDONLY);

	if (file < 0)
		fail("%s: %s", path, strerror(errno));
	text = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
	if (text == MAP_FAILED)
		fail("%s: %s", path, strerror(errno));
	close(file);
	/* This one began before. */
	if (begin > 0 && isalnum((unsigned char)text[begin - 1]))
		while (begin < end && isalnum((unsigned char)text[begin]))
			begin++;
	for (;;) {
		while (begin < end && !isalnum((unsigned char)text[begin]))
			begin++;
		if (begin == end)
			break;
		int64_t from = begin;

		while (begin < size && isalnum((unsigned char)text[begin]))
			begin++;
		texts[count] = text + from;
		lengths[count++] = begin - from;
		if (count == BATCH) {
			add(texts, lengths, count);
			count = 0;
		}
		if (begin > end)
			break;
	}
	add(texts, lengths, count);
	munmap((void *)text, size);
	spend(READING, start);
}

/* This rank's part of all bytes. */
static void read_files(void)
{
	struct files files = list_files();
	const char *path = (const char *)files.paths.at;
	int64_t all = 0, at = 0, from, to;

	for (int64_t i = 0; i < files.count; i++)
		all += files.sizes[i];
	from = (int64_t)((__int128)all * rank / ranks);
	to = (int64_t)((__int128)all * (rank + 1) / ranks);
	for (int64_t i = 0; i < files.count; i++) {
		int64_t size = files.sizes[i];
		int64_t begin = from > at ? from - at : 0, end = to < at + size ? to - at : size;

		if (begin < end)
			read_part(path, size, begin, end);
		at += size;
		path += strlen(path) + 1;
	}
}

/* Each word to its owner, by MPI alone. */
static void shuffle(void)
{
	struct bytes received;

	for (size_t i = 0; i < table.room; i++) {
		const struct slot *slot = &table.slots[i];

		if (slot->count)
			pack(&parts[owner_of(slot->hash)], (const char *)table.texts.at + slot->at,
			     slot->length, slot->count);
	}
	table_free(&table);
	received = exchange(parts, MPI_BYTE);
	for (const unsigned char *at = received.at; at < received.at + received.length;) {
		struct word word = {(const char *)at, 0, 1};

		if (way == PLAIN) {
			word = unpack(&at);
		} else {
			word.length = strlen(word.text);
			at += word.length + 1;
		}
		table_add(&table, word.text, word.length, word.count);
	}
	free(received.at);
}

static int by_key(const void *a, const void *b)
{
	const struct word *left = a, *right = b;
	size_t shorter = left->length < right->length ? left->length : right->length;
	int order = memcmp(left->text, right->text, shorter);

	return order ? order : (left->length > right->length) - (left->length < right->length);
}

static int by_count(const void *a, const void *b)
{
	const struct word *left = a, *right = b;

	if (left->count != right->count)
		return left->count < right->count ? 1 : -1;
	return by_key(a, b);
}

/* The words to print, at rank 0, by MPI alone. */
static struct word *gather_plain(int64_t *count)
{
	int (*order)(const void *, const void *) = most < 0 ? by_key : by_count;
	struct word *list = allocate(NULL, table.used * sizeof(*list));
	struct bytes mine = {0}, all;
	int64_t own = 0;

	for (size_t i = 0; i < table.room; i++) {
		const struct slot *slot = &table.slots[i];

		if (slot->count)
			list[own++] = (struct word){(const char *)table.texts.at + slot->at,
						    slot->length, slot->count};
	}
	own = choose(list, own, sizeof(*list), most, order);
	for (int64_t i = 0; i < own; i++)
		pack(&mine, list[i].text, list[i].length, list[i].count);
	all = gather_bytes(&mine, MPI_BYTE);
	free(mine.at);
	*count = 0;
	for (const unsigned char *at = all.at; at < all.at + all.length; (*count)++)
		unpack(&at);
	list = allocate(list, *count * sizeof(*list));
	*count = 0;
	for (const unsigned char *at = all.at; at < all.at + all.length;)
		list[(*count)++] = unpack(&at);
	*count = choose(list, *count, sizeof(*list), most, order);
	return list;
}

/* The same by foldback: they come in order. The texts belong to `gathered`. */
static struct word *gather_pairs(int64_t *count)
{
	struct word *list;
	const char **texts;
	size_t *lengths;
	int64_t *counts;

	gathered = gather(pairs, most, most < 0 ? FOLDBACK_BY_KEY : FOLDBACK_BY_VALUE);
	*count = count_of(gathered);
	list = allocate(NULL, *count * sizeof(*list));
	texts = allocate(NULL, *count * sizeof(*texts));
	lengths = allocate(NULL, *count * sizeof(*lengths));
	counts = allocate(NULL, *count * sizeof(*counts));
	ok(pairs_api.get(gathered, NULL, counts), "foldback_pairs_get");
	ok(pairs_api.get_strings(gathered, texts, lengths), "foldback_pairs_get_strings");
	for (int64_t i = 0; i < *count; i++)
		list[i] = (struct word){texts[i], lengths[i], counts[i]};
	free(texts);
	free(lengths);
	free(counts);
	return list;
}

static void answer(void)
{
	int64_t count, all_words, different;
	struct word *list;

	list = way == BY_FOLDBACK ? gather_pairs(&count) : gather_plain(&count);
	all_words = sum_of(words);
	different = sum_of(way == BY_FOLDBACK ? count_of(pairs) : (int64_t)table.used);
	if (rank == 0) {
		for (int64_t i = 0; i < count; i++)
			printf("%7lld %.*s\n", (long long)list[i].count, (int)list[i].length,
			       list[i].text);
		printf("%lld words, %lld different\n", (long long)all_words, (long long)different);
		fflush(stdout);
	}
	if (way == BY_FOLDBACK)
		ok(pairs_api.free(&gathered), "foldback_pairs_free");
}

static bool take_options(int argc, char **argv)
{
	static const struct option options[] = {
	    {"top", required_argument, NULL, 't'},
	    {"all", no_argument, NULL, 'a'},
	    {"plain", no_argument, NULL, 'p'},
	    {"naive", no_argument, NULL, 'n'},
	    {0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 't':
			most = number(optarg, 0, INT64_MAX, "top");
			break;
		case 'a':
			most = -1;
			break;
		case 'p':
			way = PLAIN;
			break;
		case 'n':
			way = NAIVE;
			break;
		default:
			return false;
		}
	}
	directories = argv + optind;
	return optind < argc;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (!take_options(argc, argv))
		refuse("usage: wordcount [--top K | --all] [--plain | --naive] DIRECTORY...");
	run(read_files, shuffle, answer, "reading");
	MPI_Finalize();
	return 0;
}
