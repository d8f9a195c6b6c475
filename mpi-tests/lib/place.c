/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "place.h"

#include <stdio.h>
#include <string.h>

#include "deviation.h"
#include "program.h"
#include "random.h"

/* The ranks in MPI_COMM_WORLD of a group, which is freed. */
static int world_ranks(MPI_Group group, int *ranks)
{
	int within[MOST_EDGES], size;
	MPI_Group world;

	MPI_Group_size(group, &size);
	if (size > MOST_EDGES)
		fail("at most %d ranks", MOST_EDGES);
	for (int i = 0; i < size; i++)
		within[i] = i;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_translate_ranks(group, size, within, world, ranks);
	MPI_Group_free(&world);
	MPI_Group_free(&group);
	return size;
}

struct place place_of(MPI_Comm comm, const char *name)
{
	struct place place = {.comm = comm};
	MPI_Group group;
	int is_inter;

	snprintf(place.name, sizeof(place.name), "%s", name);
	if (comm == MPI_COMM_NULL)
		return place;
	MPI_Comm_rank(comm, &place.index);
	MPI_Comm_test_inter(comm, &is_inter);
	place.is_inter = is_inter;
	if (is_inter) {
		MPI_Comm_group(comm, &group);
		place.n_local = world_ranks(group, place.local);
		MPI_Comm_remote_group(comm, &group);
		place.n_peers = world_ranks(group, place.peers);
		return place;
	}
	MPI_Comm_size(comm, &place.n_local);
	if (place.n_local > MOST_EDGES)
		fail("at most %d ranks", MOST_EDGES);
	/* Not by its group, which MPICH 5 has too large of a grid that leaves ranks out. */
	MPI_Allgather(&world_rank, 1, MPI_INT, place.local, 1, MPI_INT, comm);
	place.n_peers = place.n_local;
	memcpy(place.peers, place.local, sizeof(place.peers));
	return place;
}

/* Ranks of a third against the others. */
struct place place_between(MPI_Comm comm, const char *name)
{
	int rank, size, second;
	struct place place;
	MPI_Comm half, between;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	second = rank >= (size + 2) / 3;
	MPI_Comm_split(comm, second, rank, &half);
	MPI_Intercomm_create(half, 0, comm, second ? 0 : (size + 2) / 3, 7, &between);
	MPI_Comm_free(&half);
	place = place_of(between, name);
	place.is_second = second;
	return place;
}

static int world_rank_of(const struct place *place, int rank)
{
	return rank == MPI_PROC_NULL ? -1 : place->local[rank];
}

/* A block for the neighbour at -1 comes to it from its own neighbour at +1. */
static void add_dimension(struct place *place, int dimension)
{
	int me = place->local[place->index], below, above;

	MPI_Cart_shift(place->comm, dimension, 1, &below, &above);
	below = world_rank_of(place, below);
	above = world_rank_of(place, above);
	place->out[place->n_out++] = (struct edge){me, below, 2 * dimension};
	place->out[place->n_out++] = (struct edge){me, above, 2 * dimension + 1};
	place->in[place->n_in++] = (struct edge){below, me, 2 * dimension + 1};
	place->in[place->n_in++] = (struct edge){above, me, 2 * dimension};
}

struct place place_cartesian(MPI_Comm comm, int n, const int *dims, const int *periods,
			     bool reorder)
{
	struct place place;
	MPI_Comm grid;
	char name[96];
	int length = snprintf(name, sizeof(name), "a grid"), loops = 0;

	for (int i = 0; i < n; i++)
		length += snprintf(name + length, sizeof(name) - (size_t)length, " %d%s", dims[i],
				   periods[i] ? " periodic" : "");
	MPI_Cart_create(comm, n, dims, periods, reorder, &grid);
	place = place_of(grid, name);
	place.has_topology = true;
	for (int i = 0; i < n; i++) {
		place.wraps_short |= periods[i] && dims[i] <= 2;
		loops += periods[i] && dims[i] == 1;
		if (grid != MPI_COMM_NULL)
			add_dimension(&place, i);
	}
	place.repeats = loops > 1;
	return place;
}

/* Numbers the edges between the same two in the order of the list. */
static void number_edges(struct edge *edges, int n)
{
	for (int i = 0; i < n; i++) {
		edges[i].which = 0;
		for (int j = 0; j < i; j++)
			if (edges[j].from == edges[i].from && edges[j].to == edges[i].to)
				edges[i].which++;
	}
}

/* The number of edges from one rank to another. A fifth of the ranks has none out, as many have
 * none in. */
static int edges_between(uint64_t salt, int from, int to)
{
	struct random random = random_start(salt, (uint64_t)from, (uint64_t)to);
	static const int often[] = {0, 0, 1, 1, 1, 2, 3};

	if (random_mix(salt ^ (uint64_t)from << 8) % 5 == 0 ||
	    random_mix(salt ^ (uint64_t)to << 20) % 5 == 0)
		return 0;
	return often[random_below(&random, sizeof(often) / sizeof(*often))];
}

static void shuffle(int *ranks, int n, struct random *random)
{
	for (int i = n - 1; i > 0; i--) {
		int j = (int)random_below(random, (uint64_t)i + 1), kept = ranks[i];

		ranks[i] = ranks[j];
		ranks[j] = kept;
	}
}

/* `symmetric`: by the first of the two. */
static void finish_graph(struct place *place, uint64_t salt, bool symmetric)
{
	place->has_topology = true;
	number_edges(place->out, place->n_out);
	number_edges(place->in, place->n_in);
	for (int from = 0; from < place->n_local; from++)
		for (int to = symmetric ? from : 0; to < place->n_local; to++)
			place->repeats |= edges_between(salt, from, to) > 1;
}

/* The ranks that one has edges to, or from, each as often as it has edges. */
static int neighbours(uint64_t salt, int rank, int size, bool out, int *ranks)
{
	struct random random = random_start(salt, (uint64_t)rank, out ? 1 : 2);
	int n = 0;

	for (int peer = 0; peer < size; peer++) {
		int times = out ? edges_between(salt, rank, peer) : edges_between(salt, peer, rank);

		while (times-- && n < MOST_EDGES)
			ranks[n++] = peer;
	}
	shuffle(ranks, n, &random);
	return n;
}

/* Both ends name each edge; one to oneself is named twice by its one end. */
static int symmetric_neighbours(uint64_t salt, int rank, int size, int *ranks)
{
	int n = 0;

	for (int peer = 0; peer < size; peer++) {
		int low = rank < peer ? rank : peer, high = rank < peer ? peer : rank;
		int times = edges_between(salt, low, high);

		while (times-- && n < MOST_EDGES)
			ranks[n++] = peer;
	}
	return n;
}

struct place place_graph(MPI_Comm comm, uint64_t salt)
{
	int size, n = 0, index[MOST_EDGES], edges[MOST_EDGES * 4], ranks[MOST_EDGES];
	struct place place;
	MPI_Comm graph;

	MPI_Comm_size(comm, &size);
	for (int rank = 0; rank < size; rank++) {
		int degree = symmetric_neighbours(salt, rank, size, ranks);

		if (n + degree > MOST_EDGES * 4)
			fail("too many ranks for a graph");
		memcpy(edges + n, ranks, (size_t)degree * sizeof(int));
		index[rank] = n += degree;
	}
	MPI_Graph_create(comm, size, index, edges, salt % 2, &graph);
	place = place_of(graph, "a graph");
	MPI_Graph_neighbors_count(graph, place.index, &n);
	MPI_Graph_neighbors(graph, place.index, n, ranks);
	place.n_out = place.n_in = n;
	for (int i = 0; i < n; i++) {
		int me = place.local[place.index], peer = place.local[ranks[i]];

		place.out[i] = (struct edge){me, peer, 0};
		place.in[i] = (struct edge){peer, me, 0};
	}
	finish_graph(&place, salt, true);
	return place;
}

/* Asks the MPI for the order of edges. */
static struct place of_distributed(MPI_Comm graph, uint64_t salt, const char *name)
{
	int sources[MOST_EDGES], targets[MOST_EDGES], weights[2][MOST_EDGES], weighted;
	struct place place = place_of(graph, name);
	int me = place.local[place.index];

	MPI_Dist_graph_neighbors_count(graph, &place.n_in, &place.n_out, &weighted);
	MPI_Dist_graph_neighbors(graph, place.n_in, sources, weights[0], place.n_out, targets,
				 weights[1]);
	for (int i = 0; i < place.n_in; i++)
		place.in[i] = (struct edge){place.local[sources[i]], me, 0};
	for (int i = 0; i < place.n_out; i++)
		place.out[i] = (struct edge){me, place.local[targets[i]], 0};
	finish_graph(&place, salt, false);
	return place;
}

struct place place_adjacent(MPI_Comm comm, uint64_t salt)
{
	int sources[MOST_EDGES], targets[MOST_EDGES], weights[MOST_EDGES], rank, size, n_in, n_out;
	bool weighs = salt / 2 % 2;
	MPI_Comm graph;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	n_in = neighbours(salt, rank, size, false, sources);
	n_out = neighbours(salt, rank, size, true, targets);
	for (int i = 0; i < MOST_EDGES; i++)
		weights[i] = i + 1;
	MPI_Dist_graph_create_adjacent(comm, n_in, sources,
				       !weighs ? MPI_UNWEIGHTED
				       : n_in  ? weights
					       : MPI_WEIGHTS_EMPTY,
				       n_out, targets,
				       !weighs ? MPI_UNWEIGHTED
				       : n_out ? weights
					       : MPI_WEIGHTS_EMPTY,
				       MPI_INFO_NULL, salt % 2 && !deviation_reorder(), &graph);
	return of_distributed(graph, salt, "a graph of adjacent ones");
}

/* Each rank tells of another one's edges. */
struct place place_distributed(MPI_Comm comm, uint64_t salt)
{
	int targets[MOST_EDGES], weights[MOST_EDGES], rank, size, source, degree;
	bool weighs = salt / 2 % 2;
	MPI_Comm graph;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	source = (rank + 1) % size;
	degree = neighbours(salt, source, size, true, targets);
	for (int i = 0; i < MOST_EDGES; i++)
		weights[i] = i + 1;
	MPI_Dist_graph_create(comm, 1, &source, &degree, targets,
			      !weighs  ? MPI_UNWEIGHTED
			      : degree ? weights
				       : MPI_WEIGHTS_EMPTY,
			      MPI_INFO_NULL, salt % 2 && !deviation_reorder(), &graph);
	return of_distributed(graph, salt, "a distributed graph");
}

void place_free(struct place *place)
{
	if (place->comm != MPI_COMM_NULL)
		MPI_Comm_free(&place->comm);
}
