/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Requests under way, of any kind, and every way that MPI has to wait for them. */
#ifndef WAITING_H
#define WAITING_H

#include <mpi.h>
#include <stdbool.h>

#include "random.h"

enum { WAITING_MOST = 256 };

/* Facts about a request that are known beforehand. */
struct waited {
	MPI_Request *request; /* the owner's; MPI_REQUEST_NULL when complete, unless persistent */
	bool persistent;
	bool receives; /* a message: its status must say `source`, `tag`, `bytes` */
	int source, tag, bytes;
	void *owner;
};

struct waiting {
	struct waited all[WAITING_MOST];
	int n;
	void (*complete)(void *owner); /* called once for each request */
};

void waiting_add(struct waiting *waiting, const struct waited *waited);

/* Waits for some of them, or for one owner's, in a way chosen by `local`. */
void waiting_finish(struct waiting *waiting, int how_many, struct random *local);
void waiting_finish_owner(struct waiting *waiting, void *owner, struct random *local);

/* Tests once, which may find something complete. */
void waiting_poke(struct waiting *waiting, struct random *local);

#endif
