/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For ranks whose settings of foldback differ: sums in every form, on communicators of every
 * making. Every rank must end them with the right answer, and foldback must say that it is not
 * active.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>

#include "pending.h"
#include "persistent.h"
#include "program.h"

/* More than the harness has for FOLDBACK_SETUP_CALLS. */
enum { ROUNDS = 6 };

static const struct option_spec options[] = {{0}};

static void check(double sum, const char *form)
{
	double want = world_size * (world_size + 1) / 2.0;

	if (sum != want)
		fail("%s: the sum is %g, not %g", form, sum, want);
}

#if HAVE_PERSISTENT
static void use_persistent(MPI_Comm comm)
{
	double mine = world_rank + 1, sum = 0;
	MPI_Request request;

	PERSISTENT_NAME(Allreduce)
	(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &request);
	for (int i = 0; i < 2; i++) {
		sum = 0;
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		check(sum, "persistent");
	}
	MPI_Request_free(&request);
}
#else
static void use_persistent(MPI_Comm comm)
{
	(void)comm;
}
#endif

static void hint(MPI_Comm comm)
{
	MPI_Info info;

	MPI_Info_create(&info);
	MPI_Info_set(info, "foldback_quantize", "int8,min=0");
	MPI_Comm_set_info(comm, info);
	MPI_Info_free(&info);
}

static void ask(MPI_Comm comm)
{
	int (*is_active)(void);
	int (*set_quantize)(MPI_Comm comm, const char *how);

	*(void **)&is_active = dlsym(RTLD_DEFAULT, "foldback_is_active");
	*(void **)&set_quantize = dlsym(RTLD_DEFAULT, "foldback_comm_set_quantize");
	if (!is_active || is_active())
		fail("foldback is absent or active");
	if (!set_quantize || !set_quantize(comm, "int8,min=0"))
		fail("foldback quantizes sums");
}

static void use(MPI_Comm comm, const char *what)
{
	struct pending pending;

	watch(PATIENCE, "%s", what);
	hint(comm);
	ask(comm);
	for (int i = 0; i < ROUNDS; i++) {
		double mine = world_rank + 1, sum = 0;

		MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
		check(sum, "blocking");
		for (int kind = 0; kind < PENDING_KINDS; kind++) {
			pending_block(kind, i % world_size, i, comm);
			pending_start(&pending, kind, i % world_size, i, comm);
			pending_finish(&pending);
		}
	}
	use_persistent(comm);
}

int main(int argc, char **argv)
{
	MPI_Comm all, turned;

	program_start("settings", &argc, &argv, options);
	use(MPI_COMM_WORLD, "MPI_COMM_WORLD");
	MPI_Comm_dup(MPI_COMM_WORLD, &all);
	use(all, "a duplicate");
	MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &turned);
	use(turned, "the ranks in another order");
	MPI_Comm_free(&turned);
	MPI_Comm_free(&all);
	say("settings: OK");
	MPI_Finalize();
	return 0;
}
