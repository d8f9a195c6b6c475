/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "issue.h"

#include <stdlib.h>

#include "persistent.h"

enum { LARGE = FORMS };

#if MPI_VERSION >= 4 && !defined(OPEN_MPI)
static bool has_large(enum collective collective)
{
	return collective != BARRIER;
}
#else
/* An interposed library may have what the MPI lacks. */
#define WEAK(Name, name, ...)                                                                      \
	int MPI_##Name##_c(__VA_ARGS__) __attribute__((weak));                                     \
	int MPI_I##name##_c(__VA_ARGS__, MPI_Request *) __attribute__((weak));                     \
	int MPI_##Name##_init_c(__VA_ARGS__, MPI_Info, MPI_Request *) __attribute__((weak));

#define SEND_TYPES const void *, MPI_Count, MPI_Datatype
#define RECV_TYPES void *, MPI_Count, MPI_Datatype
#define SEND_V_TYPES const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype
#define RECV_V_TYPES void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype
#define REDUCED const void *, RECV_TYPES, MPI_Op

WEAK(Allreduce, allreduce, REDUCED, MPI_Comm)
WEAK(Reduce, reduce, REDUCED, int, MPI_Comm)
WEAK(Bcast, bcast, RECV_TYPES, int, MPI_Comm)
WEAK(Allgather, allgather, SEND_TYPES, RECV_TYPES, MPI_Comm)
WEAK(Allgatherv, allgatherv, SEND_TYPES, RECV_V_TYPES, MPI_Comm)
WEAK(Gather, gather, SEND_TYPES, RECV_TYPES, int, MPI_Comm)
WEAK(Gatherv, gatherv, SEND_TYPES, RECV_V_TYPES, int, MPI_Comm)
WEAK(Scatter, scatter, SEND_TYPES, RECV_TYPES, int, MPI_Comm)
WEAK(Scatterv, scatterv, SEND_V_TYPES, RECV_TYPES, int, MPI_Comm)
WEAK(Alltoall, alltoall, SEND_TYPES, RECV_TYPES, MPI_Comm)
WEAK(Alltoallv, alltoallv, SEND_V_TYPES, RECV_V_TYPES, MPI_Comm)
WEAK(Reduce_scatter, reduce_scatter, const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op,
     MPI_Comm)
WEAK(Reduce_scatter_block, reduce_scatter_block, REDUCED, MPI_Comm)
WEAK(Scan, scan, REDUCED, MPI_Comm)
WEAK(Exscan, exscan, REDUCED, MPI_Comm)

#define THERE(Name) (MPI_##Name##_c && MPI_##Name##_init_c)

static bool has_large(enum collective collective)
{
	const bool there[COLLECTIVES] = {
	    [ALLREDUCE] = THERE(Allreduce),
	    [REDUCE] = THERE(Reduce),
	    [BCAST] = THERE(Bcast),
	    [ALLGATHER] = THERE(Allgather),
	    [ALLGATHERV] = THERE(Allgatherv),
	    [GATHER] = THERE(Gather),
	    [GATHERV] = THERE(Gatherv),
	    [SCATTER] = THERE(Scatter),
	    [SCATTERV] = THERE(Scatterv),
	    [ALLTOALL] = THERE(Alltoall),
	    [ALLTOALLV] = THERE(Alltoallv),
	    [REDUCE_SCATTER] = THERE(Reduce_scatter),
	    [REDUCE_SCATTER_BLOCK] = THERE(Reduce_scatter_block),
	    [SCAN] = THERE(Scan),
	    [EXSCAN] = THERE(Exscan),
	};

	return there[collective];
}
#endif

bool issue_has(enum collective collective, enum form form, bool large)
{
	return (form != PERSISTENT || HAVE_PERSISTENT) && (!large || has_large(collective));
}

/* The cases of one collective whose arguments are ARGUMENTS(suffix of the arrays). */
#define PLAIN_CASES(Name, name, ARGUMENTS)                                                         \
	case BLOCKING:                                                                             \
		return MPI_##Name(ARGUMENTS());                                                    \
	case NONBLOCKING:                                                                          \
		return MPI_I##name(ARGUMENTS(), request);

#if HAVE_PERSISTENT
#define PERSISTENT_CASE(Name, ARGUMENTS)                                                           \
	case PERSISTENT:                                                                           \
		return PERSISTENT_NAME(Name)(ARGUMENTS(), MPI_INFO_NULL, request);
#else
#define PERSISTENT_CASE(Name, ARGUMENTS)
#endif

#define LARGE_CASES(Name, name, ARGUMENTS)                                                         \
	case LARGE + BLOCKING:                                                                     \
		return MPI_##Name##_c(ARGUMENTS(_large));                                          \
	case LARGE + NONBLOCKING:                                                                  \
		return MPI_I##name##_c(ARGUMENTS(_large), request);                                \
	case LARGE + PERSISTENT:                                                                   \
		return MPI_##Name##_init_c(ARGUMENTS(_large), MPI_INFO_NULL, request);

#define ISSUE(Name, name, ARGUMENTS)                                                               \
	switch ((int)form + (large ? LARGE : 0)) {                                                 \
		PLAIN_CASES(Name, name, ARGUMENTS)                                                 \
		PERSISTENT_CASE(Name, ARGUMENTS)                                                   \
		LARGE_CASES(Name, name, ARGUMENTS)                                                 \
	default:                                                                                   \
		abort();                                                                           \
	}

#define SEND a->send, a->send_count, a->send_type
#define RECV a->recv, a->recv_count, a->recv_type
#define SEND_V(suffix) a->send, a->send_counts##suffix, a->send_displs##suffix, a->send_type
#define RECV_V(suffix) a->recv, a->recv_counts##suffix, a->recv_displs##suffix, a->recv_type

#define REDUCTION(suffix) a->send, a->recv, a->recv_count, a->recv_type, a->op, a->comm
#define REDUCE_ONE(suffix) a->send, a->recv, a->recv_count, a->recv_type, a->op, a->root, a->comm
#define REDUCE_V(suffix) a->send, a->recv, a->recv_counts##suffix, a->recv_type, a->op, a->comm
#define ONE(suffix) RECV, a->root, a->comm
#define ALL(suffix) SEND, RECV, a->comm
#define ALL_RECV_V(suffix) SEND, RECV_V(suffix), a->comm
#define ALL_V(suffix) SEND_V(suffix), RECV_V(suffix), a->comm
#define ROOTED(suffix) SEND, RECV, a->root, a->comm
#define ROOTED_RECV_V(suffix) SEND, RECV_V(suffix), a->root, a->comm
#define ROOTED_SEND_V(suffix) SEND_V(suffix), RECV, a->root, a->comm
#define NO_MORE(suffix) a->comm

static int barrier(enum form form, const struct arguments *a, MPI_Request *request)
{
	switch ((int)form) {
		PLAIN_CASES(Barrier, barrier, NO_MORE)
		PERSISTENT_CASE(Barrier, NO_MORE)
	default:
		abort();
	}
}

int issue(enum collective collective, enum form form, bool large, const struct arguments *a,
	  MPI_Request *request)
{
	switch (collective) {
	case ALLREDUCE:
		ISSUE(Allreduce, allreduce, REDUCTION)
	case REDUCE:
		ISSUE(Reduce, reduce, REDUCE_ONE)
	case BCAST:
		ISSUE(Bcast, bcast, ONE)
	case BARRIER:
		return barrier(form, a, request); /* which counts nothing, so never large */
	case ALLGATHER:
		ISSUE(Allgather, allgather, ALL)
	case ALLGATHERV:
		ISSUE(Allgatherv, allgatherv, ALL_RECV_V)
	case GATHER:
		ISSUE(Gather, gather, ROOTED)
	case GATHERV:
		ISSUE(Gatherv, gatherv, ROOTED_RECV_V)
	case SCATTER:
		ISSUE(Scatter, scatter, ROOTED)
	case SCATTERV:
		ISSUE(Scatterv, scatterv, ROOTED_SEND_V)
	case ALLTOALL:
		ISSUE(Alltoall, alltoall, ALL)
	case ALLTOALLV:
		ISSUE(Alltoallv, alltoallv, ALL_V)
	case REDUCE_SCATTER:
		ISSUE(Reduce_scatter, reduce_scatter, REDUCE_V)
	case REDUCE_SCATTER_BLOCK:
		ISSUE(Reduce_scatter_block, reduce_scatter_block, REDUCTION)
	case SCAN:
		ISSUE(Scan, scan, REDUCTION)
	case EXSCAN:
		ISSUE(Exscan, exscan, REDUCTION)
	default:
		abort();
	}
}

void issue_complete(enum form form, MPI_Request *request)
{
	if (form == PERSISTENT)
		MPI_Start(request);
	if (form != BLOCKING)
		MPI_Wait(request, MPI_STATUS_IGNORE);
	if (form == PERSISTENT)
		MPI_Request_free(request);
}
