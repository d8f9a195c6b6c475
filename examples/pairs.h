/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The common parts of wordcount.c and kmers.c: foldback's functions, and the same exchange by MPI
 * alone. */
#ifndef PAIRS_H
#define PAIRS_H

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "foldback.h"

/* PLAIN: each rank combines equal keys before it sends them. NAIVE: it sends them as they come. */
enum way { BY_FOLDBACK, PLAIN, NAIVE };

static enum way way = BY_FOLDBACK;
static int rank, ranks;

static void say(const char *format, va_list arguments)
{
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
}

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

/* For an error that all ranks see: rank 0 says it, and all end with status 1. */
__attribute__((format(printf, 1, 2), noreturn)) static void refuse(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (rank == 0)
		say(format, arguments);
	va_end(arguments);
	MPI_Finalize();
	exit(1);
}

/* foldback is preloaded, or linked; a program that only has it preloaded still runs without. */
static struct {
	__typeof__(foldback_pairs_create) *create;
	__typeof__(foldback_pairs_add) *add;
	__typeof__(foldback_pairs_add_strings) *add_strings;
	__typeof__(foldback_pairs_flush) *flush;
	__typeof__(foldback_pairs_count) *count;
	__typeof__(foldback_pairs_get) *get;
	__typeof__(foldback_pairs_get_strings) *get_strings;
	__typeof__(foldback_pairs_gather) *gather;
	__typeof__(foldback_pairs_free) *free;
} pairs_api;

static inline void find(void *function, const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found)
		refuse("no %s: preload libfoldback.so, or say --plain", name);
	memcpy(function, &found, sizeof(found));
}

static inline void find_foldback(void)
{
	find(&pairs_api.create, "foldback_pairs_create");
	find(&pairs_api.add, "foldback_pairs_add");
	find(&pairs_api.add_strings, "foldback_pairs_add_strings");
	find(&pairs_api.flush, "foldback_pairs_flush");
	find(&pairs_api.count, "foldback_pairs_count");
	find(&pairs_api.get, "foldback_pairs_get");
	find(&pairs_api.get_strings, "foldback_pairs_get_strings");
	find(&pairs_api.gather, "foldback_pairs_gather");
	find(&pairs_api.free, "foldback_pairs_free");
}

static inline void ok(int code, const char *what)
{
	if (code != MPI_SUCCESS)
		fail("%s returned %d", what, code);
}

/* The first `most` pairs at rank 0, -1: all. */
static inline foldback_pairs *gather(foldback_pairs *pairs, int64_t most, int order)
{
	foldback_pairs *gathered;

	ok(pairs_api.gather(pairs, most, order, 0, &gathered), "foldback_pairs_gather");
	return gathered;
}

static inline int64_t count_of(const foldback_pairs *pairs)
{
	int64_t count;

	ok(pairs_api.count(pairs, &count), "foldback_pairs_count");
	return count;
}

static inline void *allocate(void *old, size_t bytes)
{
	void *made = realloc(old, bytes ? bytes : 1);

	if (!made)
		fail("no memory for %zu bytes", bytes);
	return made;
}

/* Bytes that become more. */
struct bytes {
	unsigned char *at;
	size_t length, room;
};

/* Room for `count` more bytes. */
static inline unsigned char *extend(struct bytes *bytes, size_t count)
{
	if (bytes->length + count > bytes->room) {
		bytes->room = 2 * bytes->room + count + 256;
		bytes->at = allocate(bytes->at, bytes->room);
	}
	bytes->length += count;
	return bytes->at + bytes->length - count;
}

static inline void append(struct bytes *bytes, const void *from, size_t count)
{
	memcpy(extend(bytes, count), from, count);
}

/* Finds where the parts of all ranks begin. Returns their sum, which must be an int. */
static inline size_t places(const int *counts, int *offsets)
{
	int64_t sum = 0;

	for (int i = 0; i < ranks; i++) {
		offsets[i] = (int)sum;
		sum += counts[i];
		if (sum > INT_MAX)
			fail("more than MPI_Alltoallv can do at once: use more ranks");
	}
	return (size_t)sum;
}

static inline int units(size_t bytes, int size)
{
	if (bytes / size > INT_MAX)
		fail("more than MPI can send at once: use more ranks");
	return (int)(bytes / size);
}

/* Sends each rank its part, which is freed. Returns what all ranks have sent to this one. */
static inline struct bytes exchange(struct bytes *parts, MPI_Datatype unit)
{
	int *counts = allocate(NULL, 4 * ranks * sizeof(int)), *starts = counts + ranks;
	int *incoming = starts + ranks, *places_in = incoming + ranks, size;
	struct bytes sent = {0}, received = {0};

	MPI_Type_size(unit, &size);
	for (int to = 0; to < ranks; to++)
		counts[to] = units(parts[to].length, size);
	extend(&sent, places(counts, starts) * size);
	for (int to = 0; to < ranks; to++) {
		if (parts[to].length)
			memcpy(sent.at + (size_t)starts[to] * size, parts[to].at, parts[to].length);
		free(parts[to].at);
		parts[to] = (struct bytes){0};
	}
	MPI_Alltoall(counts, 1, MPI_INT, incoming, 1, MPI_INT, MPI_COMM_WORLD);
	extend(&received, places(incoming, places_in) * size);
	MPI_Alltoallv(sent.at, counts, starts, unit, received.at, incoming, places_in, unit,
		      MPI_COMM_WORLD);
	free(sent.at);
	free(counts);
	return received;
}

/* Brings what each rank has to rank 0; elsewhere nothing is returned. */
static inline struct bytes gather_bytes(const struct bytes *mine, MPI_Datatype unit)
{
	int *counts = allocate(NULL, 2 * ranks * sizeof(int)), *starts = counts + ranks, own, size;
	struct bytes all = {0};

	MPI_Type_size(unit, &size);
	own = units(mine->length, size);
	MPI_Gather(&own, 1, MPI_INT, counts, 1, MPI_INT, 0, MPI_COMM_WORLD);
	if (rank == 0)
		extend(&all, places(counts, starts) * size);
	MPI_Gatherv(mine->at, own, unit, all.at, counts, starts, unit, 0, MPI_COMM_WORLD);
	free(counts);
	return all;
}

enum { FEW = 1000, LARGEST = 64 };

/* Brings the first `most` elements of a list to its front, in order; -1: all. Returns their number.
 */
static inline int64_t choose(void *list, int64_t count, size_t size, int64_t most,
			     int (*order)(const void *, const void *))
{
	char *first = list, kept[LARGEST];
	int64_t have = most >= 0 && most <= FEW && most < count ? most : count, at;

	if (have)
		qsort(first, have, size, order);
	for (int64_t i = have; have && i < count; i++) {
		if (order(first + i * size, first + (have - 1) * size) >= 0)
			continue;
		memcpy(kept, first + i * size, size);
		for (at = have - 1; at > 0 && order(kept, first + (at - 1) * size) < 0; at--)
			memcpy(first + at * size, first + (at - 1) * size, size);
		memcpy(first + at * size, kept, size);
	}
	return most >= 0 && most < have ? most : have;
}

static inline int64_t sum_of(int64_t mine)
{
	int64_t sum;

	MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	return sum;
}

/* The finalizer of splitmix64: every input bit reaches every output bit. */
static inline uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* The rank that owns the keys with a hash. Its low bits are for the table. */
static inline int owner_of(uint64_t hash)
{
	return (int)((hash >> 32) * (uint64_t)ranks >> 32);
}

/* A number that an option has. */
static inline int64_t number(const char *text, int64_t least, int64_t greatest, const char *name)
{
	char *end;
	long long value = strtoll(text, &end, 10);

	if (*end || end == text || value < least || value > greatest)
		refuse("--%s is %lld to %lld", name, (long long)least, (long long)greatest);
	return value;
}

/* The parts of the time of a rank. */
enum phase { READING, COUNTING, ALL, PHASES };

static double seconds[PHASES];

static inline void spend(enum phase phase, double begin)
{
	seconds[phase] += MPI_Wtime() - begin;
}

/* The longest of all ranks, on stderr. */
static inline void tell_times(const char *reading)
{
	double longest[PHASES];

	MPI_Reduce(seconds, longest, PHASES, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (rank == 0)
		fprintf(stderr, "%s: %s %.3f s, counting %.3f s, all %.3f s\n",
			program_invocation_short_name, reading, longest[READING], longest[COUNTING],
			longest[ALL]);
}

static foldback_pairs *pairs; /* BY_FOLDBACK */
static struct bytes *parts;   /* in the other ways, for each owner */

/* Runs a program. `make` adds its keys, `shuffle` brings them to their owners by MPI alone, and
 * `answer` has rank 0 print. */
static inline void run(void (*make)(void), void (*shuffle)(void), void (*answer)(void),
		       const char *reading)
{
	double start, begin;

	if (way == BY_FOLDBACK) {
		find_foldback();
		ok(pairs_api.create(MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &pairs),
		   "foldback_pairs_create");
	}
	parts = allocate(NULL, ranks * sizeof(*parts));
	memset(parts, 0, ranks * sizeof(*parts));
	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	make();
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	if (way == BY_FOLDBACK)
		ok(pairs_api.flush(pairs), "foldback_pairs_flush");
	else
		shuffle();
	spend(COUNTING, begin);
	answer();
	spend(ALL, start);
	tell_times(reading);
	if (way == BY_FOLDBACK)
		ok(pairs_api.free(&pairs), "foldback_pairs_free");
	free(parts);
}

#endif
