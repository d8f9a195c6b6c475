/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Right calls that foldback leaves to MPI: reductions other than of integers that are long, or that
 * do not block and cannot be folded without MPI's help; intercommunicators; Gatherv. An interposed
 * library must leave them alone, and is asked for others of their kind, which it folds, in between.
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

/* More than any limit that is tested with. */
static void long_vectors(void)
{
	enum { LENGTH = 20000 };
	static double mine[LENGTH], sums[LENGTH];

	for (int i = 0; i < LENGTH; i++)
		mine[i] = world_rank + i * 0.5;
	MPI_Allreduce(mine, sums, LENGTH, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < LENGTH; i++)
		check(sums[i] == world_size * (world_size - 1 + i) / 2.0, "sums of many doubles");
}

/* MPI's help is to be had in calls of the program only, and its operations may be gone by the end.
 */
static void first(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *count; i++)
		((int *)inout)[i] = ((int *)in)[i];
}

static void not_blocking(void)
{
	long double mine = world_rank, sum = -1;
	int value = world_rank + 5, of_first = -1;
	MPI_Request requests[2];
	MPI_Op op;

	MPI_Op_create(first, 0, &op);
	MPI_Iallreduce(&mine, &sum, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
	MPI_Iallreduce(&value, &of_first, 1, MPI_INT, op, MPI_COMM_WORLD, &requests[1]);
	MPI_Op_free(&op);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	check(sum == world_size * (world_size - 1) / 2, "sum of long doubles, not blocking");
	check(of_first == 5, "the program's own operation, not blocking");
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

/* The root alone knows the counts. */
static void gatherv(int *values, int mine)
{
	int *ones = malloc((size_t)world_size * sizeof(int));
	int *places = malloc((size_t)world_size * sizeof(int));

	for (int rank = 0; rank < world_size; rank++) {
		ones[rank] = 1;
		places[rank] = world_size - 1 - rank;
	}
	MPI_Gatherv(&mine, 1, MPI_INT, values, ones, places, MPI_INT, 0, MPI_COMM_WORLD);
	for (int rank = 0; rank < world_size && !world_rank; rank++)
		check(values[places[rank]] == rank * 3, "Gatherv");
	free(ones);
	free(places);
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
	gatherv(values, mine);
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
	watch(PATIENCE, "all of it");
	for (long i = 0; i < rounds; i++) {
		integers();
		floating_point();
		long_vectors();
		not_blocking();
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
