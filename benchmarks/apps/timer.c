/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A library that measures the parts of an MPI program's time. Preloaded, it times the program's
 * calls of MPI. After MPI_Finalize rank 0 writes one line to the file that MPI_TIMER names:
 *
 *     ranks=4 run=1.25 collectives=0.5 other=0.1 calls=6250 init=0.2 finalize=0.01
 *
 * ranks: the number of ranks.
 *
 * run: seconds from the end of MPI_Init to the begin of MPI_Finalize.
 *
 * collectives: seconds of these in collectives, blocking ones and the starts of non-blocking ones.
 *
 * other: seconds of these in the other calls that are listed below, with waits for requests.
 *
 * calls: the number of calls of collectives.
 *
 * init: seconds of MPI_Init.
 *
 * finalize: seconds of MPI_Finalize, on rank 0.
 *
 * Values from run to init are means over the ranks. Calls that MPI makes of itself are not counted
 * again. Calls that are not listed count as computing: they ask for something that is there
 * (MPI_Comm_rank) or are of files.
 *
 * Open MPI's Fortran bindings call PMPI_Bcast, not MPI_Bcast, so Fortran's functions are wrapped as
 * well.
 */
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum kind { COLLECTIVE, OTHER, KINDS };

static atomic_long spent[KINDS]; /* nanoseconds */
static atomic_long calls[KINDS];
static long begin, init; /* the end of MPI_Init, and how long it took */
static _Thread_local int depth;

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/*
 * MPI's arguments are integers and pointers. On all that Linux runs MPI on, each of them is a word,
 * in a register or on the stack. So one form of wrapper serves all functions: it passes on as many
 * words as any function has, and the callee reads its own. The names are the assembler's, as C's
 * names have other types in mpi.h. A missing function, for example of Fortran in a program of C, is
 * weak, and nobody calls its wrapper.
 */
typedef intptr_t word;
#define WORDS                                                                                      \
	word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k,    \
	    word l, word m
#define PASSED a, b, c, d, e, f, g, h, i, j, k, l, m

#define WRAP(P, NAME, BEFORE, AFTER)                                                               \
	word real_##NAME(WORDS) __asm__(P #NAME) __attribute__((weak));                            \
	word timed_##NAME(WORDS) __asm__(#NAME);                                                   \
	word timed_##NAME(WORDS)                                                                   \
	{                                                                                          \
		long start = now();                                                                \
		word result;                                                                       \
                                                                                                   \
		depth++;                                                                           \
		BEFORE;                                                                            \
		result = real_##NAME(PASSED);                                                      \
		depth--;                                                                           \
		AFTER;                                                                             \
		return result;                                                                     \
	}

/* In C and in Fortran, whose names are all in lower case. */
#define BOTH(NAME, LOWER, BEFORE, AFTER)                                                           \
	WRAP("P", MPI_##NAME, BEFORE, AFTER)                                                       \
	WRAP("p", mpi_##LOWER##_, BEFORE, AFTER)

static void count(enum kind kind, long start)
{
	if (depth)
		return;
	atomic_fetch_add(&spent[kind], now() - start);
	atomic_fetch_add(&calls[kind], 1);
}

#define OTHERS(NAME, LOWER) BOTH(NAME, LOWER, , count(OTHER, start))
#define COLLECTIVES(NAME, LOWER)                                                                   \
	BOTH(NAME, LOWER, , count(COLLECTIVE, start))                                              \
	BOTH(I##LOWER, i##LOWER, , count(COLLECTIVE, start))

COLLECTIVES(Barrier, barrier)
COLLECTIVES(Bcast, bcast)
COLLECTIVES(Gather, gather)
COLLECTIVES(Gatherv, gatherv)
COLLECTIVES(Scatter, scatter)
COLLECTIVES(Scatterv, scatterv)
COLLECTIVES(Allgather, allgather)
COLLECTIVES(Allgatherv, allgatherv)
COLLECTIVES(Alltoall, alltoall)
COLLECTIVES(Alltoallv, alltoallv)
COLLECTIVES(Alltoallw, alltoallw)
COLLECTIVES(Reduce, reduce)
COLLECTIVES(Allreduce, allreduce)
COLLECTIVES(Reduce_scatter, reduce_scatter)
COLLECTIVES(Reduce_scatter_block, reduce_scatter_block)
COLLECTIVES(Scan, scan)
COLLECTIVES(Exscan, exscan)
COLLECTIVES(Neighbor_allgather, neighbor_allgather)
COLLECTIVES(Neighbor_allgatherv, neighbor_allgatherv)
COLLECTIVES(Neighbor_alltoall, neighbor_alltoall)
COLLECTIVES(Neighbor_alltoallv, neighbor_alltoallv)
COLLECTIVES(Neighbor_alltoallw, neighbor_alltoallw)

/* From rank to rank. */
OTHERS(Send, send)
OTHERS(Bsend, bsend)
OTHERS(Ssend, ssend)
OTHERS(Rsend, rsend)
OTHERS(Isend, isend)
OTHERS(Ibsend, ibsend)
OTHERS(Issend, issend)
OTHERS(Irsend, irsend)
OTHERS(Recv, recv)
OTHERS(Irecv, irecv)
OTHERS(Mrecv, mrecv)
OTHERS(Imrecv, imrecv)
OTHERS(Sendrecv, sendrecv)
OTHERS(Sendrecv_replace, sendrecv_replace)
OTHERS(Probe, probe)
OTHERS(Iprobe, iprobe)
OTHERS(Mprobe, mprobe)
OTHERS(Improbe, improbe)

/* Requests, of collectives too. */
OTHERS(Start, start)
OTHERS(Startall, startall)
OTHERS(Wait, wait)
OTHERS(Waitall, waitall)
OTHERS(Waitany, waitany)
OTHERS(Waitsome, waitsome)
OTHERS(Test, test)
OTHERS(Testall, testall)
OTHERS(Testany, testany)
OTHERS(Testsome, testsome)

/* Communicators. */
OTHERS(Comm_dup, comm_dup)
OTHERS(Comm_create, comm_create)
OTHERS(Comm_create_group, comm_create_group)
OTHERS(Comm_split, comm_split)
OTHERS(Comm_split_type, comm_split_type)
OTHERS(Comm_free, comm_free)
OTHERS(Cart_create, cart_create)
OTHERS(Cart_sub, cart_sub)
OTHERS(Dist_graph_create, dist_graph_create)
OTHERS(Dist_graph_create_adjacent, dist_graph_create_adjacent)

/* Windows. */
OTHERS(Win_create, win_create)
OTHERS(Win_allocate, win_allocate)
OTHERS(Win_allocate_shared, win_allocate_shared)
OTHERS(Win_free, win_free)
OTHERS(Win_fence, win_fence)
OTHERS(Win_lock, win_lock)
OTHERS(Win_lock_all, win_lock_all)
OTHERS(Win_unlock, win_unlock)
OTHERS(Win_unlock_all, win_unlock_all)
OTHERS(Win_flush, win_flush)
OTHERS(Win_flush_all, win_flush_all)
OTHERS(Put, put)
OTHERS(Get, get)
OTHERS(Accumulate, accumulate)
OTHERS(Fetch_and_op, fetch_and_op)
OTHERS(Compare_and_swap, compare_and_swap)

static void end_init(long start)
{
	if (depth)
		return;
	begin = now();
	init = begin - start;
}

BOTH(Init, init, , end_init(start))
BOTH(Init_thread, init_thread, , end_init(start))

enum { RUN, IN_COLLECTIVES, IN_OTHERS, CALLS, INIT, VALUES };
static double means[VALUES];
static int rank, ranks;

/* While there is an MPI. */
static void begin_finalize(long start)
{
	double own[VALUES] = {
	    [RUN] = (start - begin) / 1e9,
	    [IN_COLLECTIVES] = spent[COLLECTIVE] / 1e9,
	    [IN_OTHERS] = spent[OTHER] / 1e9,
	    [CALLS] = calls[COLLECTIVE],
	    [INIT] = init / 1e9,
	};

	if (depth > 1)
		return;
	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
	PMPI_Reduce(own, means, VALUES, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	for (int value = 0; value < VALUES; value++)
		means[value] /= ranks;
}

static void end_finalize(long start)
{
	const char *path = getenv("MPI_TIMER");
	FILE *file;

	if (depth || rank || !path)
		return;
	file = fopen(path, "w");
	if (!file) {
		perror(path);
		return;
	}
	fprintf(
	    file,
	    "ranks=%d run=%.6f collectives=%.6f other=%.6f calls=%.1f init=%.6f finalize=%.6f\n",
	    ranks, means[RUN], means[IN_COLLECTIVES], means[IN_OTHERS], means[CALLS], means[INIT],
	    (now() - start) / 1e9);
	fclose(file);
}

BOTH(Finalize, finalize, begin_finalize(start), end_finalize(start))
