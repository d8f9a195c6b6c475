/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Element types, reduction operations, and what MPI says that they do to integers. Written from
 * the standard's text (MPI-4.0, 6.9.2), and apart from any implementation on purpose: this is what
 * answers are compared with.
 */
#ifndef ELEMENTS_H
#define ELEMENTS_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum op {
	SUM,
	PROD,
	MIN,
	MAX,
	BAND,
	BOR,
	BXOR,
	LAND,
	LOR,
	LXOR,
	OPS, /* so many are of integers; the others are operand.h's */

	MINLOC = OPS,
	MAXLOC,
	OWN_COUNT,    /* a + b + 1; commutes */
	OWN_FIRST,    /* a */
	OWN_CHAIN,    /* one affine map after the other */
	OWN_ADD,      /* of matrices; commutes */
	OWN_MULTIPLY, /* of matrices */
	ALL_OPS,
};

struct type {
	const char *name;
	MPI_Datatype handle;
	size_t size;
	bool is_signed;
	unsigned ops; /* the operations that MPI allows, 1 << enum op; 0: it can only be moved */
};

/* Kinds of inputs. */
enum flavour {
	FLAVOUR_ANY,	 /* every bit random */
	FLAVOUR_SMALL,	 /* -8 .. 7, or 0 .. 15 */
	FLAVOUR_EXTREME, /* 0, 1, all ones, and the ends of the range and their neighbours */
	FLAVOUR_SPARSE,	 /* mostly 0: both answers of the logical operations */
	FLAVOURS,
};

/* Fills in the table of types; to be called after MPI_Init. Types that this MPI lacks are left out.
 * Returns their number; types with operations come first, `*reducible` of them. */
int elements_types(const struct type **types, int *reducible);

const char *elements_op_name(enum op op);
MPI_Op elements_op(enum op op);

/* Writes the `count` elements that rank `rank` brings to call `call`. */
void elements_input(void *to, const struct type *type, size_t count, enum flavour flavour,
		    uint64_t seed, uint64_t call, int rank);

/* to[i] = to[i] op from[i] */
void elements_fold(void *to, const void *from, const struct type *type, size_t count, enum op op);

/* One element's bits, zero-extended; of types wider than 64 bits, the first 64. */
uint64_t elements_bits(const void *from, const struct type *type);

#endif
