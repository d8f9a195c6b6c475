/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Calls that are wrong on one rank alone, which its MPI refuses before it sends anything: they
 * never happened, and the rank makes up for each by a right one. The other ranks see right calls
 * only, so the answers are right, and nobody waits for a rank that is one call ahead.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "persistent.h"
#include "program.h"

static long rounds = 3, only = -1, folded;

static const struct option_spec options[] = {
    {"--rounds", OPTION_NUMBER, &rounds, "wrong calls of each kind"},
    {"--only", OPTION_NUMBER, &only, "number of the one kind to make"},
    {"--folded", OPTION_FLAG, &folded, "also calls whose ends do not match, after which MPIs hang"},
    {0},
};

/* Calls, all right, after each wrong one: enough for ways to be compared, and others chosen. */
enum { CALLS = 60 };
enum { COUNT = 5, MOST_RANKS = 64, ROOM = COUNT * MOST_RANKS };

/* MPIs that do not refuse a wrong call, or end by it. */
enum { OPEN_MPIS = 1, MPICHS = 2 };

/* Room for one element more than all ranks have. */
static int values[ROOM + 1], others[ROOM + 1], counts[MOST_RANKS], places[MOST_RANKS];
static int negative[MOST_RANKS], bytes[MOST_RANKS]; /* places of Alltoallw */
static MPI_Datatype types[MOST_RANKS], no_types[MOST_RANKS];
static int beyond; /* a root beyond the last */
static MPI_Comm world, ring;

static void bring(void)
{
	for (int i = 0; i <= ROOM; i++) {
		values[i] = world_rank + i;
		others[i] = -1;
	}
}

/* Sum over the ranks of what they bring at `at`. */
static int sum_at(int at)
{
	return world_size * (world_size - 1) / 2 + world_size * at;
}

static int right_bcast(void)
{
	MPI_Bcast(values, COUNT, MPI_INT, 0, world);
	return values[COUNT - 1] == COUNT - 1;
}

static int right_ibcast(void)
{
	MPI_Request request;

	MPI_Ibcast(values, COUNT, MPI_INT, 0, world, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	return values[COUNT - 1] == COUNT - 1;
}

static int right_reduce(void)
{
	MPI_Reduce(values, others, COUNT, MPI_INT, MPI_SUM, 0, world);
	return world_rank || others[1] == sum_at(1);
}

static int right_allreduce(void)
{
	MPI_Allreduce(values, others, COUNT, MPI_INT, MPI_SUM, world);
	return others[1] == sum_at(1);
}

static int right_real(void)
{
	double mine = world_rank, sum = -1;

	MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, world);
	return sum == sum_at(0);
}

static int right_scan(void)
{
	MPI_Scan(values, others, COUNT, MPI_INT, MPI_SUM, world);
	return others[0] == world_rank * (world_rank + 1) / 2;
}

static int right_block(void)
{
	MPI_Reduce_scatter_block(values, others, COUNT, MPI_INT, MPI_SUM, world);
	return others[0] == sum_at(world_rank * COUNT);
}

static int right_gather(void)
{
	MPI_Gather(values, COUNT, MPI_INT, others, COUNT, MPI_INT, 0, world);
	return world_rank || others[COUNT + 1] == 2;
}

static int right_scatter(void)
{
	MPI_Scatter(values, COUNT, MPI_INT, others, COUNT, MPI_INT, 0, world);
	return others[1] == world_rank * COUNT + 1;
}

static int right_allgather(void)
{
	MPI_Allgather(values, COUNT, MPI_INT, others, COUNT, MPI_INT, world);
	return others[COUNT + 1] == 2;
}

static int right_allgatherv(void)
{
	MPI_Allgatherv(values, COUNT, MPI_INT, others, counts, places, MPI_INT, world);
	return others[COUNT + 1] == 2;
}

static int right_alltoall(void)
{
	MPI_Alltoall(values, COUNT, MPI_INT, others, COUNT, MPI_INT, world);
	return others[COUNT] == 1 + world_rank * COUNT;
}

static int right_gatherv(void)
{
	MPI_Gatherv(values, COUNT, MPI_INT, others, counts, places, MPI_INT, 0, world);
	return world_rank || others[COUNT + 1] == 2;
}

static int right_scatterv(void)
{
	MPI_Scatterv(values, counts, places, MPI_INT, others, COUNT, MPI_INT, 0, world);
	return others[1] == world_rank * COUNT + 1;
}

static int right_alltoallv(void)
{
	MPI_Alltoallv(values, counts, places, MPI_INT, others, counts, places, MPI_INT, world);
	return others[COUNT] == 1 + world_rank * COUNT;
}

static int right_alltoallw(void)
{
	MPI_Alltoallw(values, counts, bytes, types, others, counts, bytes, types, world);
	return others[COUNT] == 1 + world_rank * COUNT;
}

/* The first block is of the rank before, or of the only other one. */
static int is_of_before(void)
{
	return others[0] - (world_rank + world_size - 1) % world_size;
}

static int right_neighbor_allgather(void)
{
	MPI_Neighbor_allgather(values, COUNT, MPI_INT, others, COUNT, MPI_INT, ring);
	return is_of_before() == 0;
}

static int right_neighbor_alltoall(void)
{
	MPI_Neighbor_alltoall(values, COUNT, MPI_INT, others, COUNT, MPI_INT, ring);
	return world_size == 2 || is_of_before() == COUNT;
}

static int right_neighbor_alltoallv(void)
{
	MPI_Neighbor_alltoallv(values, counts, places, MPI_INT, others, counts, places, MPI_INT,
			       ring);
	return world_size == 2 || is_of_before() == COUNT;
}

#if HAVE_PERSISTENT
static int right_persistent(void)
{
	MPI_Request request;

	PERSISTENT_NAME(Bcast)(values, COUNT, MPI_INT, 0, world, MPI_INFO_NULL, &request);
	MPI_Start(&request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Request_free(&request);
	return values[COUNT - 1] == COUNT - 1;
}
#endif

/* Each row: the MPIs that do not refuse it, or not without harm, a name for C, one for people, the
 * wrong call, the right one. */
#define ROWS(X)                                                                                    \
	X(0, bcast_root, "Bcast from a root beyond the last",                                      \
	  MPI_Bcast(values, COUNT, MPI_INT, beyond, world), right_bcast)                           \
	X(0, bcast_type, "Bcast of MPI_DATATYPE_NULL",                                             \
	  MPI_Bcast(values, COUNT, MPI_DATATYPE_NULL, 0, world), right_bcast)                      \
	X(OPEN_MPIS, bcast_null, "Bcast of a null buffer",                                         \
	  MPI_Bcast(NULL, COUNT, MPI_INT, 0, world), right_bcast)                                  \
	X(0, ibcast_root, "Ibcast from a root beyond the last",                                    \
	  MPI_Ibcast(values, COUNT, MPI_INT, beyond, world, &(MPI_Request){0}), right_ibcast)      \
	X(0, reduce_root, "Reduce to a root beyond the last",                                      \
	  MPI_Reduce(values, others, COUNT, MPI_INT, MPI_SUM, beyond, world), right_reduce)        \
	X(OPEN_MPIS, reduce_null, "Reduce of a null buffer",                                       \
	  MPI_Reduce(NULL, others, COUNT, MPI_INT, MPI_SUM, 0, world), right_reduce)               \
	X(0, all_in_place, "Allreduce to MPI_IN_PLACE",                                            \
	  MPI_Allreduce(values, MPI_IN_PLACE, COUNT, MPI_INT, MPI_SUM, world), right_allreduce)    \
	X(0, all_op, "Allreduce by MPI_OP_NULL",                                                   \
	  MPI_Allreduce(values, others, COUNT, MPI_INT, MPI_OP_NULL, world), right_allreduce)      \
	X(OPEN_MPIS, all_null, "Allreduce to a null buffer",                                       \
	  MPI_Allreduce(values, NULL, COUNT, MPI_INT, MPI_SUM, world), right_allreduce)            \
	X(0, real_in_place, "Allreduce of MPI_DOUBLE to MPI_IN_PLACE",                             \
	  MPI_Allreduce(values, MPI_IN_PLACE, 1, MPI_DOUBLE, MPI_SUM, world), right_real)          \
	X(0, scan_in_place, "Scan to MPI_IN_PLACE",                                                \
	  MPI_Scan(values, MPI_IN_PLACE, COUNT, MPI_INT, MPI_SUM, world), right_scan)              \
	X(OPEN_MPIS, block_null, "Reduce_scatter_block of a null buffer",                          \
	  MPI_Reduce_scatter_block(NULL, others, COUNT, MPI_INT, MPI_SUM, world), right_block)     \
	X(0, gather_root, "Gather to a root beyond the last",                                      \
	  MPI_Gather(values, COUNT, MPI_INT, others, COUNT, MPI_INT, beyond, world), right_gather) \
	X(0, gather_count, "Gather of -1 elements",                                                \
	  MPI_Gather(values, -1, MPI_INT, others, COUNT, MPI_INT, 0, world), right_gather)         \
	X(0, scatter_root, "Scatter from a root beyond the last",                                  \
	  MPI_Scatter(values, COUNT, MPI_INT, others, COUNT, MPI_INT, beyond, world),              \
	  right_scatter)                                                                           \
	X(0, scatter_type, "Scatter to MPI_DATATYPE_NULL",                                         \
	  MPI_Scatter(values, COUNT, MPI_INT, others, COUNT, MPI_DATATYPE_NULL, 0, world),         \
	  right_scatter)                                                                           \
	X(0, allgather_count, "Allgather of -1 elements",                                          \
	  MPI_Allgather(values, -1, MPI_INT, others, COUNT, MPI_INT, world), right_allgather)      \
	X(0, allgather_type, "Allgather of MPI_DATATYPE_NULL",                                     \
	  MPI_Allgather(values, COUNT, MPI_DATATYPE_NULL, others, COUNT, MPI_INT, world),          \
	  right_allgather)                                                                         \
	X(0, allgather_in_place, "Allgather to MPI_IN_PLACE",                                      \
	  MPI_Allgather(values, COUNT, MPI_INT, MPI_IN_PLACE, COUNT, MPI_INT, world),              \
	  right_allgather)                                                                         \
	X(OPEN_MPIS, allgatherv_count, "Allgatherv of -1 elements",                                \
	  MPI_Allgatherv(values, COUNT, MPI_INT, others, negative, places, MPI_INT, world),        \
	  right_allgatherv)                                                                        \
	X(0, alltoall_count, "Alltoall of -1 elements",                                            \
	  MPI_Alltoall(values, -1, MPI_INT, others, COUNT, MPI_INT, world), right_alltoall)        \
	X(0, alltoall_type, "Alltoall of MPI_DATATYPE_NULL",                                       \
	  MPI_Alltoall(values, COUNT, MPI_DATATYPE_NULL, others, COUNT, MPI_INT, world),           \
	  right_alltoall)                                                                          \
	X(0, gatherv_root, "Gatherv to a root beyond the last",                                    \
	  MPI_Gatherv(values, COUNT, MPI_INT, others, counts, places, MPI_INT, beyond, world),     \
	  right_gatherv)                                                                           \
	X(0, gatherv_count, "Gatherv of -1 elements",                                              \
	  MPI_Gatherv(values, -1, MPI_INT, others, negative, places, MPI_INT, 0, world),           \
	  right_gatherv)                                                                           \
	X(0, scatterv_root, "Scatterv from a root beyond the last",                                \
	  MPI_Scatterv(values, counts, places, MPI_INT, others, COUNT, MPI_INT, beyond, world),    \
	  right_scatterv)                                                                          \
	X(0, scatterv_type, "Scatterv to MPI_DATATYPE_NULL",                                       \
	  MPI_Scatterv(values, counts, places, MPI_INT, others, COUNT, MPI_DATATYPE_NULL, 0,       \
		       world),                                                                     \
	  right_scatterv)                                                                          \
	X(0, alltoallv_count, "Alltoallv of -1 elements",                                          \
	  MPI_Alltoallv(values, negative, places, MPI_INT, others, counts, places, MPI_INT,        \
			world),                                                                    \
	  right_alltoallv)                                                                         \
	X(0, alltoallv_type, "Alltoallv to MPI_DATATYPE_NULL",                                     \
	  MPI_Alltoallv(values, counts, places, MPI_INT, others, counts, places,                   \
			MPI_DATATYPE_NULL, world),                                                 \
	  right_alltoallv)                                                                         \
	X(0, alltoallw_count, "Alltoallw of -1 elements",                                          \
	  MPI_Alltoallw(values, negative, bytes, types, others, counts, bytes, types, world),      \
	  right_alltoallw)                                                                         \
	X(0, alltoallw_type, "Alltoallw of MPI_DATATYPE_NULL",                                     \
	  MPI_Alltoallw(values, counts, bytes, no_types, others, counts, bytes, types, world),     \
	  right_alltoallw)                                                                         \
	X(0, neighbor_allgather_count, "Neighbor_allgather of -1 elements",                        \
	  MPI_Neighbor_allgather(values, -1, MPI_INT, others, COUNT, MPI_INT, ring),               \
	  right_neighbor_allgather)                                                                \
	X(0, neighbor_alltoall_type, "Neighbor_alltoall of MPI_DATATYPE_NULL",                     \
	  MPI_Neighbor_alltoall(values, COUNT, MPI_DATATYPE_NULL, others, COUNT, MPI_INT, ring),   \
	  right_neighbor_alltoall)                                                                 \
	X(0, neighbor_alltoallv_count, "Neighbor_alltoallv of -1 elements",                        \
	  MPI_Neighbor_alltoallv(values, negative, places, MPI_INT, others, counts, places,        \
				 MPI_INT, ring),                                                   \
	  right_neighbor_alltoallv)                                                                \
	X(0, neighbor_alltoallv_comm, "Neighbor_alltoallv without neighbours",                     \
	  MPI_Neighbor_alltoallv(values, counts, places, MPI_INT, others, counts, places, MPI_INT, \
				 world),                                                           \
	  right_neighbor_alltoallv)

#if HAVE_PERSISTENT
#define PERSISTENT_ROWS(X)                                                                         \
	X(0, init_bcast_root, "persistent Bcast from a root beyond the last",                      \
	  PERSISTENT_NAME(Bcast)(values, COUNT, MPI_INT, beyond, world, MPI_INFO_NULL,             \
				 &(MPI_Request){0}),                                               \
	  right_persistent)
#else
#define PERSISTENT_ROWS(X)
#endif

#define DEFINE(unsuited, id, text, wrong, right)                                                   \
	static int wrong_##id(void)                                                                \
	{                                                                                          \
		return wrong;                                                                      \
	}
ROWS(DEFINE)
PERSISTENT_ROWS(DEFINE)

#define ENTRY(unsuited, id, text, wrong, right) {text, wrong_##id, right, unsuited},
static const struct {
	const char *text;
	int (*wrong)(void), (*right)(void);
	int unsuited;
} rows[] = {ROWS(ENTRY) PERSISTENT_ROWS(ENTRY)};

static int this_mpi(void)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(version, &length);
	return strncmp(version, "Open MPI", 8) ? MPICHS : OPEN_MPIS;
}

static void make(long row, long round)
{
	int is_persistent = row >= (long)(sizeof(rows) / sizeof(*rows)) - HAVE_PERSISTENT;
	int calls = HAVE_PERSISTENT && is_persistent ? 2 : CALLS;

	watch(PATIENCE, "%s, round %ld (--only %ld)", rows[row].text, round, row);
	/* Another rank each time, and also the root. */
	if (world_rank == round % world_size) {
		bring();
		if (rows[row].wrong() == MPI_SUCCESS)
			fail("%s is not refused", rows[row].text);
	}
	for (int call = 0; call < calls; call++) {
		bring();
		if (!rows[row].right())
			fail("%s: a wrong answer %d calls after it", rows[row].text, call);
	}
}

static int is_truncated(int error)
{
	int class;

	MPI_Error_class(error, &class);
	return class == MPI_ERR_TRUNCATE;
}

/* A rank whose own ends do not match is told, gets what there is room for, and stays with the
 * others, whose answers are right where they come from them. */
static void mismatch(long round)
{
	int is_odd = world_rank == round % world_size, error;

	watch(PATIENCE, "ends that do not match, round %ld", round);
	for (int call = 0; call < CALLS; call++)
		right_gather();
	for (int call = 0; call < CALLS; call++) {
		int room = COUNT - (call & 1);

		bring();
		error = MPI_Gather(values, COUNT, MPI_INT, others, room, MPI_INT, 0, world);
		if (world_rank == 0 && is_truncated(error) != (room < COUNT))
			fail("Gather with room for %d of %d: error %d", room, COUNT, error);
		if (world_rank == 0 &&
		    (others[0] != 0 || others[(world_size - 1) * room] != world_size - 1))
			fail("Gather with room for %d of %d: a wrong answer", room, COUNT);
		if (world_rank == 0 && others[world_size * room] != -1)
			fail("Gather with room for %d of %d writes more", room, COUNT);
		bring();
		error =
		    MPI_Allgather(values, COUNT + is_odd, MPI_INT, others, COUNT, MPI_INT, world);
		if (is_truncated(error) != is_odd)
			fail("Allgather of %d and room for %d: error %d", COUNT + is_odd, COUNT,
			     error);
		if (others[COUNT + 1] != 2 || others[world_size * COUNT] != -1)
			fail("Allgather of too much on one rank: a wrong answer");
	}
}

int main(int argc, char **argv)
{
	program_start("makeup", &argc, &argv, options);
	beyond = world_size;
	for (int rank = 0; rank < MOST_RANKS; rank++) {
		counts[rank] = COUNT;
		places[rank] = rank * COUNT;
		negative[rank] = -1;
		bytes[rank] = rank * COUNT * (int)sizeof(int);
		types[rank] = MPI_INT;
		no_types[rank] = MPI_DATATYPE_NULL;
	}
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	/* Errors without a communicator go to the handler of MPI_COMM_SELF or _WORLD. */
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	for (long row = 0; row < (long)(sizeof(rows) / sizeof(*rows)); row++) {
		if ((only >= 0 && only != row) || rows[row].unsuited & this_mpi())
			continue;
		/* A new one each time: a wrong call is none of those after which it is looked at.
		 */
		MPI_Comm_dup(MPI_COMM_WORLD, &world);
		MPI_Cart_create(world, 1, &world_size, (int[]){1}, 0, &ring);
		MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
		for (long round = 0; round < rounds; round++)
			make(row, round);
		MPI_Comm_free(&ring);
		MPI_Comm_free(&world);
	}
	if (folded) {
		MPI_Comm_dup(MPI_COMM_WORLD, &world);
		for (long round = 0; round < rounds; round++)
			mismatch(round);
		MPI_Comm_free(&world);
	}
	watch(0, "the end");
	say("makeup: all ok, %d ranks", world_size);
	MPI_Finalize();
	return 0;
}
