/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Programs that are right by MPI's progress rule. They hang, or get wrong answers, if a collective
 * does not drive the rest of MPI, lets its root forget too early, or lets somebody run too far
 * ahead. Each ends, or is ended after --stall seconds, with its name.
 *
 * All of MPI_COMM_WORLD takes part; at least 2 ranks.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum {
	MESSAGE = 8 << 20, /* far above any eager limit: needs the sender's help to arrive */
	AHEAD = 1000,
	TAG = 7,
};

static long stall = PATIENCE, only = -1, rounds = 1;
static char *outgoing, *incoming;

static const struct option_spec options[] = {
    {"--stall", OPTION_NUMBER, &stall, "seconds that one test may take (300)"},
    {"--only", OPTION_NUMBER, &only, "number of the one test to run"},
    {"--rounds", OPTION_NUMBER, &rounds, "how often to run all (1)"},
    {0},
};

static void expect(long got, long want, const char *what)
{
	if (got != want)
		fail("%s: got %ld, want %ld", what, got, want);
}

/* The collectives. `root` matters to the last two; all of them check their answers. */
static void barrier(int root)
{
	(void)root;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void allreduce(int root)
{
	long mine = world_rank + 1, sum = 0;

	(void)root;
	MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	expect(sum, (long)world_size * (world_size + 1) / 2, "Allreduce");
}

/* Many chunks, so that a window has to move while MPI is driven. */
static void allreduce_large(int root)
{
	enum { COUNT = 64 << 10 };
	int *values = malloc(COUNT * sizeof(int));

	(void)root;
	for (int i = 0; i < COUNT; i++)
		values[i] = i ^ world_rank;
	MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	for (int i = 0; i < COUNT; i++) {
		int most = i;

		for (int rank = 1; rank < world_size; rank++)
			most = (i ^ rank) > most ? i ^ rank : most;
		expect(values[i], most, "large Allreduce");
	}
	free(values);
}

static void bcast(int root)
{
	long value = world_rank == root ? 4711 : 0;

	MPI_Bcast(&value, 1, MPI_LONG, root, MPI_COMM_WORLD);
	expect(value, 4711, "Bcast");
}

static void reduce(int root)
{
	long mine = world_rank + 1, sum = 0;

	MPI_Reduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, root, MPI_COMM_WORLD);
	if (world_rank == root)
		expect(sum, (long)world_size * (world_size + 1) / 2, "Reduce");
}

static const struct {
	const char *name;
	void (*run)(int root);
} collectives[] = {
    {"Barrier", barrier}, {"Allreduce", allreduce}, {"large Allreduce", allreduce_large},
    {"Bcast", bcast},	  {"Reduce", reduce},
};

enum { N_COLLECTIVES = sizeof(collectives) / sizeof(*collectives) };

static void fill_message(void)
{
	memset(outgoing, 0x40 + world_rank % 64, MESSAGE);
	memset(incoming, 0, MESSAGE);
}

static void check_message(int source)
{
	for (size_t i = 0; i < MESSAGE; i++)
		if (incoming[i] != (char)(0x40 + source % 64))
			fail("byte %zu of the message from rank %d is wrong", i, source);
}

/*
 * Rank 0 posts a large send and goes into the collective, where it can only be released by rank 1,
 * which first wants the message. A rank that waits in there must keep the send going.
 */
static void send_then_collective(int which)
{
	MPI_Request request;

	fill_message();
	if (world_rank == 0)
		MPI_Isend(outgoing, MESSAGE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
	if (world_rank == 1) {
		MPI_Recv(incoming, MESSAGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check_message(0);
	}
	/* Rank 0 depends on rank 1 in each: a leaf of its broadcast, a contributor to it. */
	collectives[which].run(collectives[which].run == bcast ? 1 : 0);
	if (world_rank == 0)
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* The same from the other side: the receive is posted, and the sender blocks before it joins. */
static void receive_then_collective(int which)
{
	MPI_Request request;

	fill_message();
	if (world_rank == 0)
		MPI_Irecv(incoming, MESSAGE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
	if (world_rank == 1)
		MPI_Send(outgoing, MESSAGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
	collectives[which].run(collectives[which].run == bcast ? 1 : 0);
	if (world_rank == 0) {
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		check_message(1);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* A message to oneself and one around the ring stay pending over a collective. */
static void pending_over_collective(int which)
{
	int right = (world_rank + 1) % world_size;
	int left = (world_rank + world_size - 1) % world_size;
	char to_self = (char)world_rank, from_self = -1;
	MPI_Request requests[2];

	fill_message();
	MPI_Isend(&to_self, 1, MPI_CHAR, world_rank, TAG + 1, MPI_COMM_WORLD, &requests[0]);
	MPI_Isend(outgoing, MESSAGE, MPI_BYTE, right, TAG, MPI_COMM_WORLD, &requests[1]);
	collectives[which].run(0);
	MPI_Recv(incoming, MESSAGE, MPI_BYTE, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Recv(&from_self, 1, MPI_CHAR, world_rank, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < 2; i++)
		MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
	check_message(left);
	expect(from_self, (char)world_rank, "message to oneself");
}

/* A nonblocking collective is under way; some finish it before the blocking one, some after. */
static void nonblocking_collective_pending(int which)
{
	long mine = world_rank, sum = -1;
	MPI_Request request;

	MPI_Iallreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request);
	if (world_rank % 2)
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	/* Rooted at the odd rank, for which the even one must not be waiting idly. */
	collectives[which].run(1);
	if (world_rank % 2 == 0)
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	expect(sum, (long)world_size * (world_size - 1) / 2, "Iallreduce");
}

/* One rank comes late, each in its turn (of many: the first and the last two). */
static void one_is_late(int which)
{
	for (int late = 0; late < world_size; late++) {
		if (late > 0 && late < world_size - 2)
			continue;
		if (world_rank == late)
			sleep_ms(60);
		collectives[which].run(late);
		collectives[which].run((late + 1) % world_size);
	}
}

/* The root is done with its Bcast at once, and then waits in plain MPI for a leaf that comes to the
 * Bcast only later. The leaf must get the data without the root's help. */
static void root_leaves_early(int which)
{
	long word = 0;

	(void)which;
	for (int i = 0; i < 20; i++) {
		if (world_rank == world_size - 1)
			sleep_ms(10);
		bcast(0);
		if (world_rank == world_size - 1)
			MPI_Send(&word, 1, MPI_LONG, 0, TAG, MPI_COMM_WORLD);
		if (world_rank == 0)
			MPI_Recv(&word, 1, MPI_LONG, world_size - 1, TAG, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
	}
}

/* Everyone may be AHEAD operations before the root of a Reduce. */
static void contributors_run_ahead(int which)
{
	(void)which;
	if (world_rank == 0)
		sleep_ms(60);
	for (long i = 0; i < AHEAD; i++) {
		long mine = i * (world_rank + 1), sum = -1;

		MPI_Reduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
		if (world_rank == 0)
			expect(sum, i * world_size * (world_size + 1) / 2, "Reduce");
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* The root of a Bcast may be AHEAD operations before its leaves. */
static void root_runs_ahead(int which)
{
	(void)which;
	if (world_rank == world_size - 1)
		sleep_ms(60);
	for (long i = 0; i < AHEAD; i++) {
		long value = world_rank == 0 ? i * i : -1;

		MPI_Bcast(&value, 1, MPI_LONG, 0, MPI_COMM_WORLD);
		expect(value, i * i, "Bcast");
	}
}

/* The root changes with every operation, and no operation of all holds anyone back. */
static void roots_take_turns(int which)
{
	(void)which;
	for (int i = 0; i < AHEAD; i++) {
		reduce(i % world_size);
		bcast((i * 7) % world_size);
	}
}

/* Ranks wait for each other in one communicator while others are still busy in another. */
static void two_communicators(int which)
{
	MPI_Comm half;
	long word = 1;

	(void)which;
	MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &half);
	for (int i = 0; i < 200; i++) {
		/* The odd half goes on only when a message of the even half has come, which is sent
		 * from between two of the even half's operations. */
		if (world_rank == 1)
			MPI_Recv(&word, 1, MPI_LONG, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Barrier(half);
		if (world_rank == 0)
			MPI_Send(&word, 1, MPI_LONG, 1, TAG, MPI_COMM_WORLD);
		MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_LONG, MPI_MAX, half);
		expect(word, 1, "Allreduce");
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Comm_free(&half);
}

static const struct {
	const char *name;
	void (*run)(int which);
	int variants; /* 0: one, of its own */
} tests[] = {
    {"large send, then", send_then_collective, N_COLLECTIVES},
    {"large receive, then", receive_then_collective, N_COLLECTIVES},
    {"messages pending over", pending_over_collective, N_COLLECTIVES},
    {"Iallreduce pending over", nonblocking_collective_pending, N_COLLECTIVES},
    {"one rank late at", one_is_late, N_COLLECTIVES},
    {"root leaves Bcast early", root_leaves_early, 0},
    {"contributors run ahead of the root of Reduce", contributors_run_ahead, 0},
    {"root of Bcast runs ahead", root_runs_ahead, 0},
    {"roots take turns", roots_take_turns, 0},
    {"two communicators", two_communicators, 0},
};

static void run_all(void)
{
	long number = 0;

	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		for (int j = 0; j < (tests[i].variants ? tests[i].variants : 1); j++, number++) {
			const char *with = tests[i].variants ? collectives[j].name : "";
			double start = now();

			if (only >= 0 && only != number)
				continue;
			watch((unsigned)stall, "test %ld: %s %s", number, tests[i].name, with);
			tests[i].run(j);
			say("progress: test %ld: %s %s: ok, %.0f ms", number, tests[i].name, with,
			    (now() - start) * 1e3);
		}
	}
}

int main(int argc, char **argv)
{
	program_start("progress", &argc, &argv, options);
	if (world_size < 2)
		fail("needs at least 2 ranks");
	outgoing = malloc(MESSAGE);
	incoming = malloc(MESSAGE);
	for (long i = 0; i < rounds; i++)
		run_all();

	/* Ends far apart: the root of the last operation is the first to go to MPI_Finalize, where
	 * what the others still need of it must not vanish with it. */
	watch((unsigned)stall, "ends far apart");
	if (world_rank)
		sleep_ms(100.0 * (world_rank < 10 ? world_rank : 10));
	bcast(0);
	if (world_rank)
		sleep_ms(100.0 * (world_rank < 10 ? 10 - world_rank : 0));
	say("progress: all ok, %d ranks", world_size);
	MPI_Finalize();
	free(outgoing);
	free(incoming);
	return 0;
}
