/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Revoked communicators (ULFM, in Open MPI 5). A rank gets MPI_ERR_REVOKED if it calls a collective
 * on one, or waits in one while it is revoked. The others go on.
 */
#include <mpi.h>

#include "program.h"

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
#include <mpi-ext.h>
#endif

static long stall = PATIENCE, times = 100;

static const struct option_spec options[] = {
    {"--stall", OPTION_NUMBER, &stall, "seconds that one test may take (300)"},
    {"--times", OPTION_NUMBER, &times, "collectives before (100)"},
    {0},
};

#ifdef OMPI_HAVE_MPI_EXT_FTMPI

static int add(MPI_Comm comm)
{
	int one = 1, sum = 0, code = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);

	if (!code && sum != world_size)
		fail("the sum of ones is %d", sum);
	return code;
}

static void add_many(MPI_Comm comm)
{
	for (long i = 0; i < times; i++)
		if (add(comm))
			fail("collective %ld failed", i);
}

static void must_be_revoked(int code, const char *what)
{
	int class = code;

	if (code)
		MPI_Error_class(code, &class);
	if (class != MPIX_ERR_REVOKED)
		fail("%s: error class %d, not %d", what, class, MPIX_ERR_REVOKED);
}

static MPI_Comm another(void)
{
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	return comm;
}

static void called_after(void)
{
	MPI_Comm comm = another();

	watch(stall, "called after");
	add_many(comm);
	MPI_Barrier(MPI_COMM_WORLD);
	MPIX_Comm_revoke(comm);
	must_be_revoked(add(comm), "Allreduce");
	must_be_revoked(MPI_Barrier(comm), "Barrier");
	MPI_Comm_free(&comm);
	add_many(MPI_COMM_WORLD);
	say("revoke: called after: ok");
}

int main(int argc, char **argv)
{
	program_start("revoke", &argc, &argv, options);
	called_after();
	watch(stall, "MPI_Finalize");
	say("revoke: all ok");
	MPI_Finalize();
	return 0;
}

#else

int main(int argc, char **argv)
{
	program_start("revoke", &argc, &argv, options);
	say("revoke: this MPI cannot");
	MPI_Finalize();
	return 0;
}

#endif
