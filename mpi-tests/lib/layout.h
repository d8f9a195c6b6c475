/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Datatypes with the same signature (`elements` of one basic type) and different maps. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include "elements.h"
#include "random.h"

enum layout_kind {
	LAYOUT_PLAIN,	   /* the basic type itself */
	LAYOUT_CONTIGUOUS, /* MPI_Type_contiguous */
	LAYOUT_VECTOR,	   /* MPI_Type_vector with gaps */
	LAYOUT_BACKWARDS,  /* MPI_Type_create_indexed_block, last block first */
	LAYOUTS,
};

struct layout {
	enum layout_kind kind;
	MPI_Datatype handle;
	int count; /* to pass to MPI along with `handle` */
	size_t elements;
	size_t size;  /* of an element */
	size_t block; /* elements that stay together */
	size_t gap;   /* elements left out between blocks */
};

/* `random` chooses the blocks. If `elements` cannot be cut that way, the layout is plain. */
struct layout layout_make(enum layout_kind kind, const struct type *type, size_t elements,
			  struct random *random);
void layout_free(struct layout *layout);

size_t layout_bytes(const struct layout *layout);		     /* gaps included */
size_t layout_position(const struct layout *layout, size_t element); /* in bytes */

/* From consecutive elements to the layout's places. */
void layout_scatter(const struct layout *layout, void *to, const void *from);

const char *layout_name(enum layout_kind kind);

#endif
