/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Every collective in every form on intercommunicators whose groups differ in size, from each root
 * of either group. The forms are the MPI's own, or an interposed library's, which has more.
 */
#include <mpi.h>
#include <string.h>

#include "issue.h"
#include "program.h"

enum { BLOCK = 3, MOST_RANKS = 8, ROOM = 2 * MOST_RANKS * MOST_RANKS };

static long rounds = 3;

static const struct option_spec options[] = {
    {"--rounds", OPTION_NUMBER, &rounds, "how often to make each call (3)"},
    {0},
};

/* Two groups: their numbers of ranks, and the first rank of each in MPI_COMM_WORLD. */
struct bridge {
	MPI_Comm comm;
	int rank, own, others, first_own, first_other;
};

/* An element for each rank, of either width. */
struct parts {
	int counts[MOST_RANKS], places[MOST_RANKS];
	MPI_Count large_counts[MOST_RANKS];
	MPI_Aint large_places[MOST_RANKS];
};

/* Of one call. */
static long from[ROOM], into[ROOM], want[ROOM];
static struct parts sent, received;
static unsigned calls, large_calls;

/* Element `i` of what one rank of MPI_COMM_WORLD has for another. */
static long value(int source, int target, int i)
{
	return source * 100000L + target * 1000 + i;
}

static void put(long *to, int source, int target, int count)
{
	for (int i = 0; i < count; i++)
		to[i] = value(source, target, i);
}

static void describe(struct parts *parts, int i, int count, int place)
{
	parts->large_counts[i] = parts->counts[i] = count;
	parts->large_places[i] = parts->places[i] = place;
}

/* Elements of a rank's part. */
static int part(const struct collective_traits *traits, int rank)
{
	return traits->vector ? 1 + rank % BLOCK : BLOCK;
}

/* The last rank's part comes first, where that can be said. */
static int place(const struct collective_traits *traits, const struct bridge *b, int i)
{
	return BLOCK * (traits->vector ? b->others - 1 - i : i);
}

/* The sum of what the other group brings, from an element on. */
static void put_sum(const struct bridge *b, int first, int count)
{
	for (int i = 0; i < count; i++) {
		want[i] = 0;
		for (int other = 0; other < b->others; other++)
			want[i] += value(b->first_other + other, 0, first + i);
	}
}

/* Both groups' sums are as long; where parts differ the first of a group's ranks gets one more than
 * the last. */
static void scatter_sum(const struct bridge *b, bool vector)
{
	int each = 2 * b->others, before = 0;

	for (int i = 0; i < b->own; i++) {
		int more = vector ? (i == 0) - (i == b->own - 1) : 0;

		describe(&received, i, each + more, 0);
		if (i < b->rank)
			before += received.counts[i];
	}
	put(from, world_rank, 0, each * b->own);
	put_sum(b, before, received.counts[b->rank]);
}

/* Sent to all ranks of the other group. */
static void put_sent(const struct collective_traits *traits, const struct bridge *b, long *data)
{
	for (int i = 0; i < b->others && traits->sends_blocks; i++) {
		int other = b->first_other + i, count = part(traits, other);

		describe(&sent, i, count, place(traits, b, i));
		put(data + place(traits, b, i), world_rank, other, count);
	}
	if (!traits->sends_blocks)
		put(data, world_rank, 0, part(traits, world_rank));
}

/* Received from all ranks of the other group. */
static void put_received(const struct collective_traits *traits, const struct bridge *b)
{
	for (int i = 0; i < b->others; i++) {
		int other = b->first_other + i;
		int count = part(traits, traits->sends_blocks ? world_rank : other);

		describe(&received, i, count, place(traits, b, i));
		put(want + place(traits, b, i), other, traits->sends_blocks ? world_rank : 0,
		    count);
	}
}

/* `root`: of MPI_COMM_WORLD. */
static void prepare(enum collective collective, const struct bridge *b, int root)
{
	const struct collective_traits *traits = &collectives[collective];
	bool is_root = root == world_rank,
	     far = root < b->first_own || root >= b->first_own + b->own;
	bool to_root = collective == REDUCE || traits->receives_blocks;
	bool brings = !traits->rooted || (to_root ? far : is_root);
	bool gets = !traits->rooted || (to_root ? is_root : far);

	memset(into, 0xff, sizeof(into));
	memset(want, 0xff, sizeof(want));
	if (collective == REDUCE_SCATTER || collective == REDUCE_SCATTER_BLOCK) {
		scatter_sum(b, traits->vector);
		return;
	}
	if (brings)
		put_sent(traits, b, collective == BCAST ? into : from);
	if (brings && collective == BCAST)
		memcpy(want, into, sizeof(want));
	if (gets && traits->reduces)
		put_sum(b, 0, BLOCK);
	else if (gets && traits->receives_blocks)
		put_received(traits, b);
	else if (gets && collective != BARRIER)
		put(want, root, traits->sends_blocks ? world_rank : 0, part(traits, world_rank));
}

static void call(enum collective collective, enum form form, bool large, const struct bridge *b,
		 int root)
{
	const struct collective_traits *traits = &collectives[collective];
	bool far = root < b->first_own || root >= b->first_own + b->own;
	bool scatters = collective == REDUCE_SCATTER_BLOCK;
	struct arguments arguments = {
	    .send = from,
	    .recv = into,
	    .send_count = part(traits, world_rank),
	    .recv_count = scatters ? 2 * b->others : part(traits, world_rank),
	    .send_counts = sent.counts,
	    .send_displs = sent.places,
	    .recv_counts = received.counts,
	    .recv_displs = received.places,
	    .send_counts_large = sent.large_counts,
	    .send_displs_large = sent.large_places,
	    .recv_counts_large = received.large_counts,
	    .recv_displs_large = received.large_places,
	    .send_type = MPI_LONG,
	    .recv_type = MPI_LONG,
	    .op = MPI_SUM,
	    .root = far			 ? root - b->first_other
		    : root == world_rank ? MPI_ROOT
					 : MPI_PROC_NULL,
	    .comm = b->comm,
	};
	MPI_Request request = MPI_REQUEST_NULL;
	const char *name = traits->name, *width = large ? "large" : "plain";

	watch(PATIENCE, "%s, form %d, %s, root %d, %d ranks to %d", name, form, width, root, b->own,
	      b->others);
	prepare(collective, b, root);
	issue(collective, form, large, &arguments, &request);
	issue_complete(form, &request);
	for (int i = 0; i < ROOM; i++)
		if (into[i] != want[i])
			fail("%s, form %d, %s, root %d, %d ranks to %d: element %d is %ld, not %ld",
			     name, form, width, root, b->own, b->others, i, into[i], want[i]);
	calls++;
	large_calls += large;
}

/* The first ranks, and all others. */
static void across(int first)
{
	bool upper = world_rank >= first;
	struct bridge b = {.own = upper ? world_size - first : first,
			   .others = upper ? first : world_size - first,
			   .first_own = upper ? first : 0,
			   .first_other = upper ? 0 : first};
	MPI_Comm half;

	MPI_Comm_split(MPI_COMM_WORLD, upper, 0, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, b.first_other, 1, &b.comm);
	MPI_Comm_rank(b.comm, &b.rank);
	for (int i = 0; i < COLLECTIVES * FORMS * 2; i++) {
		enum collective collective = (enum collective)(i / 2 / FORMS);
		enum form form = (enum form)(i / 2 % FORMS);
		int roots = collectives[collective].rooted ? world_size : 1;

		/* Scans are for one group. */
		if (collective == SCAN || collective == EXSCAN ||
		    !issue_has(collective, form, i % 2))
			continue;
		for (int root = 0; root < roots * rounds; root++)
			call(collective, form, i % 2, &b, root % roots);
	}
	MPI_Comm_free(&b.comm);
	MPI_Comm_free(&half);
}

#ifdef OPEN_MPI
static int handled;

static void handle(MPI_Comm *comm, int *code, ...)
{
	(void)comm;
	handled = *code;
}

/* More than fits into an int, for an MPI of ints: the communicator's error handler is told. */
static void too_many(void)
{
	struct arguments arguments = {
	    .send = from, .recv = into, .recv_type = MPI_LONG, .op = MPI_SUM};
	MPI_Errhandler handler;

	if (!issue_has(REDUCE_SCATTER, BLOCKING, true))
		return;
	MPI_Comm_dup(MPI_COMM_WORLD, &arguments.comm);
	MPI_Comm_create_errhandler(handle, &handler);
	MPI_Comm_set_errhandler(arguments.comm, handler);
	memset(received.large_counts, 0, sizeof(received.large_counts));
	received.large_counts[world_size - 1] = 1L << 31;
	arguments.recv_counts_large = received.large_counts;
	if (issue(REDUCE_SCATTER, BLOCKING, true, &arguments, NULL) != MPI_ERR_COUNT ||
	    handled != MPI_ERR_COUNT)
		fail("a count beyond the largest int: error %d was handled", handled);
	MPI_Errhandler_free(&handler);
	MPI_Comm_free(&arguments.comm);
}
#endif

int main(int argc, char **argv)
{
	program_start("across", &argc, &argv, options);
	if (world_size < 3 || world_size > MOST_RANKS)
		fail("needs 3 to %d ranks", MOST_RANKS);
	across(1);
	across(world_size - 1);
#ifdef OPEN_MPI
	too_many();
#endif
	say("across: %u calls ok, %u large", calls, large_calls);
	MPI_Finalize();
	return 0;
}
