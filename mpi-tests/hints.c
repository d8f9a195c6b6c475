/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The quantization of sums on one communicator, by hints and by foldback's own functions. Sums of
 * the numbers are exact, so it shows whether they were quantized. Rank 0 prints each step.
 */
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "preloaded.h"

enum { COUNT = 500 };
static const char key[] = "foldback_quantize";
static int (*set_quantize)(MPI_Comm comm, const char *how);
static void (*clear_error_feedback)(MPI_Comm comm);

/* This rank's sum; it is exact in a float. */
static void sum(float *got, MPI_Comm comm)
{
	float mine[COUNT];

	for (int i = 0; i < COUNT; i++)
		mine[i] = 1 + (float)(i + world_rank) / 1024;
	MPI_Allreduce(mine, got, COUNT, MPI_FLOAT, MPI_SUM, comm);
}

/* The number of values that are not the sum, alike on all ranks. */
static int off(MPI_Comm comm)
{
	float got[COUNT], all[2][COUNT];
	int count = 0;

	sum(got, comm);
	for (int i = 0; i < COUNT; i++) {
		float want = 0;

		for (int rank = 0; rank < world_size; rank++)
			want += 1 + (float)(i + rank) / 1024;
		if (fabsf(got[i] - want) > (float)world_size)
			fail("element %d is %g, not %g", i, got[i], want);
		count += got[i] != want;
	}
	MPI_Allreduce(got, all[0], COUNT, MPI_FLOAT, MPI_MIN, MPI_COMM_WORLD);
	MPI_Allreduce(got, all[1], COUNT, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
	if (memcmp(all[0], all[1], sizeof(all[0])) != 0)
		fail("ranks have other bits than others");
	return count;
}

static void expect(int quantized, MPI_Comm comm, const char *step)
{
	int count;

	watch(PATIENCE, "%s", step);
	count = off(comm);
	if (!!count != quantized)
		fail("%s: %d numbers are off", step, count);
	say("hints: %s: %s", step, quantized ? "quantized" : "exact");
}

static MPI_Info info_of(const char *name, const char *value)
{
	MPI_Info info;

	MPI_Info_create(&info);
	if (name)
		MPI_Info_set(info, name, value);
	return info;
}

static void hint(MPI_Comm comm, const char *name, const char *value)
{
	MPI_Info info = info_of(name, value);

	MPI_Comm_set_info(comm, info);
	MPI_Info_free(&info);
}

static MPI_Comm duplicate(MPI_Comm comm, const char *value)
{
	MPI_Info info = value ? info_of(key, value) : MPI_INFO_NULL;
	MPI_Comm made;

	MPI_Comm_dup_with_info(comm, info, &made);
	if (value)
		MPI_Info_free(&info);
	return made;
}

static void by_hints(void)
{
	MPI_Comm world = MPI_COMM_WORLD, one = duplicate(world, "int8,min=0"), two, three;

	expect(0, world, "without a word");
	expect(1, one, "a duplicate with a hint");
	expect(0, world, "what it is a duplicate of");
	MPI_Comm_dup(one, &two);
	expect(0, two, "a duplicate without");
	three = duplicate(one, NULL);
	expect(0, three, "a duplicate with MPI_INFO_NULL");
	hint(world, key, "int8,min=0");
	expect(1, world, "a hint given later");
	hint(world, "mpi_assert_no_any_tag", "true");
	expect(1, world, "another hint");
	hint(world, key, "int8,min=100000");
	expect(0, world, "of long sums only");
	hint(world, key, "int8,min=0");
	hint(world, key, world_rank ? "int16,min=0" : "off");
	expect(1, world, "hints that differ");
	hint(world, world_rank ? NULL : key, "off");
	expect(1, world, "a hint of one rank");
	hint(world, key, "int4");
	expect(1, world, "nonsense");
	hint(world, key, "off");
	expect(0, world, "off");
	MPI_Comm_free(&one);
	MPI_Comm_free(&two);
	MPI_Comm_free(&three);
}

static void set(int changes, MPI_Comm comm, const char *how)
{
	watch(PATIENCE, "%s by function", how ? how : "NULL");
	if (set_quantize(comm, how) != !changes)
		fail("%s: it %s", how ? how : "NULL", changes ? "did nothing" : "did something");
}

static void by_functions(void)
{
	MPI_Comm comm, world = MPI_COMM_WORLD, group[2];
	float got[3][COUNT];

	set(1, world, "int8,min=0");
	expect(1, world, "by function");
	set(0, world, "");
	set(0, world, "int8,block=0");
	set(0, world, world_rank ? "off" : NULL);
	expect(1, world, "nonsense by function");
	set(1, world, NULL);
	expect(0, world, "by the environment");
	set(1, world, "off");
	set(0, MPI_COMM_SELF, "int8");
	/* Of some ranks only. */
	MPI_Comm_split(world, world_rank == 0, 0, &group[0]);
	set(world_rank != 0, group[0], "int16");
	MPI_Comm_free(&group[0]);

	MPI_Comm_dup(world, &comm);
	set(1, comm, "int8,min=0,error_feedback");
	for (int time = 0; time < 3; time++) {
		if (time == 2)
			clear_error_feedback(comm);
		sum(got[time], comm);
	}
	if (memcmp(got[0], got[1], sizeof(got[0])) == 0)
		fail("nothing was carried over");
	if (memcmp(got[0], got[2], sizeof(got[0])) != 0)
		fail("something was carried over after it was cleared");
	set(1, comm, "int8,min=0,error_feedback");
	sum(got[2], comm);
	if (memcmp(got[0], got[2], sizeof(got[0])) != 0)
		fail("something was carried over after it was set anew");
	MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
	program_start("hints", &argc, &argv, (const struct option_spec[]){{0}});
	find(&set_quantize, "foldback_comm_set_quantize");
	find(&clear_error_feedback, "foldback_comm_clear_error_feedback");
	by_hints();
	by_functions();
	watch(0, "MPI_Finalize");
	say("hints: all ok");
	MPI_Finalize();
	return 0;
}
