/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Collectives in MPI-4's sessions, without MPI_Init, or beside it with --world.
 */
#include <mpi.h>
#include <stdlib.h>

#include "pending.h"
#include "persistent.h"
#include "program.h"

static long stall = PATIENCE, world, rounds = 50;

static const struct option_spec options[] = {
    {"--stall", OPTION_NUMBER, &stall, "seconds that one test may take (300)"},
    {"--rounds", OPTION_NUMBER, &rounds, "collectives of each kind (50)"},
    {"--world", OPTION_FLAG, &world, "call MPI_Init too"},
    {0},
};

#if MPI_VERSION >= 4 || (defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5)

static MPI_Comm from_session(MPI_Session session, const char *set, const char *tag)
{
	MPI_Group group;
	MPI_Comm comm;

	if (MPI_Group_from_session_pset(session, set, &group))
		fail("no group of %s", set);
	if (MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm))
		fail("no communicator of %s", set);
	MPI_Group_free(&group);
	return comm;
}

static void use(MPI_Comm comm)
{
	struct pending pending[PENDING_KINDS];
	int size;

	MPI_Comm_size(comm, &size);
	for (int i = 0; i < rounds; i++) {
		for (int kind = 0; kind < PENDING_KINDS; kind++)
			pending_block(kind, i % size, i, comm);
		for (int kind = 0; kind < PENDING_KINDS; kind++)
			pending_start(&pending[kind], kind, i % size, i, comm);
		for (int kind = PENDING_KINDS; kind--;)
			pending_finish(&pending[kind]);
	}
}

static void use_persistent(MPI_Comm comm)
{
	long mine = 1, sum;
	MPI_Request request;
	int size;

	MPI_Comm_size(comm, &size);
	PERSISTENT_NAME(Allreduce)
	(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm, MPI_INFO_NULL, &request);
	for (mine = 1; mine < 5; mine++) {
		sum = -1;
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (sum != mine * size)
			fail("persistent Allreduce: got %ld, want %ld", sum, mine * size);
	}
	MPI_Request_free(&request);
}

static void use_relatives(MPI_Comm comm)
{
	MPI_Comm relative;

	MPI_Comm_dup(comm, &relative);
	use(relative);
	MPI_Comm_free(&relative);
	MPI_Comm_split(comm, world_rank % 2, -world_rank, &relative);
	use(relative);
	MPI_Comm_free(&relative);
	MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &relative);
	use(relative);
	MPI_Comm_free(&relative);
}

static int deleted;

static int on_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
	(void)keyval;
	(void)value;
	(void)extra;
	pending_block(IALLREDUCE, 0, 1, comm);
	deleted++;
	return MPI_SUCCESS;
}

static void free_with_callback(MPI_Comm *comm)
{
	int keyval;

	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, NULL);
	MPI_Comm_set_attr(*comm, keyval, NULL);
	MPI_Comm_free_keyval(&keyval);
	MPI_Comm_free(comm);
	if (deleted != 1)
		fail("the delete callback was not called");
}

int main(int argc, char **argv)
{
	MPI_Session session, other;
	MPI_Comm comm, second, self;

	program_start_bare("sessions", argc, argv, options);
	watch((unsigned)stall, "MPI_Session_init");
	if (world) {
		MPI_Init(&argc, &argv);
		MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
		use(MPI_COMM_WORLD);
	}
	MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
	comm = from_session(session, "mpi://WORLD", "one");
	MPI_Comm_rank(comm, &world_rank);
	MPI_Comm_size(comm, &world_size);
	if (world_size < 2)
		fail("needs at least 2 ranks"); /* MPICH 4.0 crashes with one */
	watch((unsigned)stall, "one session");
	use(comm);
	use_persistent(comm);
	use_relatives(comm);
	self = from_session(session, "mpi://SELF", "self");
	use(self);
	MPI_Comm_free(&self);
	say("sessions: one: ok");

	watch((unsigned)stall, "two sessions");
	MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &other);
	second = from_session(other, "mpi://WORLD", "two");
	for (int i = 0; i < 3; i++) {
		use(second);
		use(comm);
		if (world)
			use(MPI_COMM_WORLD);
	}
	free_with_callback(&comm);
	MPI_Session_finalize(&session);
	use(second);
	MPI_Comm_free(&second);
	say("sessions: two: ok");
	watch((unsigned)stall, "the end");
	if (world)
		use(MPI_COMM_WORLD);
	MPI_Session_finalize(&other);
	say("sessions: all ok, %d ranks", world_size);
	if (world)
		MPI_Finalize();
	return 0;
}

#else

int main(int argc, char **argv)
{
	program_start("sessions", &argc, &argv, options);
	say("sessions: left out: this MPI has none");
	MPI_Finalize();
	return 0;
}

#endif
