/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Pairs reduced by key in plain MPI, as fast as we can: foldback's opponent in pairs.c. Values are
 * int64_t above 0, and are added up.
 *
 *     combine()   a hash table adds up equal keys of this rank, while that saves enough of them
 *     shuffle()   MPI_Alltoallv to the owners; a hash table adds up what arrives
 *
 * The tables prefetch their slots. All memory is of huge pages if the system has them. A rank
 * does not send pairs to itself.
 */
#ifndef PLAIN_PAIRS_H
#define PLAIN_PAIRS_H

#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <sys/mman.h>

#include "program.h"
#include "random.h"

struct pair {
	uint64_t key;
	int64_t value;
};

/* Zeroed memory. */
static void *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("no memory for %zu bytes", bytes);
	/* Nothing is lost without them. */
	madvise(memory, bytes ? bytes : 1, MADV_HUGEPAGE);
	return memory;
}

static void unmap(void *memory, size_t bytes)
{
	munmap(memory, bytes ? bytes : 1);
}

/* Open addressing, at most half full. A slot with value 0 is free. */
struct table {
	struct pair *slots;
	size_t room, used; /* room: a power of two, or 0 */
};

enum { LEAST_ROOM = 1024, AHEAD = 16 };

static inline struct pair *slot_of(const struct table *table, uint64_t key)
{
	size_t i = random_mix(key) & (table->room - 1);

	while (table->slots[i].value && table->slots[i].key != key)
		i = (i + 1) & (table->room - 1);
	return &table->slots[i];
}

static void table_free(struct table *table)
{
	if (table->slots)
		unmap(table->slots, table->room * sizeof(*table->slots));
	*table = (struct table){0};
}

/* Makes room for so many pairs. The old slots move in the order of hashes, so memory is written in
 * a few streams, not at random. */
static void reserve(struct table *table, size_t pairs)
{
	struct table old = *table;

	while (2 * pairs > table->room)
		table->room = table->room ? 2 * table->room : LEAST_ROOM;
	if (table->room == old.room)
		return;
	table->slots = map(table->room * sizeof(*table->slots));
	for (size_t i = 0; i < old.room; i++)
		if (old.slots[i].value)
			*slot_of(table, old.slots[i].key) = old.slots[i];
	table_free(&old);
}

/* Adds `count` pairs, whose keys and values are `stride` words apart. */
static inline __attribute__((always_inline)) void table_add(struct table *table,
							    const uint64_t *keys,
							    const int64_t *values, size_t stride,
							    size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct pair *slot;

		if (2 * table->used >= table->room)
			reserve(table, table->used + 1);
		if (i + AHEAD < count)
			__builtin_prefetch(&table->slots[random_mix(keys[(i + AHEAD) * stride]) &
							 (table->room - 1)],
					   1);
		slot = slot_of(table, keys[i * stride]);
		table->used += !slot->value;
		slot->key = keys[i * stride];
		slot->value += values[i * stride];
	}
}

/* The pairs of a rank before they are sent: those up to `done` are in the table, the others are as
 * they came. */
struct combined {
	const uint64_t *keys;
	const int64_t *values;
	size_t count, done;
	struct table table;
};

/* Pairs from which to guess whether more will meet. */
enum { SAMPLE = 131072 };
/* The greatest part that may be left, for combining to pay. */
#define PAYS 0.5

/* Different keys among `count` pairs if the first `sample` have `used`. The pairs that meet tell
 * the number of keys, as people who share a birthday tell the days of a year. */
static double expect(double used, double sample, double count)
{
	double keys;

	if (used >= sample)
		return count;
	keys = fmax(used, sample * sample / (2 * (sample - used)));
	return keys * -expm1(-count / keys);
}

static void combine(struct combined *mine, const uint64_t *keys, const int64_t *values,
		    size_t count)
{
	size_t sample = count < SAMPLE ? count : SAMPLE;
	double expected;

	*mine = (struct combined){keys, values, count, sample, {0}};
	table_add(&mine->table, keys, values, 1, sample);
	if (sample == count)
		return;
	expected = expect((double)mine->table.used, (double)sample, (double)count);
	if (expected > PAYS * (double)count)
		return;
	reserve(&mine->table, (size_t)expected);
	table_add(&mine->table, keys + sample, values + sample, 1, count - sample);
	mine->done = count;
}

/* The low bits of a key's hash are for the table. */
static inline int owner_of(uint64_t key)
{
	return (int)((random_mix(key) >> 32) * (uint64_t)world_size >> 32);
}

/* MPI has a pair as two words. */
static void words_of(const size_t *counts, int *words, int *places)
{
	size_t sum = 0;

	for (int i = 0; i < world_size; i++) {
		words[i] = (int)(2 * counts[i]);
		places[i] = (int)(2 * sum);
		sum += counts[i];
		if (2 * sum > INT_MAX)
			fail("more pairs than MPI_Alltoallv can send: use more ranks");
	}
}

/* Writes the pairs of each owner behind each other. `counts` gets their numbers, ours last: they
 * are at the end. */
static struct pair *part(const struct combined *mine, size_t *counts, size_t *all)
{
	const struct table *table = &mine->table;
	struct pair *parts, **ends;
	size_t sum = 0;

	for (int i = 0; i < world_size; i++)
		counts[i] = 0;
	for (size_t i = 0; i < table->room; i++)
		counts[owner_of(table->slots[i].key)] += table->slots[i].value != 0;
	for (size_t i = mine->done; i < mine->count; i++)
		counts[owner_of(mine->keys[i])]++;
	for (int i = 0; i < world_size; i++)
		sum += counts[i];
	*all = sum;
	parts = map(sum * sizeof(*parts));
	ends = map((size_t)world_size * sizeof(*ends));
	ends[world_rank] = parts + sum - counts[world_rank];
	sum = 0;
	for (int i = 0; i < world_size; i++) {
		if (i == world_rank)
			continue;
		ends[i] = parts + sum;
		sum += counts[i];
	}
	for (size_t i = 0; i < table->room; i++)
		if (table->slots[i].value)
			*ends[owner_of(table->slots[i].key)]++ = table->slots[i];
	for (size_t i = mine->done; i < mine->count; i++)
		*ends[owner_of(mine->keys[i])]++ = (struct pair){mine->keys[i], mine->values[i]};
	unmap(ends, (size_t)world_size * sizeof(*ends));
	return parts;
}

/* Adds up the pairs of a rank: its own, and the others' in parts of at most `largest`. */
static struct table reduce(const struct pair *own, size_t own_count, const struct pair *got,
			   size_t got_count, size_t largest)
{
	size_t sample = own_count < SAMPLE ? own_count : SAMPLE, keys = largest;
	struct table table = {0};

	table_add(&table, &own->key, &own->value, 2, sample);
	/* Combined pairs of one rank do not meet. Then there are about as many keys in all. */
	if (table.used < sample)
		keys = (size_t)expect((double)table.used, (double)sample,
				      (double)(own_count + got_count));
	reserve(&table, keys);
	own += sample;
	table_add(&table, &own->key, &own->value, 2, own_count - sample);
	table_add(&table, &got->key, &got->value, 2, got_count);
	return table;
}

/* Sends each pair to its owner. Returns the pairs of this rank, and frees what was combined. */
static struct table shuffle(struct combined *mine)
{
	size_t counts[world_size], incoming[world_size], all, own, received = 0, largest;
	int words[4][world_size];
	struct pair *sent, *got;
	struct table table;

	sent = part(mine, counts, &all);
	table_free(&mine->table);
	own = largest = counts[world_rank];
	counts[world_rank] = 0;
	MPI_Alltoall(counts, 1, MPI_UINT64_T, incoming, 1, MPI_UINT64_T, MPI_COMM_WORLD);
	for (int i = 0; i < world_size; i++) {
		received += incoming[i];
		largest = incoming[i] > largest ? incoming[i] : largest;
	}
	got = map(received * sizeof(*got));
	words_of(counts, words[0], words[1]);
	words_of(incoming, words[2], words[3]);
	MPI_Alltoallv(sent, words[0], words[1], MPI_UINT64_T, got, words[2], words[3], MPI_UINT64_T,
		      MPI_COMM_WORLD);
	table = reduce(sent + all - own, own, got, received, largest);
	unmap(sent, all * sizeof(*sent));
	unmap(got, received * sizeof(*got));
	return table;
}

#endif
