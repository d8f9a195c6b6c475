/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Collectives in which each pair of ranks has a block of its own length: arguments, data, and the
 * right answer, which every rank computes without the others.
 */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "call.h" /* enum form */
#include "map.h"
#include "place.h"

enum exchange_kind {
	X_GATHERV,
	X_SCATTERV,
	X_ALLTOALLV,
	X_ALLTOALLW,
	X_NEIGHBOR_ALLGATHER,
	X_NEIGHBOR_ALLGATHERV,
	X_NEIGHBOR_ALLTOALL,
	X_NEIGHBOR_ALLTOALLV,
	X_NEIGHBOR_ALLTOALLW,
	EXCHANGES,
};

struct exchange_traits {
	const char *name;
	bool rooted, neighbour;
	bool uniform;	/* all blocks are of one length, and lie side by side */
	bool by_source; /* a rank sends the same to all */
	bool types;	/* each block has its own datatype and bytes of displacement */
};

extern const struct exchange_traits exchange_traits[EXCHANGES];

/* The same on all ranks. */
struct exchange_call {
	uint64_t id; /* of all choices and data */
	enum exchange_kind kind;
	enum form form;
	bool large;	  /* by the functions that take an MPI_Count */
	int root;	  /* in its group */
	bool second_root; /* the root is in the second group of an intercommunicator */
	bool in_place;
	bool shared;   /* all blocks are sent from the same memory */
	bool absolute; /* Alltoallw: MPI_BOTTOM, and addresses in the datatypes */
	bool derived;  /* each rank its own datatypes, with the same signature */
	bool nothings; /* blocks of nothing may be several elements of no bytes, at one end alone */
	size_t element, grain; /* bytes; elements of a derived datatype */
	size_t bytes;	       /* of the longest block */
	bool exact;	       /* all blocks are that long */
};

/* All that one rank sends, or receives. */
struct exchange_side {
	int n;
	const struct edge *edges;
	size_t *elements, *at; /* of each block: length, and bytes from `memory` */
	struct map *maps;
	size_t bytes;
	unsigned char *memory, *image; /* the buffer; what is to be in it in the end */
	void *address;		       /* to give to MPI */
	int count, *counts, *displs;
	MPI_Count *large_counts;
	MPI_Aint *large_displs; /* also of Neighbor_alltoallw without large counts */
	MPI_Datatype type, *types;
};

struct exchange {
	struct exchange_call call;
	const struct place *place;
	struct exchange_side send, recv;
	struct edge *edges; /* of blocks to all and from all, and of a single block */
	int root;	    /* to give to MPI */
	MPI_Request request;
	unsigned round;
};

/* A call that the place allows, of blocks of at most so many bytes. */
struct exchange_call exchange_choose(const struct place *place, uint64_t id, size_t most);

/* Makes one ready for exchange_start(), and fills buffers with the data of a round. */
void exchange_make(struct exchange *exchange, const struct place *place,
		   const struct exchange_call *call);
void exchange_load(struct exchange *exchange, unsigned round);

/* Makes the call, or starts what exchange_load() has filled again. */
void exchange_start(struct exchange *exchange);

/* Frees the datatypes, which MPI keeps until the call is complete. */
void exchange_free_types(struct exchange *exchange);

/* Compares all memory of both sides with what it should be. */
void exchange_check(const struct exchange *exchange);
void exchange_free(struct exchange *exchange);

/* "Ialltoallv_c in place of at most 20480 bytes on a grid 2 2" */
const char *exchange_describe(const struct exchange_call *call, const struct place *place);

/* Whether the MPI has the form; the call by that form. */
bool exchange_has(enum exchange_kind kind, enum form form, bool large);
int exchange_issue(const struct exchange_call *call, const struct exchange_side *send,
		   const struct exchange_side *recv, int root, MPI_Comm comm, MPI_Request *request);

#endif
