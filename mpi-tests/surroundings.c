/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Collectives amid the rest of a program: in MPI's callbacks, under signals, around fork, and in
 * the last moments before MPI_Finalize. They come with a floating-point environment and an errno of
 * the program's, on little stack, and with requests of other kinds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <mpi.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pending.h"
#include "persistent.h"
#include "program.h"

static long stall = PATIENCE, folded, traps, rounds = 100;

static const struct option_spec options[] = {
    {"--stall", OPTION_NUMBER, &stall, "seconds that one test may take (300)"},
    {"--rounds", OPTION_NUMBER, &rounds, "collectives of most tests (100)"},
    {"--folded", OPTION_FLAG, &folded,
     "a library takes the collectives: it must leave errno and floating-point flags alone, which "
     "MPI need not"},
    {"--traps", OPTION_FLAG, &traps,
     "every floating-point trap is on, from behind MPI_Init to the end, and nothing else is "
     "tested"},
    {0},
};

static void expect(long got, long want, const char *what)
{
	if (got != want)
		fail("%s: got %ld, want %ld", what, got, want);
}

/* One of each kind, blocking and not. */
static void use(MPI_Comm comm, long salt)
{
	struct pending pending;
	int size;

	MPI_Comm_size(comm, &size);
	for (int kind = 0; kind < PENDING_KINDS; kind++) {
		pending_block(kind, (int)(salt % size), salt, comm);
		pending_start(&pending, kind, (int)(salt % size), salt, comm);
		pending_finish(&pending);
	}
}

/* Callbacks. */

static int deleted;

static int on_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
	(void)keyval;
	(void)extra;
	use(MPI_COMM_WORLD, 1);
	if (comm != MPI_COMM_SELF)
		use(comm, 2);
	deleted += *(int *)value;
	return MPI_SUCCESS;
}

/* The attribute is set before the communicator's first collective, or after. */
static void delete_callbacks(void)
{
	static int one = 1;
	MPI_Comm comm;
	int keyval;

	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, NULL);
	for (int i = 0; i < 10; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		if (i % 2)
			MPI_Comm_set_attr(comm, keyval, &one);
		for (int j = 0; j < rounds / 10; j++)
			use(comm, j);
		if (i % 2 == 0)
			MPI_Comm_set_attr(comm, keyval, &one);
		MPI_Comm_free(&comm);
	}
	expect(deleted, 10, "delete callbacks");
	/* For MPI_Finalize. */
	MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &one);
	MPI_Comm_free_keyval(&keyval);
}

/* A communicator that is used while it is freed leaves nothing behind: on the odd ranks the next
 * one lies elsewhere. The attribute is older than one that a library sets at the first collective,
 * so its callback may come later. */
static void used_when_freed(void)
{
	enum { BLOCKS = 512, STEP = 16 };
	static int nothing;
	void *blocks[BLOCKS] = {NULL};
	MPI_Comm comm;
	int keyval;

	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, NULL);
	for (int i = 0; i < 10; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Comm_set_attr(comm, keyval, &nothing);
		use(comm, i);
		MPI_Comm_free(&comm);
		for (size_t j = 0; j < BLOCKS && world_rank % 2; j++)
			blocks[j] = malloc(j / 4 * STEP + 1);
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		use(comm, i);
		MPI_Comm_free(&comm);
		for (size_t j = 0; j < BLOCKS; j++) {
			free(blocks[j]);
			blocks[j] = NULL;
		}
	}
	MPI_Comm_free_keyval(&keyval);
}

static int raised;

static void on_error(MPI_Comm *comm, int *error, ...)
{
	int class;

	(void)comm;
	MPI_Error_class(*error, &class);
	if (class != MPI_ERR_ROOT)
		fail("an error handler was called for class %d", class);
	use(MPI_COMM_WORLD, 3);
	raised++;
}

static void error_handlers(void)
{
	long value = 0, sum = 0;
	MPI_Errhandler handler;
	MPI_Request request;
	MPI_Comm comm;

	MPI_Comm_create_errhandler(on_error, &handler);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, handler);
	MPI_Errhandler_free(&handler);
	for (int i = 0; i < 10; i++) {
		use(comm, i);
		MPI_Bcast(&value, 1, MPI_LONG, world_size, comm);
		MPI_Reduce(&value, &sum, 1, MPI_LONG, MPI_SUM, world_size + 3, comm);
		MPI_Ibcast(&value, 1, MPI_LONG, -11, comm, &request);
	}
	expect(raised, 30, "error handlers");
	use(comm, 4);
	MPI_Comm_free(&comm);
}

/* Processes. */

static void wait_for(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid failed");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail("a child ended with status 0x%x", status);
}

/* The child does nothing, or stays for a while; the parent goes on meanwhile. */
static void forks(void)
{
	for (int i = 0; i < 10; i++) {
		struct pending pending;
		pid_t child;

		pending_start(&pending, i % PENDING_KINDS, 0, i, MPI_COMM_WORLD);
		child = fork();
		if (child < 0)
			fail("fork failed");
		if (child == 0) {
			if (i % 2)
				usleep(20000);
			_exit(0);
		}
		use(MPI_COMM_WORLD, i);
		pending_finish(&pending);
		wait_for(child);
		use(MPI_COMM_WORLD, i + 1);
	}
}

extern char **environ;

static void spawns(void)
{
	char name[] = "true", *arguments[] = {name, NULL}, **variables;
	size_t n = 0, kept = 0;
	pid_t child;

	/* Without what was preloaded, which is not that program's business. */
	while (environ[n])
		n++;
	variables = calloc(n + 1, sizeof(char *));
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11))
			variables[kept++] = environ[i];
	for (int i = 0; i < 5; i++) {
		if (posix_spawnp(&child, name, NULL, NULL, arguments, variables))
			fail("posix_spawnp failed");
		use(MPI_COMM_WORLD, i);
		wait_for(child);
	}
	free(variables);
}

/* Signals. The handler takes watch()'s place: they share the timer. */

static volatile sig_atomic_t ticks;

static void on_tick(int signal)
{
	static const char text[] = "surroundings: no progress under signals\n";

	(void)signal;
	if (++ticks > stall * 1000) {
		if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
			_exit(4);
		_exit(3);
	}
}

static void under_signals(int flags)
{
	struct itimerval every_ms = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = on_tick, .sa_flags = flags}, before;
	long enough = 0;

	ticks = 0;
	sigaction(SIGALRM, &action, &before);
	setitimer(ITIMER_REAL, &every_ms, NULL);
	for (long i = 0; !enough; i++) {
		struct pending pending;

		use(MPI_COMM_WORLD, i);
		/* Some ranks are late, so that others sleep in a wait when the signal comes. */
		pending_start(&pending, IALLREDUCE, 0, i, MPI_COMM_WORLD);
		if (world_rank == i % world_size)
			sleep_ms(3);
		pending_finish(&pending);
		enough = i > rounds && ticks > 100;
		PMPI_Allreduce(MPI_IN_PLACE, &enough, 1, MPI_LONG, MPI_LAND, MPI_COMM_WORLD);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
}

static void signals(void)
{
	under_signals(SA_RESTART);
}

static void signals_that_interrupt(void)
{
	under_signals(0);
}

static void signal_mask(void)
{
	sigset_t mask, before, after;

	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGTERM);
	sigprocmask(SIG_BLOCK, &mask, &before);
	use(MPI_COMM_WORLD, 5);
	sigprocmask(SIG_SETMASK, &before, &after);
	for (int signal = 1; signal < SIGRTMIN; signal++)
		if (sigismember(&after, signal) !=
		    (sigismember(&before, signal) || signal == SIGUSR1 || signal == SIGTERM))
			fail("signal %d is %s after collectives", signal,
			     sigismember(&after, signal) ? "blocked" : "not blocked");
}

/* errno and floating point. */

static void check_errno(void)
{
	for (long i = 0; i < rounds && folded; i++)
		for (int kind = 0; kind < PENDING_KINDS; kind++) {
			struct pending pending;

			errno = 4711;
			pending_block(kind, 0, i, MPI_COMM_WORLD);
			expect(errno, 4711, "errno after a blocking collective");
			pending_start(&pending, kind, 0, i, MPI_COMM_WORLD);
			expect(errno, 4711, "errno after starting a collective");
			pending_finish(&pending);
			expect(errno, 4711, "errno after waiting for a collective");
		}
}

struct floating {
	unsigned mxcsr;
	unsigned short x87_control;
	int rounding, flags;
};

static struct floating floating_now(void)
{
	struct floating now = {.rounding = fegetround(), .flags = fetestexcept(FE_ALL_EXCEPT)};

#ifdef __x86_64__
	__asm__ volatile("stmxcsr %0" : "=m"(now.mxcsr));
	__asm__ volatile("fnstcw %0" : "=m"(now.x87_control));
#endif
	return now;
}

static void compare_floating(const struct floating *before)
{
	enum { MXCSR_FLAGS = 0x3f };
	struct floating after = floating_now();

	expect(after.rounding, before->rounding, "rounding mode after collectives");
	expect(after.x87_control, before->x87_control, "x87 control word after collectives");
	expect(after.mxcsr & ~MXCSR_FLAGS, before->mxcsr & ~MXCSR_FLAGS,
	       "MXCSR after collectives, without flags");
	expect(after.flags & before->flags, before->flags, "floating-point flags that were set");
	if (folded)
		expect(after.flags, before->flags, "floating-point flags after collectives");
}

static void floating_point(void)
{
	static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
	struct floating before;

	for (int i = 0; i < 8; i++) {
		fesetround(modes[i % 4]);
		feclearexcept(FE_ALL_EXCEPT);
		if (i >= 4)
			feraiseexcept(FE_DIVBYZERO);
#ifdef __x86_64__
		unsigned flush = floating_now().mxcsr | 0x8040; /* flush to zero, denormals are */

		if (i % 2)
			__asm__ volatile("ldmxcsr %0" : : "m"(flush));
#endif
		before = floating_now();
		use(MPI_COMM_WORLD, i);
		compare_floating(&before);
#ifdef __x86_64__
		flush &= ~0x8040u;
		__asm__ volatile("ldmxcsr %0" : : "m"(flush));
#endif
	}
	fesetenv(FE_DFL_ENV);
}

/* Data that is only moved must not be computed with: signalling NaNs, while they trap. */
static void trapping(void)
{
	enum { N = 32 };
	uint64_t sent[N], received[N * 2], all[N];
	int right = (world_rank + 1) % world_size,
	    left = (world_rank + world_size - 1) % world_size;
	MPI_Comm pair;

	for (uint64_t i = 0; i < N; i++)
		sent[i] = 0x7ff0000000000001u + i; /* signalling NaNs */
	feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
	for (int i = 0; i < 20; i++) {
		memcpy(all, sent, sizeof(sent));
		if (world_rank != i % world_size)
			memset(all, 0, sizeof(all));
		MPI_Bcast(all, N, MPI_DOUBLE, i % world_size, MPI_COMM_WORLD);
		if (memcmp(all, sent, sizeof(all)))
			fail("a Bcast changed the bits of NaNs");
		MPI_Sendrecv(sent, N, MPI_DOUBLE, right, 0, all, N, MPI_DOUBLE, left, 0,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	MPI_Comm_split(MPI_COMM_WORLD, world_rank / 2, 0, &pair);
	MPI_Allgather(sent, N, MPI_DOUBLE, received, N, MPI_DOUBLE, pair);
	if (memcmp(received, sent, sizeof(sent)))
		fail("an Allgather changed the bits of NaNs");
	MPI_Comm_free(&pair);
	use(MPI_COMM_WORLD, 6);
	fedisableexcept(FE_ALL_EXCEPT);
	fesetenv(FE_DFL_ENV);
}

/* Every trap: inexact results and denormals trap too. */
static void trap_all(void)
{
	feclearexcept(FE_ALL_EXCEPT);
	feenableexcept(FE_ALL_EXCEPT);
#ifdef __x86_64__
	unsigned mxcsr = floating_now().mxcsr & ~0x1f80u;

	__asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
#endif
}

/* Enough for ways to be tried and looked at again. The numbers trap where they are computed with,
 * not where they are moved; of sums every step is exact. */
static void under_traps(void)
{
	uint64_t denormal = 1 + (uint64_t)world_rank, least;
	double mine = world_rank, sum;

	for (long i = 0; i < 4 * rounds; i++) {
		use(MPI_COMM_WORLD, i);
		MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		expect(sum == world_size * (world_size - 1) / 2, 1, "a sum of doubles");
		if (!folded)
			continue; /* the real MPI computes with them */
		MPI_Allreduce(&denormal, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
		expect((long)least, 1, "the bits of a denormal minimum");
	}
}

/* The stack. */

enum { STACK = 256 << 10, ABOVE = 1 << 10, PAINT = 0x5a, LITTLE = 6 << 10 };

/* Paints the stack below `top`, ABOVE of which are left for this function and the next. */
static __attribute__((noinline)) void paint(volatile unsigned char *top)
{
	for (int i = ABOVE + 1; i <= STACK; i++)
		top[-i] = PAINT;
}

/* Bytes of it that have been used since. */
static __attribute__((noinline)) int used(const volatile unsigned char *top)
{
	int kept = STACK;

	while (kept > ABOVE && top[-kept] == PAINT)
		kept--;
	return kept;
}

/* Threads of a program may have little. The least of many calls counts: in others the MPI makes
 * progress. */
static void little_stack(void)
{
	volatile unsigned char *top = __builtin_frame_address(0);
	int blocking = STACK, nonblocking = STACK, now;
	long sum;

	for (long i = 0; i < rounds; i++) {
		MPI_Request request;

		paint(top);
		MPI_Allreduce(&i, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		now = used(top);
		if (now < blocking)
			blocking = now;
		paint(top);
		MPI_Iallreduce(&i, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		now = used(top);
		if (now < nonblocking)
			nonblocking = now;
	}
	if (folded && (blocking > LITTLE || nonblocking > LITTLE))
		fail("collectives take %d and %d bytes of stack", blocking, nonblocking);
}

/* Requests of other kinds. */

static int on_query(void *state, MPI_Status *status)
{
	(void)state;
	MPI_Status_set_elements(status, MPI_BYTE, 5);
	MPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = 17;
	status->MPI_TAG = 18;
	return MPI_SUCCESS;
}

static int on_free(void *state)
{
	++*(int *)state;
	return MPI_SUCCESS;
}

static int on_cancel(void *state, int complete)
{
	(void)state;
	(void)complete;
	return MPI_SUCCESS;
}

/* The program's own requests in one array with collectives. */
static void generalized_requests(void)
{
	for (int i = 0; i < 20; i++) {
		struct pending pending;
		MPI_Request requests[4], own;
		MPI_Status statuses[4];
		int freed = 0, count;

		pending_start(&pending, i % PENDING_KINDS, 0, i, MPI_COMM_WORLD);
		MPI_Grequest_start(on_query, on_free, on_cancel, &freed, &own);
		requests[0] = requests[2] = MPI_REQUEST_NULL;
		requests[1 + 2 * (i % 2)] = own;
		requests[3 - 2 * (i % 2)] = pending.request;
		MPI_Grequest_complete(own);
		MPI_Waitall(4, requests, statuses);
		pending.request = requests[3 - 2 * (i % 2)];
		pending_check(&pending);
		expect(freed, 1, "calls of a generalized request's free function");
		MPI_Get_count(&statuses[1 + 2 * (i % 2)], MPI_BYTE, &count);
		expect(count, 5, "a generalized request's count");
		expect(statuses[1 + 2 * (i % 2)].MPI_TAG, 18, "a generalized request's tag");
	}
}

/* One that stays under way, beside more of the same than MPIs must have tags. */
static void beside_many(void)
{
	enum { MANY = 33000 };
	struct pending slow, pending;
	MPI_Comm comm;
	int over = 0;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	use(comm, 7);
	if (world_rank == 0)
		pending_start(&slow, IALLREDUCE, 0, 8, comm);
	for (long i = 0; i < MANY; i++) {
		pending_start(&pending, IALLREDUCE, 0, i, MPI_COMM_WORLD);
		pending_finish(&pending);
	}
	if (world_rank == 0)
		MPI_Test(&slow.request, &over, MPI_STATUS_IGNORE);
	expect(over, 0, "whether a collective is over that other ranks have not started");
	MPI_Barrier(MPI_COMM_WORLD);
	if (world_rank != 0)
		pending_start(&slow, IALLREDUCE, 0, 8, comm);
	pending_finish(&slow);
	MPI_Comm_free(&comm);
}

#ifndef MPI_ABI_VERSION /* the standard ABI leaves Fortran's handles to a library of their own */
/* To Fortran and back. */
static void converted_requests(void)
{
	for (int i = 0; i < 20; i++) {
		struct pending pending;
		MPI_Fint handle;

		pending_start(&pending, i % PENDING_KINDS, 0, i, MPI_COMM_WORLD);
		handle = MPI_Request_c2f(pending.request);
		if (MPI_Request_f2c(handle) != pending.request)
			fail("a request is another one after Fortran");
		pending.request = MPI_Request_f2c(handle);
		pending_finish(&pending);
	}
}
#endif

#if HAVE_PERSISTENT
static MPI_Request persistent(long *mine, long *sum)
{
	MPI_Request request;

	PERSISTENT_NAME(Allreduce)
	(mine, sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
	return request;
}

/* Freed without ever being started, after some rounds, and in another order than made. */
static void freed_persistent(void)
{
	long mine[3] = {world_rank, world_rank, world_rank}, sums[3];
	MPI_Request requests[3];

	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 3; i++)
			requests[i] = persistent(&mine[i], &sums[i]);
		MPI_Request_free(&requests[1]);
		for (int i = 0; i < round; i++) {
			MPI_Start(&requests[2]);
			MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
			expect(sums[2], world_size * (world_size - 1) / 2, "persistent Allreduce");
		}
		MPI_Request_free(&requests[2]);
		use(MPI_COMM_WORLD, round);
		MPI_Request_free(&requests[0]);
		if (requests[0] != MPI_REQUEST_NULL)
			fail("a freed request is not null");
	}
}

static void last_persistent(void)
{
	long mine = world_rank, sum = -1;
	MPI_Request request = persistent(&mine, &sum);

	MPI_Start(&request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	expect(sum, world_size * (world_size - 1) / 2, "persistent Allreduce");
	MPI_Request_free(&request);
}
#else
static void freed_persistent(void)
{
}

static void last_persistent(void)
{
}
#endif

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
    {"delete callbacks", delete_callbacks},
    {"communicators used when freed", used_when_freed},
    {"error handlers", error_handlers},
    {"fork", forks},
    {"posix_spawn", spawns},
    {"signals", signals},
    {"signals that interrupt", signals_that_interrupt},
    {"signal mask", signal_mask},
    {"errno", check_errno},
    {"floating-point environment", floating_point},
    {"signalling NaNs", trapping},
    {"little stack", little_stack},
    {"generalized requests", generalized_requests},
#ifndef MPI_ABI_VERSION
    {"requests through Fortran", converted_requests},
#endif
    {"a request beside many", beside_many},
    {"freed persistent requests", freed_persistent},
};

int main(int argc, char **argv)
{
	program_start("surroundings", &argc, &argv, options);
	if (traps) {
		trap_all();
		under_traps();
		say("surroundings: all ok under traps, %d ranks", world_size);
		return MPI_Finalize();
	}
	use(MPI_COMM_WORLD, 0);
	for (long i = 0; i < rounds; i++)
		use(MPI_COMM_WORLD, i);
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		watch((unsigned)stall, "%s", tests[i].name);
		tests[i].run();
		say("surroundings: %s: ok", tests[i].name);
	}
	watch((unsigned)stall, "MPI_Finalize");
	say("surroundings: all ok, %d ranks", world_size);
	last_persistent();
	MPI_Finalize();
	if (deleted != 11) {
		fprintf(stderr, "surroundings: FAILED: MPI_Finalize called no delete callback\n");
		return 1;
	}
	return 0;
}
