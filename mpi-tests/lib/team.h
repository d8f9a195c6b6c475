/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The communicators that tests use. Every rank of MPI_COMM_WORLD is in one team of each kind. */
#ifndef TEAM_H
#define TEAM_H

#include <mpi.h>
#include <stdbool.h>

enum {
	TEAM_WORLD,
	TEAM_DUPLICATE,
	TEAM_REVERSED, /* all ranks, in reversed order */
	TEAM_PARITY,   /* even and odd ranks */
	TEAM_HALVES,   /* lower and upper ranks, reversed */
	TEAM_BUT_ONE,  /* all but rank 0, who is alone */
	TEAM_SELF,
	TEAMS,
};

struct team {
	const char *name;
	MPI_Comm comm;
	int rank;
	int size;
	int *world; /* ranks in MPI_COMM_WORLD */
	/* Only set by teams_make(): */
	int hosts;	/* how many the ranks are on */
	bool lone_zero; /* rank 0 is alone on its host, others are not on theirs */
};

void teams_make(struct team teams[TEAMS]);
void teams_free(struct team teams[TEAMS]);

/* All ranks, in order and reversed, settled by so many calls each. */
void teams_make_both(struct team both[2], long calls);
void teams_free_both(struct team both[2]);

/* A library may set itself up only after some calls on a communicator, and leave those to the real
 * MPI. So makes some on each, that every MPI answers right; `stall` is watch()'s, for each. */
void teams_settle(const struct team teams[TEAMS], long calls, unsigned stall);

/* A team of a communicator that the caller owns. */
struct team team_of(MPI_Comm comm, const char *name);

#endif
