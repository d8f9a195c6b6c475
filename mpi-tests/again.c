/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Persistent collectives that are made and freed again and again, on MPI_COMM_WORLD and on a
 * communicator that is freed before the last of them. Freeing is local, so ranks do it at
 * different times: half of them free the one before the next is made, the others behind that.
 */
#include <mpi.h>

#include "persistent.h"
#include "program.h"

static long rounds = 100;

static const struct option_spec options[] = {
    {"--rounds", OPTION_NUMBER, &rounds, "persistent collectives to make on each communicator"},
    {0},
};

#if HAVE_PERSISTENT
static void use(MPI_Request *request, const int *sum, int *mine, long round)
{
	for (int start = 0; start < 2; start++) {
		*mine = world_rank + (int)round + start;
		MPI_Start(request);
		MPI_Wait(request, MPI_STATUS_IGNORE);

		int want = world_size * (world_size - 1) / 2 + world_size * ((int)round + start);

		if (*sum != want)
			fail("round %ld, start %d: %d, not %d", round, start, *sum, want);
	}
}

static void again(MPI_Comm comm, int is_freed)
{
	MPI_Request request = MPI_REQUEST_NULL, before = MPI_REQUEST_NULL;
	int mine[2], sum[2];

	for (long round = 0; round < rounds; round++) {
		int *in = &mine[round & 1], *out = &sum[round & 1];
		int early = (world_rank + round / 8) & 1;

		watch(PATIENCE, "round %ld", round);
		before = request;
		if (early && before != MPI_REQUEST_NULL)
			MPI_Request_free(&before);
		PERSISTENT_NAME(Allreduce)
		(in, out, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
		use(&request, out, in, round);
		if (before != MPI_REQUEST_NULL)
			MPI_Request_free(&before);
	}
	if (is_freed)
		MPI_Comm_free(&comm);
	if (rounds)
		MPI_Request_free(&request);
}
#endif

int main(int argc, char **argv)
{
	program_start("again", &argc, &argv, options);
#if HAVE_PERSISTENT
	MPI_Comm comm;

	again(MPI_COMM_WORLD, 0);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	again(comm, 1);
#endif
	watch(0, "the end");
	say("again: all ok, %d ranks", world_size);
	MPI_Finalize();
	return 0;
}
