/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "call.h"

#include <ctype.h>
#include <stdio.h>

#include "operation.h"

/* foldback's payload of one frame. Sizes around its multiples are where chunking goes wrong. */
enum { CHUNK = 1408 };

/* The smaller, the more often. */
static size_t choose_elements(size_t most, size_t size, struct random *random)
{
	uint64_t kind = random_below(random, 100);
	size_t elements;

	if (kind < 4)
		elements = 0;
	else if (kind < 25)
		elements = 1;
	else if (kind < 55)
		elements = 2 + random_below(random, 16);
	else if (kind < 65)
		elements =
		    CHUNK * (1 + random_below(random, 3)) / size + random_below(random, 3) - 1;
	else
		elements = random_below(random, (most >> random_below(random, 12)) + 1);
	return elements < most ? elements : most;
}

static enum op choose_op(unsigned allowed, struct random *random)
{
	enum op op;

	do
		op = (enum op)random_below(random, ALL_OPS);
	while (!(allowed & 1u << op));
	return op;
}

static bool can_be_in_place(enum collective collective)
{
	return collective != BCAST && collective != BARRIER;
}

/* So that derived datatypes can be made. */
static void choose_units(struct call *call, size_t most, struct random *random)
{
	static const size_t grains[] = {2, 3, 4, 6, 12, 32, 100};
	uint64_t kind = random_below(random, 100), grain = random_next(random);
	uint64_t whole = random_next(random);

	call->grain = 1;
	if (call->traits->reduces || kind < 50)
		return;
	call->units = kind < 70 ? UNITS_ALIKE : UNITS_MIXED;
	call->grain = grains[grain % (sizeof(grains) / sizeof(*grains))];
	if (whole % 4 == 0 && !call->traits->vector && call->elements)
		call->grain = call->elements; /* one of a derived datatype is all */
	else
		call->elements = (call->elements + call->grain - 1) / call->grain * call->grain;
	if (call->elements > most)
		call->elements = call->elements / 2 / call->grain * call->grain;
}

struct call call_choose(const struct call_limits *limits, uint64_t seed, uint64_t batch,
			uint64_t number, const struct team *where)
{
	struct random random = random_start(seed, batch, 0x20000u + number);
	struct call call = {.seed = seed, .id = batch << 16 | number << 4};
	uint64_t kind = random_next(&random), team = random_next(&random), root;
	size_t most;
	int operands;

	call.collective = limits->only >= 0 ? (enum collective)limits->only
					    : (enum collective)(kind % COLLECTIVES);
	call.traits = &collectives[call.collective];
	/* Half of the calls on MPI_COMM_WORLD. */
	call.team = where ? where : &limits->teams[team % 2 ? TEAM_WORLD : team / 2 % TEAMS];
	operands = call.traits->reduces ? limits->n_reducible : limits->n_operands;
	call.operand = &limits->operands[random_below(&random, (uint64_t)operands)];
	call.op = ALL_OPS;
	if (call.traits->reduces)
		call.op = choose_op(call.operand->operations, &random);
	call.flavour = (enum flavour)random_below(&random, FLAVOURS);
	most = (size_t)limits->max_bytes / call.operand->size;
	call.elements = choose_elements(most, call.operand->size, &random);
	call.in_place = random_below(&random, 4) == 0 && can_be_in_place(call.collective);
	call.form = (enum form)random_below(&random, FORMS);
	call.large = random_below(&random, 4) == 0;
	call.rounds = 1 + (unsigned)random_below(&random, 4);
	root = random_next(&random);
	choose_units(&call, most, &random);
	if (call.units == UNITS_ALIKE)
		call.unit = call_unit(&call, &random);
	/* Now what differs between ranks whose team has another size. */
	call.root = (int)(root % (uint64_t)call.team->size);
	if (call.traits->sends_blocks || call.traits->receives_blocks ||
	    call.collective == REDUCE_SCATTER || call.collective == REDUCE_SCATTER_BLOCK) {
		size_t share = most / (size_t)call.team->size / call.grain * call.grain;

		if (call.elements > share && call.elements > call.grain)
			call.elements = share > call.grain ? share : call.grain;
	}
	return call;
}

size_t call_block(const struct call *call, int from, int to)
{
	struct random random;

	if (!call->traits->vector)
		return call->elements;
	if (call->collective == GATHERV || call->collective == ALLGATHERV)
		to = 0;
	if (call->collective == SCATTERV || call->collective == REDUCE_SCATTER)
		from = 0;
	if (call->in_place && from > to) { /* an Alltoallv in place replaces like by like */
		int lower = to;

		to = from;
		from = lower;
	}
	random = random_start(call->seed, call->id, 0x30000u + (uint64_t)(from * 4096 + to));
	if (random_below(&random, 4) == 0)
		return 0;
	return random_below(&random, call->elements / call->grain + 1) * call->grain;
}

size_t call_total(const struct call *call)
{
	size_t total = 0;

	if (call->collective != REDUCE_SCATTER && call->collective != REDUCE_SCATTER_BLOCK)
		return call->elements;
	for (int rank = 0; rank < call->team->size; rank++)
		total += call_block(call, 0, rank);
	return total;
}

size_t call_bytes(const struct call *call)
{
	const struct collective_traits *traits = call->traits;
	size_t blocks = traits->sends_blocks || traits->receives_blocks ||
				call->collective == REDUCE_SCATTER ||
				call->collective == REDUCE_SCATTER_BLOCK
			    ? (size_t)call->team->size
			    : 1;

	return blocks * call->elements * call->operand->size;
}

struct unit_choice call_unit(const struct call *call, struct random *random)
{
	struct unit_choice unit = {.kind = (enum unit_kind)random_below(random, UNITS),
				   .elements = 1 + random_below(random, call->grain),
				   .gap = random_below(random, 3),
				   .absolute = random_below(random, 4) == 0};

	if (random_below(random, 2))
		unit.elements = call->grain;
	if (call->grain % unit.elements || unit.kind == UNIT_PLAIN)
		unit.elements = 1;
	return unit;
}

const char *call_describe(const struct call *call)
{
	static const char *const prefixes[FORMS] = {"", "I", ""};
	static const char *const units[] = {"", ", derived datatypes", ", each rank its datatypes"};
	static char text[256];
	char name[32], of[64] = "", root[24] = "";

	snprintf(name, sizeof(name), "%s", call->traits->name);
	if (call->form == NONBLOCKING)
		*name = (char)tolower(*name);
	if (call->traits->reduces)
		snprintf(of, sizeof(of), " %s", operation_name(call->op));
	if (call->traits->rooted)
		snprintf(root, sizeof(root), ", root %d", call->root);
	snprintf(text, sizeof(text), "%s%s%s%s%s of %s%zu %s%s%s%s on %s (%d ranks)",
		 prefixes[call->form], name, call->form == PERSISTENT ? "_init" : "",
		 call->large ? "_c" : "", of, call->traits->vector ? "up to " : "", call->elements,
		 call->operand->name, call->in_place ? " in place" : "", root, units[call->units],
		 call->team->name, call->team->size);
	return text;
}
