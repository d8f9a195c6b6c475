/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One random collective call: a pure function of (seed, batch, number), so that all ranks agree.
 * Only the datatypes may be each rank's own choice. */
#ifndef CALL_H
#define CALL_H

#include "collective.h"
#include "operand.h"
#include "side.h"
#include "team.h"

enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };

/* How datatypes are chosen where data is only moved. */
enum units {
	UNITS_PLAIN, /* the basic ones */
	UNITS_ALIKE, /* derived ones, the same on all ranks */
	UNITS_MIXED, /* each rank its own, with the same signature */
};

struct call_limits {
	long max_bytes; /* of all blocks together */
	const struct operand *operands;
	int n_operands;
	int n_reducible;
	struct team *teams;
	int only; /* this collective alone; -1: all */
};

struct call {
	uint64_t seed;
	uint64_t id; /* of the data: of batch and number */
	enum collective collective;
	const struct collective_traits *traits;
	const struct team *team;
	const struct operand *operand;
	enum op op;
	enum flavour flavour;
	size_t elements; /* of a block; vector forms: of the largest */
	size_t grain;	 /* blocks are multiples of so many elements */
	int root;
	bool in_place;
	enum units units;
	struct unit_choice unit; /* UNITS_ALIKE */
	enum form form;
	bool large;	 /* by the functions that take an MPI_Count */
	unsigned rounds; /* PERSISTENT: how often it is started */
};

/* `where`: the team, or NULL for any. */
struct call call_choose(const struct call_limits *limits, uint64_t seed, uint64_t batch,
			uint64_t number, const struct team *where);

/* Elements that rank `from` of the team brings for rank `to`. */
size_t call_block(const struct call *call, int from, int to);

/* Elements that a reduction takes from each rank. */
size_t call_total(const struct call *call);

/* The bytes of all that one rank sends or receives, at most; the same on all ranks. */
size_t call_bytes(const struct call *call);

/* Some datatype that the call allows. */
struct unit_choice call_unit(const struct call *call, struct random *random);

/* "Ireduce MPI_SUM of 17 MPI_INT to 3 on MPI_COMM_WORLD (8 ranks)" */
const char *call_describe(const struct call *call);

#endif
