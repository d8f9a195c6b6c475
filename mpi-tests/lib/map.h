/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Datatypes of some elements of one size, and the place of each element in memory. */
#ifndef MAP_H
#define MAP_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

enum map_kind {
	MAP_PLAIN,     /* the basic type itself: one element */
	MAP_TOGETHER,  /* MPI_Type_contiguous */
	MAP_VECTOR,    /* every other element */
	MAP_STRUCT,    /* two parts with a hole between */
	MAP_RESIZED,   /* a hole behind each */
	MAP_BACKWARDS, /* the last element first in memory */
	MAP_KINDS,
};

enum { MOST_GRAIN = 12 };

struct map {
	MPI_Datatype handle;
	bool made; /* to be freed */
	size_t element;
	size_t elements;
	size_t extent, reach; /* bytes to the next one; bytes to the end of the last element */
	size_t at[MOST_GRAIN];
};

/* The basic type of 1, 4 or 8 bytes. */
MPI_Datatype map_basic(size_t element);

/* A datatype of `elements`, but for MAP_PLAIN. */
struct map map_make(enum map_kind kind, size_t element, size_t elements);

/* Elements of no bytes. */
struct map map_of_nothing(void);
void map_free(struct map *map);

/* Bytes from the first of `elements` to the end of the last one. */
size_t map_span(const struct map *map, size_t elements);

/* Puts consecutive elements to their places. */
void map_put(const struct map *map, unsigned char *to, const unsigned char *from, size_t elements);

#endif
