/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The collectives, as far as their arguments and answers go. */
#ifndef COLLECTIVE_H
#define COLLECTIVE_H

#include <stdbool.h>

enum collective {
	ALLREDUCE,
	REDUCE,
	BCAST,
	BARRIER,
	ALLGATHER,
	ALLGATHERV,
	GATHER,
	GATHERV,
	SCATTER,
	SCATTERV,
	ALLTOALL,
	ALLTOALLV,
	REDUCE_SCATTER,
	REDUCE_SCATTER_BLOCK,
	SCAN,
	EXSCAN,
	COLLECTIVES,
};

struct collective_traits {
	const char *name;     /* "Allreduce" */
	bool rooted;	      /* one rank is special */
	bool reduces;	      /* takes an operation */
	bool sends_blocks;    /* one for each rank, where anything is sent */
	bool receives_blocks; /* one from each rank, where anything is received */
	bool vector;	      /* the blocks' sizes differ */
};

extern const struct collective_traits collectives[COLLECTIVES];

#endif
