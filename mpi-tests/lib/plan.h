/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Collective call number N of a test: a pure function of (seed, N), so that all ranks agree and any
 * one call can be repeated alone. */
#ifndef PLAN_H
#define PLAN_H

#include "collective.h"
#include "elements.h"
#include "layout.h"
#include "team.h"

/* How the datatypes of a Bcast are chosen. */
enum signature {
	SIGNATURE_PLAIN, /* basic types */
	SIGNATURE_SAME,	 /* the same derived type everywhere */
	SIGNATURE_MIXED, /* each rank another one, with the same signature */
};

struct plan_limits {
	long max_bytes; /* of most calls */
	long big_every; /* one call in so many is big; 0: none */
	long big_bytes; /* of a big call, at most */
	const struct type *types;
	int n_types;
	int n_reducible;
	struct team *teams;
};

struct plan {
	uint64_t seed;
	uint64_t call;
	enum collective collective; /* Allreduce, Reduce, Bcast or Barrier */
	const struct team *team;
	const struct type *type;
	enum op op;
	enum flavour flavour;
	size_t elements;
	int root; /* in the team; the teams of one kind may differ in size, and so in root */
	bool in_place;
	enum signature signature;
	enum layout_kind layout; /* SIGNATURE_SAME */
	int late;		 /* rank in the team that comes 1 ms late, or -1 */
};

struct plan plan_call(const struct plan_limits *limits, uint64_t seed, uint64_t call);

/* "Reduce MPI_SUM of 17 MPI_INT to 3 on MPI_COMM_WORLD (8 ranks)" */
const char *plan_describe(const struct plan *plan);

#endif
