/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Inputs and operations by which the order of a reduction shows: numbers of unlike magnitudes, and
 * operations of the program's own that do not commute or associate.
 */
#ifndef KIND_H
#define KIND_H

#include "elements.h"
#include "random.h"

enum { KINDS = 16 };

#define OWN OWN_CHAIN /* the kind's own operation */

struct kind {
	const char *name;
	MPI_Datatype type;
	size_t extent;
	uint64_t significant; /* 1 << i: byte i is not padding */
	void (*fill)(void *to, struct random *random, enum op op, bool special);
	void (*fold)(void *left, const void *right, enum op op); /* left = left op right */
	enum op ops[4];
	int n_ops;
	bool waits_too; /* folded in forms that do not block, too */
};

extern struct kind kinds[KINDS];
extern int n_kinds;

/* After MPI_Init. */
void kinds_make(void);
void kinds_free(void);

MPI_Op kind_op(const struct kind *kind, enum op op);

#endif
