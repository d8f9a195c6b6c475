/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Communicators with the same ranks, all of MPI_COMM_WORLD's or some, as libraries make them:
 * duplicates, and theirs, that live for a few collectives each. Several are alive at a time, some
 * ranks free theirs late, and some are freed with a collective under way. All answers are checked,
 * and that their resources do not grow (--groups).
 */
#include <mpi.h>
#include <stdlib.h>

#include "program.h"
#include "random.h"

enum { ALIVE = 64, LATE = 8 };

static long cycles = 300, alive = 6, most = 6, seed = 1, under_way, part;
static const char *groups;

static const struct option_spec options[] = {
    {"--cycles", OPTION_NUMBER, &cycles, "communicators to make, use and free (300)"},
    {"--alive", OPTION_NUMBER, &alive, "of these, at a time (6; at most 64)"},
    {"--calls", OPTION_NUMBER, &most, "collectives on each, at most (6)"},
    {"--part", OPTION_FLAG, &part, "of the odd ranks and of the others, in place of all"},
    {"--under-way", OPTION_FLAG, &under_way,
     "free some with a collective under way, which Open MPI's own do not bear"},
    {"--groups", OPTION_TEXT, &groups, "command that prints a line for each group of this host"},
    {"--seed", OPTION_NUMBER, &seed, "of all choices (1)"},
    {0},
};

/* One that is alive, and a collective on it that is under way. */
struct duplicate {
	MPI_Comm comm;
	MPI_Request request;
	long word, sum, want;
};

static struct duplicate all[ALIVE];
/* The origin of all, and this rank's place there. */
static MPI_Comm home = MPI_COMM_WORLD;
static int rank, size;
/* Freed by the program, and not yet by this rank: in one order on all ranks. */
static MPI_Comm late[LATE];
static int lates;

static long triangle(void)
{
	return (long)size * (size - 1) / 2;
}

static void expect(const char *what, long cycle, long got, long want)
{
	if (got != want)
		fail("cycle %ld: %s: %ld, want %ld (seed %ld)", cycle, what, got, want, seed);
}

static MPI_Comm make(struct random *random, MPI_Comm parent)
{
	int dims[1] = {size}, periods[1] = {0};
	MPI_Comm comm;

	switch (random_below(random, 6)) {
	case 0:
		MPI_Comm_split(parent, 1, rank, &comm);
		break;
	case 1:
		MPI_Cart_create(parent, 1, dims, periods, 0, &comm);
		break;
	case 2: {
		MPI_Request request;

		MPI_Comm_idup(parent, &comm, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		break;
	}
	default:
		MPI_Comm_dup(parent, &comm);
	}
	return comm;
}

static void use(struct random *random, struct duplicate *on, long cycle)
{
	long calls = 1 + (long)random_below(random, (uint64_t)most);

	for (long call = 0; call < calls; call++) {
		int root = (int)random_below(random, (uint64_t)size);
		long word = cycle + call + rank, sum = -1;
		double part = rank, whole = -1;

		switch (random_below(random, 4)) {
		case 0:
			MPI_Bcast(&word, 1, MPI_LONG, root, on->comm);
			expect("Bcast", cycle, word, cycle + call + root);
			break;
		case 1:
			MPI_Allreduce(&part, &whole, 1, MPI_DOUBLE, MPI_SUM, on->comm);
			expect("Allreduce of doubles", cycle, (long)whole, triangle());
			break;
		case 2:
			MPI_Barrier(on->comm);
			break;
		default:
			MPI_Allreduce(&word, &sum, 1, MPI_LONG, MPI_SUM, on->comm);
			expect("Allreduce", cycle, sum, size * (cycle + call) + triangle());
		}
	}
}

static void end(struct duplicate *duplicate, long cycle)
{
	if (duplicate->request == MPI_REQUEST_NULL)
		return;
	MPI_Wait(&duplicate->request, MPI_STATUS_IGNORE);
	expect("Iallreduce", cycle, duplicate->sum, duplicate->want);
}

static void free_late(int keep)
{
	int count = lates - keep;

	for (int i = 0; i < count; i++)
		MPI_Comm_free(&late[i]);
	for (int i = 0; count > 0 && i < keep; i++)
		late[i] = late[i + count];
	lates = count > 0 ? keep : lates;
}

static void cycle(long number)
{
	struct random random = random_start((uint64_t)seed, (uint64_t)number, 0);
	struct random own = random_start((uint64_t)seed, (uint64_t)number, 1 + (uint64_t)rank);
	struct duplicate *duplicate = &all[random_below(&random, (uint64_t)alive)];
	int starts = random_below(&random, 3) == 0 && under_way;

	if (duplicate->comm != MPI_COMM_NULL) {
		use(&random, duplicate, number);
		if (starts) {
			duplicate->word = number + rank;
			duplicate->want = size * number + triangle();
			MPI_Iallreduce(&duplicate->word, &duplicate->sum, 1, MPI_LONG, MPI_SUM,
				       duplicate->comm, &duplicate->request);
		}
		if (lates == LATE)
			free_late(0);
		late[lates++] = duplicate->comm;
		/* A late rank has some that others have freed. */
		free_late(random_below(&own, 2) ? 0 : (int)random_below(&own, LATE));
		end(duplicate, number);
	}
	MPI_Comm parent = all[random_below(&random, (uint64_t)alive)].comm;

	if (parent == MPI_COMM_NULL || parent == duplicate->comm)
		parent = home;
	duplicate->comm = make(&random, parent);
	use(&random, duplicate, number);
}

int main(int argc, char **argv)
{
	program_start("duplicates", &argc, &argv, options);
	if (alive < 1 || alive > ALIVE || most < 1)
		fail("--alive is 1 to %d, --calls at least 1", ALIVE);
	if (part)
		MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &home);
	MPI_Comm_rank(home, &rank);
	MPI_Comm_size(home, &size);
	for (int i = 0; i < ALIVE; i++)
		all[i] = (struct duplicate){MPI_COMM_NULL, MPI_REQUEST_NULL, 0, 0, 0};
	for (long number = 0; number < cycles; number++) {
		if (number % 20 == 0)
			watch(PATIENCE, "cycles from %ld on, seed %ld", number, seed);
		cycle(number);
	}
	watch(PATIENCE, "the end");
	free_late(0);
	MPI_Barrier(MPI_COMM_WORLD);
	if (groups && lines_of(groups) > 1 + alive + 2 * LATE)
		fail("%d groups for %ld communicators alive", lines_of(groups), alive);
	for (int i = 0; i < ALIVE; i++)
		if (all[i].comm != MPI_COMM_NULL)
			MPI_Comm_free(&all[i].comm);
	if (part)
		MPI_Comm_free(&home);
	watch(0, "MPI_Finalize");
	say("duplicates: %ld cycles ok, %d ranks", cycles, world_size);
	MPI_Finalize();
	return 0;
}
