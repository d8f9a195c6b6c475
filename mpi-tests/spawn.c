/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Starts more of itself by MPI_Comm_spawn, and makes collectives with them: across the
 * intercommunicator, and with all ranks in one. A library may be preloaded in the parents only, in
 * all, or in none.
 */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#include "pending.h"
#include "program.h"

static long stall = PATIENCE, children = 2, rounds = 50, child, cycles = 2;

static const struct option_spec options[] = {
    {"--stall", OPTION_NUMBER, &stall, "seconds that one test may take (300)"},
    {"--children", OPTION_NUMBER, &children, "how many to start at a time (2)"},
    {"--rounds", OPTION_NUMBER, &rounds, "collectives of each kind (50)"},
    {"--cycles", OPTION_NUMBER, &cycles, "how often to start them (2)"},
    {"--child", OPTION_FLAG, &child, "this one was started"},
    {0},
};

static void use(MPI_Comm comm)
{
	struct pending pending;
	int size;

	MPI_Comm_size(comm, &size);
	for (int i = 0; i < rounds; i++)
		for (int kind = 0; kind < PENDING_KINDS; kind++) {
			pending_block(kind, i % size, i, comm);
			pending_start(&pending, kind, i % size, i, comm);
			pending_finish(&pending);
		}
}

/* Sums over the other side: parents bring 1 each, children 100. */
static void use_across(MPI_Comm inter)
{
	long mine = child ? 100 : 1, sum = -1, want;
	int others;

	MPI_Comm_remote_size(inter, &others);
	want = others * (child ? 1 : 100);
	for (int i = 0; i < rounds; i++) {
		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, inter);
		if (sum != want)
			fail("Allreduce between parents and children: got %ld, want %ld", sum,
			     want);
		MPI_Barrier(inter);
	}
}

static void together(MPI_Comm inter)
{
	MPI_Comm all, half;
	int rank, size;

	watch((unsigned)stall, "collectives between parents and children");
	use_across(inter);
	MPI_Intercomm_merge(inter, (int)child, &all);
	MPI_Comm_rank(all, &rank);
	MPI_Comm_size(all, &size);
	watch((unsigned)stall, "collectives of parents and children together");
	use(all);
	/* Parents and children mixed. */
	MPI_Comm_split(all, rank % 2, size - rank, &half);
	use(half);
	use(MPI_COMM_WORLD);
	MPI_Comm_free(&half);
	MPI_Comm_free(&all); /* Open MPI 4.1 hangs in disconnecting it */
	MPI_Comm_disconnect(&inter);
}

/* Whether it worked. */
static int start_children(void)
{
	char path[4096], flag[] = "--child", *arguments[] = {flag, NULL};
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	MPI_Comm inter;
	int error;

	if (length < 0)
		fail("no path of this program");
	path[length] = 0;
	watch((unsigned)stall, "MPI_Comm_spawn");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	error = MPI_Comm_spawn(path, arguments, (int)children, MPI_INFO_NULL, 0, MPI_COMM_WORLD,
			       &inter, MPI_ERRCODES_IGNORE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	if (error)
		return 0;
	together(inter);
	return 1;
}

int main(int argc, char **argv)
{
	MPI_Comm parent;

	program_start("spawn", &argc, &argv, options);
	MPI_Comm_get_parent(&parent);
	watch((unsigned)stall, "collectives alone");
	use(MPI_COMM_WORLD);
	if (child) {
		together(parent);
		watch((unsigned)stall, "MPI_Finalize");
		MPI_Finalize();
		return 0;
	}
	for (long i = 0; i < cycles; i++)
		if (!start_children()) {
			say("spawn: left out: this MPI cannot spawn here");
			MPI_Finalize();
			return 0;
		}
	watch((unsigned)stall, "MPI_Finalize");
	use(MPI_COMM_WORLD);
	say("spawn: all ok, %d ranks and %ld times %ld", world_size, cycles, children);
	MPI_Finalize();
	return 0;
}
