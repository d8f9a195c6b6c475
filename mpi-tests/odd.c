/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Calls in which one rank's arguments are as odd as MPI allows: null buffers, counts and datatypes
 * where they are not significant, or other datatypes than the peers'. Also datatypes of size 0,
 * MPI_BOTTOM, and nothing to send or to receive at some ranks. An interposer that refuses such an
 * argument on that rank alone hangs.
 *
 * All of MPI_COMM_WORLD takes part; at least 2 ranks. Every test in every form that the MPI has.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "issue.h"
#include "program.h"

enum {
	COUNT = 3,
	MOST = 64, /* ranks */
	UNTOUCHED = -7,
};

static long stall = PATIENCE, rounds = 8, only = -1, folded;

static const struct option_spec options[] = {
    {"--stall", OPTION_NUMBER, &stall, "seconds that one test may take (300)"},
    {"--rounds", OPTION_NUMBER, &rounds, "how often to run all (8)"},
    {"--folded", OPTION_FLAG, &folded, "also what the MPI at hand does not do by itself"},
    {"--only", OPTION_NUMBER, &only, "number of the one test to run"},
    {0},
};

/* A buffer on its way out and one on its way in, and its right contents: UNTOUCHED where nothing.
 */
static int out[2 * MOST * COUNT], in[2 * MOST * COUNT], want[2 * MOST * COUNT];
static int counts[MOST], displs[MOST];
static MPI_Datatype nothing, huge, every_other, three, absolute_out, absolute_in;
static bool is_root;
static int root, last;

static int value(int rank, int index)
{
	return 1000 * rank + index + 1;
}

/* Arguments that no rank may look at. */
static void no_send(struct arguments *a)
{
	a->send = NULL;
	a->send_count = -1;
	a->send_type = MPI_DATATYPE_NULL;
}

static void no_recv(struct arguments *a)
{
	a->recv = NULL;
	a->recv_count = -1;
	a->recv_type = MPI_DATATYPE_NULL;
}

static void in_place(struct arguments *a)
{
	no_send(a);
	a->send = MPI_IN_PLACE;
}

/* Sums over the ranks before `end`. */
static void want_sums(int end)
{
	for (int i = 0; i < COUNT; i++) {
		want[i] = 0;
		for (int rank = 0; rank < end; rank++)
			want[i] += value(rank, i);
	}
}

/* Everyone's elements, one after the other. */
static void want_all(void)
{
	for (int i = 0; i < world_size * COUNT; i++)
		want[i] = value(i / COUNT, i % COUNT);
}

static void exscan_into_nothing(struct arguments *a)
{
	if (world_rank == 0)
		a->recv = NULL;
	else
		want_sums(world_rank);
}

static void reduce_into_nothing(struct arguments *a)
{
	if (is_root)
		want_sums(world_size);
	else
		a->recv = NULL;
}

static void gather_into_nothing(struct arguments *a)
{
	if (is_root)
		want_all();
	else
		no_recv(a);
}

static void gather_in_place(struct arguments *a)
{
	if (!is_root) {
		no_recv(a);
		return;
	}
	in_place(a);
	for (int i = 0; i < COUNT; i++)
		in[root * COUNT + i] = value(root, i);
	want_all();
}

static void scatter_from_nothing(struct arguments *a)
{
	for (int i = 0; i < COUNT; i++)
		want[i] = value(root, world_rank * COUNT + i);
	if (!is_root)
		no_send(a);
}

static void scatter_in_place(struct arguments *a)
{
	scatter_from_nothing(a);
	if (!is_root)
		return;
	no_recv(a);
	a->recv = MPI_IN_PLACE;
	for (int i = 0; i < COUNT; i++)
		want[i] = UNTOUCHED;
}

static void allgather_in_place(struct arguments *a)
{
	in_place(a);
	for (int i = 0; i < COUNT; i++)
		in[world_rank * COUNT + i] = value(world_rank, i);
	want_all();
}

static void alltoall_in_place(struct arguments *a)
{
	in_place(a);
	for (int i = 0; i < world_size * COUNT; i++) {
		in[i] = value(world_rank, i);
		want[i] = value(i / COUNT, world_rank * COUNT + i % COUNT);
	}
}

/* All but one send nothing, by a null buffer. */
static void allgatherv_of_one(struct arguments *a)
{
	for (int rank = 0; rank < world_size; rank++) {
		counts[rank] = rank == root ? COUNT : 0;
		displs[rank] = rank > root ? COUNT : 0;
	}
	if (!is_root) {
		a->send = NULL;
		a->send_count = 0;
	}
	for (int i = 0; i < COUNT; i++)
		want[i] = value(root, i);
}

/* The same, by elements that have no bytes. */
static void allgatherv_of_nothings(struct arguments *a)
{
	allgatherv_of_one(a);
	if (!is_root) {
		a->send = out;
		a->send_count = 1 + world_rank;
		a->send_type = nothing;
	}
}

/* The same, by no elements of 8 GiB, of which MPI_Type_size says MPI_UNDEFINED. */
static void allgatherv_of_no_giants(struct arguments *a)
{
	allgatherv_of_one(a);
	if (!is_root) {
		a->send = out;
		a->send_type = huge;
	}
}

/* Only the last rank gets anything. */
static void reduce_scatter_to_one(struct arguments *a)
{
	for (int rank = 0; rank < world_size; rank++)
		counts[rank] = rank == last ? COUNT : 0;
	if (world_rank == last)
		want_sums(world_size);
	else
		a->recv = NULL;
}

/* The root sends every other element of its buffer, one receives three as one. */
static void bcast_of_unlike_types(struct arguments *a)
{
	a->recv = is_root ? out : in;
	if (is_root) {
		a->recv_count = 1;
		a->recv_type = every_other;
		return;
	}
	if (world_rank == last) {
		a->recv_count = 1;
		a->recv_type = three;
	}
	for (int i = 0; i < COUNT; i++)
		want[i] = value(root, 2 * i);
}

/* The same, with addresses in the types. */
static void bcast_at_the_bottom(struct arguments *a)
{
	a->recv = in;
	if (is_root || world_rank == last) {
		a->recv = MPI_BOTTOM;
		a->recv_count = 1;
		a->recv_type = is_root ? absolute_out : absolute_in;
	}
	if (!is_root)
		for (int i = 0; i < COUNT; i++)
			want[i] = value(root, i);
}

/* The root sends three elements as one, the last rank receives so. */
static void unlike_types(struct arguments *a)
{
	if (is_root) {
		a->send_count = 1;
		a->send_type = three;
	}
	if (world_rank == last) {
		a->recv_count = 1;
		a->recv_type = three;
	}
}

static void allgather_of_unlike_types(struct arguments *a)
{
	unlike_types(a);
	want_all();
}

static void alltoall_of_unlike_types(struct arguments *a)
{
	unlike_types(a);
	for (int i = 0; i < world_size * COUNT; i++)
		want[i] = value(i / COUNT, world_rank * COUNT + i % COUNT);
}

/* Nothing at all, said in as many ways. */
static void of_nothing(struct arguments *a)
{
	a->send = is_root ? NULL : out;
	a->recv = is_root ? NULL : in;
	a->send_count = a->recv_count = 0;
}

static const struct {
	const char *text;
	enum collective collective;
	void (*prepare)(struct arguments *a);
	const char *not_with; /* which MPIs are wrong by themselves, or refuse what is allowed */
} tests[] = {
    {"Exscan, rank 0 has no buffer for it", EXSCAN, exscan_into_nothing, "MPICH Intel"},
    {"Reduce, only the root has a buffer for it", REDUCE, reduce_into_nothing, NULL},
    {"Gather, only the root has a buffer for it", GATHER, gather_into_nothing, NULL},
    {"Gather in place at the root", GATHER, gather_in_place, NULL},
    {"Scatter, only the root has anything to send", SCATTER, scatter_from_nothing, NULL},
    {"Scatter in place at the root", SCATTER, scatter_in_place, NULL},
    {"Allgather in place", ALLGATHER, allgather_in_place, NULL},
    {"Alltoall in place", ALLTOALL, alltoall_in_place, NULL},
    {"Allgatherv of one rank's elements", ALLGATHERV, allgatherv_of_one, NULL},
    {"Allgatherv of elements without bytes at others", ALLGATHERV, allgatherv_of_nothings,
     "Open MPI"},
    {"Allgatherv of no elements of 8 GiB at others", ALLGATHERV, allgatherv_of_no_giants, NULL},
    {"Reduce_scatter to one rank", REDUCE_SCATTER, reduce_scatter_to_one, NULL},
    {"Bcast of unlike types", BCAST, bcast_of_unlike_types, NULL},
    {"Bcast from and to MPI_BOTTOM", BCAST, bcast_at_the_bottom, NULL},
    {"Allgather of unlike types", ALLGATHER, allgather_of_unlike_types, "Intel"},
    {"Alltoall of unlike types", ALLTOALL, alltoall_of_unlike_types, NULL},
    {"Bcast of nothing", BCAST, of_nothing, NULL},
    {"Allreduce of nothing", ALLREDUCE, of_nothing, NULL},
    {"Scan of nothing", SCAN, of_nothing, NULL},
};

static void make_types(void)
{
	int lengths[COUNT] = {1, 1, 1};
	MPI_Datatype large;
	MPI_Aint at[COUNT];

	MPI_Type_contiguous(0, MPI_INT, &nothing);
	MPI_Type_contiguous(1 << 20, MPI_LONG, &large);
	MPI_Type_contiguous(1 << 10, large, &huge);
	MPI_Type_free(&large);
	MPI_Type_vector(COUNT, 1, 2, MPI_INT, &every_other);
	MPI_Type_contiguous(COUNT, MPI_INT, &three);
	for (int i = 0; i < COUNT; i++)
		MPI_Get_address(&out[i], &at[i]);
	MPI_Type_create_hindexed(COUNT, lengths, at, MPI_INT, &absolute_out);
	for (int i = 0; i < COUNT; i++)
		MPI_Get_address(&in[i], &at[i]);
	MPI_Type_create_hindexed(COUNT, lengths, at, MPI_INT, &absolute_in);
	MPI_Type_commit(&nothing);
	MPI_Type_commit(&huge);
	MPI_Type_commit(&every_other);
	MPI_Type_commit(&three);
	MPI_Type_commit(&absolute_out);
	MPI_Type_commit(&absolute_in);
}

/* Whether the MPI at hand cannot do it without foldback. */
static bool left_out(int test)
{
	static const char *const names[] = {"Open MPI", "MPICH", "Intel"};
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length, name = 0;

	MPI_Get_library_version(version, &length);
	while (name < 2 && !strstr(version, names[name]))
		name++;
	return !folded && tests[test].not_with && strstr(tests[test].not_with, names[name]);
}

static void run(int test, enum form form, int round)
{
	static const char *const forms[FORMS] = {"blocking", "non-blocking", "persistent"};
	struct arguments a = {
	    .send = out,
	    .recv = in,
	    .send_count = COUNT,
	    .recv_count = COUNT,
	    .recv_counts = counts,
	    .recv_displs = displs,
	    .send_type = MPI_INT,
	    .recv_type = MPI_INT,
	    .op = MPI_SUM,
	    .comm = MPI_COMM_WORLD,
	};
	MPI_Request request = MPI_REQUEST_NULL;

	watch((unsigned)stall, "test %d, %s, %s", test, tests[test].text, forms[form]);
	a.root = root = round % world_size;
	is_root = world_rank == root;
	for (int i = 0; i < 2 * MOST * COUNT; i++) {
		out[i] = value(world_rank, i);
		in[i] = want[i] = UNTOUCHED;
	}
	tests[test].prepare(&a);
	if (issue(tests[test].collective, form, false, &a, &request) != MPI_SUCCESS)
		fail("%s, %s: refused", tests[test].text, forms[form]);
	if (form == PERSISTENT)
		MPI_Start(&request);
	if (form != BLOCKING)
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (form == PERSISTENT)
		MPI_Request_free(&request);
	for (int i = 0; i < 2 * MOST * COUNT; i++)
		if (in[i] != want[i])
			fail("%s, %s, root %d: element %d is %d, not %d", tests[test].text,
			     forms[form], root, i, in[i], want[i]);
}

int main(int argc, char **argv)
{
	program_start("odd", &argc, &argv, options);
	if (world_size < 2 || world_size > MOST)
		fail("2 to %d ranks, please", MOST);
	last = world_size - 1;
	make_types();
	/* So that foldback, if it is there, folds from the first one on. */
	for (int i = 0; i < 64; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	for (int test = 0; test < (int)(sizeof(tests) / sizeof(*tests)); test++) {
		if ((only >= 0 && only != test) || left_out(test))
			continue;
		for (int form = 0; form < FORMS; form++)
			for (int round = 0; round < rounds && issue_has(ALLREDUCE, form, false);
			     round++)
				run(test, (enum form)form, round);
		say("odd: test %d: %s: ok", test, tests[test].text);
	}
	watch((unsigned)stall, "MPI_Finalize");
	MPI_Finalize();
	say("odd: all ok, %d ranks", world_size);
	return 0;
}
