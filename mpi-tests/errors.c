/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Wrong calls, made alike by all ranks. Prints what MPI says to each; the same lines must come out
 * with a library interposed. Calls on which one of Debian 12's MPIs crashes or hangs are left out
 * for that one.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

static const struct option_spec options[] = {{0}};

static int values[4], others[4];

static void bring(void)
{
	for (int i = 0; i < 4; i++) {
		values[i] = world_rank + i;
		others[i] = -1;
	}
}

/* The error's class by name: its number differs between MPIs, its text between versions. */
static const char *class_name(int error)
{
	int class;

	MPI_Error_class(error, &class);
#define NAME(class)                                                                                \
	{                                                                                          \
		class, #class                                                                      \
	}
	const struct {
		int class;
		const char *name;
	} names[] = {
	    NAME(MPI_SUCCESS),	 NAME(MPI_ERR_BUFFER), NAME(MPI_ERR_COUNT),    NAME(MPI_ERR_TYPE),
	    NAME(MPI_ERR_COMM),	 NAME(MPI_ERR_ROOT),   NAME(MPI_ERR_OP),       NAME(MPI_ERR_ARG),
	    NAME(MPI_ERR_OTHER), NAME(MPI_ERR_INTERN), NAME(MPI_ERR_TRUNCATE),
	};
#undef NAME
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (names[i].class == class)
			return names[i].name;
	return "another class";
}

/* All ranks must agree, or a rank went another way than the others. */
static void report(const char *what, int error)
{
	int class, least, most;

	MPI_Error_class(error, &class);
	PMPI_Allreduce(&class, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	PMPI_Allreduce(&class, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (least != most)
		fail("%s: %s here, not so on other ranks", what, class_name(error));
	say("%s: %s", what, class_name(error));
}

static int is(const char *family)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(version, &length);
	return !strncmp(version, family, strlen(family));
}

static void wrong_types(void)
{
	MPI_Datatype pair, duplicate;

	MPI_Type_contiguous(2, MPI_INT, &pair);
	MPI_Type_commit(&pair);
	MPI_Type_dup(MPI_INT, &duplicate);
	report("Allreduce MPI_SUM of a derived type",
	       MPI_Allreduce(values, others, 1, pair, MPI_SUM, MPI_COMM_WORLD));
	report("Reduce MPI_SUM of a derived type",
	       MPI_Reduce(values, others, 1, pair, MPI_SUM, 0, MPI_COMM_WORLD));
	report("Allreduce MPI_SUM of a duplicate of MPI_INT",
	       MPI_Allreduce(values, others, 1, duplicate, MPI_SUM, MPI_COMM_WORLD));
	report("Allreduce MPI_BAND of MPI_DOUBLE",
	       MPI_Allreduce(values, others, 1, MPI_DOUBLE, MPI_BAND, MPI_COMM_WORLD));
	report("Allreduce MPI_MAX of MPI_BYTE",
	       MPI_Allreduce(values, others, 4, MPI_BYTE, MPI_MAX, MPI_COMM_WORLD));
	report("Allreduce MPI_SUM of MPI_CHAR",
	       MPI_Allreduce(values, others, 4, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD));
	report("Allreduce MPI_LAND of MPI_INTEGER",
	       MPI_Allreduce(values, others, 1, MPI_INTEGER, MPI_LAND, MPI_COMM_WORLD));
	report("Allreduce MPI_REPLACE",
	       MPI_Allreduce(values, others, 1, MPI_INT, MPI_REPLACE, MPI_COMM_WORLD));
	report("Allreduce MPI_OP_NULL",
	       MPI_Allreduce(values, others, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD));
	report("Allreduce MPI_MAXLOC of MPI_INT",
	       MPI_Allreduce(values, others, 1, MPI_INT, MPI_MAXLOC, MPI_COMM_WORLD));
	report("Bcast of MPI_DATATYPE_NULL",
	       MPI_Bcast(values, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD));
	MPI_Type_free(&pair);
	MPI_Type_free(&duplicate);
}

static void wrong_numbers(void)
{
	report("Bcast from a root beyond the last",
	       MPI_Bcast(values, 1, MPI_INT, world_size, MPI_COMM_WORLD));
	report("Bcast from root -1", MPI_Bcast(values, 1, MPI_INT, -1, MPI_COMM_WORLD));
	report("Reduce to a root beyond the last",
	       MPI_Reduce(values, others, 1, MPI_INT, MPI_SUM, world_size, MPI_COMM_WORLD));
	report("Reduce to root -7",
	       MPI_Reduce(values, others, 1, MPI_INT, MPI_SUM, -7, MPI_COMM_WORLD));
	report("Bcast of -1 elements", MPI_Bcast(values, -1, MPI_INT, 0, MPI_COMM_WORLD));
	if (!is("MPICH")) /* which ends in a failed assertion */
		report("Allreduce of -1 elements",
		       MPI_Allreduce(values, others, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
}

static void wrong_communicators(void)
{
	report("Allreduce on MPI_COMM_NULL",
	       MPI_Allreduce(values, others, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL));
	report("Barrier on MPI_COMM_NULL", MPI_Barrier(MPI_COMM_NULL));
}

static void wrong_buffers(void)
{
	/* Open MPI minds this from 2 elements on, MPICH from 1. */
	for (int count = 1; count <= 4; count += 3) {
		bring();
		say("%d elements:", count);
		report("Allreduce from and to one buffer",
		       MPI_Allreduce(values, values, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
		say("  leaves %d %d %d %d", values[0], values[1], values[2], values[3]);
	}
	report("Allreduce to MPI_IN_PLACE",
	       MPI_Allreduce(values, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
	report("Allreduce of nothing between no buffers",
	       MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
	report("Bcast of nothing from no buffer", MPI_Bcast(NULL, 0, MPI_INT, 0, MPI_COMM_WORLD));
	report("Reduce of nothing between no buffers",
	       MPI_Reduce(NULL, NULL, 0, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
}

/* Open MPI takes one buffer for both of one element on one rank alone. All get their answer. */
static void one_odd_rank(void)
{
	int *result = world_rank == 0 ? values : others;
	int want = world_size * (world_size - 1) / 2;

	bring();
	MPI_Allreduce(values, result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (*result != want)
		fail("Allreduce with one buffer for both on rank 0: %d, want %d", *result, want);
	say("Allreduce with one buffer for both on rank 0: ok");
}

int main(int argc, char **argv)
{
	int sum = 0;

	program_start("errors", &argc, &argv, options);
	watch(60, "all of it");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	/* Errors without a communicator go to that of MPI_COMM_SELF or _WORLD. */
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	bring();
	wrong_types();
	wrong_numbers();
	wrong_communicators();
	wrong_buffers();
	if (is("Open MPI"))
		one_odd_rank();
	/* And after all that, it still works. */
	MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != world_size * (world_size - 1) / 2)
		fail("Allreduce after errors: wrong answer");
	say("errors: all ok, %d ranks", world_size);
	MPI_Finalize();
	return 0;
}
