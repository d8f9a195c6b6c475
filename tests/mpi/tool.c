/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A profiling library: WAITS wraps the waits, else the blocking collectives of a program. */
#include <mpi.h>

#ifdef WAITS
int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
	return PMPI_Wait(request, status);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
	return PMPI_Waitall(count, requests, statuses);
}
#else
int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
		  MPI_Comm comm)
{
	return PMPI_Allreduce(send, recv, count, type, op, comm);
}
#endif
