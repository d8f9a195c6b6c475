/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Halo exchanges that never block, on communicators that are made for them: grids, a part of the
 * ranks in a grid, graphs and distributed graphs. No collective of any other kind is made on them.
 * They are made, used for a while and freed, while one of each lives as long as the program.
 *
 * For three ranks or more: in a ring of two, both neighbours are one rank.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "deviation.h"
#include "program.h"

enum { MOST = 4, LONG = 8000, PLACES = 2 * LONG + 8 };

static long cycles = 40, calls = 6, pause_ms;

static const struct option_spec options[] = {
    {"--cycles", OPTION_NUMBER, &cycles, "communicators to make, use and free (40)"},
    {"--calls", OPTION_NUMBER, &calls, "exchanges on each (6)"},
    {"--pause", OPTION_NUMBER, &pause_ms, "milliseconds between two cycles (0)"},
    {0},
};

enum topology { GRID, PART, GRAPH, SPREAD, ADJACENT, TOPOLOGIES };

static const char *const names[] = {"grid", "grid of a part", "graph", "distributed graph",
				    "adjacent graph"};

/* A communicator, and the ranks on it that send to this one, and that it sends to. */
struct halo {
	enum topology topology;
	MPI_Comm comm;
	int rank, ins, outs;
	int from[MOST], to[MOST];
};

/* A ring of the world. MPI_COMM_NULL where this rank is no part of it. */
static MPI_Comm make(enum topology topology)
{
	int next = (world_rank + 1) % world_size;
	int before = (world_rank + world_size - 1) % world_size;
	int both[] = {before, next}, ones[] = {1, 1}, two = 2, periods[] = {1};
	int dims[] = {topology == PART ? world_size - 1 : world_size};
	MPI_Comm comm = MPI_COMM_NULL;

	switch (topology) {
	case GRAPH: {
		int *ends = malloc(sizeof(int) * (size_t)world_size * 3),
		    *edges = ends + world_size;

		for (int rank = 0; rank < world_size; rank++) {
			ends[rank] = 2 * (rank + 1);
			edges[2 * rank] = (rank + world_size - 1) % world_size;
			edges[2 * rank + 1] = (rank + 1) % world_size;
		}
		MPI_Graph_create(MPI_COMM_WORLD, world_size, ends, edges, 1, &comm);
		free(ends);
		break;
	}
	case SPREAD: /* where the MPI can */
		if (deviation_distributed())
			return make(ADJACENT);
		MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &world_rank, &two, both, ones,
				      MPI_INFO_NULL, 0, &comm);
		break;
	case ADJACENT: /* there, and not back */
		MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, ones, 1, &next, ones,
					       MPI_INFO_NULL, 0, &comm);
		break;
	default:
		MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, topology == GRID, &comm);
	}
	return comm;
}

static struct halo begin(enum topology topology)
{
	struct halo halo = {.topology = topology, .comm = make(topology), .ins = 2, .outs = 2};
	int weights[MOST], weighted;

	if (halo.comm == MPI_COMM_NULL) {
		if (topology != PART || world_rank != world_size - 1)
			fail("no %s", names[topology]);
		return halo;
	}
	MPI_Comm_rank(halo.comm, &halo.rank);
	switch (topology) {
	case GRID:
	case PART:
		MPI_Cart_shift(halo.comm, 0, 1, &halo.from[0], &halo.from[1]);
		break;
	case GRAPH:
		MPI_Graph_neighbors(halo.comm, halo.rank, MOST, halo.from);
		break;
	default:
		MPI_Dist_graph_neighbors_count(halo.comm, &halo.ins, &halo.outs, &weighted);
		if (halo.ins > MOST || halo.outs > MOST)
			fail("%d and %d neighbours", halo.ins, halo.outs);
		MPI_Dist_graph_neighbors(halo.comm, halo.ins, halo.from, weights, halo.outs,
					 halo.to, weights);
		return halo;
	}
	memcpy(halo.to, halo.from, sizeof(halo.to));
	return halo;
}

/* The elements from one rank to another, and the one at a place. */
static int elements(int from, int to, long call, int longs)
{
	return (int)((from * 7 + to * 3 + call) % 5) + (longs ? LONG : 0);
}

static int element(int from, int to, long call, int at)
{
	return from * 1000003 + to * 1009 + (int)call * 31 + at;
}

/* One exchange under way. */
struct flight {
	MPI_Request request;
	long call;
	int even, longs;
	int counts[2][MOST], places[2][MOST];
	MPI_Aint bytes[2][MOST];
	MPI_Datatype types[MOST];
	int out[PLACES], in[PLACES];
};

static void start(const struct halo *halo, struct flight *one, long call)
{
	one->call = call;
	one->even = call % 3 == 0;
	one->longs = call % 6 == 5;
	for (int i = 0; i < MOST; i++)
		one->types[i] = MPI_INT;
	for (int in = 0; in < 2; in++) {
		int at = 0;

		for (int i = 0; i < (in ? halo->ins : halo->outs); i++) {
			int from = in ? halo->from[i] : halo->rank;
			int to = in ? halo->rank : halo->to[i];

			one->counts[in][i] = one->even ? 3 : elements(from, to, call, one->longs);
			one->places[in][i] = at;
			one->bytes[in][i] = (MPI_Aint)((size_t)at * sizeof(int));
			for (int k = 0; k < one->counts[in][i] && !in; k++)
				one->out[at + k] = element(from, to, call, k);
			at += one->counts[in][i];
		}
	}
	memset(one->in, 0xff, sizeof(one->in));
	switch (call % 3) {
	case 0:
		MPI_Ineighbor_alltoall(one->out, 3, MPI_INT, one->in, 3, MPI_INT, halo->comm,
				       &one->request);
		break;
	case 1:
		MPI_Ineighbor_alltoallv(one->out, one->counts[0], one->places[0], MPI_INT, one->in,
					one->counts[1], one->places[1], MPI_INT, halo->comm,
					&one->request);
		break;
	default:
		MPI_Ineighbor_alltoallw(one->out, one->counts[0], one->bytes[0], one->types,
					one->in, one->counts[1], one->bytes[1], one->types,
					halo->comm, &one->request);
	}
}

static void end(const struct halo *halo, struct flight *one)
{
	MPI_Wait(&one->request, MPI_STATUS_IGNORE);
	for (int i = 0; i < halo->ins; i++) {
		for (int k = 0; k < one->counts[1][i]; k++) {
			int want = element(halo->from[i], halo->rank, one->call, k);
			int got = one->in[one->places[1][i] + k];

			if (got != want)
				fail("%s, call %ld, element %d from %d: %d, want %d",
				     names[halo->topology], one->call, k, halo->from[i], got, want);
		}
	}
}

/* Two are under way at a time. */
static void use(const struct halo *halo)
{
	static struct flight pair[2];

	if (halo->comm == MPI_COMM_NULL)
		return;
	for (long call = 0; call < calls; call++) {
		start(halo, &pair[call % 2], call);
		if (call > 0)
			end(halo, &pair[(call + 1) % 2]);
	}
	if (calls > 0)
		end(halo, &pair[(calls + 1) % 2]);
}

int main(int argc, char **argv)
{
	struct halo all[TOPOLOGIES];

	program_start("halo", &argc, &argv, options);
	if (world_size < 3)
		fail("for three ranks or more");
	for (int i = 0; i < 3; i++) {
		int sum = -1, want = world_size * (world_size - 1) / 2;

		MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		if (sum != want)
			fail("Allreduce: %d, want %d", sum, want);
	}
	for (int i = 0; i < TOPOLOGIES; i++)
		all[i] = begin((enum topology)i);
	for (long cycle = 0; cycle < cycles; cycle++) {
		struct halo halo;

		watch(PATIENCE, "cycle %ld", cycle);
		halo = begin((enum topology)(cycle % TOPOLOGIES));
		use(&halo);
		use(&all[(cycle + 1) % TOPOLOGIES]);
		if (halo.comm != MPI_COMM_NULL)
			MPI_Comm_free(&halo.comm);
		if (pause_ms > 0)
			sleep_ms((double)pause_ms);
	}
	watch(PATIENCE, "the end");
	for (int i = 0; i < TOPOLOGIES; i++)
		if (all[i].comm != MPI_COMM_NULL)
			MPI_Comm_free(&all[i].comm);
	watch(0, "MPI_Finalize");
	say("halo: all ok");
	MPI_Finalize();
	return 0;
}
