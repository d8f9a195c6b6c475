/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Communicators of every making: used, used at different paces, made and freed by the hundred.
 */
#include <mpi.h>
#include <stdlib.h>

#include "program.h"
#include "team.h"

enum { TAG = 9, MANY = 24 };

static long cycles = 200, stall = 120;

static const struct option_spec options[] = {
    {"--cycles", OPTION_NUMBER, &cycles, "communicators to make and free (200)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one test may take (120)"},
    {0},
};

static void expect(const struct team *team, long got, long want, const char *what)
{
	if (got != want)
		fail("%s on %s (%d ranks): got %ld, want %ld", what, team->name, team->size, got,
		     want);
}

/* One of each collective, `times` times, all answers checked. */
static void use(const struct team *team, int times)
{
	for (int i = 0; i < times; i++) {
		int root = i % team->size;
		long mine = team->world[team->rank] + i, sum = -1, all = 0, least;
		long value = team->rank == root ? 100 + i : -1;

		least = team->world[0] + i;
		for (int rank = 0; rank < team->size; rank++) {
			all += team->world[rank] + i;
			if (team->world[rank] + i < least)
				least = team->world[rank] + i;
		}
		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, team->comm);
		expect(team, sum, all, "Allreduce");
		MPI_Barrier(team->comm);
		MPI_Bcast(&value, 1, MPI_LONG, root, team->comm);
		expect(team, value, 100 + i, "Bcast");
		MPI_Reduce(&mine, &sum, 1, MPI_LONG, MPI_MIN, root, team->comm);
		if (team->rank == root)
			expect(team, sum, least, "Reduce");
	}
}

static void use_and_free(MPI_Comm comm, const char *name, int times)
{
	struct team team;

	if (comm == MPI_COMM_NULL)
		return;
	team = team_of(comm, name);
	use(&team, times);
	free(team.world);
	MPI_Comm_free(&comm);
}

static void every_kind(void)
{
	struct team teams[TEAMS];

	teams_make(teams);
	for (int i = 0; i < TEAMS; i++)
		use(&teams[i], 50);
	/* Back and forth: operations of one must not be taken for those of another. */
	for (int i = 0; i < 50 * TEAMS; i++)
		use(&teams[i * 5 % TEAMS], 1);
	teams_free(teams);
}

static void other_makings(void)
{
	int dims[1] = {world_size}, periods[1] = {1}, range[1][3] = {{0, world_size - 1, 2}};
	MPI_Group world, even;
	MPI_Comm comm;

	MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 1, &comm);
	use_and_free(comm, "a ring", 20);

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
	use_and_free(comm, "those that share memory", 20);

	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_range_incl(world, 1, range, &even);
	MPI_Comm_create(MPI_COMM_WORLD, even, &comm);
	use_and_free(comm, "even ranks", 20);
	if (world_rank % 2 == 0) {
		MPI_Comm_create_group(MPI_COMM_WORLD, even, 0, &comm);
		use_and_free(comm, "even ranks by themselves", 20);
	}
	MPI_Group_free(&even);
	MPI_Group_free(&world);

	MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0 ? MPI_UNDEFINED : 1, 0, &comm);
	use_and_free(comm, "all but rank 0, who has none", 20);
}

/* Two halves that have nothing to do with each other, one ten times as busy. */
static void different_paces(void)
{
	MPI_Comm comm;

	MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &comm);
	use_and_free(comm, "halves at different paces", world_rank % 2 ? 1000 : 100);
}

/* Two halves joined by an intercommunicator; collectives on it are not those of its halves. */
static void joined(void)
{
	MPI_Comm half, inter, merged;
	long mine = world_rank, sum = -1, want = 0;
	int upper = 2 * world_rank >= world_size;

	MPI_Comm_split(MPI_COMM_WORLD, upper, 0, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, upper ? 0 : (world_size + 1) / 2, TAG,
			     &inter);
	for (int i = 0; i < 20; i++) {
		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, inter);
		MPI_Barrier(inter);
	}
	for (int rank = 0; rank < world_size; rank++)
		if ((2 * rank >= world_size) != upper)
			want += rank;
	if (sum != want)
		fail("Allreduce on an intercommunicator: got %ld, want %ld", sum, want);
	MPI_Intercomm_merge(inter, upper, &merged);
	use_and_free(merged, "two halves merged", 20);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&half);
}

static void many_at_once(void)
{
	struct team teams[MANY];
	MPI_Comm comm;

	for (int i = 0; i < MANY; i++) {
		MPI_Comm_dup(i ? teams[i - 1].comm : MPI_COMM_WORLD, &comm);
		teams[i] = team_of(comm, "one of many duplicates");
	}
	for (int i = 0; i < 10 * MANY; i++)
		use(&teams[i * 7 % MANY], 1);
	/* The parents first. */
	for (int i = 0; i < MANY; i++) {
		free(teams[i].world);
		MPI_Comm_free(&teams[i].comm);
		if (i + 1 < MANY)
			use(&teams[i + 1], 1);
	}
}

static void made_and_freed(void)
{
	for (long i = 0; i < cycles; i++) {
		MPI_Comm comm;

		if (i % 2)
			MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		else
			MPI_Comm_split(MPI_COMM_WORLD, (int)(world_rank + i) % 3,
				       (int)(i % 4 ? world_rank : -world_rank), &comm);
		use_and_free(comm, "one of many short-lived", 6);
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
    {"every kind", every_kind},		  {"other makings", other_makings},
    {"different paces", different_paces}, {"joined halves", joined},
    {"many at once", many_at_once},	  {"made and freed", made_and_freed},
};

int main(int argc, char **argv)
{
	program_start("subcomm", &argc, &argv, options);
	if (world_size < 2)
		fail("needs at least 2 ranks");
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		double start = now();

		watch((unsigned)stall, "%s", tests[i].name);
		tests[i].run();
		say("subcomm: %s: ok, %.0f ms", tests[i].name, (now() - start) * 1e3);
	}
	watch((unsigned)stall, "MPI_Finalize");
	say("subcomm: all ok, %d ranks, %ld cycles", world_size, cycles);
	MPI_Finalize();
	return 0;
}
