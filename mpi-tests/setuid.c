/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Becomes another user after MPI_Init, as servers do that root starts, and makes collectives on old
 * and new communicators.
 */
#include <mpi.h>
#include <unistd.h>

#include "pending.h"
#include "program.h"

enum { NOBODY = 65534, ROUNDS = 20 };

static const struct option_spec options[] = {{0}};

static void use(MPI_Comm comm)
{
	for (int i = 0; i < ROUNDS; i++)
		pending_block(IALLREDUCE, 0, i, comm);
}

int main(int argc, char **argv)
{
	MPI_Comm made[2];

	program_start("setuid", &argc, &argv, options);
	watch(PATIENCE, "collectives of another user");
	if (setuid(NOBODY))
		fail("cannot become another user");
	MPI_Comm_dup(MPI_COMM_WORLD, &made[0]);
	MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &made[1]);
	use(MPI_COMM_WORLD);
	for (int i = 0; i < 2; i++) {
		use(made[i]);
		MPI_Comm_free(&made[i]);
	}
	say("setuid: OK");
	MPI_Finalize();
	return 0;
}
