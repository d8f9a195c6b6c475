/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Collectives in which each pair of ranks has a block of its own: Gatherv, Scatterv, Alltoallv,
 * Alltoallw, and all collectives of neighbours. Lengths, datatypes and places of blocks differ
 * between all pairs. Bytes between the blocks must stay as they were.
 *
 * Every rank knows the right answer without the others. Calls that a real MPI gets wrong are left
 * out, and a line says so.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "deviation.h"
#include "exchange.h"
#include "pending.h"
#include "program.h"
#include "random.h"

enum { BURST = 12, TAG = 23, MOST_NOTES = 32 };

static long seed = 1, rounds = 4, first, stall = PATIENCE, max_bytes = 204800;
static long is_single, tries_all, is_verbose;
static const char *only = "", *only_name = "";

static const struct option_spec options[] = {
    {"--only", OPTION_TEXT, &only, "this part alone, such as grids"},
    {"--collective", OPTION_TEXT, &only_name, "this collective alone, such as Gatherv"},
    {"--rounds", OPTION_NUMBER, &rounds, "how often to run all, each time with others (4)"},
    {"--first", OPTION_NUMBER, &first, "number of the first round, to repeat it (0)"},
    {"--seed", OPTION_NUMBER, &seed, "of all choices and data (1)"},
    {"--max-bytes", OPTION_NUMBER, &max_bytes, "most bytes of a block (204800)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one step may take (300)"},
    {"--single", OPTION_FLAG, &is_single, "ask for no threads"},
    {"--try-all", OPTION_FLAG, &tries_all, "also what this MPI is known to do wrong"},
    {"--verbose", OPTION_FLAG, &is_verbose, "print each call before it is made"},
    {0},
};

static unsigned long n_calls, n_left_out;
static __thread bool is_worker; /* not the main thread, which alone calls watch() */

/* Of every call of a part in a round, the same on all ranks. */
static uint64_t id_of(uint64_t part, uint64_t round, uint64_t number)
{
	return random_start((uint64_t)seed, part << 32 | round, number).state;
}

/* Says once what this MPI does wrong. */
static void note(const char *fault)
{
	static const char *said[MOST_NOTES];
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	int i = 0;

	pthread_mutex_lock(&mutex);
	n_left_out++;
	while (i < MOST_NOTES - 1 && said[i] && strcmp(said[i], fault))
		i++;
	if (!said[i])
		say("exchange: left out: %s", fault);
	said[i] = fault;
	pthread_mutex_unlock(&mutex);
}

/* Whether the MPI at hand can make the call. It may lack one form and have another. */
static bool is_possible(struct exchange_call *call, const struct place *place)
{
	const char *fault;

	if (*only_name && strcmp(only_name, exchange_traits[call->kind].name))
		return false;
	if (!exchange_has(call->kind, call->form, call->large))
		call->large = false;
	if (!exchange_has(call->kind, call->form, call->large))
		call->form = NONBLOCKING;
	fault = tries_all ? NULL : deviation_exchange(call, place);
	if (fault)
		note(fault);
	return !fault;
}

/* The data is there, and the call is made. */
static void begin(struct exchange *exchange, const struct place *place,
		  const struct exchange_call *call)
{
	const char *what = exchange_describe(call, place);

	if (!is_worker)
		watch((unsigned)stall, "%s", what);
	if (is_verbose)
		say("exchange: %s", what);
	exchange_make(exchange, place, call);
	exchange_load(exchange, 0);
	exchange_start(exchange);
	__atomic_fetch_add(&n_calls, 1, __ATOMIC_RELAXED);
}

/* One call alone. */
static void make_call(const struct place *place, struct exchange_call *call)
{
	struct exchange exchange;

	if (!is_possible(call, place))
		return;
	begin(&exchange, place, call);
	MPI_Wait(&exchange.request, MPI_STATUS_IGNORE);
	exchange_check(&exchange);
	if (call->form == PERSISTENT) {
		exchange_load(&exchange, 1);
		exchange_start(&exchange);
		MPI_Wait(&exchange.request, MPI_STATUS_IGNORE);
		exchange_check(&exchange);
	}
	exchange_free(&exchange);
}

/* A message around the ring of the communicator. */
struct ring {
	long out, in, want;
	MPI_Request requests[2];
};

static void ring_start(struct ring *ring, const struct place *place, long salt)
{
	int n = place->n_local, right = (place->index + 1) % n, left = (place->index + n - 1) % n;

	*ring = (struct ring){.out = salt + place->index, .want = salt + left};
	MPI_Irecv(&ring->in, 1, MPI_LONG, left, TAG, place->comm, &ring->requests[0]);
	MPI_Isend(&ring->out, 1, MPI_LONG, right, TAG, place->comm, &ring->requests[1]);
}

static void ring_finish(struct ring *ring)
{
	MPI_Waitall(2, ring->requests, MPI_STATUSES_IGNORE);
	if (ring->in != ring->want)
		fail("a message around the ring: got %ld, not %ld", ring->in, ring->want);
}

/* The calls of a burst that are under way. */
struct burst {
	struct exchange exchanges[BURST];
	struct pending folds[BURST];
	struct ring rings[BURST];
	int n_exchanges, n_folds, n_rings;
};

/* Something of another kind between two exchanges. */
static void in_between(struct burst *burst, const struct place *place, uint64_t id)
{
	struct random random = random_start(id, 4, 0), local = random_start(id, 5, world_rank);
	uint64_t kind = random_below(&random, 8);
	int fold = (int)random_below(&random, PENDING_KINDS);
	int root = (int)random_below(&random, (uint64_t)place->n_local);

	if (random_below(&local, 16) == 0)
		sleep_ms(1);
	if (place->is_inter)
		return;
	if (kind == 0)
		pending_block(fold, root, (long)(id % 1000), place->comm);
	else if (kind == 1)
		pending_start(&burst->folds[burst->n_folds++], fold, root, (long)(id % 1000),
			      place->comm);
	else if (kind == 2)
		ring_start(&burst->rings[burst->n_rings++], place, (long)(id % 1000));
}

static void wait_by_test(MPI_Request *request)
{
	int done = 0;

	while (!done)
		MPI_Test(request, &done, MPI_STATUS_IGNORE);
}

/* Waits in an order of this rank's own. */
static void finish_exchanges(struct burst *burst, struct random *local)
{
	int left = burst->n_exchanges, order[BURST];

	for (int i = 0; i < left; i++)
		order[i] = i;
	while (left) {
		int chosen = (int)random_below(local, (uint64_t)left);
		struct exchange *exchange = &burst->exchanges[order[chosen]];

		order[chosen] = order[--left];
		if (!is_worker)
			watch((unsigned)stall, "waiting for %s",
			      exchange_describe(&exchange->call, exchange->place));
		if (random_below(local, 2))
			MPI_Wait(&exchange->request, MPI_STATUS_IGNORE);
		else
			wait_by_test(&exchange->request);
		exchange_check(exchange);
	}
}

/* Persistent ones once more, all at once; the others are over. */
static void start_again(struct burst *burst, struct random *local)
{
	MPI_Request requests[BURST];
	int n = 0;

	for (int i = 0; i < burst->n_exchanges; i++) {
		struct exchange *exchange = &burst->exchanges[i];

		if (exchange->call.form != PERSISTENT) {
			exchange_free(exchange);
			continue;
		}
		exchange_load(exchange, 1);
		requests[n] = exchange->request;
		burst->exchanges[n++] = *exchange;
	}
	burst->n_exchanges = n;
	MPI_Startall(n, requests);
	finish_exchanges(burst, local);
	for (int i = 0; i < n; i++)
		exchange_free(&burst->exchanges[i]);
}

/* `n` calls that the place allows, as many under way as do not block. */
static void run_burst(const struct place *place, uint64_t id, int n)
{
	struct random local = random_start(id, 6, (uint64_t)world_rank);
	struct burst *burst = calloc(1, sizeof(*burst));

	if (place->comm == MPI_COMM_NULL)
		n = 0;
	for (int i = 0; i < n; i++) {
		struct exchange *exchange = &burst->exchanges[burst->n_exchanges];
		uint64_t number = random_mix(id + (uint64_t)i);
		struct exchange_call call = exchange_choose(place, number, (size_t)max_bytes);

		in_between(burst, place, number);
		if (!is_possible(&call, place))
			continue;
		begin(exchange, place, &call);
		if (call.form != PERSISTENT && random_below(&local, 3) == 0)
			exchange_free_types(exchange);
		if (call.form == BLOCKING) {
			exchange_check(exchange);
			exchange_free(exchange);
		} else {
			burst->n_exchanges++;
		}
	}
	finish_exchanges(burst, &local);
	for (int i = burst->n_folds; i--;)
		pending_finish(&burst->folds[i]);
	for (int i = burst->n_rings; i--;)
		ring_finish(&burst->rings[i]);
	start_again(burst, &local);
	free(burst);
}

/* A call of one kind in one form, with blocks of one length, and every third one with blocks of
 * all lengths up to that. */
static struct exchange_call plain_call(const struct place *place, uint64_t id,
				       enum exchange_kind kind, size_t bytes)
{
	struct exchange_call call = exchange_choose(place, id, (size_t)max_bytes);

	call.kind = kind;
	call.bytes = bytes < (size_t)max_bytes ? bytes : (size_t)max_bytes;
	call.exact = random_mix(id) % 3 != 0;
	call.in_place &= !exchange_traits[kind].neighbour && !place->is_inter;
	return call;
}

/* Every kind with every size, in a form that changes with the round. */
static void sizes(uint64_t round)
{
	static const size_t lengths[] = {0,    1,    7,	   64,	 1024,	1407,
					 1408, 1409, 8896, 8897, 20480, 204800};
	static const int wraps[] = {1, 1};
	int dims[2] = {0, 0};
	struct place plain, grid;
	MPI_Comm copy;

	MPI_Comm_dup(MPI_COMM_WORLD, &copy);
	plain = place_of(copy, "a duplicate");
	MPI_Dims_create(world_size, 2, dims);
	grid = place_cartesian(MPI_COMM_WORLD, 2, dims, wraps, false);
	for (int i = 0; i < (int)(sizeof(lengths) / sizeof(*lengths)); i++)
		for (int kind = 0; kind < EXCHANGES; kind++) {
			uint64_t number = (uint64_t)(i * EXCHANGES + kind);
			bool near = exchange_traits[kind].neighbour;
			struct exchange_call call =
			    plain_call(near ? &grid : &plain, id_of(1, round, number),
				       (enum exchange_kind)kind, lengths[i]);

			call.form = (enum form)((number + round) % FORMS);
			make_call(near ? &grid : &plain, &call);
		}
	place_free(&plain);
	place_free(&grid);
}

/* Each rank in turn is the root, in place and not. */
static void roots(uint64_t round)
{
	static const enum exchange_kind kinds[] = {X_GATHERV, X_SCATTERV};
	struct place world = place_of(MPI_COMM_WORLD, "MPI_COMM_WORLD");

	for (int root = 0; root < world_size; root++)
		for (int i = 0; i < 4; i++) {
			uint64_t id = id_of(2, round, (uint64_t)(4 * root + i));
			struct exchange_call call = exchange_choose(&world, id, (size_t)max_bytes);

			call.kind = kinds[i % 2];
			call.root = root;
			call.in_place = i / 2;
			make_call(&world, &call);
		}
}

/* Anything among anything, many at once. */
static void mixed(uint64_t round)
{
	struct place world = place_of(MPI_COMM_WORLD, "MPI_COMM_WORLD");

	for (uint64_t i = 0; i < 4; i++)
		run_burst(&world, id_of(3, round, i), BURST);
}

/* Grids of one to three dimensions, of all ranks or some. */
static void grids(uint64_t round)
{
	const int half = world_size / 2,
		  all[][MOST_DIMENSIONS + 1] = {
		      {1, world_size},	   {2, 2, half}, {2, world_size, 1},
		      {3, 1, 2, half},	   {1, 2},	 {2, 1, 2},
		      {3, 2, 2, half / 2}, {3, 1, 1, 1}, {3, world_size, 1, 1},
		  };
	static const int periods[][MOST_DIMENSIONS] = {{1, 1, 1}, {0, 0, 0}, {1, 0, 1}, {0, 1, 0}};

	for (uint64_t i = 0; i < 4; i++) {
		uint64_t id = id_of(4, round, i), number = round * 4 + i;
		const int *dims = all[number % (sizeof(all) / sizeof(*all))];
		struct place grid;
		int ranks = 1;

		for (int j = 1; j <= dims[0]; j++)
			ranks *= dims[j];
		if (ranks < 1 || ranks > world_size)
			continue;
		grid = place_cartesian(MPI_COMM_WORLD, dims[0], dims + 1,
				       periods[(number / 4 + i) % 4], id % 2);
		run_burst(&grid, id, BURST);
		place_free(&grid);
	}
}

/* Each kind of graph. */
static void graphs(uint64_t round)
{
	struct place (*const make[])(MPI_Comm, uint64_t) = {place_graph, place_adjacent,
							    place_distributed};

	for (uint64_t i = 0; i < (deviation_distributed() ? 2 : 3); i++) {
		uint64_t id = id_of(5, round, i);
		struct place graph = make[i](MPI_COMM_WORLD, id);

		run_burst(&graph, id, BURST);
		place_free(&graph);
	}
}

/* Duplicates and parts; and communicators that live for one burst only. */
static void communicators(uint64_t round)
{
	MPI_Comm copy, half;
	struct place place;

	MPI_Comm_dup(MPI_COMM_WORLD, &copy);
	MPI_Comm_split(copy, world_rank % 2, -world_rank, &half);
	place = place_of(half, "a half");
	run_burst(&place, id_of(6, round, (uint64_t)world_rank % 2), BURST);
	place_free(&place);
	place = place_of(copy, "a duplicate");
	run_burst(&place, id_of(6, round, 2), BURST);
	place_free(&place);
	for (uint64_t i = 0; i < 20; i++) {
		const int dims[] = {world_size}, wraps[] = {i % 4 > 1};

		if (i % 2) {
			place = place_cartesian(MPI_COMM_WORLD, 1, dims, wraps, false);
		} else {
			MPI_Comm_dup(MPI_COMM_WORLD, &copy);
			place = place_of(copy, "a duplicate");
		}
		run_burst(&place, id_of(6, round, 3 + i), 2);
		place_free(&place);
	}
}

static void between(uint64_t round)
{
	struct place place;

	if (world_size < 2)
		return;
	place = place_between(MPI_COMM_WORLD, "two groups");
	for (uint64_t i = 0; i < 2; i++)
		run_burst(&place, id_of(7, round, i), BURST);
	place_free(&place);
}

/* The data of a thread. */
struct worker {
	pthread_t thread;
	struct place place;
	uint64_t id;
};

static void *bursts(void *of)
{
	struct worker *worker = of;

	is_worker = true;
	for (uint64_t i = 0; i < 3; i++)
		run_burst(&worker->place, random_mix(worker->id + i), BURST);
	return NULL;
}

/* Two at once, each on its communicator. */
static void threads(uint64_t round)
{
	struct worker workers[2];
	int provided;

	MPI_Query_thread(&provided);
	if (provided < MPI_THREAD_MULTIPLE)
		return;
	for (uint64_t i = 0; i < 2; i++) {
		MPI_Comm copy;

		MPI_Comm_dup(MPI_COMM_WORLD, &copy);
		workers[i].place = place_of(copy, "a thread's duplicate");
		workers[i].id = id_of(8, round, i);
	}
	for (int i = 0; i < 2; i++)
		if (pthread_create(&workers[i].thread, NULL, bursts, &workers[i]))
			fail("cannot make a thread");
	for (int i = 0; i < 2; i++) {
		pthread_join(workers[i].thread, NULL);
		place_free(&workers[i].place);
	}
}

/* Somebody comes late to an exchange, while others may be through with it. These wait in a receive
 * for a word of the late one, who sends it once the exchange has served it. */
static void late(uint64_t round)
{
	struct place world = place_of(MPI_COMM_WORLD, "MPI_COMM_WORLD");

	for (int kind = 0; kind < X_NEIGHBOR_ALLGATHER; kind++)
		for (int tardy = 0; tardy < world_size; tardy++) {
			uint64_t id = id_of(9, round, (uint64_t)(kind * world_size + tardy));
			struct exchange_call call =
			    plain_call(&world, id, (enum exchange_kind)kind, 8896);
			int word = -1;

			call.form = BLOCKING;
			call.exact = false;
			if (world_rank == tardy)
				sleep_ms(10);
			make_call(&world, &call);
			for (int rank = 0; rank < world_size && world_rank == tardy; rank++)
				if (rank != tardy)
					MPI_Send(&tardy, 1, MPI_INT, rank, TAG, MPI_COMM_WORLD);
			if (world_rank == tardy)
				continue;
			MPI_Recv(&word, 1, MPI_INT, tardy, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			if (word != tardy)
				fail("the word of rank %d is %d", tardy, word);
		}
}

/* The value of a rank's cell at one edge of its field. */
static int cell(int rank, int side, int index, int iteration)
{
	return (int)(random_mix((uint64_t)rank << 40 | (uint64_t)side << 32 |
				(uint64_t)index << 16 | (uint64_t)iteration) >>
		     40);
}

static void check_halo(const struct place *grid, const int *halo, int length, int iteration)
{
	for (int i = 0; i < grid->n_in * length; i++) {
		const struct edge *edge = &grid->in[i / length];
		int want = cell(edge->from, edge->which, i % length, iteration);

		if (halo[i] != want)
			fail("halo, iteration %d: cell %d from rank %d, edge %d: got %#x, not %#x",
			     iteration, i % length, edge->from, edge->which, halo[i], want);
	}
}

/* Edges of a field go to the neighbours, again and again. */
static void halo(uint64_t round)
{
	enum { LENGTH = 100, ITERATIONS = 200 };
	const struct exchange_call call = {.kind = X_NEIGHBOR_ALLTOALL,
					   .form = BLOCKING,
					   .element = sizeof(int),
					   .grain = 1,
					   .bytes = LENGTH * sizeof(int)};
	static const int wraps[] = {1, 1};
	int dims[2] = {0, 0}, out[4 * LENGTH], in[4 * LENGTH];
	struct place grid;
	const char *fault;

	MPI_Dims_create(world_size, 2, dims);
	grid = place_cartesian(MPI_COMM_WORLD, 2, dims, wraps, round % 2);
	fault = tries_all ? NULL : deviation_exchange(&call, &grid);
	if (fault)
		note(fault);
	watch((unsigned)stall, "a halo of %d iterations", ITERATIONS);
	for (int iteration = 0; iteration < ITERATIONS && !fault; iteration++) {
		for (int i = 0; i < 4 * LENGTH; i++)
			out[i] = cell(world_rank, i / LENGTH, i % LENGTH, iteration);
		memset(in, -1, sizeof(in));
		MPI_Neighbor_alltoall(out, LENGTH, MPI_INT, in, LENGTH, MPI_INT, grid.comm);
		check_halo(&grid, in, LENGTH, iteration);
	}
	place_free(&grid);
}

static const struct {
	const char *name;
	void (*run)(uint64_t round);
} parts[] = {
    {"sizes", sizes},	  {"roots", roots},	{"mixed", mixed},
    {"grids", grids},	  {"graphs", graphs},	{"communicators", communicators},
    {"between", between}, {"threads", threads}, {"late", late},
    {"halo", halo},
};

int main(int argc, char **argv)
{
	bool any = false;
	int provided;

	program_start_bare("exchange", argc, argv, options);
	MPI_Init_thread(&argc, &argv, is_single ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE,
			&provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &world_size);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (*only && strcmp(only, parts[i].name))
			continue;
		any = true;
		for (long round = first; round < first + rounds; round++)
			parts[i].run((uint64_t)round);
		say("exchange: %s: ok", parts[i].name);
	}
	if (!any)
		fail("there is no part %s", only);
	watch((unsigned)stall, "MPI_Finalize");
	say("exchange: all ok, %lu calls, %lu left out, %d ranks", n_calls, n_left_out, world_size);
	MPI_Finalize();
	return 0;
}
