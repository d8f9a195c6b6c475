/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pending.h"

#include <stdlib.h>

#include "program.h"

/* Open MPI 4 looks at so many datatypes in MPI_Ialltoallw as a rank has neighbours, not ranks. */
enum { MOST_NEIGHBORS = 64 };

const char *const pending_names[PENDING_KINDS] = {
    "Iallreduce", "Ibcast",   "Ireduce",   "Ibarrier",	 "Iallgather", "Ialltoall",
    "Iscan",	  "Igatherv", "Iscatterv", "Ialltoallv", "Ialltoallw",
};

static void expect(long got, long want, const char *what)
{
	if (got != want)
		fail("%s: got %ld, want %ld", what, got, want);
}

int pending_is_from_root(int kind)
{
	return kind == IBCAST || kind == ISCATTERV;
}

static int has_many(int kind)
{
	return kind == IALLGATHER || kind == IALLTOALL || kind >= IGATHERV;
}

static int *counts(const struct pending *p)
{
	return p->shape;
}

static int *places(const struct pending *p)
{
	return p->shape + p->size;
}

static int *bytes(const struct pending *p)
{
	return p->shape + 2L * p->size;
}

static void prepare(struct pending *p, int kind, int root, long salt, MPI_Comm comm)
{
	MPI_Comm_rank(comm, &p->rank);
	MPI_Comm_size(comm, &p->size);
	p->kind = (enum pending_kind)kind;
	p->root = root;
	p->mine = salt + p->rank;
	p->answer = kind == IBCAST && p->rank == root ? p->mine : -1;
	p->request = MPI_REQUEST_NULL;
	p->many = NULL;
	p->shape = NULL;
	p->types = NULL;
	if (!has_many(kind))
		return;
	p->many = malloc(2 * (size_t)p->size * sizeof(long));
	for (int i = 0; i < 2 * p->size; i++)
		p->many[i] = i < p->size ? -1 : p->mine + 1000 * (i - p->size);
	p->shape = malloc(3 * (size_t)p->size * sizeof(int));
	p->types = malloc(((size_t)p->size + MOST_NEIGHBORS) * sizeof(*p->types));
	for (int i = 0; i < p->size; i++) {
		counts(p)[i] = 1;
		places(p)[i] = i;
		bytes(p)[i] = i * (int)sizeof(long);
	}
	for (int i = 0; i < p->size + MOST_NEIGHBORS; i++)
		p->types[i] = MPI_LONG;
}

void pending_start(struct pending *p, int kind, int root, long salt, MPI_Comm comm)
{
	prepare(p, kind, root, salt, comm);
	switch (p->kind) {
	case IALLREDUCE:
		MPI_Iallreduce(&p->mine, &p->answer, 1, MPI_LONG, MPI_SUM, comm, &p->request);
		break;
	case IBCAST:
		MPI_Ibcast(&p->answer, 1, MPI_LONG, root, comm, &p->request);
		break;
	case IREDUCE:
		MPI_Ireduce(&p->mine, &p->answer, 1, MPI_LONG, MPI_SUM, root, comm, &p->request);
		break;
	case IBARRIER:
		MPI_Ibarrier(comm, &p->request);
		break;
	case IALLGATHER:
		MPI_Iallgather(&p->mine, 1, MPI_LONG, p->many, 1, MPI_LONG, comm, &p->request);
		break;
	case IALLTOALL:
		MPI_Ialltoall(p->many + p->size, 1, MPI_LONG, p->many, 1, MPI_LONG, comm,
			      &p->request);
		break;
	case IGATHERV:
		MPI_Igatherv(&p->mine, 1, MPI_LONG, p->many, counts(p), places(p), MPI_LONG, root,
			     comm, &p->request);
		break;
	case ISCATTERV:
		MPI_Iscatterv(p->many + p->size, counts(p), places(p), MPI_LONG, &p->answer, 1,
			      MPI_LONG, root, comm, &p->request);
		break;
	case IALLTOALLV:
		MPI_Ialltoallv(p->many + p->size, counts(p), places(p), MPI_LONG, p->many,
			       counts(p), places(p), MPI_LONG, comm, &p->request);
		break;
	case IALLTOALLW:
		MPI_Ialltoallw(p->many + p->size, counts(p), bytes(p), p->types, p->many, counts(p),
			       bytes(p), p->types, comm, &p->request);
		break;
	default:
		MPI_Iscan(&p->mine, &p->answer, 1, MPI_LONG, MPI_SUM, comm, &p->request);
	}
}

void pending_block(int kind, int root, long salt, MPI_Comm comm)
{
	struct pending pending, *p = &pending;

	prepare(p, kind, root, salt, comm);
	switch (p->kind) {
	case IALLREDUCE:
		MPI_Allreduce(&p->mine, &p->answer, 1, MPI_LONG, MPI_SUM, comm);
		break;
	case IBCAST:
		MPI_Bcast(&p->answer, 1, MPI_LONG, root, comm);
		break;
	case IREDUCE:
		MPI_Reduce(&p->mine, &p->answer, 1, MPI_LONG, MPI_SUM, root, comm);
		break;
	case IBARRIER:
		MPI_Barrier(comm);
		break;
	case IALLGATHER:
		MPI_Allgather(&p->mine, 1, MPI_LONG, p->many, 1, MPI_LONG, comm);
		break;
	case IALLTOALL:
		MPI_Alltoall(p->many + p->size, 1, MPI_LONG, p->many, 1, MPI_LONG, comm);
		break;
	case IGATHERV:
		MPI_Gatherv(&p->mine, 1, MPI_LONG, p->many, counts(p), places(p), MPI_LONG, root,
			    comm);
		break;
	case ISCATTERV:
		MPI_Scatterv(p->many + p->size, counts(p), places(p), MPI_LONG, &p->answer, 1,
			     MPI_LONG, root, comm);
		break;
	case IALLTOALLV:
		MPI_Alltoallv(p->many + p->size, counts(p), places(p), MPI_LONG, p->many, counts(p),
			      places(p), MPI_LONG, comm);
		break;
	case IALLTOALLW:
		MPI_Alltoallw(p->many + p->size, counts(p), bytes(p), p->types, p->many, counts(p),
			      bytes(p), p->types, comm);
		break;
	default:
		MPI_Scan(&p->mine, &p->answer, 1, MPI_LONG, MPI_SUM, comm);
	}
	pending_check(p);
}

/* A block of each rank, or nothing where Igatherv is not to the own rank. */
static void check_many(const struct pending *p, long salt)
{
	int is_to_others = p->kind == IGATHERV && p->rank != p->root;
	int is_by_rank = p->kind != IALLGATHER && p->kind != IGATHERV;

	for (int i = 0; i < p->size; i++)
		expect(p->many[i], is_to_others ? -1 : salt + i + (is_by_rank ? 1000 * p->rank : 0),
		       pending_names[p->kind]);
}

void pending_check(struct pending *p)
{
	long n = p->size, salt = p->mine - p->rank;

	if (p->request != MPI_REQUEST_NULL)
		fail("%s: its request is not null", pending_names[p->kind]);
	if (p->kind == IALLREDUCE || (p->kind == IREDUCE && p->rank == p->root))
		expect(p->answer, n * salt + n * (n - 1) / 2, pending_names[p->kind]);
	if (p->kind == IBCAST)
		expect(p->answer, salt + p->root, "Ibcast");
	if (p->kind == ISCAN)
		expect(p->answer, (p->rank + 1) * salt + p->rank * (p->rank + 1) / 2, "Iscan");
	if (p->kind == ISCATTERV)
		expect(p->answer, salt + p->root + 1000 * p->rank, "Iscatterv");
	if (has_many(p->kind) && p->kind != ISCATTERV)
		check_many(p, salt);
	free(p->many);
	free(p->shape);
	free(p->types);
	p->many = NULL;
	p->shape = NULL;
	p->types = NULL;
}

void pending_finish(struct pending *p)
{
	MPI_Wait(&p->request, MPI_STATUS_IGNORE);
	pending_check(p);
}
