/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A few calls of known sizes, to be compared with the statistics.
 */
#include <mpi.h>
#include <stdlib.h>

#include "persistent.h"
#include "program.h"

enum { LONGEST = 100, LARGE = 1 << 20 };

static const struct option_spec options[] = {{0}};

static void keep(void *in, void *inout, int *count, MPI_Datatype *datatype)
{
	(void)in;
	(void)inout;
	(void)count;
	(void)datatype;
}

/* Each rank has a count of its own: 100 elements of rank 0, 50 of each of the others. */
static void by_rank(void)
{
	int *counts = malloc((size_t)world_size * sizeof(int));
	int *displs = malloc((size_t)world_size * sizeof(int));
	double *all = calloc((size_t)world_size * LONGEST, sizeof(double));
	double mine[LONGEST] = {0};

	for (int rank = 0; rank < world_size; rank++) {
		counts[rank] = rank ? LONGEST / 2 : LONGEST;
		displs[rank] = rank * LONGEST;
	}
	MPI_Allgatherv(mine, counts[world_rank], MPI_DOUBLE, all, counts, displs, MPI_DOUBLE,
		       MPI_COMM_WORLD);
	MPI_Reduce_scatter(all, mine, counts, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	free(counts);
	free(displs);
	free(all);
}

static void derived(void)
{
	int values[12] = {0}, sum[12];
	MPI_Datatype pairs;
	MPI_Request request;
	MPI_Op op;

	/* 6 ints, one after the other but for a hole of as many. */
	MPI_Type_vector(3, 2, 4, MPI_INT, &pairs);
	MPI_Type_commit(&pairs);
	MPI_Bcast(values, 1, pairs, 0, MPI_COMM_WORLD);
	MPI_Type_free(&pairs);
	MPI_Op_create(keep, 1, &op);
	MPI_Allreduce(values, sum, 3, MPI_INT, op, MPI_COMM_WORLD);
	/* Left to MPI: it may not be called in the midst of another call. */
	MPI_Iallreduce(values, sum, 3, MPI_INT, op, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Op_free(&op);
}

static void persistent(void)
{
#if HAVE_PERSISTENT
	long long mine = 1, sum;
	MPI_Request request;

	PERSISTENT_NAME(Allreduce)
	(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
	for (int i = 0; i < 3; i++) {
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	MPI_Request_free(&request);
#endif
}

static void large(void)
{
	char *all = calloc(LARGE, 2);

	MPI_Allreduce(all, all + LARGE, LARGE, MPI_UNSIGNED_CHAR, MPI_MAX, MPI_COMM_WORLD);
	free(all);
}

int main(int argc, char **argv)
{
	int mine = 0, here[64];

	program_start("counted", &argc, &argv, options);
	by_rank();
	derived();
	persistent();
	large();
	MPI_Gather(&mine, 1, MPI_INT, here, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	say("counted: all ok");
	MPI_Finalize();
	return 0;
}
