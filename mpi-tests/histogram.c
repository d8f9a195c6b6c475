/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A parallel histogram of the bytes and words of text files, checked against a serial count: an
 * ordinary MPI program.
 *
 *   histogram [--rounds N] [FILE…]        default: the licences that Debian installs
 *
 * For each file rank 0 broadcasts name and size, each rank counts its share, and MPI_Allreduce and
 * MPI_Reduce add up the counts. Its output on stdout is the same whatever the number of ranks; the
 * time goes to stderr.
 */
#include <ctype.h>
#include <dirent.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "program.h"

enum { MOST_FILES = 256, PATH = 256, BUCKETS = 4096, SHOWN = 5 };

static const char default_directory[] = "/usr/share/common-licenses";

static long rounds = 1;

static const struct option_spec options[] = {
    {"--rounds", OPTION_NUMBER, &rounds, "how often to count all (1)"},
    {0},
};

struct counts {
	uint64_t bytes[256];
	uint32_t words[BUCKETS]; /* by hash */
	int longest_word;
};

static char files[MOST_FILES][PATH];
static int n_files;

static void add_file(const char *path)
{
	struct stat status;

	if (n_files < MOST_FILES && strlen(path) < PATH && !stat(path, &status) &&
	    S_ISREG(status.st_mode))
		strcpy(files[n_files++], path);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void find_files(char **paths, int n)
{
	char path[2 * PATH];
	struct dirent *entry;
	DIR *directory;

	for (int i = 0; i < n; i++)
		add_file(paths[i]);
	directory = n ? NULL : opendir(default_directory);
	while (directory && (entry = readdir(directory))) {
		snprintf(path, sizeof(path), "%s/%s", default_directory, entry->d_name);
		add_file(path);
	}
	if (directory)
		closedir(directory);
	qsort(files, (size_t)n_files, PATH, by_name);
	if (n_files == 0)
		fail("no files to count");
}

static char *read_file(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	struct stat status;
	char *text;

	if (!file || stat(path, &status))
		fail("cannot read %s", path);
	text = malloc((size_t)status.st_size + 1);
	*size = fread(text, 1, (size_t)status.st_size, file);
	fclose(file);
	return text;
}

static int in_word(const char *text, size_t i)
{
	return isalnum((unsigned char)text[i]);
}

/* Adds bytes [from, to) of the text, and the words that start there. */
static void count(struct counts *counts, const char *text, size_t size, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		uint32_t hash = 2166136261u; /* FNV-1a */
		size_t end = i;

		counts->bytes[(unsigned char)text[i]]++;
		if (!in_word(text, i) || (i > 0 && in_word(text, i - 1)))
			continue;
		for (; end < size && in_word(text, end); end++)
			hash = (hash ^ (uint32_t)tolower((unsigned char)text[end])) * 16777619u;
		counts->words[hash % BUCKETS]++;
		if ((int)(end - i) > counts->longest_word)
			counts->longest_word = (int)(end - i);
	}
}

/* This rank's share of one file, added up over all ranks. `total` is filled in on rank 0, but for
 * the bytes, which every rank gets. */
static void count_together(struct counts *total, const char *path, size_t expected)
{
	size_t size, ranks = (size_t)world_size, rank = (size_t)world_rank;
	struct counts mine = {0}, sum = {0};
	char *text = read_file(path, &size);

	if (size != expected)
		fail("%s has %zu bytes here, and %zu on rank 0", path, size, expected);
	count(&mine, text, size, size * rank / ranks, size * (rank + 1) / ranks);
	free(text);
	MPI_Allreduce(mine.bytes, sum.bytes, 256, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	MPI_Reduce(mine.words, sum.words, BUCKETS, MPI_UINT32_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Allreduce(&mine.longest_word, &sum.longest_word, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	for (int i = 0; i < 256; i++)
		total->bytes[i] += sum.bytes[i];
	for (int i = 0; i < BUCKETS; i++)
		total->words[i] += sum.words[i];
	if (sum.longest_word > total->longest_word)
		total->longest_word = sum.longest_word;
}

static void count_all(struct counts *total)
{
	memset(total, 0, sizeof(*total));
	MPI_Bcast(&n_files, 1, MPI_INT, 0, MPI_COMM_WORLD);
	for (int i = 0; i < n_files; i++) {
		uint64_t size = 0;
		struct stat status;

		if (world_rank == 0 && !stat(files[i], &status))
			size = (uint64_t)status.st_size;
		MPI_Bcast(files[i], PATH, MPI_CHAR, 0, MPI_COMM_WORLD);
		MPI_Bcast(&size, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
		count_together(total, files[i], size);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

static void check_serially(const struct counts *total)
{
	struct counts serial = {0};

	for (int i = 0; i < n_files; i++) {
		size_t size;
		char *text = read_file(files[i], &size);

		count(&serial, text, size, 0, size);
		free(text);
	}
	for (int i = 0; i < 256; i++)
		if (serial.bytes[i] != total->bytes[i])
			fail("byte %d: %llu in parallel, %llu serially", i,
			     (unsigned long long)total->bytes[i],
			     (unsigned long long)serial.bytes[i]);
	for (int i = 0; i < BUCKETS; i++)
		if (serial.words[i] != total->words[i])
			fail("word bucket %d: %u in parallel, %u serially", i, total->words[i],
			     serial.words[i]);
	if (serial.longest_word != total->longest_word)
		fail("longest word: %d in parallel, %d serially", total->longest_word,
		     serial.longest_word);
}

static void print(const struct counts *total)
{
	unsigned long long bytes = 0, words = 0, digest = 0xcbf29ce484222325u;
	int shown[256] = {0};

	for (int i = 0; i < 256; i++) {
		bytes += total->bytes[i];
		digest = (digest ^ total->bytes[i]) * 0x100000001b3u;
	}
	for (int i = 0; i < BUCKETS; i++) {
		words += total->words[i];
		digest = (digest ^ total->words[i]) * 0x100000001b3u;
	}
	say("%d files, %llu bytes, %llu words, the longest of %d letters", n_files, bytes, words,
	    total->longest_word);
	for (int i = 0; i < SHOWN; i++) {
		int most = -1;

		for (int byte = 'a'; byte <= 'z'; byte++)
			if (!shown[byte] && (most < 0 || total->bytes[byte] > total->bytes[most]))
				most = byte;
		shown[most] = 1;
		say("  '%c' %llu times", most, (unsigned long long)total->bytes[most]);
	}
	say("histogram: OK, as counted serially, digest %016llx", digest);
}

int main(int argc, char **argv)
{
	static struct counts total;
	double start;
	int first = program_start("histogram", &argc, &argv, options);

	watch(PATIENCE, "the histogram");
	if (world_rank == 0)
		find_files(argv + first, argc - first);
	start = now();
	for (long i = 0; i < rounds; i++) {
		count_all(&total);
		if (world_rank == 0)
			check_serially(&total);
	}
	if (world_rank == 0) {
		print(&total);
		fprintf(stderr, "histogram: %d ranks, %ld rounds, %.3f s\n", world_size, rounds,
			now() - start);
	}
	MPI_Finalize();
	return 0;
}
