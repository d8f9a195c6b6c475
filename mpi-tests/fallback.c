/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Right calls that no integer fold can take: floating point, pairs, the program's own operations,
 * derived types, intercommunicators, collectives of another kind. The answers are MPI's business;
 * an interposed library must leave them alone, and is asked for integers in between.
 */
#include <mpi.h>
#include <stdlib.h>

#include "program.h"

static long rounds = 20;

static const struct option_spec options[] = {
    {"--rounds", OPTION_NUMBER, &rounds, "how often to make each call (20)"},
    {0},
};

static void check(int right, const char *what)
{
	if (!right)
		fail("%s: wrong answer", what);
}

static void integers(void)
{
	int sum = -1;

	MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	check(sum == world_size * (world_size - 1) / 2, "sum of integers");
}

static void floating_point(void)
{
	double mine = world_rank + 0.5, sum = 0;
	float most = 0, value = (float)world_rank;

	/* Halves: exact in any order. */
	MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	check(sum == world_size * world_size / 2.0, "sum of doubles");
	MPI_Reduce(&value, &most, 1, MPI_FLOAT, MPI_MAX, 0, MPI_COMM_WORLD);
	check(world_rank || most == (float)(world_size - 1), "maximum of floats");
}

static void pairs(void)
{
	struct {
		int value, where;
	} mine = {(world_rank * 7 + 3) % world_size, world_rank}, most = {-1, -1};

	MPI_Allreduce(&mine, &most, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD);
	check((most.where * 7 + 3) % world_size == most.value, "MPI_MAXLOC");
}

/* a x + b after another: associative, not commutative. */
static void compose(void *in, void *out, int *count, MPI_Datatype *type)
{
	unsigned *first = in, *second = out;

	(void)type;
	for (int i = 0; i < *count; i++, first += 2, second += 2) {
		unsigned a = second[0] * first[0], b = second[0] * first[1] + second[1];

		second[0] = a;
		second[1] = b;
	}
}

static void own_operation(void)
{
	unsigned mine[2] = {2 * (unsigned)world_rank + 3, (unsigned)world_rank + 1}, all[2];
	unsigned a = 1, b = 0;
	MPI_Datatype pair;
	MPI_Op op;

	MPI_Type_contiguous(2, MPI_UNSIGNED, &pair);
	MPI_Type_commit(&pair);
	MPI_Op_create(compose, 0, &op);
	MPI_Allreduce(mine, all, 1, pair, op, MPI_COMM_WORLD);
	for (unsigned rank = 0; rank < (unsigned)world_size; rank++) {
		b = (2 * rank + 3) * b + rank + 1;
		a *= 2 * rank + 3;
	}
	check(all[0] == a && all[1] == b, "the program's own operation");
	MPI_Op_free(&op);
	MPI_Type_free(&pair);
}

static void other_collectives(void)
{
	int *values = malloc((size_t)world_size * sizeof(int)), mine = world_rank * 3, before = -1;

	MPI_Allgather(&mine, 1, MPI_INT, values, 1, MPI_INT, MPI_COMM_WORLD);
	for (int rank = 0; rank < world_size; rank++)
		check(values[rank] == rank * 3, "Allgather");
	MPI_Scan(&mine, &before, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	check(before == 3 * world_rank * (world_rank + 1) / 2, "Scan");
	MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INT, values, 1, MPI_INT, MPI_COMM_WORLD);
	for (int rank = 0; rank < world_size; rank++)
		check(values[rank] == world_rank * 3, "Alltoall");
	free(values);
}

static void intercommunicator(void)
{
	int upper = world_rank > 0, value = upper ? -1 : 42;
	MPI_Comm half, inter;

	MPI_Comm_split(MPI_COMM_WORLD, upper, 0, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, upper ? 0 : 1, 5, &inter);
	MPI_Bcast(&value, 1, MPI_INT, upper ? 0 : MPI_ROOT, inter);
	check(value == 42, "Bcast over an intercommunicator");
	MPI_Barrier(inter);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
	program_start("fallback", &argc, &argv, options);
	if (world_size < 2)
		fail("needs at least 2 ranks");
	watch(120, "all of it");
	for (long i = 0; i < rounds; i++) {
		integers();
		floating_point();
		pairs();
		integers();
		own_operation();
		other_collectives();
		intercommunicator();
	}
	say("fallback: all ok, %d ranks", world_size);
	MPI_Finalize();
	return 0;
}
