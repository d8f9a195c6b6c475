/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Collectives by several threads. With MPI_THREAD_MULTIPLE: at once, each on a communicator of its
 * own, or one starting operations that another waits for. With MPI_THREAD_SERIALIZED: in turns.
 * With MPI_THREAD_FUNNELED: by the main thread alone, while others compute.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pending.h"
#include "program.h"

enum { WORKERS = 2, TAG = 11, SLOTS = 8, LONG_MESSAGE = 128 << 10 };

static long rounds = 1000, stall = PATIENCE;
static const char *level_name = "multiple";

static const struct option_spec options[] = {
    {"--rounds", OPTION_NUMBER, &rounds, "collectives of each thread (1000)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one test may take (300)"},
    {"--level", OPTION_TEXT, &level_name, "multiple, serialized or funneled (multiple)"},
    {0},
};

static int level(void)
{
	if (!strcmp(level_name, "serialized"))
		return MPI_THREAD_SERIALIZED;
	return strcmp(level_name, "funneled") ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
}

/* The data of a test's thread. */
struct worker {
	pthread_t thread;
	int number;
	MPI_Comm comm;
};

static void run_threads(int n, void *(*const *run)(void *), struct worker *workers)
{
	for (int i = 0; i < n; i++) {
		workers[i].number = i;
		MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
	}
	for (int i = 0; i < n; i++)
		if (pthread_create(&workers[i].thread, NULL, run[i], &workers[i]))
			fail("cannot make a thread");
	for (int i = 0; i < n; i++) {
		pthread_join(workers[i].thread, NULL);
		MPI_Comm_free(&workers[i].comm);
	}
}

/* All kinds, blocking and non-blocking, some under way at once. */
static void *collectives(void *of)
{
	struct worker *worker = of;
	struct pending pending[SLOTS];

	for (long i = 0; i < rounds; i++) {
		int kind = (int)(i + worker->number) % PENDING_KINDS, root = (int)i % world_size;
		int many = i % 16 == 0 ? SLOTS : 1;

		if (i % 2) {
			pending_block(kind, root, i, worker->comm);
			continue;
		}
		for (int j = 0; j < many; j++)
			pending_start(&pending[j], kind, root, i + j, worker->comm);
		for (int j = many; j--;)
			pending_finish(&pending[j]);
	}
	return NULL;
}

/* Around the ring: small messages, now and then a large one. */
static void *messages(void *of)
{
	struct worker *worker = of;
	int right = (world_rank + 1) % world_size,
	    left = (world_rank + world_size - 1) % world_size;
	unsigned char *out = malloc(LONG_MESSAGE), *in = malloc(LONG_MESSAGE);

	for (long i = 0; i < rounds; i++) {
		int bytes = i % 50 ? 8 : LONG_MESSAGE;
		MPI_Request requests[2];
		MPI_Status statuses[2];
		int got;

		memset(out, (int)(world_rank + i), (size_t)bytes);
		MPI_Irecv(in, bytes, MPI_BYTE, left, TAG, worker->comm, &requests[0]);
		MPI_Isend(out, bytes, MPI_BYTE, right, TAG, worker->comm, &requests[1]);
		MPI_Waitall(2, requests, statuses);
		MPI_Get_count(&statuses[0], MPI_BYTE, &got);
		if (got != bytes || in[0] != (unsigned char)(left + i) ||
		    in[bytes - 1] != (unsigned char)(left + i))
			fail("message %ld from rank %d is wrong", i, left);
	}
	free(out);
	free(in);
	return NULL;
}

/* Communicators come and go. */
static void *makes_communicators(void *of)
{
	struct worker *worker = of;

	for (long i = 0; i < rounds / 20 + 1; i++) {
		MPI_Comm duplicate, half;

		MPI_Comm_dup(worker->comm, &duplicate);
		pending_block((int)i % PENDING_KINDS, 0, i, duplicate);
		MPI_Comm_split(duplicate, world_rank % 2, 0, &half);
		MPI_Comm_free(&duplicate);
		pending_block((int)(i + 1) % PENDING_KINDS, 0, i, half);
		MPI_Comm_free(&half);
	}
	return NULL;
}

/* Sits in MPI_Recv until the other thread is done. */
static void *waits_for_word(void *of)
{
	int left = (world_rank + world_size - 1) % world_size, word = -1;

	(void)of;
	MPI_Recv(&word, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (word != left)
		fail("the word from rank %d is wrong", left);
	return NULL;
}

static void *collectives_then_word(void *of)
{
	collectives(of);
	MPI_Send(&world_rank, 1, MPI_INT, (world_rank + 1) % world_size, TAG, MPI_COMM_WORLD);
	return NULL;
}

/* A queue from the threads that start operations to the threads that wait for them. */
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct pending slots[SLOTS];
	bool full[SLOTS];
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void wait_until(int slot, bool full)
{
	pthread_mutex_lock(&queue.mutex);
	while (queue.full[slot] != full)
		pthread_cond_wait(&queue.changed, &queue.mutex);
	pthread_mutex_unlock(&queue.mutex);
}

static void set_full(int slot, bool full)
{
	pthread_mutex_lock(&queue.mutex);
	queue.full[slot] = full;
	pthread_cond_broadcast(&queue.changed);
	pthread_mutex_unlock(&queue.mutex);
}

static void *starts(void *of)
{
	struct worker *worker = of;

	for (long i = 0; i < rounds; i++) {
		int slot = (int)(i % SLOTS);

		wait_until(slot, false);
		pending_start(&queue.slots[slot], (int)(i % PENDING_KINDS), (int)i % world_size, i,
			      worker->comm);
		set_full(slot, true);
	}
	return NULL;
}

/* One of two: each waits for every other operation. */
static void *ends(void *of)
{
	struct worker *worker = of;

	for (long i = worker->number == 1; i < rounds; i += 2) {
		struct pending *pending = &queue.slots[i % SLOTS];
		int done = 0;

		wait_until((int)(i % SLOTS), true);
		while (i % 3 == 0 && !done)
			MPI_Test(&pending->request, &done, MPI_STATUS_IGNORE);
		pending_finish(pending);
		set_full((int)(i % SLOTS), false);
	}
	return NULL;
}

static void multiple(void)
{
	static void *(*const busy[])(void *) = {collectives, collectives, messages};
	static void *(*const making[])(void *) = {collectives, makes_communicators,
						  makes_communicators};
	static void *(*const word[])(void *) = {collectives_then_word, waits_for_word};
	static void *(*const handing[])(void *) = {ends, ends, starts};
	struct worker workers[3];

	watch((unsigned)stall, "two threads with collectives, one with messages");
	run_threads(3, busy, workers);
	say("threads: two threads with collectives, one with messages: ok");
	watch((unsigned)stall, "two threads that make communicators");
	run_threads(3, making, workers);
	say("threads: two threads that make communicators: ok");
	watch((unsigned)stall, "a thread that waits for a message meanwhile");
	run_threads(2, word, workers);
	say("threads: a thread that waits for a message meanwhile: ok");
	watch((unsigned)stall, "threads that wait for what another started");
	run_threads(3, handing, workers);
	say("threads: threads that wait for what another started: ok");
}

/* The turns: thread `number` of `WORKERS` makes every WORKERS-th call. */
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	long turn;
} turns = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct pending handed;

/* Starts what the other thread will end. */
static void *in_turns(void *of)
{
	struct worker *worker = of;

	for (long i = worker->number; i < rounds; i += WORKERS) {
		pthread_mutex_lock(&turns.mutex);
		while (turns.turn != i)
			pthread_cond_wait(&turns.changed, &turns.mutex);
		if (i)
			pending_finish(&handed);
		pending_block((int)(i % PENDING_KINDS), 0, i, MPI_COMM_WORLD);
		pending_start(&handed, (int)((i + 1) % PENDING_KINDS), 0, i, MPI_COMM_WORLD);
		turns.turn++;
		pthread_cond_broadcast(&turns.changed);
		pthread_mutex_unlock(&turns.mutex);
	}
	return NULL;
}

static void serialized(void)
{
	static void *(*const both[])(void *) = {in_turns, in_turns};
	struct worker workers[WORKERS];

	watch((unsigned)stall, "two threads in turns");
	run_threads(WORKERS, both, workers);
	pending_finish(&handed);
	say("threads: two threads in turns: ok");
}

static volatile bool computing = true;

static void *computes(void *of)
{
	unsigned long *sum = of;

	while (computing)
		(*sum)++;
	return NULL;
}

static void funneled(void)
{
	struct worker main_thread = {.comm = MPI_COMM_WORLD};
	unsigned long sum = 0;
	pthread_t thread;

	watch((unsigned)stall, "the main thread, while another computes");
	if (pthread_create(&thread, NULL, computes, &sum))
		fail("cannot make a thread");
	collectives(&main_thread);
	computing = false;
	pthread_join(thread, NULL);
	say("threads: the main thread, while another computes: ok");
}

int main(int argc, char **argv)
{
	program_start_threads("threads", &argc, &argv, options, level);
	if (level() == MPI_THREAD_MULTIPLE)
		multiple();
	else if (level() == MPI_THREAD_SERIALIZED)
		serialized();
	else
		funneled();
	watch((unsigned)stall, "MPI_Finalize");
	say("threads: all ok, %d ranks, %s", world_size, level_name);
	MPI_Finalize();
	return 0;
}
