/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Everything that MPI moves and reduces: the integers of elements.h, truth values, floating point,
 * pairs, and the program's own structures; with MPI's operations and some of the program's own.
 *
 * All inputs are chosen such that every order of evaluation gives the same bits, but for the
 * program's operations that do not commute: those need the order of ranks.
 */
#ifndef OPERAND_H
#define OPERAND_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elements.h"

enum value {
	INTEGER, /* as in elements.h */
	TRUTH,	 /* 0 or 1 */
	REAL,
	COMPLEX,
	PAIR,
	AFFINE, /* x -> a x + b */
	MATRIX, /* 2 by 2 */
};

struct operand {
	const char *name;
	MPI_Datatype handle;
	size_t size;	      /* from one to the next */
	uint64_t significant; /* 1 << i: byte i is not padding */
	enum value value;
	size_t width;		 /* of each number in it */
	size_t second;		 /* where the second of a PAIR is */
	bool real[2];		 /* PAIR: is this one floating point? */
	unsigned operations;	 /* that MPI allows, 1 << enum op; 0: it can only be moved */
	const struct type *type; /* INTEGER */
};

/* Fills in the table; to be called after MPI_Init and operations_make(). `*reducible` of them come
 * first. */
int operands_make(const struct operand **operands, int *reducible);

/* Writes `count` elements, the same for the same (seed, call, stream). `op`: what they are for,
 * or ALL_OPS. */
void operand_input(void *to, const struct operand *operand, size_t count, enum flavour flavour,
		   enum op op, uint64_t seed, uint64_t call, uint64_t stream);

/* Whether two elements are equal: padding does not count, and -0 is 0. */
bool operand_same(const void *a, const void *b, const struct operand *operand);

/* "0x11 0x22…": the bytes of an element. */
const char *operand_text(char *text, size_t size, const void *from, const struct operand *operand);

#endif
