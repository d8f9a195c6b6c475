/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <stdlib.h>

#include "exchange.h"
#include "persistent.h"

enum { LARGE = FORMS };

#if MPI_VERSION >= 4 && !defined(OPEN_MPI)
static bool has_large(enum exchange_kind kind)
{
	(void)kind;
	return true;
}
#else
/* An interposed library may have what the MPI lacks. */
#define WEAK(Name, name, ...)                                                                      \
	int MPI_##Name##_c(__VA_ARGS__) __attribute__((weak));                                     \
	int MPI_I##name##_c(__VA_ARGS__, MPI_Request *) __attribute__((weak));                     \
	int MPI_##Name##_init_c(__VA_ARGS__, MPI_Info, MPI_Request *) __attribute__((weak));

#define SEND_ONE const void *, MPI_Count, MPI_Datatype
#define RECV_ONE void *, MPI_Count, MPI_Datatype
#define SEND_MANY const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype
#define RECV_MANY void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype
#define SEND_EACH const void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *
#define RECV_EACH void *, const MPI_Count *, const MPI_Aint *, const MPI_Datatype *

WEAK(Gatherv, gatherv, SEND_ONE, RECV_MANY, int, MPI_Comm)
WEAK(Scatterv, scatterv, SEND_MANY, RECV_ONE, int, MPI_Comm)
WEAK(Alltoallv, alltoallv, SEND_MANY, RECV_MANY, MPI_Comm)
WEAK(Alltoallw, alltoallw, SEND_EACH, RECV_EACH, MPI_Comm)
WEAK(Neighbor_allgather, neighbor_allgather, SEND_ONE, RECV_ONE, MPI_Comm)
WEAK(Neighbor_allgatherv, neighbor_allgatherv, SEND_ONE, RECV_MANY, MPI_Comm)
WEAK(Neighbor_alltoall, neighbor_alltoall, SEND_ONE, RECV_ONE, MPI_Comm)
WEAK(Neighbor_alltoallv, neighbor_alltoallv, SEND_MANY, RECV_MANY, MPI_Comm)
WEAK(Neighbor_alltoallw, neighbor_alltoallw, SEND_EACH, RECV_EACH, MPI_Comm)

#define THERE(Name) (MPI_##Name##_c && MPI_##Name##_init_c)

static bool has_large(enum exchange_kind kind)
{
	const bool there[EXCHANGES] = {
	    [X_GATHERV] = THERE(Gatherv),
	    [X_SCATTERV] = THERE(Scatterv),
	    [X_ALLTOALLV] = THERE(Alltoallv),
	    [X_ALLTOALLW] = THERE(Alltoallw),
	    [X_NEIGHBOR_ALLGATHER] = THERE(Neighbor_allgather),
	    [X_NEIGHBOR_ALLGATHERV] = THERE(Neighbor_allgatherv),
	    [X_NEIGHBOR_ALLTOALL] = THERE(Neighbor_alltoall),
	    [X_NEIGHBOR_ALLTOALLV] = THERE(Neighbor_alltoallv),
	    [X_NEIGHBOR_ALLTOALLW] = THERE(Neighbor_alltoallw),
	};

	return there[kind];
}
#endif

bool exchange_has(enum exchange_kind kind, enum form form, bool large)
{
	return (form != PERSISTENT || HAVE_PERSISTENT) && (!large || has_large(kind));
}

#if HAVE_PERSISTENT
#define PERSISTENT_CASE(Name, ARGUMENTS)                                                           \
	case PERSISTENT:                                                                           \
		return PERSISTENT_NAME(Name)(ARGUMENTS(, displs), MPI_INFO_NULL, request);
#else
#define PERSISTENT_CASE(Name, ARGUMENTS)
#endif

/* `displs`: the array of displacements where counts are plain integers. */
#define ISSUE(Name, name, ARGUMENTS)                                                               \
	switch ((int)call->form + (call->large ? LARGE : 0)) {                                     \
	case BLOCKING:                                                                             \
		return MPI_##Name(ARGUMENTS(, displs));                                            \
	case NONBLOCKING:                                                                          \
		return MPI_I##name(ARGUMENTS(, displs), request);                                  \
		PERSISTENT_CASE(Name, ARGUMENTS)                                                   \
	case LARGE + BLOCKING:                                                                     \
		return MPI_##Name##_c(ARGUMENTS(large_, large_displs));                            \
	case LARGE + NONBLOCKING:                                                                  \
		return MPI_I##name##_c(ARGUMENTS(large_, large_displs), request);                  \
	case LARGE + PERSISTENT:                                                                   \
		return MPI_##Name##_init_c(ARGUMENTS(large_, large_displs), MPI_INFO_NULL,         \
					   request);                                               \
	default:                                                                                   \
		abort();                                                                           \
	}

#define ONE(side) side->address, side->count, side->type
#define MANY(side, large, displs) side->address, side->large##counts, side->displs, side->type
#define EACH(side, large, displs) side->address, side->large##counts, side->displs, side->types

#define ONE_MANY_ROOT(large, displs) ONE(send), MANY(recv, large, displs), root, comm
#define MANY_ONE_ROOT(large, displs) MANY(send, large, displs), ONE(recv), root, comm
#define MANY_MANY(large, displs) MANY(send, large, displs), MANY(recv, large, displs), comm
#define EACH_EACH(large, displs) EACH(send, large, displs), EACH(recv, large, displs), comm
/* Its displacements are always of MPI_Aint. */
#define EACH_EACH_WIDE(large, displs)                                                              \
	EACH(send, large, large_displs), EACH(recv, large, large_displs), comm
#define ONE_ONE(large, displs) ONE(send), ONE(recv), comm
#define ONE_MANY(large, displs) ONE(send), MANY(recv, large, displs), comm

int exchange_issue(const struct exchange_call *call, const struct exchange_side *send,
		   const struct exchange_side *recv, int root, MPI_Comm comm, MPI_Request *request)
{
	switch (call->kind) {
	case X_GATHERV:
		ISSUE(Gatherv, gatherv, ONE_MANY_ROOT)
	case X_SCATTERV:
		ISSUE(Scatterv, scatterv, MANY_ONE_ROOT)
	case X_ALLTOALLV:
		ISSUE(Alltoallv, alltoallv, MANY_MANY)
	case X_ALLTOALLW:
		ISSUE(Alltoallw, alltoallw, EACH_EACH)
	case X_NEIGHBOR_ALLGATHER:
		ISSUE(Neighbor_allgather, neighbor_allgather, ONE_ONE)
	case X_NEIGHBOR_ALLGATHERV:
		ISSUE(Neighbor_allgatherv, neighbor_allgatherv, ONE_MANY)
	case X_NEIGHBOR_ALLTOALL:
		ISSUE(Neighbor_alltoall, neighbor_alltoall, ONE_ONE)
	case X_NEIGHBOR_ALLTOALLV:
		ISSUE(Neighbor_alltoallv, neighbor_alltoallv, MANY_MANY)
	case X_NEIGHBOR_ALLTOALLW:
		ISSUE(Neighbor_alltoallw, neighbor_alltoallw, EACH_EACH_WIDE)
	default:
		abort();
	}
}
