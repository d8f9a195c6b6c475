/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Between foldback and the MPI: counts the collectives that foldback itself makes, on several ranks and on one, and says so
 * when the process ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static int together, alone;

static void count(MPI_Comm comm)
{
	int size = 0;

	PMPI_Comm_size(comm, &size);
	*(size > 1 ? &together : &alone) += 1;
}

#define PASS_ON(name, comm, parameters, arguments)                                                 \
	int name parameters                                                                        \
	{                                                                                          \
		int(*real) parameters;                                                             \
                                                                                                   \
		*(void **)&real = dlsym(RTLD_NEXT, #name);                                         \
		count(comm);                                                                       \
		return real arguments;                                                             \
	}

PASS_ON(PMPI_Igather, comm,
	(const void *send, int elements, MPI_Datatype type, void *recv, int each, MPI_Datatype its,
	 int root, MPI_Comm comm, MPI_Request *request),
	(send, elements, type, recv, each, its, root, comm, request))
PASS_ON(PMPI_Ibcast, comm,
	(void *data, int elements, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request),
	(data, elements, type, root, comm, request))
PASS_ON(PMPI_Allreduce, comm,
	(const void *send, void *recv, int elements, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
	(send, recv, elements, type, op, comm))
PASS_ON(PMPI_Allgather, comm,
	(const void *send, int elements, MPI_Datatype type, void *recv, int each, MPI_Datatype its,
	 MPI_Comm comm),
	(send, elements, type, recv, each, its, comm))
PASS_ON(PMPI_Comm_dup, comm, (MPI_Comm comm, MPI_Comm *copy), (comm, copy))

__attribute__((destructor)) static void tell(void)
{
	fprintf(stderr, "counter: %d together, %d alone\n", together, alone);
}
