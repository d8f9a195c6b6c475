/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "team.h"

#include <stdlib.h>

#include "program.h"

struct team team_of(MPI_Comm comm, const char *name)
{
	struct team team = {.name = name, .comm = comm};
	MPI_Group group, world;
	int *ranks;

	MPI_Comm_rank(comm, &team.rank);
	MPI_Comm_size(comm, &team.size);
	team.world = malloc((size_t)team.size * sizeof(int));
	ranks = malloc((size_t)team.size * sizeof(int));
	for (int i = 0; i < team.size; i++)
		ranks[i] = i;
	MPI_Comm_group(comm, &group);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_translate_ranks(group, team.size, ranks, world, team.world);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
	free(ranks);
	return team;
}

static struct team split(const char *name, int color, int key)
{
	MPI_Comm comm;

	MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm);
	return team_of(comm, name);
}

/* Counts the hosts of a team. `leader` has the lowest rank of each rank's host. */
static void place(struct team *team, const int *leader)
{
	int *ranks = calloc((size_t)world_size, sizeof(int)), most = 0;

	for (int rank = 0; rank < team->size; rank++) {
		int here = ++ranks[leader[team->world[rank]]];

		team->hosts += here == 1;
		most = here > most ? here : most;
	}
	team->lone_zero = ranks[leader[team->world[0]]] == 1 && most > 1;
	free(ranks);
}

/* By PMPI, which no interposed library counts. */
static void place_all(struct team teams[TEAMS])
{
	int *leader = malloc((size_t)world_size * sizeof(int)), mine = world_rank;
	MPI_Comm host;

	PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
	PMPI_Bcast(&mine, 1, MPI_INT, 0, host);
	PMPI_Allgather(&mine, 1, MPI_INT, leader, 1, MPI_INT, MPI_COMM_WORLD);
	PMPI_Comm_free(&host);
	for (int i = 0; i < TEAMS; i++)
		place(&teams[i], leader);
	free(leader);
}

void teams_make(struct team teams[TEAMS])
{
	int rank = world_rank;
	MPI_Comm duplicate;

	MPI_Comm_dup(MPI_COMM_WORLD, &duplicate);
	teams[TEAM_WORLD] = team_of(MPI_COMM_WORLD, "MPI_COMM_WORLD");
	teams[TEAM_DUPLICATE] = team_of(duplicate, "a duplicate");
	teams[TEAM_REVERSED] = split("all reversed", 0, -rank);
	teams[TEAM_PARITY] = split("even and odd", rank % 2, rank);
	teams[TEAM_HALVES] = split("halves reversed", 2 * rank < world_size, -rank);
	teams[TEAM_BUT_ONE] = split("all but rank 0", rank == 0, rank);
	teams[TEAM_SELF] = team_of(MPI_COMM_SELF, "MPI_COMM_SELF");
	place_all(teams);
}

void teams_free(struct team teams[TEAMS])
{
	for (int i = 0; i < TEAMS; i++) {
		free(teams[i].world);
		if (i != TEAM_WORLD && i != TEAM_SELF)
			MPI_Comm_free(&teams[i].comm);
	}
}

static void settle(const struct team *team, long calls, unsigned stall)
{
	for (long i = 0; i < calls; i++) {
		int sum = -1;

		watch(stall, "settling down on %s", team->name);
		MPI_Allreduce(&team->rank, &sum, 1, MPI_INT, MPI_SUM, team->comm);
		if (sum != team->size * (team->size - 1) / 2)
			fail("wrong sum %d while settling down on %s", sum, team->name);
	}
}

void teams_settle(const struct team teams[TEAMS], long calls, unsigned stall)
{
	for (int i = 0; i < TEAMS; i++)
		settle(&teams[i], calls, stall);
}

void teams_make_both(struct team both[2], long calls)
{
	both[0] = team_of(MPI_COMM_WORLD, "MPI_COMM_WORLD");
	both[1] = split("all reversed", 0, -world_rank);
	for (int i = 0; i < 2; i++)
		settle(&both[i], calls, PATIENCE);
}

void teams_free_both(struct team both[2])
{
	free(both[0].world);
	free(both[1].world);
	MPI_Comm_free(&both[1].comm);
}
