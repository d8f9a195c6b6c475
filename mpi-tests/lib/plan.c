/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "plan.h"

#include <stdio.h>

#include "random.h"

/* foldback's payload of one frame. Sizes around its multiples are where chunking goes wrong. */
enum { CHUNK = 1408 };

static size_t choose_elements(const struct plan_limits *limits, size_t size, struct random *random)
{
	uint64_t kind = random_below(random, 100);
	size_t most = (size_t)limits->max_bytes / size;
	size_t elements;

	if (limits->big_every && random_below(random, (uint64_t)limits->big_every) == 0) {
		size_t big = (size_t)limits->big_bytes;
		size_t least = big > 1 << 20 ? 1 << 20 : big / 2;

		return (least + random_below(random, big - least + 1)) / size;
	}
	if (kind < 5)
		return 0;
	if (kind < 20)
		return 1;
	if (kind < 40)
		elements = 2 + random_below(random, 16);
	else if (kind < 65)
		elements =
		    CHUNK * (1 + random_below(random, 4)) / size + random_below(random, 3) - 1;
	else
		/* As many small ones as large ones. */
		elements = random_below(random, (most >> random_below(random, 8)) + 1);
	return elements < most ? elements : most;
}

static enum collective choose_collective(struct random *random)
{
	uint64_t kind = random_below(random, 100);

	return kind < 40 ? ALLREDUCE : kind < 65 ? REDUCE : kind < 90 ? BCAST : BARRIER;
}

static enum op choose_op(unsigned allowed, struct random *random)
{
	enum op op;

	do
		op = (enum op)random_below(random, OPS);
	while (!(allowed & 1u << op));
	return op;
}

/* Half of the calls on MPI_COMM_WORLD. */
static const struct team *choose_team(const struct plan_limits *limits, struct random *random)
{
	return &limits->teams[random_below(random, 2) ? TEAM_WORLD : random_below(random, TEAMS)];
}

static void choose_signature(struct plan *plan, struct random *random)
{
	uint64_t kind = random_below(random, 100);

	plan->layout = (enum layout_kind)random_below(random, LAYOUTS);
	if (kind < 60)
		plan->signature = SIGNATURE_PLAIN;
	else if (kind < 80)
		plan->signature = SIGNATURE_SAME;
	else
		plan->signature = SIGNATURE_MIXED;
}

struct plan plan_call(const struct plan_limits *limits, uint64_t seed, uint64_t call)
{
	struct random random = random_start(seed, call, 0);
	struct plan plan = {.seed = seed, .call = call};
	uint64_t root, late;
	int types;

	plan.collective = choose_collective(&random);
	plan.team = choose_team(limits, &random);
	types = plan.collective == BCAST ? limits->n_types : limits->n_reducible;
	plan.type = &limits->types[random_below(&random, (uint64_t)types)];
	if (plan.type->ops)
		plan.op = choose_op(plan.type->ops, &random);
	plan.flavour = (enum flavour)random_below(&random, FLAVOURS);
	plan.elements = choose_elements(limits, plan.type->size, &random);
	plan.in_place = random_below(&random, 4) == 0;
	choose_signature(&plan, &random);
	root = random_next(&random);
	late = random_next(&random);
	/* Last, since these two are another number on ranks whose team has another size. */
	plan.root = (int)(root % (uint64_t)plan.team->size);
	plan.late = late % 64 ? -1 : (int)(late / 64 % (uint64_t)plan.team->size);
	return plan;
}

const char *plan_describe(const struct plan *plan)
{
	static char text[256];
	const char *in_place = plan->in_place ? " in place" : "";
	char what[160];

	switch (plan->collective) {
	case ALLREDUCE:
		snprintf(what, sizeof(what), "Allreduce %s of %zu %s%s", elements_op_name(plan->op),
			 plan->elements, plan->type->name, in_place);
		break;
	case REDUCE:
		snprintf(what, sizeof(what), "Reduce %s of %zu %s%s to %d",
			 elements_op_name(plan->op), plan->elements, plan->type->name, in_place,
			 plan->root);
		break;
	case BCAST:
		snprintf(what, sizeof(what), "Bcast of %zu %s (%s) from %d", plan->elements,
			 plan->type->name,
			 plan->signature == SIGNATURE_PLAIN  ? "plain"
			 : plan->signature == SIGNATURE_SAME ? layout_name(plan->layout)
							     : "each rank another datatype",
			 plan->root);
		break;
	default:
		snprintf(what, sizeof(what), "Barrier");
	}
	snprintf(text, sizeof(text), "seed %llu call %llu: %s on %s (%d ranks)",
		 (unsigned long long)plan->seed, (unsigned long long)plan->call, what,
		 plan->team->name, plan->team->size);
	return text;
}
