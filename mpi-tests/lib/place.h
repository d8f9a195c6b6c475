/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Communicators on which blocks go from rank to rank, and who is linked with whom on them. */
#ifndef PLACE_H
#define PLACE_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOST_EDGES = 256, MOST_DIMENSIONS = 3 };

/* One way that blocks go. Both ends give it the same name. */
struct edge {
	int from, to; /* ranks of MPI_COMM_WORLD; -1: MPI_PROC_NULL */
	int which;    /* of several from one to the other */
};

struct place {
	MPI_Comm comm;
	char name[96];
	int n_local, n_peers; /* the groups, which are one but on an intercommunicator */
	int local[MOST_EDGES], peers[MOST_EDGES]; /* ranks of MPI_COMM_WORLD */
	int index;				  /* of this rank, in `local` */
	bool is_inter, is_second;		  /* the second group of an intercommunicator */
	bool has_topology;
	bool wraps_short; /* a periodic dimension of 1 or 2 */
	bool repeats;	  /* several edges from one to the other, but for the two of a dimension */
	int n_out, n_in;
	struct edge out[MOST_EDGES], in[MOST_EDGES];
};

/* Each takes what it makes for its own, and place_free() frees it. A rank that has no part in a
 * place has MPI_COMM_NULL there. */
struct place place_of(MPI_Comm comm, const char *name);
struct place place_between(MPI_Comm comm, const char *name);
struct place place_cartesian(MPI_Comm comm, int n, const int *dims, const int *periods,
			     bool reorder);

/* Graphs that `salt` chooses, with edges to oneself and repeated ones. The first has all edges in
 * both directions. */
struct place place_graph(MPI_Comm comm, uint64_t salt);
struct place place_adjacent(MPI_Comm comm, uint64_t salt);
struct place place_distributed(MPI_Comm comm, uint64_t salt);
void place_free(struct place *place);

#endif
