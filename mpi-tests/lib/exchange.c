/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "random.h"

enum { GUARD = 64, PATTERN_SEND = 0xa5, PATTERN_RECV = 0x5c };

const struct exchange_traits exchange_traits[EXCHANGES] = {
    [X_GATHERV] = {"Gatherv", .rooted = true},
    [X_SCATTERV] = {"Scatterv", .rooted = true},
    [X_ALLTOALLV] = {"Alltoallv"},
    [X_ALLTOALLW] = {"Alltoallw", .types = true},
    [X_NEIGHBOR_ALLGATHER] = {"Neighbor_allgather", .neighbour = true, .uniform = true,
			      .by_source = true},
    [X_NEIGHBOR_ALLGATHERV] = {"Neighbor_allgatherv", .neighbour = true, .by_source = true},
    [X_NEIGHBOR_ALLTOALL] = {"Neighbor_alltoall", .neighbour = true, .uniform = true},
    [X_NEIGHBOR_ALLTOALLV] = {"Neighbor_alltoallv", .neighbour = true},
    [X_NEIGHBOR_ALLTOALLW] = {"Neighbor_alltoallw", .neighbour = true, .types = true},
};

static const struct exchange_traits *traits_of(const struct exchange_call *call)
{
	return &exchange_traits[call->kind];
}

/* The sizes at which something changes: frames, limits of what is sent at once. */
static const size_t lengths[] = {0, 1, 7, 64, 1024, 1400, 1408, 1416, 8896, 8904, 20480, 204800};
enum { LENGTHS = sizeof(lengths) / sizeof(*lengths) };

static size_t choose_bytes(size_t most, struct random *random)
{
	/* Long ones are rare. */
	uint64_t below = 1 + random_below(random, LENGTHS);
	size_t bytes = lengths[random_below(random, below)];

	return bytes < most ? bytes : most;
}

static bool may_be_in_place(const struct exchange_call *call, const struct place *place)
{
	return !traits_of(call)->neighbour && !place->is_inter;
}

static enum exchange_kind choose_kind(const struct place *place, struct random *random)
{
	return (enum exchange_kind)random_below(random, place->has_topology ? EXCHANGES
									    : X_NEIGHBOR_ALLGATHER);
}

struct exchange_call exchange_choose(const struct place *place, uint64_t id, size_t most)
{
	static const size_t elements[] = {1, 4, 8}, grains[] = {2, 3, 4, 12};
	struct random random = random_start(id, 1, 2);
	struct exchange_call call = {.id = id, .kind = choose_kind(place, &random)};
	uint64_t root = random_next(&random);
	int roots;

	call.form = (enum form)random_below(&random, FORMS);
	call.large = random_below(&random, 3) == 0;
	call.second_root = place->is_inter && root / 1024 % 2;
	roots = call.second_root == place->is_second ? place->n_local : place->n_peers;
	call.root = (int)(root % 1024 % (uint64_t)roots);
	call.in_place = random_below(&random, 4) == 0 && may_be_in_place(&call, place);
	call.shared = random_below(&random, 5) == 0;
	call.absolute = random_below(&random, 3) == 0 && !call.shared;
	call.derived = random_below(&random, 2) == 0;
	call.nothings = call.derived && random_below(&random, 4) == 0;
	call.element = elements[random_below(&random, 3)];
	call.grain = call.derived ? grains[random_below(&random, 4)] : 1;
	call.bytes = choose_bytes(most, &random);
	return call;
}

/* Elements of the block of an edge. Both ends compute it. */
static size_t length_of(const struct exchange_call *call, const struct edge *edge)
{
	const struct exchange_traits *traits = traits_of(call);
	uint64_t from = (uint64_t)edge->from + 1, to = (uint64_t)edge->to + 1;
	uint64_t which = (uint64_t)edge->which;
	size_t unit = call->element * call->grain, most = (call->bytes + unit - 1) / unit;
	struct random random;

	if (call->in_place && !traits->rooted && from > to) {
		uint64_t lower = to;

		to = from;
		from = lower;
	}
	if (traits->by_source)
		to = which = 0;
	if (traits->uniform || call->exact)
		return most * call->grain;
	/* Some send nothing at all, some receive nothing at all. */
	if (random_mix(call->id ^ from << 32) % 6 == 0 || random_mix(call->id ^ to << 48) % 6 == 0)
		return 0;
	random = random_start(call->id, from << 32 | to, which);
	if (random_below(&random, 4) == 0)
		return 0;
	if (random_below(&random, 2))
		return most * call->grain;
	return random_below(&random, most + 1) * call->grain;
}

/* The bytes of the block of an edge, in an order of their own. */
static void fill(const struct exchange_call *call, const struct edge *edge, unsigned round,
		 unsigned char *to, size_t bytes)
{
	bool same = traits_of(call)->by_source || call->shared;
	uint64_t peer = same ? 0 : (uint64_t)edge->to + 1, which = same ? 0 : (uint64_t)edge->which;
	struct random random = random_start(call->id ^ (uint64_t)round << 40,
					    (uint64_t)edge->from << 32 | peer, 77 + which);

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = random_next(&random);

		memcpy(to + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

/* Fills the places of an edge's block, number `i` of the side, with another block, perhaps. */
static void put(const struct exchange_call *call, const struct exchange_side *side, int i,
		const struct edge *edge, unsigned round, unsigned char *memory)
{
	size_t bytes = side->elements[i] * call->element;
	unsigned char *block = malloc(bytes + 1);

	fill(call, edge, round, block, bytes);
	map_put(&side->maps[i], memory + side->at[i], block, side->elements[i]);
	free(block);
}

static void make_maps(struct exchange_side *side, const struct exchange_call *call, bool each,
		      struct random *local)
{
	enum map_kind kind = MAP_PLAIN;
	bool empty = side->n > 0;

	for (int i = 0; i < side->n; i++)
		empty &= side->elements[i] == 0;
	for (int i = 0; i < (side->n ? side->n : 1); i++) {
		bool nothing = each && side->n ? side->elements[i] == 0 : empty;

		if (i && !each) {
			side->maps[i] = side->maps[0];
			side->maps[i].made = false;
		} else if (nothing && call->derived && random_below(local, 3) == 0) {
			side->maps[i] = map_of_nothing();
		} else {
			if (call->derived)
				kind = (enum map_kind)random_below(local, MAP_KINDS);
			side->maps[i] = map_make(kind, call->element, call->grain);
		}
	}
}

static size_t round_up(size_t bytes, size_t unit)
{
	return unit ? (bytes + unit - 1) / unit * unit : bytes;
}

static void choose_order(int *order, int n, bool regular, struct random *local)
{
	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int i = n - 1; i > 0 && !regular; i--) {
		int j = (int)random_below(local, (uint64_t)i + 1), kept = order[i];

		order[i] = order[j];
		order[j] = kept;
	}
}

/* Gives each block its place, in any order with gaps between, and makes the memory. */
static void lay_out(struct exchange_side *side, const struct exchange_call *call, bool regular,
		    bool shared, struct random *local)
{
	size_t extent = traits_of(call)->types ? call->element : side->maps[0].extent;
	size_t start = round_up(GUARD, extent), end = start;
	int order[MOST_EDGES];

	choose_order(order, side->n, regular, local);
	for (int i = 0; i < side->n; i++) {
		const struct map *map = &side->maps[order[i]];
		size_t elements = side->elements[order[i]], span = map_span(map, elements);

		if (regular)
			span = elements / map->elements * map->extent;
		else if (!shared)
			start += random_below(local, 4) * extent;
		side->at[order[i]] = start;
		if (end < start + span)
			end = start + span;
		if (!shared)
			start = round_up(end, extent);
	}
	side->bytes = round_up(end + GUARD, 64);
	side->memory = aligned_alloc(64, side->bytes);
	side->image = malloc(side->bytes);
}

static int count_of_nothing(const struct exchange_call *call, struct random *local)
{
	return call->nothings ? (int)random_below(local, 4) : 0;
}

/* MPI's view of a block, where each has a datatype of its own. */
static void give_type(struct exchange_side *side, const struct exchange_call *call, int i,
		      int count, struct random *local)
{
	MPI_Aint address;

	if (!side->maps[i].reach)
		count = count_of_nothing(call, local);
	side->counts[i] = count;
	side->displs[i] =
	    (int)((unsigned char *)side->memory + side->at[i] - (unsigned char *)side->address);
	side->large_displs[i] = side->displs[i];
	side->types[i] = side->maps[i].handle;
	if (!call->absolute)
		return;
	MPI_Get_address(side->memory + side->at[i], &address);
	MPI_Type_create_hindexed(1, &count, &address, side->maps[i].handle, &side->types[i]);
	MPI_Type_commit(&side->types[i]);
	map_free(&side->maps[i]);
	side->maps[i].handle = side->types[i];
	side->maps[i].made = true;
	side->counts[i] = 1;
	side->displs[i] = 0;
	side->large_displs[i] = 0;
}

/* All that MPI gets of a side whose blocks each have a count. */
static void give_many(struct exchange_side *side, const struct exchange_call *call,
		      struct random *local)
{
	bool types = traits_of(call)->types, empty = true;
	size_t extent = types ? call->element : side->maps[0].extent;
	/* Displacements before it are negative. */
	size_t units = extent ? side->bytes / extent : 0;
	size_t before = units ? random_below(local, 2) * random_below(local, units) * extent : 0;

	side->address = side->memory + before;
	side->type = side->maps[0].handle;
	for (int i = 0; i < side->n; i++) {
		int count = (int)(side->elements[i] / side->maps[i].elements);

		empty &= count == 0;
		if (types) {
			give_type(side, call, i, count, local);
		} else {
			side->counts[i] = count;
			side->displs[i] =
			    extent ? (int)(((long)side->at[i] - (long)before) / (long)extent) : 0;
			side->large_displs[i] = side->displs[i];
			if (!side->maps[i].reach)
				side->counts[i] = count_of_nothing(call, local);
		}
		side->large_counts[i] = side->counts[i];
	}
	if (types && call->absolute)
		side->address = MPI_BOTTOM;
	else if (empty && random_below(local, 2))
		side->address = NULL;
}

static void give_one(struct exchange_side *side, const struct exchange_call *call,
		     struct random *local)
{
	side->type = side->maps[0].handle;
	if (!side->n) {
		static const struct edge nowhere;

		/* A neighbour of nobody names the length that all others have. */
		side->count = (int)(length_of(call, &nowhere) / side->maps[0].elements);
		side->address = side->memory;
		return;
	}
	side->count = (int)(side->elements[0] / side->maps[0].elements);
	side->address = side->memory + side->at[0];
	if (!side->count && random_below(local, 2))
		side->address = NULL;
	if (!side->maps[0].reach)
		side->count = count_of_nothing(call, local);
}

enum shape { SHAPE_ONE, SHAPE_REGULAR, SHAPE_MANY };

static void make_side(struct exchange_side *side, const struct exchange_call *call,
		      const struct edge *edges, int n, enum shape shape, bool shared,
		      struct random *local)
{
	size_t room = (size_t)n + 1;

	side->n = n;
	side->edges = edges;
	side->elements = calloc(room, sizeof(*side->elements));
	side->at = calloc(room, sizeof(*side->at));
	side->maps = calloc(room, sizeof(*side->maps));
	side->counts = calloc(room, sizeof(*side->counts));
	side->displs = calloc(room, sizeof(*side->displs));
	side->large_counts = calloc(room, sizeof(*side->large_counts));
	side->large_displs = calloc(room, sizeof(*side->large_displs));
	side->types = calloc(room, sizeof(*side->types));
	for (int i = 0; i < n; i++)
		side->elements[i] = length_of(call, &edges[i]);
	make_maps(side, call, traits_of(call)->types && !shared, local);
	lay_out(side, call, shape == SHAPE_REGULAR, shared, local);
	if (shape == SHAPE_MANY)
		give_many(side, call, local);
	else
		give_one(side, call, local);
}

/* A side that takes no part: no rank may look at it. */
static void leave_side(struct exchange_side *side, void *address)
{
	side->address = address;
	side->type = MPI_DATATYPE_NULL;
}

static bool is_root(const struct exchange *exchange)
{
	const struct exchange_call *call = &exchange->call;
	const struct place *place = exchange->place;

	return call->second_root == place->is_second && call->root == place->index;
}

/* Whether this rank is at the other end from the root. If there are two groups, the ranks of the
 * root's own group are not. */
static bool serves_root(const struct exchange *exchange)
{
	return !exchange->place->is_inter ||
	       exchange->call.second_root != exchange->place->is_second;
}

/* Gatherv and Scatterv. `many` is the root's side, `one` the others' side. */
static void make_rooted(struct exchange *exchange, struct exchange_side *many,
			struct exchange_side *one, struct edge *edges, struct random *local)
{
	const struct exchange_call *call = &exchange->call;
	const struct place *place = exchange->place;
	bool gathers = call->kind == X_GATHERV, in_place = is_root(exchange) && call->in_place;
	int me = place->local[place->index];

	exchange->root = call->root;
	leave_side(many, NULL);
	leave_side(one, in_place ? MPI_IN_PLACE : NULL);
	if (place->is_inter && !serves_root(exchange))
		exchange->root = is_root(exchange) ? MPI_ROOT : MPI_PROC_NULL;
	if (is_root(exchange)) {
		for (int i = 0; i < place->n_peers; i++)
			edges[i] = gathers ? (struct edge){place->peers[i], me, 0}
					   : (struct edge){me, place->peers[i], 0};
		make_side(many, call, edges, place->n_peers, SHAPE_MANY, !gathers && call->shared,
			  local);
	}
	if (serves_root(exchange) && !in_place) {
		int root = place->peers[call->root];

		struct edge *single = &edges[2 * place->n_peers];

		*single = gathers ? (struct edge){me, root, 0} : (struct edge){root, me, 0};
		make_side(one, call, single, 1, SHAPE_ONE, false, local);
	}
}

static void make_all(struct exchange *exchange, struct edge *edges, struct random *local)
{
	const struct exchange_call *call = &exchange->call;
	const struct place *place = exchange->place;
	int n = place->n_peers, me = place->local[place->index];

	for (int i = 0; i < n; i++) {
		edges[i] = (struct edge){me, place->peers[i], 0};
		edges[n + i] = (struct edge){place->peers[i], me, 0};
	}
	if (call->in_place)
		leave_side(&exchange->send, MPI_IN_PLACE);
	else
		make_side(&exchange->send, call, edges, n, SHAPE_MANY, call->shared, local);
	make_side(&exchange->recv, call, edges + n, n, SHAPE_MANY, false, local);
}

/* A rank that sends the same to all has one block, and no less if nobody gets it. */
static void make_neighbours(struct exchange *exchange, struct edge *single, struct random *local)
{
	const struct exchange_call *call = &exchange->call;
	const struct exchange_traits *traits = traits_of(call);
	const struct place *place = exchange->place;
	int me = place->local[place->index];
	enum shape shape = traits->uniform ? SHAPE_REGULAR : SHAPE_MANY;

	*single = (struct edge){me, 0, 0};
	if (traits->by_source)
		make_side(&exchange->send, call, single, 1, SHAPE_ONE, false, local);
	else
		make_side(&exchange->send, call, place->out, place->n_out, shape,
			  call->shared && shape == SHAPE_MANY, local);
	make_side(&exchange->recv, call, place->in, place->n_in, shape, false, local);
}

void exchange_make(struct exchange *exchange, const struct place *place,
		   const struct exchange_call *call)
{
	struct random local = random_start(call->id, 3, (uint64_t)world_rank);
	struct edge *edges = calloc(2 * (size_t)place->n_peers + 1, sizeof(*edges));

	*exchange = (struct exchange){.call = *call, .place = place, .request = MPI_REQUEST_NULL};
	exchange->edges = edges;
	if (call->kind == X_GATHERV)
		make_rooted(exchange, &exchange->recv, &exchange->send, edges, &local);
	else if (call->kind == X_SCATTERV)
		make_rooted(exchange, &exchange->send, &exchange->recv, edges, &local);
	else if (traits_of(call)->neighbour)
		make_neighbours(exchange, edges, &local);
	else
		make_all(exchange, edges, &local);
}

/* The block that an incoming one replaces in an exchange in place, if any. */
static bool outgoing(const struct exchange *exchange, const struct edge *in, struct edge *out)
{
	const struct exchange_call *call = &exchange->call;

	*out = (struct edge){in->to, in->from, in->which};
	return call->in_place && (!traits_of(call)->rooted || in->from == in->to);
}

void exchange_load(struct exchange *exchange, unsigned round)
{
	const struct exchange_call *call = &exchange->call;
	struct exchange_side *send = &exchange->send, *recv = &exchange->recv;
	struct edge out;

	exchange->round = round;
	if (send->memory) {
		memset(send->memory, PATTERN_SEND, send->bytes);
		for (int i = 0; i < send->n; i++)
			put(call, send, i, &send->edges[i], round, send->memory);
		memcpy(send->image, send->memory, send->bytes);
	}
	if (!recv->memory)
		return;
	memset(recv->memory, PATTERN_RECV, recv->bytes);
	memset(recv->image, PATTERN_RECV, recv->bytes);
	for (int i = 0; i < recv->n; i++) {
		if (outgoing(exchange, &recv->edges[i], &out))
			put(call, recv, i, &out, round, recv->memory);
		if (recv->edges[i].from >= 0)
			put(call, recv, i, &recv->edges[i], round, recv->image);
	}
}

void exchange_start(struct exchange *exchange)
{
	const struct exchange_call *call = &exchange->call;

	if (exchange->request == MPI_REQUEST_NULL)
		exchange_issue(call, &exchange->send, &exchange->recv, exchange->root,
			       exchange->place->comm, &exchange->request);
	if (call->form == PERSISTENT)
		MPI_Start(&exchange->request);
}

static void free_maps(struct exchange_side *side)
{
	for (int i = 0; side->maps && i < side->n + 1; i++)
		map_free(&side->maps[i]);
}

void exchange_free_types(struct exchange *exchange)
{
	free_maps(&exchange->send);
	free_maps(&exchange->recv);
}

/* The block that a byte lies in or before, or -1. */
static int block_at(const struct exchange_side *side, size_t byte)
{
	int found = -1;

	for (int i = 0; i < side->n; i++)
		if (side->at[i] <= byte && (found < 0 || side->at[found] < side->at[i]))
			found = i;
	return found;
}

static void check_side(const struct exchange *exchange, const struct exchange_side *side,
		       const char *name)
{
	const char *what = exchange_describe(&exchange->call, exchange->place);
	size_t byte = 0;
	int block;

	if (!side->memory || !memcmp(side->memory, side->image, side->bytes))
		return;
	while (side->memory[byte] == side->image[byte])
		byte++;
	block = block_at(side, byte);
	if (block < 0)
		fail("%s: round %u: %s buffer, before all blocks: got %#x, not %#x", what,
		     exchange->round, name, side->memory[byte], side->image[byte]);
	fail("%s: round %u: %s buffer, block %d of %d (from rank %d to rank %d, edge %d, %zu "
	     "bytes at %zu, datatype of %zu elements), byte %zu of it: got %#x, not %#x",
	     what, exchange->round, name, block, side->n, side->edges[block].from,
	     side->edges[block].to, side->edges[block].which,
	     side->elements[block] * exchange->call.element, side->at[block],
	     side->maps[block].elements, byte - side->at[block], side->memory[byte],
	     side->image[byte]);
}

void exchange_check(const struct exchange *exchange)
{
	check_side(exchange, &exchange->send, "the send");
	check_side(exchange, &exchange->recv, "the receive");
}

static void free_side(struct exchange_side *side)
{
	free_maps(side);
	free(side->elements);
	free(side->at);
	free(side->maps);
	free(side->memory);
	free(side->image);
	free(side->counts);
	free(side->displs);
	free(side->large_counts);
	free(side->large_displs);
	free(side->types);
}

void exchange_free(struct exchange *exchange)
{
	if (exchange->call.form == PERSISTENT && exchange->request != MPI_REQUEST_NULL)
		MPI_Request_free(&exchange->request);
	if (exchange->request != MPI_REQUEST_NULL)
		fail("%s: its request is not null in the end",
		     exchange_describe(&exchange->call, exchange->place));
	free_side(&exchange->send);
	free_side(&exchange->recv);
	free(exchange->edges);
}

const char *exchange_describe(const struct exchange_call *call, const struct place *place)
{
	static const char *const prefixes[] = {"", "I", ""}, *const suffixes[] = {"", "", "_init"};
	static __thread char text[400];
	const char *name = exchange_traits[call->kind].name;

	snprintf(text, sizeof(text),
		 "%s%c%s%s%s%s%s%s%s%s, root %d, blocks of at most %zu bytes (elements of %zu, %zu "
		 "at a time), on %s, %d ranks, id %#llx",
		 prefixes[call->form], call->form == NONBLOCKING ? *name | 0x20 : *name, name + 1,
		 suffixes[call->form], call->large ? "_c" : "", call->in_place ? " in place" : "",
		 call->shared ? " of shared memory" : "",
		 call->absolute && exchange_traits[call->kind].types ? " of addresses" : "",
		 call->derived ? " of derived datatypes" : "",
		 call->nothings ? " some without bytes" : "", call->root, call->bytes,
		 call->element, call->grain, place->name, place->n_local,
		 (unsigned long long)call->id);
	return text;
}
