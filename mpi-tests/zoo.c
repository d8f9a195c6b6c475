/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Programs with operations under way that are right by MPI's progress rule. They hang or get wrong
 * answers if an operation moves on only while its own rank waits for it. So they do if a rank may
 * not leave before others have come, or if one communicator holds up another.
 *
 * No time is ever asserted: a test that does not end is ended after --stall seconds.
 */
#include <mpi.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "deviation.h"
#include "pending.h"
#include "program.h"

enum { MESSAGE = 4 << 20, AHEAD = 1000, MANY = 100, TAG = 7, WORLD_OF_LETTERS = 26 };

static long stall = PATIENCE, only = -1, idle, all;
static char *outgoing, *incoming;

static const struct option_spec options[] = {
    {"--stall", OPTION_NUMBER, &stall, "seconds that one test may take (300)"},
    {"--only", OPTION_NUMBER, &only, "number of the one test to run"},
    {"--all", OPTION_FLAG, &all, "also what the MPI at hand is known to crash in"},
    {"--idle", OPTION_FLAG, &idle, "the last rank calls nothing but MPI_Init and MPI_Finalize"},
    {0},
};

static void expect(long got, long want, const char *what)
{
	if (got != want)
		fail("%s: got %ld, want %ld", what, got, want);
}

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

static void send_word(int to)
{
	long word = world_rank;

	MPI_Send(&word, 1, MPI_LONG, to, TAG, MPI_COMM_WORLD);
}

static void receive_word(int from)
{
	long word = -1;

	MPI_Recv(&word, 1, MPI_LONG, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	expect(word, from, "message");
}

/* Rank 0's large send needs its help while it waits for the operation, to which rank 1 comes only
 * with the message in hand. The other way round, rank 1 takes the message between start and wait.
 */
static void large_send_across(int kind)
{
	MPI_Request request = MPI_REQUEST_NULL;
	struct pending p;

	for (int early = 0; early < 2; early++) {
		fill_message();
		if (world_rank == 0)
			MPI_Isend(outgoing, MESSAGE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
		if (world_rank != 1 || early)
			pending_start(&p, kind, pending_is_from_root(kind), 100, MPI_COMM_WORLD);
		if (world_rank == 1) {
			MPI_Recv(incoming, MESSAGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			check_message(0);
		}
		if (world_rank == 1 && !early)
			pending_start(&p, kind, pending_is_from_root(kind), 100, MPI_COMM_WORLD);
		pending_finish(&p);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
}

/* Around the ring, large messages started before, waited for after, all at once. */
static void ring_across(int kind)
{
	int right = (world_rank + 1) % world_size,
	    left = (world_rank + world_size - 1) % world_size;
	MPI_Request requests[3];
	struct pending p;

	fill_message();
	MPI_Isend(outgoing, MESSAGE, MPI_BYTE, right, TAG, MPI_COMM_WORLD, &requests[0]);
	pending_start(&p, kind, 0, 200, MPI_COMM_WORLD);
	MPI_Irecv(incoming, MESSAGE, MPI_BYTE, left, TAG, MPI_COMM_WORLD, &requests[1]);
	requests[2] = p.request;
	MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
	p.request = requests[2];
	pending_check(&p);
	check_message(left);
}

/* How a rank with an operation under way may sit in MPI for the message of one that has completed
 * its part of the same operation. */
enum { IN_RECV, IN_PROBE, IN_WAIT, IN_TEST, IN_IPROBE, IN_WAITANY, IN_SENDRECV, IN_BARRIER, SITS };

static void sit(int how, int from)
{
	long word = -1, none = 0;
	int flag = 0, index;
	MPI_Request request, requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};

	switch (how) {
	case IN_PROBE:
		MPI_Probe(from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		break;
	case IN_IPROBE:
		while (!flag)
			MPI_Iprobe(from, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
		break;
	case IN_WAIT:
	case IN_TEST:
	case IN_WAITANY:
		MPI_Irecv(&word, 1, MPI_LONG, from, TAG, MPI_COMM_WORLD, &request);
		if (how == IN_WAIT)
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		while (how == IN_TEST && !flag)
			MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
		requests[1] = request;
		if (how == IN_WAITANY)
			MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
		expect(word, from, "message");
		return;
	case IN_SENDRECV:
		MPI_Sendrecv(&none, 0, MPI_LONG, MPI_PROC_NULL, TAG, &word, 1, MPI_LONG, from, TAG,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		expect(word, from, "message");
		return;
	default:
		break;
	}
	receive_word(from);
}

/* Each rank in its turn starts an operation and sits somewhere else, until the others have theirs
 * behind them. They cannot complete it if it moves on only while that rank waits for it. */
static void sit_elsewhere(int kind)
{
	MPI_Comm other;
	struct pending p;

	MPI_Comm_dup(MPI_COMM_WORLD, &other);
	for (int how = 0; how < SITS; how++)
		for (int sitter = 0; sitter < world_size && sitter < 4; sitter++) {
			watch((unsigned)stall, "rank %d sits elsewhere (%d) during %s", sitter, how,
			      pending_names[kind]);
			pending_start(&p, kind, (sitter + 1) % world_size, 300 + how,
				      MPI_COMM_WORLD);
			if (world_rank == sitter) {
				if (how == IN_BARRIER)
					MPI_Barrier(other);
				for (int i = 0; i < world_size; i++)
					if (i != sitter)
						sit(how, i);
			} else {
				pending_finish(&p);
				if (how == IN_BARRIER)
					MPI_Barrier(other);
				send_word(sitter);
			}
			if (world_rank == sitter)
				pending_finish(&p);
		}
	MPI_Comm_free(&other);
}

/* The root has completed its Ibcast, or does not even wait for it, and waits in plain MPI for a
 * leaf that comes to it only later. */
static void root_goes_away(int waits)
{
	int last = world_size - 1;
	struct pending p;

	for (int i = 0; i < 20; i++) {
		if (world_rank == last)
			sleep_ms(10);
		pending_start(&p, IBCAST, 0, i, MPI_COMM_WORLD);
		if (world_rank == 0 && waits)
			pending_finish(&p);
		if (world_rank == 0)
			receive_word(last);
		if (world_rank != 0 || !waits)
			pending_finish(&p);
		if (world_rank == last)
			send_word(0);
	}
}

/* Contributors and roots a thousand operations ahead of the others; waiting for each one. */
static void run_ahead(int kind)
{
	int late = kind == IREDUCE || kind == IGATHERV ? 0 : world_size - 1;
	struct pending p;

	if (world_rank == late)
		sleep_ms(50);
	for (int i = 0; i < AHEAD; i++) {
		pending_start(&p, kind, 0, i, MPI_COMM_WORLD);
		pending_finish(&p);
	}
}

/* The same, without waiting: many under way at once, of all kinds, completed from the last on. */
static void many_under_way(int late)
{
	static struct pending p[MANY];

	if (world_rank == late)
		sleep_ms(50);
	for (int i = 0; i < MANY; i++)
		pending_start(&p[i], i % PENDING_KINDS, i % world_size, i, MPI_COMM_WORLD);
	for (int i = MANY; i--;)
		pending_finish(&p[i]);
}

/* A rank comes late to start, or is busy between start and wait. */
static void slow_rank(int kind)
{
	struct pending p;
	double end;

	for (int slow = 0; slow < world_size && slow < 3; slow++) {
		if (world_rank == slow)
			sleep_ms(20);
		pending_start(&p, kind, (slow + 1) % world_size, slow, MPI_COMM_WORLD);
		for (end = now() + 0.05; world_rank == slow && now() < end;)
			;
		pending_finish(&p);
	}
}

/* Nothing but MPI_Test now and then. */
static void polling(int kind)
{
	struct pending p;

	for (int i = 0; i < 10; i++) {
		int done = 0;

		pending_start(&p, kind, i % world_size, i, MPI_COMM_WORLD);
		while (!done) {
			MPI_Test(&p.request, &done, MPI_STATUS_IGNORE);
			if (!done)
				sleep_ms(1);
		}
		pending_check(&p);
	}
}

/* The request is asked about, and only then taken. */
static void asking(int kind)
{
	struct pending p;
	int done = 0;

	pending_start(&p, kind, 0, 5, MPI_COMM_WORLD);
	while (!done)
		MPI_Request_get_status(p.request, &done, MPI_STATUS_IGNORE);
	if (p.request == MPI_REQUEST_NULL)
		fail("MPI_Request_get_status took the request");
	pending_finish(&p);
}

/* Blocking operations on the same communicator while others are under way on it. */
static void blocking_in_between(int kind)
{
	struct pending first, second;

	for (int i = 0; i < 50; i++) {
		long mine = world_rank + i, sum = -1, value = world_rank == 0 ? i : -1;

		pending_start(&first, kind, 0, i, MPI_COMM_WORLD);
		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		expect(sum, (long)world_size * i + world_size * (world_size - 1) / 2, "Allreduce");
		pending_start(&second, kind, world_size - 1, 7 * i, MPI_COMM_WORLD);
		if (world_rank % 2)
			pending_finish(&first);
		MPI_Bcast(&value, 1, MPI_LONG, 0, MPI_COMM_WORLD);
		expect(value, i, "Bcast");
		pending_finish(&second);
		if (world_rank % 2 == 0)
			pending_finish(&first);
	}
}

/* Communicators that share ranks: a = {0, 1}, b = {1, 2}, c = {0, 2, 3}, as far as there are such.
 */
static MPI_Comm of_ranks(int n, const int *ranks, int tag)
{
	MPI_Group world, group;
	MPI_Comm comm = MPI_COMM_NULL;
	int fit = 0, mine = 0;

	while (fit < n && ranks[fit] < world_size)
		fit++;
	for (int i = 0; i < fit; i++)
		mine |= ranks[i] == world_rank;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, fit, ranks, &group);
	if (mine)
		MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
	return comm;
}

static void overlapping(int kind)
{
	static const int members[3][3] = {{0, 1}, {1, 2}, {0, 2, 3}}, sizes[3] = {2, 2, 3};
	struct pending p[3];
	MPI_Comm comms[3];

	for (int i = 0; i < 3; i++)
		comms[i] = of_ranks(sizes[i], members[i], i);
	for (int round = 0; round < 60; round++) {
		/* Each rank starts and ends in an order of its own. In every other round `c` is
		 * used in between, blocking. */
		for (int i = 0; i < 3; i++) {
			int which = (i * (1 + world_rank % 2) + world_rank + round) % 3;

			if (comms[which] != MPI_COMM_NULL && (which != 2 || round % 2))
				pending_start(&p[which], kind, 0, round + which, comms[which]);
		}
		if (comms[2] != MPI_COMM_NULL && round % 2 == 0) {
			long one = 1, sum = 0;
			int size;

			MPI_Comm_size(comms[2], &size);
			MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, comms[2]);
			expect(sum, size, "Allreduce");
		}
		for (int i = 0; i < 3; i++) {
			int which = (2 * i + world_rank + round) % 3;

			if (comms[which] != MPI_COMM_NULL && (which != 2 || round % 2))
				pending_finish(&p[which]);
		}
	}
	for (int i = 0; i < 3; i++)
		if (comms[i] != MPI_COMM_NULL)
			MPI_Comm_free(&comms[i]);
}

/* Freed by the program, kept by MPI until the operation is complete. */
static void freed_under_way(int kind)
{
	struct pending p[3];

	for (int i = 0; i < 20; i++) {
		MPI_Comm comm;

		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		for (int j = 0; j < 3; j++)
			pending_start(&p[j], kind, j % world_size, i, comm);
		pending_finish(&p[1]);
		MPI_Comm_free(&comm);
		if (world_rank == i % world_size)
			sleep_ms(2);
		pending_finish(&p[2]);
		pending_finish(&p[0]);
	}
}

/* Communicators are made while operations are under way on their parent. */
static void made_under_way(int kind)
{
	struct pending p, q, r;

	for (int i = 0; i < 20; i++) {
		MPI_Comm duplicate, half, later;
		MPI_Request request;

		pending_start(&p, kind, 0, i, MPI_COMM_WORLD);
		MPI_Comm_dup(MPI_COMM_WORLD, &duplicate);
		pending_start(&q, kind, 0, i + 1, duplicate);
		MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &half);
		MPI_Comm_idup(MPI_COMM_WORLD, &later, &request);
		pending_start(&r, kind, 0, i + 2, half);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		pending_finish(&q);
		pending_finish(&r);
		MPI_Comm_free(&half);
		MPI_Comm_free(&duplicate);
		pending_start(&q, kind, 0, i + 3, later);
		pending_finish(&p);
		pending_finish(&q);
		MPI_Comm_free(&later);
	}
}

/* Letters of ranks, one behind the other. */
struct text {
	int length;
	char letters[WORLD_OF_LETTERS];
};

/* Does not commute, and whatever MPI lets an op of the program's do: it takes its time on one rank,
 * and makes and frees ops and types. */
static void concatenate(void *in, void *inout, int *count, MPI_Datatype *type)
{
	struct text *left = in, *right = inout;
	MPI_Datatype copy;
	MPI_Op another;

	if (world_rank == world_size / 2)
		sleep_ms(5);
	MPI_Type_dup(*type, &copy);
	MPI_Type_free(&copy);
	MPI_Op_create(concatenate, 0, &another);
	MPI_Op_free(&another);
	for (int i = 0; i < *count; i++) {
		struct text both = left[i];

		memcpy(both.letters + both.length, right[i].letters, (size_t)right[i].length);
		both.length += right[i].length;
		right[i] = both;
	}
}

static void expect_ranks(const struct text *text, int from, int count)
{
	expect(text->length, count, "letters");
	for (int i = 0; i < count; i++)
		expect(text->letters[i], 'a' + from + i, "a letter");
}

/* An op of the program's, on a type of its own with a gap, is called in the order of ranks. */
static void own_op(int variant)
{
	int lengths[] = {1, WORLD_OF_LETTERS}, root = world_size - 1;
	MPI_Aint places[] = {offsetof(struct text, length), offsetof(struct text, letters)};
	MPI_Datatype types[] = {MPI_INT, MPI_CHAR}, packed, type;
	struct text mine[2], all[2];
	MPI_Op op;

	(void)variant;
	if (world_size > WORLD_OF_LETTERS)
		return;
	MPI_Type_create_struct(2, lengths, places, types, &packed);
	MPI_Type_create_resized(packed, 0, sizeof(struct text), &type);
	MPI_Type_commit(&type);
	MPI_Op_create(concatenate, 0, &op);
	for (int i = 0; i < 2; i++)
		mine[i] = (struct text){.length = 1, .letters = {(char)('a' + world_rank)}};
	for (int i = 0; i < 4; i++) {
		MPI_Allreduce(mine, all, 2, type, op, MPI_COMM_WORLD);
		expect_ranks(&all[0], 0, world_size);
		expect_ranks(&all[1], 0, world_size);
		MPI_Reduce(mine, all, 1, type, op, root, MPI_COMM_WORLD);
		if (world_rank == root)
			expect_ranks(&all[0], 0, world_size);
		MPI_Scan(mine, all, 1, type, op, MPI_COMM_WORLD);
		expect_ranks(&all[0], 0, world_rank + 1);
		MPI_Exscan(mine, all, 1, type, op, MPI_COMM_WORLD);
		if (world_rank)
			expect_ranks(&all[0], 0, world_rank);
	}
	MPI_Op_free(&op);
	MPI_Type_free(&type);
	MPI_Type_free(&packed);
}

static const struct {
	const char *name;
	void (*run)(int variant);
	int variants;
	const char *const *names; /* of the variants, or NULL */
} tests[] = {
    {"large send across", large_send_across, PENDING_KINDS, pending_names},
    {"ring across", ring_across, PENDING_KINDS, pending_names},
    {"sitting elsewhere during", sit_elsewhere, PENDING_KINDS, pending_names},
    {"root goes away from Ibcast", root_goes_away, 2, NULL},
    {"running ahead in", run_ahead, PENDING_KINDS, pending_names},
    {"many under way, one late", many_under_way, 2, NULL},
    {"slow rank in", slow_rank, PENDING_KINDS, pending_names},
    {"polling for", polling, PENDING_KINDS, pending_names},
    {"asking for", asking, PENDING_KINDS, pending_names},
    {"blocking between", blocking_in_between, PENDING_KINDS, pending_names},
    {"overlapping communicators with", overlapping, PENDING_KINDS, pending_names},
    {"communicator freed under", freed_under_way, PENDING_KINDS, pending_names},
    {"communicators made under", made_under_way, PENDING_KINDS, pending_names},
    {"an op that takes its time", own_op, 1, NULL},
};

static void run_all(void)
{
	long number = 0;

	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		for (int j = 0; j < tests[i].variants; j++, number++) {
			const char *variant = tests[i].names ? tests[i].names[j] : "";

			if (only >= 0 && only != number)
				continue;
			if (tests[i].run == freed_under_way && deviation_free() && !all) {
				say("zoo: test %ld: %s %s: left out, this MPI crashes", number,
				    tests[i].name, variant);
				continue;
			}
			watch((unsigned)stall, "test %ld: %s %s", number, tests[i].name, variant);
			tests[i].run(j);
			MPI_Barrier(MPI_COMM_WORLD);
			say("zoo: test %ld: %s %s: ok", number, tests[i].name, variant);
		}
}

/* All ranks but the last have a communicator of their own; the last one does nothing. */
static void run_idle(void)
{
	int *ranks = malloc((size_t)world_size * sizeof(int));
	struct pending p;
	MPI_Comm comm;

	for (int i = 0; i < world_size; i++)
		ranks[i] = i;
	if (world_rank < world_size - 1) {
		comm = of_ranks(world_size - 1, ranks, 0);
		for (int i = 0; i < 50 * PENDING_KINDS; i++) {
			MPI_Barrier(comm);
			pending_start(&p, i % PENDING_KINDS, 0, i, comm);
			pending_finish(&p);
		}
		MPI_Comm_free(&comm);
	}
	free(ranks);
}

int main(int argc, char **argv)
{
	struct pending p;

	program_start("zoo", &argc, &argv, options);
	if (world_size < 2)
		fail("needs at least 2 ranks");
	outgoing = malloc(MESSAGE);
	incoming = malloc(MESSAGE);
	watch((unsigned)stall, "the run with an idle rank");
	if (idle) {
		run_idle();
	} else {
		run_all();
		/* The root is the first to go to MPI_Finalize. */
		watch((unsigned)stall, "ends far apart");
		if (world_rank)
			sleep_ms(100.0 * (world_rank < 10 ? world_rank : 10));
		pending_start(&p, IBCAST, 0, 1, MPI_COMM_WORLD);
		pending_finish(&p);
	}
	say("zoo: all ok, %d ranks", world_size);
	watch((unsigned)stall, "MPI_Finalize");
	MPI_Finalize();
	free(outgoing);
	free(incoming);
	return 0;
}
