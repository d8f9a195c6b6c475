/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every collective in every form that there is: of the MPI at hand, or of what is interposed. */
#ifndef ISSUE_H
#define ISSUE_H

#include "call.h"

/* The arguments of any collective; each takes its own ones. */
struct arguments {
	const void *send;
	void *recv;
	int send_count, recv_count;
	const int *send_counts, *send_displs, *recv_counts, *recv_displs;
	const MPI_Count *send_counts_large, *recv_counts_large;
	const MPI_Aint *send_displs_large, *recv_displs_large;
	MPI_Datatype send_type, recv_type;
	MPI_Op op;
	int root;
	MPI_Comm comm;
};

/* The same on all ranks, if what is interposed is. */
bool issue_has(enum collective collective, enum form form, bool large);

/* Makes the call. `request` is set but for BLOCKING; a PERSISTENT one is not started. */
int issue(enum collective collective, enum form form, bool large, const struct arguments *arguments,
	  MPI_Request *request);

/* Does what is left of it: starts it if that is still to be done, and waits. */
void issue_complete(enum form form, MPI_Request *request);

#endif
