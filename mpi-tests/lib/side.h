/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One side of a collective call, sending or receiving: a buffer, a datatype, and blocks of
 * elements, one for each peer or one for all. The datatype is this rank's own choice, as long as
 * the signature is what the call says; so is the place of each block in the vector forms.
 */
#ifndef SIDE_H
#define SIDE_H

#include "image.h"
#include "operand.h"
#include "random.h"

enum unit_kind {
	UNIT_PLAIN,	 /* the operand's own datatype */
	UNIT_CONTIGUOUS, /* MPI_Type_contiguous */
	UNIT_VECTOR,	 /* MPI_Type_vector with gaps */
	UNIT_BACKWARDS,	 /* MPI_Type_create_indexed_block, the last element first */
	UNIT_COLUMN,	 /* a column of a matrix, resized so that the next one is beside it */
	UNITS,
};

/* How to choose the datatype. */
struct unit_choice {
	enum unit_kind kind;
	size_t elements; /* in one of the datatype */
	size_t gap;	 /* elements left out between two of UNIT_VECTOR or _BACKWARDS */
	bool absolute;	 /* addresses in the datatype, the buffer is MPI_BOTTOM */
};

struct side {
	const struct operand *operand;
	struct unit_choice unit;
	MPI_Datatype handle;
	struct image image;
	void *address; /* to give to MPI */
	int blocks;
	size_t *elements; /* of each block */
	size_t *first;	  /* where it starts, in units */
	int count;	  /* of all blocks alike */
	int *counts;	  /* of each, in units */
	int *displs;	  /* in units, of `address` */
	MPI_Count *large_counts;
	MPI_Aint *large_displs;
	size_t origin; /* units before `address` */
	size_t bytes;
	size_t stride; /* bytes from one unit to the next */
	size_t apart;  /* bytes from one element of a unit to the next in memory */
	size_t shift;  /* of the buffer off a cache line */
};

/* `elements` of each block are multiples of unit.elements. `scattered`: the blocks lie about, with
 * gaps. The buffer is set to a pattern. */
void side_make(struct side *side, const struct operand *operand, const struct unit_choice *unit,
	       int blocks, const size_t *elements, bool scattered, struct random *local);
void side_free(struct side *side);

/* The same buffer again, all pattern. */
void side_clear(struct side *side);

/* The place of an element in the image's data. */
size_t side_position(const struct side *side, int block, size_t element);

/* From consecutive elements to their places in an image like this side's. */
void side_put(const struct side *side, struct image *image, int block, const void *elements,
	      size_t count);

const char *unit_name(enum unit_kind kind);

#endif
