/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Between foldback and the MPI: counts what foldback itself has several ranks do together, and says so when the
 * process ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static int count;

static void together(MPI_Comm comm)
{
	int size = 0;

	PMPI_Comm_size(comm, &size);
	count += size > 1;
}

#define PASS_ON(name, comm, parameters, arguments)                                                 \
	int name parameters                                                                        \
	{                                                                                          \
		int(*real) parameters;                                                             \
                                                                                                   \
		*(void **)&real = dlsym(RTLD_NEXT, #name);                                         \
		together(comm);                                                                    \
		return real arguments;                                                             \
	}

PASS_ON(PMPI_Igather, comm,
	(const void *send, int count, MPI_Datatype type, void *recv, int each, MPI_Datatype its,
	 int root, MPI_Comm comm, MPI_Request *request),
	(send, count, type, recv, each, its, root, comm, request))
PASS_ON(PMPI_Ibcast, comm,
	(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request),
	(data, count, type, root, comm, request))
PASS_ON(PMPI_Allreduce, comm,
	(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	(send, recv, count, type, op, comm))
PASS_ON(PMPI_Allgather, comm,
	(const void *send, int count, MPI_Datatype type, void *recv, int each, MPI_Datatype its,
	 MPI_Comm comm),
	(send, count, type, recv, each, its, comm))
PASS_ON(PMPI_Comm_dup, comm, (MPI_Comm comm, MPI_Comm *copy), (comm, copy))

__attribute__((destructor)) static void tell(void)
{
	fprintf(stderr, "counter: %d\n", count);
}
