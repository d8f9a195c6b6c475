/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Wrong calls, made alike by all ranks. Prints MPI's answer to each; the same lines must come out
 * with a library interposed. Calls on which a known MPI crashes or hangs are left out for that one.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "persistent.h"
#include "program.h"

static long only = -1, all;

static const struct option_spec options[] = {
    {"--only", OPTION_NUMBER, &only, "number of the one call to make"},
    {"--all", OPTION_FLAG, &all, "also those that this MPI is known not to survive"},
    {0},
};

/* The MPIs, by what they do with wrong calls. */
enum {
	OPEN_MPIS = 1,
	MPICH_4 = 2,
	MPICH_5 = 4, /* and later */
	INTEL = 8,
	MPICHS = MPICH_4 | MPICH_5,
};

enum { ROOM = 4096 };

static int values[ROOM], others[ROOM], ones[ROOM], places[ROOM], negative[ROOM];
static int beyond; /* a root beyond the last */
static MPI_Comm world, ring;
static MPI_Aint bytes[ROOM];
static MPI_Datatype types[ROOM], no_types[ROOM];
static MPI_Datatype pair, duplicate, uncommitted;
static MPI_Request request;
static MPI_Op own;

static void bring(void)
{
	for (int i = 0; i < ROOM; i++) {
		values[i] = world_rank + i;
		others[i] = -1;
		ones[i] = 1;
		places[i] = i;
		negative[i] = i ? 1 : -1;
		bytes[i] = i * (MPI_Aint)sizeof(int);
		types[i] = MPI_INT;
		no_types[i] = MPI_DATATYPE_NULL;
	}
}

/* The error's class by name: its number differs between MPIs, its text between versions. */
static const char *class_name(int error)
{
	int class;

	MPI_Error_class(error, &class);
#define NAME(class)                                                                                \
	{                                                                                          \
		class, #class                                                                      \
	}
	const struct {
		int class;
		const char *name;
	} names[] = {
	    NAME(MPI_SUCCESS),	   NAME(MPI_ERR_BUFFER), NAME(MPI_ERR_COUNT),
	    NAME(MPI_ERR_TYPE),	   NAME(MPI_ERR_COMM),	 NAME(MPI_ERR_ROOT),
	    NAME(MPI_ERR_OP),	   NAME(MPI_ERR_ARG),	 NAME(MPI_ERR_OTHER),
	    NAME(MPI_ERR_REQUEST), NAME(MPI_ERR_INTERN), NAME(MPI_ERR_TRUNCATE),
	};
#undef NAME
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (names[i].class == class)
			return names[i].name;
	return "another class";
}

/* All ranks must agree, or a rank went another way than the others. */
static void report(const char *what, int error)
{
	int class, least, most;

	MPI_Error_class(error, &class);
	PMPI_Allreduce(&class, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	PMPI_Allreduce(&class, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (least != most)
		fail("%s: %s here, not so on other ranks", what, class_name(error));
	say("%s: %s", what, class_name(error));
}

static int this_mpi(void)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	const char *number;
	int length;

	MPI_Get_library_version(version, &length);
	if (!strncmp(version, "Open MPI", 8))
		return OPEN_MPIS;
	if (strncmp(version, "MPICH", 5))
		return strncmp(version, "Intel", 5) ? 0 : INTEL;
	number = strpbrk(version, "0123456789");
	return number && atoi(number) >= 5 ? MPICH_5 : MPICH_4;
}

/* Each row: the MPIs that do not survive it, a name for C, a name for people, the call. */

#define REDUCE_ROWS(X)                                                                             \
	X(0, all_derived, "Allreduce MPI_SUM of a derived type",                                   \
	  MPI_Allreduce(values, others, 1, pair, MPI_SUM, world))                                  \
	X(0, all_duplicate, "Allreduce MPI_SUM of a duplicate of MPI_INT",                         \
	  MPI_Allreduce(values, others, 1, duplicate, MPI_SUM, world))                             \
	X(0, all_uncommitted, "Allreduce MPI_SUM of a type not committed",                         \
	  MPI_Allreduce(values, others, 1, uncommitted, MPI_SUM, world))                           \
	X(0, all_band, "Allreduce MPI_BAND of MPI_DOUBLE",                                         \
	  MPI_Allreduce(values, others, 1, MPI_DOUBLE, MPI_BAND, world))                           \
	X(0, all_band_none, "Allreduce MPI_BAND of 0 MPI_DOUBLE",                                  \
	  MPI_Allreduce(values, others, 0, MPI_DOUBLE, MPI_BAND, world))                           \
	X(MPICH_4, all_land, "Allreduce MPI_LAND of MPI_DOUBLE",                                   \
	  MPI_Allreduce(values, others, 1, MPI_DOUBLE, MPI_LAND, world))                           \
	X(0, all_max_byte, "Allreduce MPI_MAX of MPI_BYTE",                                        \
	  MPI_Allreduce(values, others, 4, MPI_BYTE, MPI_MAX, world))                              \
	X(0, all_char, "Allreduce MPI_SUM of MPI_CHAR",                                            \
	  MPI_Allreduce(values, others, 4, MPI_CHAR, MPI_SUM, world))                              \
	X(0, all_wchar, "Allreduce MPI_SUM of MPI_WCHAR",                                          \
	  MPI_Allreduce(values, others, 1, MPI_WCHAR, MPI_SUM, world))                             \
	X(0, all_bool, "Allreduce MPI_MAX of MPI_C_BOOL",                                          \
	  MPI_Allreduce(values, others, 1, MPI_C_BOOL, MPI_MAX, world))                            \
	X(0, all_logical, "Allreduce MPI_SUM of MPI_LOGICAL",                                      \
	  MPI_Allreduce(values, others, 1, MPI_LOGICAL, MPI_SUM, world))                           \
	X(0, all_integer, "Allreduce MPI_LAND of MPI_INTEGER",                                     \
	  MPI_Allreduce(values, others, 1, MPI_INTEGER, MPI_LAND, world))                          \
	X(0, all_replace, "Allreduce MPI_REPLACE",                                                 \
	  MPI_Allreduce(values, others, 1, MPI_INT, MPI_REPLACE, world))                           \
	X(0, all_no_op, "Allreduce MPI_NO_OP",                                                     \
	  MPI_Allreduce(values, others, 1, MPI_INT, MPI_NO_OP, world))                             \
	X(0, all_op_null, "Allreduce MPI_OP_NULL",                                                 \
	  MPI_Allreduce(values, others, 1, MPI_INT, MPI_OP_NULL, world))                           \
	X(0, all_maxloc, "Allreduce MPI_MAXLOC of MPI_INT",                                        \
	  MPI_Allreduce(values, others, 1, MPI_INT, MPI_MAXLOC, world))                            \
	X(0, all_pair, "Allreduce MPI_SUM of MPI_2INT",                                            \
	  MPI_Allreduce(values, others, 1, MPI_2INT, MPI_SUM, world))                              \
	X(MPICH_5, all_null, "Allreduce of MPI_DATATYPE_NULL",                                     \
	  MPI_Allreduce(values, others, 1, MPI_DATATYPE_NULL, MPI_SUM, world))                     \
	X(MPICHS, all_count, "Allreduce of -1 elements",                                           \
	  MPI_Allreduce(values, others, -1, MPI_INT, MPI_SUM, world))                              \
	X(0, all_comm, "Allreduce on MPI_COMM_NULL",                                               \
	  MPI_Allreduce(values, others, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL))                       \
	X(0, all_same_1, "Allreduce of 1 element from and to one buffer",                          \
	  MPI_Allreduce(values, values, 1, MPI_INT, MPI_SUM, world))                               \
	X(0, all_same_4, "Allreduce of 4 elements from and to one buffer",                         \
	  MPI_Allreduce(values, values, 4, MPI_INT, MPI_SUM, world))                               \
	X(0, all_same_0, "Allreduce of nothing from and to one buffer",                            \
	  MPI_Allreduce(values, values, 0, MPI_INT, MPI_SUM, world))                               \
	X(0, all_in_place, "Allreduce to MPI_IN_PLACE",                                            \
	  MPI_Allreduce(values, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, world))                         \
	X(0, all_nothing, "Allreduce of nothing between no buffers",                               \
	  MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, world))                                   \
	X(0, reduce_derived, "Reduce MPI_SUM of a derived type",                                   \
	  MPI_Reduce(values, others, 1, pair, MPI_SUM, 0, world))                                  \
	X(0, reduce_op, "Reduce MPI_BXOR of MPI_FLOAT",                                            \
	  MPI_Reduce(values, others, 1, MPI_FLOAT, MPI_BXOR, 0, world))                            \
	X(0, reduce_root, "Reduce to a root beyond the last",                                      \
	  MPI_Reduce(values, others, 1, MPI_INT, MPI_SUM, beyond, world))                          \
	X(0, reduce_root_7, "Reduce to root -7",                                                   \
	  MPI_Reduce(values, others, 1, MPI_INT, MPI_SUM, -7, world))                              \
	X(MPICHS, reduce_count, "Reduce of -1 elements",                                           \
	  MPI_Reduce(values, others, -1, MPI_INT, MPI_SUM, 0, world))                              \
	X(0, reduce_comm, "Reduce on MPI_COMM_NULL",                                               \
	  MPI_Reduce(values, others, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_NULL))                       \
	X(0, reduce_nothing, "Reduce of nothing between no buffers",                               \
	  MPI_Reduce(NULL, NULL, 0, MPI_INT, MPI_SUM, 0, world))

#define SCAN_ROWS(X)                                                                               \
	X(0, scan_derived, "Scan MPI_SUM of a derived type",                                       \
	  MPI_Scan(values, others, 1, pair, MPI_SUM, world))                                       \
	X(0, scan_op, "Scan MPI_BAND of MPI_DOUBLE",                                               \
	  MPI_Scan(values, others, 1, MPI_DOUBLE, MPI_BAND, world))                                \
	X(0, scan_op_null, "Scan MPI_OP_NULL",                                                     \
	  MPI_Scan(values, others, 1, MPI_INT, MPI_OP_NULL, world))                                \
	X(MPICHS, scan_count, "Scan of -1 elements",                                               \
	  MPI_Scan(values, others, -1, MPI_INT, MPI_SUM, world))                                   \
	X(0, scan_comm, "Scan on MPI_COMM_NULL",                                                   \
	  MPI_Scan(values, others, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL))                            \
	X(0, scan_same, "Scan from and to one buffer",                                             \
	  MPI_Scan(values, values, 4, MPI_INT, MPI_SUM, world))                                    \
	X(0, scan_in_place, "Scan to MPI_IN_PLACE",                                                \
	  MPI_Scan(values, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, world))                              \
	X(0, exscan_op, "Exscan MPI_BAND of MPI_DOUBLE",                                           \
	  MPI_Exscan(values, others, 1, MPI_DOUBLE, MPI_BAND, world))                              \
	X(MPICHS, exscan_count, "Exscan of -1 elements",                                           \
	  MPI_Exscan(values, others, -1, MPI_INT, MPI_SUM, world))                                 \
	X(0, exscan_comm, "Exscan on MPI_COMM_NULL",                                               \
	  MPI_Exscan(values, others, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL))                          \
	X(0, exscan_same, "Exscan from and to one buffer",                                         \
	  MPI_Exscan(values, values, 4, MPI_INT, MPI_SUM, world))                                  \
	X(0, block_op, "Reduce_scatter_block MPI_BAND of MPI_DOUBLE",                              \
	  MPI_Reduce_scatter_block(values, others, 1, MPI_DOUBLE, MPI_BAND, world))                \
	X(MPICHS, block_count, "Reduce_scatter_block of -1 elements",                              \
	  MPI_Reduce_scatter_block(values, others, -1, MPI_INT, MPI_SUM, world))                   \
	X(0, block_comm, "Reduce_scatter_block on MPI_COMM_NULL",                                  \
	  MPI_Reduce_scatter_block(values, others, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL))            \
	X(0, block_same, "Reduce_scatter_block from and to one buffer",                            \
	  MPI_Reduce_scatter_block(values, values, 1, MPI_INT, MPI_SUM, world))                    \
	X(0, rs_op, "Reduce_scatter MPI_BAND of MPI_DOUBLE",                                       \
	  MPI_Reduce_scatter(values, others, ones, MPI_DOUBLE, MPI_BAND, world))                   \
	X(0, rs_count, "Reduce_scatter of -1 elements",                                            \
	  MPI_Reduce_scatter(values, others, negative, MPI_INT, MPI_SUM, world))                   \
	X(0, rs_comm, "Reduce_scatter on MPI_COMM_NULL",                                           \
	  MPI_Reduce_scatter(values, others, ones, MPI_INT, MPI_SUM, MPI_COMM_NULL))               \
	X(0, rs_same, "Reduce_scatter from and to one buffer",                                     \
	  MPI_Reduce_scatter(values, values, ones, MPI_INT, MPI_SUM, world))

/* Calls that an interposed library may fold, or have MPI fold by steps. */
#define OWN_ROWS(X)                                                                                \
	X(0, own_uncommitted, "Allreduce by an own operation of a type not committed",             \
	  MPI_Allreduce(values, others, 1, uncommitted, own, world))                               \
	X(0, own_null, "Allreduce by an own operation of MPI_DATATYPE_NULL",                       \
	  MPI_Allreduce(values, others, 1, MPI_DATATYPE_NULL, own, world))                         \
	X(0, own_same_4, "Allreduce of 4 by an own operation from and to one buffer",              \
	  MPI_Allreduce(values, values, 4, pair, own, world))                                      \
	X(0, own_in_place, "Allreduce by an own operation to MPI_IN_PLACE",                        \
	  MPI_Allreduce(values, MPI_IN_PLACE, 1, pair, own, world))                                \
	X(0, own_nothing, "Allreduce of nothing by an own operation",                              \
	  MPI_Allreduce(NULL, NULL, 0, pair, own, world))                                          \
	X(0, own_root, "Reduce by an own operation to a root beyond the last",                     \
	  MPI_Reduce(values, others, 1, pair, own, beyond, world))                                 \
	X(0, own_scan, "Scan by an own operation from and to one buffer",                          \
	  MPI_Scan(values, values, 4, pair, own, world))                                           \
	X(0, real_same_1, "Allreduce of 1 MPI_DOUBLE from and to one buffer",                      \
	  MPI_Allreduce(values, values, 1, MPI_DOUBLE, MPI_SUM, world))                            \
	X(0, real_same_4, "Allreduce of 4 MPI_FLOAT from and to one buffer",                       \
	  MPI_Allreduce(values, values, 4, MPI_FLOAT, MPI_MAX, world))                             \
	X(0, real_in_place, "Allreduce of MPI_DOUBLE to MPI_IN_PLACE",                             \
	  MPI_Allreduce(values, MPI_IN_PLACE, 1, MPI_DOUBLE, MPI_SUM, world))                      \
	X(0, real_loc, "Allreduce MPI_MINLOC of MPI_DOUBLE",                                       \
	  MPI_Allreduce(values, others, 1, MPI_DOUBLE, MPI_MINLOC, world))                         \
	X(0, pair_sum, "Allreduce MPI_SUM of MPI_DOUBLE_INT",                                      \
	  MPI_Allreduce(values, others, 1, MPI_DOUBLE_INT, MPI_SUM, world))                        \
	X(0, complex_max, "Allreduce MPI_MAX of MPI_C_DOUBLE_COMPLEX",                             \
	  MPI_Allreduce(values, others, 1, MPI_C_DOUBLE_COMPLEX, MPI_MAX, world))                  \
	X(0, iall_own, "Iallreduce by an own operation of a type not committed",                   \
	  MPI_Iallreduce(values, others, 1, uncommitted, own, world, &request))                    \
	X(0, iall_real_same, "Iallreduce of 4 MPI_FLOAT from and to one buffer",                   \
	  MPI_Iallreduce(values, values, 4, MPI_FLOAT, MPI_SUM, world, &request))

#define MOVE_ROWS(X)                                                                               \
	X(0, barrier_comm, "Barrier on MPI_COMM_NULL", MPI_Barrier(MPI_COMM_NULL))                 \
	X(0, bcast_root, "Bcast from a root beyond the last",                                      \
	  MPI_Bcast(values, 1, MPI_INT, beyond, world))                                            \
	X(0, bcast_root_1, "Bcast from root -1", MPI_Bcast(values, 1, MPI_INT, -1, world))         \
	X(0, bcast_count, "Bcast of -1 elements", MPI_Bcast(values, -1, MPI_INT, 0, world))        \
	X(0, bcast_comm, "Bcast on MPI_COMM_NULL",                                                 \
	  MPI_Bcast(values, 1, MPI_INT, 0, MPI_COMM_NULL))                                         \
	X(0, bcast_null, "Bcast of MPI_DATATYPE_NULL",                                             \
	  MPI_Bcast(values, 1, MPI_DATATYPE_NULL, 0, world))                                       \
	X(MPICH_4, bcast_null_none, "Bcast of 0 MPI_DATATYPE_NULL",                                \
	  MPI_Bcast(values, 0, MPI_DATATYPE_NULL, 0, world))                                       \
	X(0, bcast_uncommitted, "Bcast of a type not committed",                                   \
	  MPI_Bcast(values, 1, uncommitted, 0, world))                                             \
	X(0, bcast_nothing, "Bcast of nothing from no buffer",                                     \
	  MPI_Bcast(NULL, 0, MPI_INT, 0, world))                                                   \
	X(0, gather_root, "Gather to a root beyond the last",                                      \
	  MPI_Gather(values, 1, MPI_INT, others, 1, MPI_INT, beyond, world))                       \
	X(0, gather_root_7, "Gather to root -7",                                                   \
	  MPI_Gather(values, 1, MPI_INT, others, 1, MPI_INT, -7, world))                           \
	X(0, gather_count, "Gather of -1 elements",                                                \
	  MPI_Gather(values, -1, MPI_INT, others, -1, MPI_INT, 0, world))                          \
	X(0, gather_null, "Gather of MPI_DATATYPE_NULL",                                           \
	  MPI_Gather(values, 1, MPI_DATATYPE_NULL, others, 1, MPI_INT, 0, world))                  \
	X(0, gather_comm, "Gather on MPI_COMM_NULL",                                               \
	  MPI_Gather(values, 1, MPI_INT, others, 1, MPI_INT, 0, MPI_COMM_NULL))                    \
	X(0, gatherv_root, "Gatherv to a root beyond the last",                                    \
	  MPI_Gatherv(values, 1, MPI_INT, others, ones, places, MPI_INT, beyond, world))           \
	X(0, gatherv_count, "Gatherv of -1 elements",                                              \
	  MPI_Gatherv(values, -1, MPI_INT, others, negative, places, MPI_INT, 0, world))           \
	X(0, gatherv_comm, "Gatherv on MPI_COMM_NULL",                                             \
	  MPI_Gatherv(values, 1, MPI_INT, others, ones, places, MPI_INT, 0, MPI_COMM_NULL))        \
	X(0, scatter_root, "Scatter from a root beyond the last",                                  \
	  MPI_Scatter(values, 1, MPI_INT, others, 1, MPI_INT, beyond, world))                      \
	X(0, scatter_count, "Scatter of -1 elements",                                              \
	  MPI_Scatter(values, -1, MPI_INT, others, -1, MPI_INT, 0, world))                         \
	X(0, scatter_null, "Scatter to MPI_DATATYPE_NULL",                                         \
	  MPI_Scatter(values, 1, MPI_INT, others, 1, MPI_DATATYPE_NULL, 0, world))                 \
	X(0, scatter_comm, "Scatter on MPI_COMM_NULL",                                             \
	  MPI_Scatter(values, 1, MPI_INT, others, 1, MPI_INT, 0, MPI_COMM_NULL))                   \
	X(0, scatterv_root, "Scatterv from a root beyond the last",                                \
	  MPI_Scatterv(values, ones, places, MPI_INT, others, 1, MPI_INT, beyond, world))          \
	X(0, scatterv_comm, "Scatterv on MPI_COMM_NULL",                                           \
	  MPI_Scatterv(values, ones, places, MPI_INT, others, 1, MPI_INT, 0, MPI_COMM_NULL))       \
	X(0, allgather_count, "Allgather of -1 elements",                                          \
	  MPI_Allgather(values, -1, MPI_INT, others, -1, MPI_INT, world))                          \
	X(0, allgather_null, "Allgather to MPI_DATATYPE_NULL",                                     \
	  MPI_Allgather(values, 1, MPI_INT, others, 1, MPI_DATATYPE_NULL, world))                  \
	X(OPEN_MPIS, allgather_comm, "Allgather on MPI_COMM_NULL",                                 \
	  MPI_Allgather(values, 1, MPI_INT, others, 1, MPI_INT, MPI_COMM_NULL))                    \
	X(0, allgather_same, "Allgather of what is in its place, but not MPI_IN_PLACE",            \
	  MPI_Allgather(values + world_rank, 1, MPI_INT, values, 1, MPI_INT, world))               \
	X(0, allgather_in_place, "Allgather to MPI_IN_PLACE",                                      \
	  MPI_Allgather(values, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, world))                      \
	X(0, allgatherv_count, "Allgatherv of -1 elements",                                        \
	  MPI_Allgatherv(values, -1, MPI_INT, others, negative, places, MPI_INT, world))           \
	X(0, allgatherv_comm, "Allgatherv on MPI_COMM_NULL",                                       \
	  MPI_Allgatherv(values, 1, MPI_INT, others, ones, places, MPI_INT, MPI_COMM_NULL))        \
	X(0, alltoall_count, "Alltoall of -1 elements",                                            \
	  MPI_Alltoall(values, -1, MPI_INT, others, -1, MPI_INT, world))                           \
	X(0, alltoall_null, "Alltoall of MPI_DATATYPE_NULL",                                       \
	  MPI_Alltoall(values, 1, MPI_DATATYPE_NULL, others, 1, MPI_INT, world))                   \
	X(0, alltoall_comm, "Alltoall on MPI_COMM_NULL",                                           \
	  MPI_Alltoall(values, 1, MPI_INT, others, 1, MPI_INT, MPI_COMM_NULL))                     \
	X(0, alltoall_same, "Alltoall from and to one buffer",                                     \
	  MPI_Alltoall(values, 1, MPI_INT, values, 1, MPI_INT, world))                             \
	X(0, alltoall_in_place, "Alltoall to MPI_IN_PLACE",                                        \
	  MPI_Alltoall(values, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, world))                       \
	X(0, alltoallv_count, "Alltoallv of -1 elements",                                          \
	  MPI_Alltoallv(values, negative, places, MPI_INT, others, negative, places, MPI_INT,      \
			world))                                                                    \
	X(0, alltoallv_comm, "Alltoallv on MPI_COMM_NULL",                                         \
	  MPI_Alltoallv(values, ones, places, MPI_INT, others, ones, places, MPI_INT,              \
			MPI_COMM_NULL))                                                            \
	X(0, alltoallv_null, "Alltoallv to MPI_DATATYPE_NULL",                                     \
	  MPI_Alltoallv(values, ones, places, MPI_INT, others, ones, places, MPI_DATATYPE_NULL,    \
			world))                                                                    \
	X(0, alltoallw_count, "Alltoallw of -1 elements",                                          \
	  MPI_Alltoallw(values, negative, places, types, others, negative, places, types, world))  \
	X(0, alltoallw_null, "Alltoallw of MPI_DATATYPE_NULL",                                     \
	  MPI_Alltoallw(values, ones, places, no_types, others, ones, places, types, world))       \
	X(0, alltoallw_comm, "Alltoallw on MPI_COMM_NULL",                                         \
	  MPI_Alltoallw(values, ones, places, types, others, ones, places, types, MPI_COMM_NULL))  \
	X(0, neighbor_allgather_count, "Neighbor_allgather of -1 elements",                        \
	  MPI_Neighbor_allgather(values, -1, MPI_INT, others, -1, MPI_INT, ring))                  \
	X(0, neighbor_allgather_null, "Neighbor_allgather of MPI_DATATYPE_NULL",                   \
	  MPI_Neighbor_allgather(values, 1, MPI_DATATYPE_NULL, others, 1, MPI_INT, ring))          \
	X(0, neighbor_allgather_comm, "Neighbor_allgather without neighbours",                     \
	  MPI_Neighbor_allgather(values, 1, MPI_INT, others, 1, MPI_INT, world))                   \
	X(0, neighbor_allgatherv_count, "Neighbor_allgatherv of -1 elements",                      \
	  MPI_Neighbor_allgatherv(values, -1, MPI_INT, others, negative, places, MPI_INT, ring))   \
	X(0, neighbor_alltoall_count, "Neighbor_alltoall of -1 elements",                          \
	  MPI_Neighbor_alltoall(values, -1, MPI_INT, others, -1, MPI_INT, ring))                   \
	X(0, neighbor_alltoall_comm, "Neighbor_alltoall on MPI_COMM_NULL",                         \
	  MPI_Neighbor_alltoall(values, 1, MPI_INT, others, 1, MPI_INT, MPI_COMM_NULL))            \
	X(0, neighbor_alltoallv_count, "Neighbor_alltoallv of -1 elements",                        \
	  MPI_Neighbor_alltoallv(values, negative, places, MPI_INT, others, negative, places,      \
				 MPI_INT, ring))                                                   \
	X(0, neighbor_alltoallw_null, "Neighbor_alltoallw of MPI_DATATYPE_NULL",                   \
	  MPI_Neighbor_alltoallw(values, ones, bytes, no_types, others, ones, bytes, types, ring))

#define NONBLOCKING_ROWS(X)                                                                        \
	X(0, ibarrier_comm, "Ibarrier on MPI_COMM_NULL", MPI_Ibarrier(MPI_COMM_NULL, &request))    \
	X(0, ibcast_root, "Ibcast from a root beyond the last",                                    \
	  MPI_Ibcast(values, 1, MPI_INT, beyond, world, &request))                                 \
	X(0, ibcast_count, "Ibcast of -1 elements",                                                \
	  MPI_Ibcast(values, -1, MPI_INT, 0, world, &request))                                     \
	X(0, ibcast_null, "Ibcast of MPI_DATATYPE_NULL",                                           \
	  MPI_Ibcast(values, 1, MPI_DATATYPE_NULL, 0, world, &request))                            \
	X(0, ibcast_comm, "Ibcast on MPI_COMM_NULL",                                               \
	  MPI_Ibcast(values, 1, MPI_INT, 0, MPI_COMM_NULL, &request))                              \
	X(0, iall_derived, "Iallreduce MPI_SUM of a derived type",                                 \
	  MPI_Iallreduce(values, others, 1, pair, MPI_SUM, world, &request))                       \
	X(0, iall_op, "Iallreduce MPI_BAND of MPI_DOUBLE",                                         \
	  MPI_Iallreduce(values, others, 1, MPI_DOUBLE, MPI_BAND, world, &request))                \
	X(0, iall_op_null, "Iallreduce MPI_OP_NULL",                                               \
	  MPI_Iallreduce(values, others, 1, MPI_INT, MPI_OP_NULL, world, &request))                \
	X(0, iall_byte, "Iallreduce MPI_MAX of MPI_BYTE",                                          \
	  MPI_Iallreduce(values, others, 4, MPI_BYTE, MPI_MAX, world, &request))                   \
	X(MPICH_5, iall_count, "Iallreduce of -1 elements",                                        \
	  MPI_Iallreduce(values, others, -1, MPI_INT, MPI_SUM, world, &request))                   \
	X(0, iall_comm, "Iallreduce on MPI_COMM_NULL",                                             \
	  MPI_Iallreduce(values, others, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL, &request))            \
	X(0, iall_same_1, "Iallreduce of 1 element from and to one buffer",                        \
	  MPI_Iallreduce(values, values, 1, MPI_INT, MPI_SUM, world, &request))                    \
	X(0, iall_same_4, "Iallreduce of 4 elements from and to one buffer",                       \
	  MPI_Iallreduce(values, values, 4, MPI_INT, MPI_SUM, world, &request))                    \
	X(0, iall_in_place, "Iallreduce to MPI_IN_PLACE",                                          \
	  MPI_Iallreduce(values, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, world, &request))              \
	X(0, iall_nothing, "Iallreduce of nothing between no buffers",                             \
	  MPI_Iallreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, world, &request))                        \
	X(0, ireduce_root, "Ireduce to a root beyond the last",                                    \
	  MPI_Ireduce(values, others, 1, MPI_INT, MPI_SUM, beyond, world, &request))               \
	X(0, ireduce_op, "Ireduce MPI_BXOR of MPI_FLOAT",                                          \
	  MPI_Ireduce(values, others, 1, MPI_FLOAT, MPI_BXOR, 0, world, &request))                 \
	X(0, iscan_op, "Iscan MPI_BAND of MPI_DOUBLE",                                             \
	  MPI_Iscan(values, others, 1, MPI_DOUBLE, MPI_BAND, world, &request))                     \
	X(0, iscan_same, "Iscan from and to one buffer",                                           \
	  MPI_Iscan(values, values, 4, MPI_INT, MPI_SUM, world, &request))                         \
	X(0, iexscan_comm, "Iexscan on MPI_COMM_NULL",                                             \
	  MPI_Iexscan(values, others, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL, &request))               \
	X(0, iblock_op, "Ireduce_scatter_block MPI_BAND of MPI_DOUBLE",                            \
	  MPI_Ireduce_scatter_block(values, others, 1, MPI_DOUBLE, MPI_BAND, world, &request))     \
	X(0, iallgather_count, "Iallgather of -1 elements",                                        \
	  MPI_Iallgather(values, -1, MPI_INT, others, -1, MPI_INT, world, &request))               \
	X(OPEN_MPIS, iallgather_comm, "Iallgather on MPI_COMM_NULL",                               \
	  MPI_Iallgather(values, 1, MPI_INT, others, 1, MPI_INT, MPI_COMM_NULL, &request))         \
	X(0, igather_root, "Igather to a root beyond the last",                                    \
	  MPI_Igather(values, 1, MPI_INT, others, 1, MPI_INT, beyond, world, &request))            \
	X(0, iscatter_root, "Iscatter from a root beyond the last",                                \
	  MPI_Iscatter(values, 1, MPI_INT, others, 1, MPI_INT, beyond, world, &request))           \
	X(0, ialltoall_count, "Ialltoall of -1 elements",                                          \
	  MPI_Ialltoall(values, -1, MPI_INT, others, -1, MPI_INT, world, &request))                \
	X(0, ialltoall_same, "Ialltoall from and to one buffer",                                   \
	  MPI_Ialltoall(values, 1, MPI_INT, values, 1, MPI_INT, world, &request))

#if HAVE_PERSISTENT
#define PERSISTENT_ROWS(X)                                                                         \
	X(0, init_bcast_root, "persistent Bcast from a root beyond the last",                      \
	  PERSISTENT_NAME(Bcast)(values, 1, MPI_INT, beyond, world, MPI_INFO_NULL, &request))      \
	X(0, init_all_op, "persistent Allreduce MPI_BAND of MPI_DOUBLE",                           \
	  PERSISTENT_NAME(Allreduce)(values, others, 1, MPI_DOUBLE, MPI_BAND, world,               \
				     MPI_INFO_NULL, &request))                                     \
	X(0, init_all_comm, "persistent Allreduce on MPI_COMM_NULL",                               \
	  PERSISTENT_NAME(Allreduce)(values, others, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL,           \
				     MPI_INFO_NULL, &request))                                     \
	X(0, init_all_in_place, "persistent Allreduce to MPI_IN_PLACE",                            \
	  PERSISTENT_NAME(Allreduce)(values, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, world,             \
				     MPI_INFO_NULL, &request))                                     \
	X(0, init_barrier_comm, "persistent Barrier on MPI_COMM_NULL",                             \
	  PERSISTENT_NAME(Barrier)(MPI_COMM_NULL, MPI_INFO_NULL, &request))
#else
#define PERSISTENT_ROWS(X)
#endif

#define ROWS(X)                                                                                    \
	REDUCE_ROWS(X)                                                                             \
	SCAN_ROWS(X) OWN_ROWS(X) MOVE_ROWS(X) NONBLOCKING_ROWS(X) PERSISTENT_ROWS(X)

#define DEFINE(deadly, id, text, call)                                                             \
	static int row_##id(void)                                                                  \
	{                                                                                          \
		return call;                                                                       \
	}
ROWS(DEFINE)

#define ENTRY(deadly, id, text, call) {text, row_##id, deadly},
static const struct {
	const char *text;
	int (*call)(void);
	int deadly;
} rows[] = {ROWS(ENTRY)};

/* Requests of calls that are right after all are seen through to their end. */
static int make(int (*call)(void))
{
	int error;

	bring();
	request = MPI_REQUEST_NULL;
	error = call();
	if (error != MPI_SUCCESS || request == MPI_REQUEST_NULL)
		return error;
	error = MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (request != MPI_REQUEST_NULL)
		MPI_Request_free(&request);
	return error;
}

/* Open MPI takes one buffer for both of one element on one rank alone. All get their answer. */
static void one_odd_rank(void)
{
	int *result = world_rank == 0 ? values : others;
	int want = world_size * (world_size - 1) / 2;

	bring();
	MPI_Allreduce(values, result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (*result != want)
		fail("Allreduce with one buffer for both on rank 0: %d, want %d", *result, want);
	say("Allreduce with one buffer for both on rank 0: ok");
}

static void first(void *in, void *inout, int *count, MPI_Datatype *type)
{
	int bytes;

	MPI_Type_size(*type, &bytes);
	memcpy(inout, in, (size_t)(*count * bytes));
}

static void make_types(void)
{
	MPI_Op_create(first, 0, &own);
	MPI_Type_contiguous(2, MPI_INT, &pair);
	MPI_Type_commit(&pair);
	MPI_Type_dup(MPI_INT, &duplicate);
	MPI_Type_contiguous(2, MPI_INT, &uncommitted);
}

static void free_types(void)
{
	MPI_Op_free(&own);
	MPI_Type_free(&pair);
	MPI_Type_free(&duplicate);
	MPI_Type_free(&uncommitted);
}

/* The root passes one buffer for both ends. If its MPI refuses that, the call never happened, and
 * it makes a right one instead; the others see one call. */
static void made_up(int count)
{
	int error = 0, want = world_size * (world_size - 1) / 2;

	for (int round = 0; round < 20; round++) {
		int *result = values;

		bring();
		error = MPI_Reduce(values, world_rank == 0 ? values : others, count, MPI_INT,
				   MPI_SUM, 0, MPI_COMM_WORLD);
		if (world_rank == 0 && error) {
			result = others;
			MPI_Reduce(values, others, count, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
		}
		if (world_rank == 0 && *result != want)
			fail("Reduce of %d, made up for: %d, want %d", count, *result, want);
	}
	say("Reduce of %d with one buffer for both at the root: %s", count,
	    error ? "refused, and made up for" : "taken");
}

int main(int argc, char **argv)
{
	int sum = 0;

	program_start("errors", &argc, &argv, options);
	world = MPI_COMM_WORLD;
	beyond = world_size;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	/* Errors without a communicator go to the handler of MPI_COMM_SELF or _WORLD. */
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	MPI_Cart_create(world, 1, &world_size, (int[]){1}, 0, &ring);
	MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
	make_types();
	for (long i = 0; i < (long)(sizeof(rows) / sizeof(*rows)); i++) {
		if ((only >= 0 && only != i) || (rows[i].deadly & this_mpi() && !all))
			continue;
		watch(PATIENCE, "%s", rows[i].text);
		report(rows[i].text, make(rows[i].call));
		/* The answer counts, where there is one. */
		if (rows[i].call == row_all_same_1 || rows[i].call == row_all_same_4)
			say("  leaves %d %d %d %d", values[0], values[1], values[2], values[3]);
	}
	watch(PATIENCE, "the end");
	if (this_mpi() == OPEN_MPIS)
		one_odd_rank();
	made_up(1);
	made_up(4);
	free_types();
	MPI_Comm_free(&ring);
	/* And after all that, it still works. */
	MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != world_size * (world_size - 1) / 2)
		fail("Allreduce after errors: wrong answer");
	say("errors: all ok, %d ranks", world_size);
	MPI_Finalize();
	return 0;
}
