/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Prints what each rank gets from neighbours that it has more than once: in periodic dimensions of
 * 1 and 2, and in a graph with repeated edges. MPIs differ in the order of such blocks, so this
 * program checks nothing: its output with foldback is to be its output without.
 *
 * For an even number of ranks.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

enum { MOST = 6 };

static long rounds = 20;

static const struct option_spec options[] = {
    {"--rounds", OPTION_NUMBER, &rounds, "calls of each collective, which must agree (20)"},
    {0},
};

static int counts[MOST], displs[MOST];
static MPI_Aint places[MOST];
static MPI_Datatype types[MOST];

static void alltoall(const int *from, int *to, MPI_Comm comm)
{
	MPI_Neighbor_alltoall(from, 1, MPI_INT, to, 1, MPI_INT, comm);
}

static void alltoallv(const int *from, int *to, MPI_Comm comm)
{
	MPI_Neighbor_alltoallv(from, counts, displs, MPI_INT, to, counts, displs, MPI_INT, comm);
}

static void alltoallw(const int *from, int *to, MPI_Comm comm)
{
	MPI_Neighbor_alltoallw(from, counts, places, types, to, counts, places, types, comm);
}

static void wait_for(MPI_Request *request)
{
	MPI_Wait(request, MPI_STATUS_IGNORE);
}

static void ialltoall(const int *from, int *to, MPI_Comm comm)
{
	MPI_Request request;

	MPI_Ineighbor_alltoall(from, 1, MPI_INT, to, 1, MPI_INT, comm, &request);
	wait_for(&request);
}

static void ialltoallv(const int *from, int *to, MPI_Comm comm)
{
	MPI_Request request;

	MPI_Ineighbor_alltoallv(from, counts, displs, MPI_INT, to, counts, displs, MPI_INT, comm,
				&request);
	wait_for(&request);
}

static const struct {
	const char *name;
	void (*run)(const int *from, int *to, MPI_Comm comm);
} collectives[] = {
    {"Neighbor_alltoall", alltoall},	 {"Neighbor_alltoallv", alltoallv},
    {"Neighbor_alltoallw", alltoallw},	 {"Ineighbor_alltoall", ialltoall},
    {"Ineighbor_alltoallv", ialltoallv},
};

/* Prints what came, by rank. */
static void tell(const char *place, const char *name, const int *got)
{
	int all[64 * MOST];

	MPI_Gather(got, MOST, MPI_INT, all, MOST, MPI_INT, 0, MPI_COMM_WORLD);
	for (int rank = 0; rank < world_size && world_rank == 0; rank++) {
		const int *of = all + (size_t)rank * MOST;

		say("wraps: %s, %s, rank %d: %d %d %d %d %d %d", place, name, rank, of[0], of[1],
		    of[2], of[3], of[4], of[5]);
	}
}

/* Each block has its sender's rank and its number there. */
static void try_all(const char *place, MPI_Comm comm)
{
	int from[MOST], first[MOST], got[MOST];

	for (int i = 0; i < MOST; i++)
		from[i] = 10 * world_rank + i;
	for (size_t i = 0; i < sizeof(collectives) / sizeof(*collectives); i++) {
		for (long round = 0; round < rounds; round++) {
			memset(got, 0xff, sizeof(got));
			collectives[i].run(from, got, comm);
			if (round && memcmp(first, got, sizeof(got)) != 0)
				fail("%s: %s is in another order in round %ld", place,
				     collectives[i].name, round);
			memcpy(first, got, sizeof(got));
		}
		tell(place, collectives[i].name, got);
	}
	MPI_Comm_free(&comm);
}

static void grid(const char *name, int first, int second)
{
	int dims[] = {first, second}, periods[] = {1, 1};
	MPI_Comm comm;

	MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &comm);
	try_all(name, comm);
}

/* Two edges to the next rank, one to the rank before. */
static void graph(void)
{
	int next = (world_rank + 1) % world_size,
	    before = (world_rank + world_size - 1) % world_size;
	int sources[] = {before, before, next}, targets[] = {next, next, before};
	int weights[] = {1, 1, 1};
	MPI_Comm comm;

	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 3, sources, weights, 3, targets, weights,
				       MPI_INFO_NULL, 0, &comm);
	try_all("repeated edges", comm);
}

int main(int argc, char **argv)
{
	program_start("wraps", &argc, &argv, options);
	for (int i = 0; i < MOST; i++) {
		counts[i] = 1;
		displs[i] = i;
		places[i] = (MPI_Aint)(i * sizeof(int));
		types[i] = MPI_INT;
	}
	grid("a dimension of 1", world_size, 1);
	grid("a dimension of 2", 2, world_size / 2);
	graph();
	if (world_rank == 0)
		say("wraps: all ok");
	MPI_Finalize();
	return 0;
}
