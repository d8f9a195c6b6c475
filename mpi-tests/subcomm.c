/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Communicators of every making: used, used at different paces, made and freed by the hundred.
 */
#include <dirent.h>
#include <mpi.h>
#include <stdlib.h>

#include "pending.h"
#include "program.h"
#include "team.h"

enum { TAG = 9, MANY = 24 };

static long cycles = 1000, stall = PATIENCE, late;

static const struct option_spec options[] = {
    {"--cycles", OPTION_NUMBER, &cycles, "communicators to make and free (1000)"},
    {"--late", OPTION_NUMBER, &late,
     "seconds by which the last rank comes late to a communicator (0)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one test may take (300)"},
    {0},
};

static void expect(const struct team *team, long got, long want, const char *what)
{
	if (got != want)
		fail("%s on %s (%d ranks): got %ld, want %ld", what, team->name, team->size, got,
		     want);
}

/* One of the other collectives, blocking and not. */
static void use_others(const struct team *team, int number)
{
	int kind = number % PENDING_KINDS, root = number % team->size;
	struct pending pending;

	pending_block(kind, root, number, team->comm);
	pending_start(&pending, (kind + 3) % PENDING_KINDS, root, number, team->comm);
	pending_finish(&pending);
}

/* One of each reduction and so on, `times` times, all answers checked. */
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
		use_others(team, i);
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
	/* Back and forth: operations of one must not be taken for another's. */
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

/* The neighbours in a ring, of a rank in the old communicator. */
static void ring(int *left, int *right)
{
	*left = (world_rank + world_size - 1) % world_size;
	*right = (world_rank + 1) % world_size;
}

static void grids(void)
{
	int dims[2] = {0, 0}, periods[2] = {1, 0};
	MPI_Comm grid, part;

	MPI_Dims_create(world_size, 2, dims);
	MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
	for (int i = 0; i < 4; i++) {
		int remain[2] = {i & 1, i >> 1};

		/* All, rows, columns, each rank alone. */
		MPI_Cart_sub(grid, remain, &part);
		use_and_free(part, "a part of a grid", 20);
	}
	/* Some ranks are left out. */
	dims[0] = world_size / 2;
	MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &part);
	use_and_free(part, "a line of half of the ranks", 20);
	use_and_free(grid, "a grid", 20);
}

static void graphs(void)
{
	int *index = malloc((size_t)world_size * sizeof(int));
	int *edges = malloc(2 * (size_t)world_size * sizeof(int));
	int neighbours[2], weights[2] = {1, 1}, values[2] = {-1, -1}, degree = 2;
	MPI_Comm comm;

	for (int i = 0; i < world_size; i++) {
		index[i] = 2 * (i + 1);
		edges[2 * i] = (i + world_size - 1) % world_size;
		edges[2 * i + 1] = (i + 1) % world_size;
	}
	MPI_Graph_create(MPI_COMM_WORLD, world_size, index, edges, 0, &comm);
	use_and_free(comm, "a graph", 20);
	ring(&neighbours[0], &neighbours[1]);
	MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &world_rank, &degree, neighbours, weights,
			      MPI_INFO_NULL, 0, &comm);
	use_and_free(comm, "a distributed graph", 20);
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, neighbours, weights, 2, neighbours,
				       weights, MPI_INFO_NULL, 0, &comm);
	/* A collective of neighbours is none of all. */
	MPI_Neighbor_allgather(&world_rank, 1, MPI_INT, values, 1, MPI_INT, comm);
	if (values[0] != neighbours[0] || values[1] != neighbours[1])
		fail("Neighbor_allgather: got %d and %d", values[0], values[1]);
	use_and_free(comm, "a graph of neighbours", 20);
	free(index);
	free(edges);
}

/* Duplicates of duplicates, with operations while they are made. */
static void duplicates(void)
{
	MPI_Comm first, second, third;
	MPI_Request requests[2];
	struct pending pending;
	MPI_Info info;

	MPI_Comm_idup(MPI_COMM_WORLD, &first, &requests[0]);
	pending_start(&pending, IALLREDUCE, 0, 1, MPI_COMM_WORLD);
	pending_block(IBCAST, 0, 2, MPI_COMM_WORLD);
	requests[1] = pending.request;
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	pending.request = requests[1];
	pending_check(&pending);
	MPI_Info_create(&info);
	MPI_Info_set(info, "of_no_meaning", "true");
	MPI_Comm_dup_with_info(first, info, &second);
	MPI_Info_free(&info);
	MPI_Comm_idup(second, &third, &requests[0]);
	use_and_free(first, "a duplicate made without blocking", 20);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	use_and_free(third, "a duplicate of a duplicate", 20);
	use_and_free(second, "a duplicate with info", 20);
}

/* Collectives that block, while a duplicate is made without blocking. Of others, Open MPI confuses
 * the messages with those of the duplicate's making. */
static void duplicates_under_way(void)
{
	MPI_Comm comms[MANY], copies[MANY];
	MPI_Request request;

	for (int i = 0; i < MANY; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
		MPI_Comm_idup(comms[i], &copies[i], &request);
		for (int kind = 0; kind < PENDING_KINDS; kind++)
			pending_block(kind, i % world_size, i, comms[i]);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	for (int i = 0; i < MANY; i++) {
		use_and_free(copies[i], "a duplicate made meanwhile", 1);
		use_and_free(comms[i], "a duplicate that was duplicated", 1);
	}
}

/* Two halves that have nothing to do with each other, one ten times as busy. */
static void different_paces(void)
{
	MPI_Comm comm;

	MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &comm);
	use_and_free(comm, "halves at different paces", world_rank % 2 ? 1000 : 100);
}

/* A rank that computes for long comes late to a communicator, and is waited for. */
static void a_late_rank(void)
{
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	if (world_rank == world_size - 1)
		sleep_ms(1e3 * (double)late);
	use_and_free(comm, "a duplicate with a late rank", 20);
}

/* Other collectives on an intercommunicator: `want` is the sum of the other half's ranks. */
static void across(MPI_Comm inter, int upper, long want)
{
	int others, root = upper ? 0 : MPI_ROOT, rank;
	long mine = world_rank, sum = -1, *all;
	MPI_Request request;

	MPI_Comm_remote_size(inter, &others);
	MPI_Comm_rank(inter, &rank);
	if (!upper && rank)
		root = MPI_PROC_NULL;
	/* From rank 0 of the lower half to the upper half, and back. */
	MPI_Bcast(&mine, 1, MPI_LONG, root, inter);
	if (mine != (upper ? 0 : world_rank))
		fail("Bcast on an intercommunicator: got %ld", mine);
	mine = world_rank;
	MPI_Reduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, root, inter);
	if (root == MPI_ROOT && sum != want)
		fail("Reduce on an intercommunicator: got %ld, want %ld", sum, want);
	all = calloc((size_t)others, sizeof(long));
	MPI_Allgather(&mine, 1, MPI_LONG, all, 1, MPI_LONG, inter);
	for (int i = 0; i < others; i++)
		want -= all[i];
	if (want)
		fail("Allgather on an intercommunicator: off by %ld", want);
	MPI_Ibarrier(inter, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Ibcast(&mine, 1, MPI_LONG, root, inter, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (mine != (upper ? 0 : world_rank))
		fail("Ibcast on an intercommunicator: got %ld", mine);
	free(all);
}

/* Two halves joined by an intercommunicator; its collectives are not its halves'. */
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
	across(inter, upper, want);
	MPI_Intercomm_merge(inter, upper, &merged);
	use_and_free(merged, "two halves merged", 20);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&half);
}

/* Open files, sockets and so on. */
static int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int n = 0;

	while (directory && readdir(directory))
		n++;
	if (directory)
		closedir(directory);
	return n;
}

/* Communicators take none of the program's descriptors. */
static void many_at_once(void)
{
	struct team teams[MANY];
	MPI_Comm comm;
	int before = descriptors(), after;

	for (int i = 0; i < MANY; i++) {
		MPI_Comm_dup(i ? teams[i - 1].comm : MPI_COMM_WORLD, &comm);
		teams[i] = team_of(comm, "one of many duplicates");
	}
	for (int i = 0; i < 10 * MANY; i++)
		use(&teams[i * 7 % MANY], 1);
	after = descriptors();
	if (after - before >= MANY)
		fail("%d communicators at once: %d file descriptors are open instead of %d", MANY,
		     after, before);
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
	int before = 0, after;

	for (long i = 0; i < cycles; i++) {
		MPI_Comm comm;

		if (i == cycles / 5)
			before = descriptors();

		if (i % 2)
			MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		else
			MPI_Comm_split(MPI_COMM_WORLD, (int)(world_rank + i) % 3,
				       (int)(i % 4 ? world_rank : -world_rank), &comm);
		use_and_free(comm, "one of many short-lived", 6);
	}
	/* The remains of each must not add up. */
	after = descriptors();
	if (after - before > cycles / 10 + 16)
		fail("%ld communicators later, %d file descriptors are open instead of %d",
		     cycles - cycles / 5, after, before);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
    {"a late rank", a_late_rank},
    {"grids", grids},
    {"graphs", graphs},
    {"duplicates", duplicates},
    {"duplicates under way", duplicates_under_way},
    {"every kind", every_kind},
    {"other makings", other_makings},
    {"different paces", different_paces},
    {"joined halves", joined},
    {"many at once", many_at_once},
    {"made and freed", made_and_freed},
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
