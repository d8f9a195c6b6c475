/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pending.h"

#include <stdlib.h>

#include "program.h"

const char *const pending_names[PENDING_KINDS] = {
    "Iallreduce", "Ibcast", "Ireduce", "Ibarrier", "Iallgather", "Ialltoall", "Iscan",
};

static void expect(long got, long want, const char *what)
{
	if (got != want)
		fail("%s: got %ld, want %ld", what, got, want);
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
	if (kind != IALLGATHER && kind != IALLTOALL)
		return;
	p->many = malloc(2 * (size_t)p->size * sizeof(long));
	for (int i = 0; i < 2 * p->size; i++)
		p->many[i] = i < p->size ? -1 : p->mine + 1000 * (i - p->size);
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
	default:
		MPI_Scan(&p->mine, &p->answer, 1, MPI_LONG, MPI_SUM, comm);
	}
	pending_check(p);
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
	for (int i = 0; p->many && i < p->size; i++)
		expect(p->many[i], salt + i + (p->kind == IALLTOALL ? 1000 * p->rank : 0),
		       pending_names[p->kind]);
	free(p->many);
	p->many = NULL;
}

void pending_finish(struct pending *p)
{
	MPI_Wait(&p->request, MPI_STATUS_IGNORE);
	pending_check(p);
}
