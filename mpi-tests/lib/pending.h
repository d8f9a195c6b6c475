/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A small non-blocking collective under way, and its answer. */
#ifndef PENDING_H
#define PENDING_H

#include <mpi.h>

enum pending_kind {
	IALLREDUCE,
	IBCAST,
	IREDUCE,
	IBARRIER,
	IALLGATHER,
	IALLTOALL,
	ISCAN,
	IGATHERV,
	ISCATTERV,
	IALLTOALLV,
	IALLTOALLW,
	PENDING_KINDS,
};

struct pending {
	enum pending_kind kind;
	int root, rank, size;
	long mine, answer;
	long *many; /* what is received, what is sent */
	int *shape; /* counts of one, places in elements and in bytes, for each rank */
	MPI_Datatype *types;
	MPI_Request request;
};

extern const char *const pending_names[PENDING_KINDS];

/* Whether only the root has something to send: then it need not wait for the others. */
int pending_is_from_root(int kind);

/* `salt`, the same on all ranks, makes each operation's answer another. */
void pending_start(struct pending *pending, int kind, int root, long salt, MPI_Comm comm);

/* Once it is complete: fails if the answer is wrong. */
void pending_check(struct pending *pending);

/* Waits and checks. */
void pending_finish(struct pending *pending);

/* The same operation, blocking. */
void pending_block(int kind, int root, long salt, MPI_Comm comm);

#endif
