/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* MPI's operations on operands, and some of the program's own: as handles for MPI, and written out
 * here to know the answers. */
#ifndef OPERATION_H
#define OPERATION_H

#include "operand.h"

struct affine { /* x -> a x + b */
	uint32_t a, b;
};

struct padded_affine {
	uint64_t a;
	uint32_t b;
	/* 4 bytes of padding */
};

struct matrix {
	uint32_t at[4];
};

/* The datatypes of these. */
extern MPI_Datatype operation_affine, operation_padded_affine, operation_matrix;

/* After MPI_Init. */
void operations_make(void);
void operations_free(void);

const char *operation_name(enum op op);
MPI_Op operation_handle(enum op op);

/* to[i] = to[i] op from[i] */
void operation_fold(void *to, const void *from, const struct operand *operand, size_t count,
		    enum op op);

/* Numbers of any width, exactly: an x87 long double has all bits of an int64_t. */
long double number_load(const void *from, size_t width, bool real);
void number_store(void *to, size_t width, bool real, long double value);

/* Not 0 after MPI called an operation of the program with another datatype than its own. */
extern volatile int operation_misused;

#endif
