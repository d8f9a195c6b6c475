/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "issue.h"

#include <stdlib.h>

#include "persistent.h"

#if MPI_VERSION >= 4 && !defined(OPEN_MPI)
#define HAVE_LARGE 1
#else
#define HAVE_LARGE 0
#endif

enum { LARGE = FORMS };

bool issue_has(enum form form, bool large)
{
	return (form != PERSISTENT || HAVE_PERSISTENT) && (!large || HAVE_LARGE);
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

#if HAVE_LARGE
#define LARGE_CASES(Name, name, ARGUMENTS)                                                         \
	case LARGE + BLOCKING:                                                                     \
		return MPI_##Name##_c(ARGUMENTS(_large));                                          \
	case LARGE + NONBLOCKING:                                                                  \
		return MPI_I##name##_c(ARGUMENTS(_large), request);                                \
	case LARGE + PERSISTENT:                                                                   \
		return MPI_##Name##_init_c(ARGUMENTS(_large), MPI_INFO_NULL, request);
#else
#define LARGE_CASES(Name, name, ARGUMENTS)
#endif

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
