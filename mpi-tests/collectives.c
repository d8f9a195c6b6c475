/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Random collectives of every kind and form, in batches: blocking, non-blocking with up to a
 * hundred under way, persistent. They are waited for in any order, by every function there is,
 * among messages of the program's own. Other calls, waiting and computing come in between.
 *
 * All ranks start everything in the same order, as MPI wants it. When and how to wait is each
 * rank's own choice. Answers are known as in job.h.
 */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "deviation.h"
#include "job.h"
#include "message.h"
#include "operation.h"
#include "program.h"

enum { MOST_STEPS = 128, LONG_MESSAGE = 256 << 10 };

static long seed = 1, batches = 300, first = 0, stall = PATIENCE, settle = 128;
static long real_above = LONG_MAX, verbose, many_clocks;
static const char *form_name = "any", *only_name = "", *real_names = "";
static struct call_limits limits = {.max_bytes = 16384, .only = -1};

static const struct option_spec options[] = {
    {"--seed", OPTION_NUMBER, &seed, "of all random choices and data (1)"},
    {"--batches", OPTION_NUMBER, &batches, "how many batches of 1 to 128 operations (300)"},
    {"--first", OPTION_NUMBER, &first, "number of the first, to repeat one alone (0)"},
    {"--form", OPTION_TEXT, &form_name, "blocking, nonblocking, persistent or any (any)"},
    {"--only", OPTION_TEXT, &only_name, "this collective alone, such as Allreduce"},
    {"--max-bytes", OPTION_NUMBER, &limits.max_bytes, "most bytes of all blocks (16384)"},
    {"--settle", OPTION_NUMBER, &settle,
     "Allreduces on each communicator before the first batch (128)"},
    {"--stall", OPTION_NUMBER, &stall, "seconds that one step may take (300)"},
    {"--real-above", OPTION_NUMBER, &real_above,
     "calls of more than N bytes reach the real MPI (-1: all): allow what it is known to do "
     "wrong"},
    {"--real", OPTION_TEXT, &real_names,
     "so do these of any size: names of collectives and forms, and \"derived\" for derived "
     "datatypes, such as Scan,persistent,derived"},
    {"--many-clocks", OPTION_FLAG, &many_clocks, "the ranks do not share one machine's clock"},
    {"--verbose", OPTION_FLAG, &verbose, "print each step before it is made"},
    {0},
};

/* A collective or a message, from its start to its end. */
struct task {
	uint64_t number; /* of the step that made it */
	bool is_message;
	struct job job;
	struct message message;
	enum form form;
	MPI_Request requests[2]; /* of a message: sending, receiving */
	int n_requests;
	int under_way; /* requests not complete */
	unsigned round, rounds;
	double started, ended; /* Barrier */
};

static struct task tasks[MOST_STEPS];
static int n_tasks;
static struct waiting waiting;
static unsigned long n_calls, n_messages, tolerated, left_out;
static int form = FORMS;

static const char *const form_names[] = {"blocking", "nonblocking", "persistent", "any"};

/* Whether `name` is in --real. */
static bool named(const char *name)
{
	size_t length = strlen(name);

	for (const char *at = real_names; (at = strstr(at, name)); at += length)
		if ((at == real_names || at[-1] == ',') && (!at[length] || at[length] == ','))
			return true;
	return false;
}

/* Whether the real MPI may answer: a call that reaches no other host is its business too. */
static bool is_real(const struct call *call)
{
	return call->team->hosts == 1 || (long)call_bytes(call) > real_above ||
	       named(call->traits->name) || named(form_names[call->form]) ||
	       (call->units != UNITS_PLAIN && named("derived"));
}

static void task_done(struct task *task)
{
	if (task->is_message)
		message_check(&task->message, task->round);
	else if (job_check(&task->job, task->round, is_real(&task->job.call)))
		tolerated++;
	task->ended = now();
}

static void request_complete(void *owner)
{
	struct task *task = owner;

	if (--task->under_way == 0)
		task_done(task);
}

static const char *task_name(const struct task *task)
{
	return task->is_message ? "message" : call_describe(&task->job.call);
}

static void step(const char *verb, const char *what)
{
	watch((unsigned)stall, "%s: %s %s", job_doing(), verb, what);
	if (verbose)
		say("%s: %s %s", job_doing(), verb, what);
}

/* Puts the requests of a started task among those to wait for. */
static void await(struct task *task)
{
	struct waited waited = {.persistent = task->form == PERSISTENT,
				.source = task->message.from,
				.tag = task->message.tag,
				.bytes = task->message.bytes,
				.owner = task};

	task->under_way = task->n_requests;
	for (int i = 0; i < task->n_requests; i++) {
		waited.request = &task->requests[i];
		waited.receives = task->is_message && i == 1;
		waiting_add(&waiting, &waited);
	}
}

static void busy(double seconds)
{
	double end = now() + seconds;

	while (now() < end)
		;
}

static struct task *add_task(const struct call *call, uint64_t number)
{
	struct task *task = &tasks[n_tasks++];

	task->number = number;
	task->form = call->form;
	task->round = 0;
	task->rounds = call->form == PERSISTENT ? call->rounds : 1;
	return task;
}

static void start_call(const struct call *call, uint64_t number, struct random *local)
{
	struct task *task = add_task(call, number);

	task->is_message = false;
	task->n_requests = call->form != BLOCKING;
	job_make(&task->job, call, local);
	job_load(&task->job, 0);
	step("calling", task_name(task));
	task->started = now();
	issue(call->collective, call->form, call->large, &task->job.arguments, task->requests);
	n_calls++;
	if (call->form == BLOCKING)
		task_done(task);
	if (call->form == NONBLOCKING)
		await(task);
	/* MPI keeps what an operation under way needs of a datatype. */
	if (call->form != PERSISTENT && random_below(local, 4) == 0)
		job_free_types(&task->job);
}

static void start_message(const struct call *call, uint64_t number, struct random *random)
{
	struct task *task = add_task(call, number);
	struct message *message = &task->message;
	int bytes = random_below(random, 8) ? (int)random_below(random, 64) : LONG_MESSAGE;

	message_make(message, (uint64_t)seed, call->id, bytes, (int)number,
		     1 + (int)random_below(random, 3));
	task->is_message = true;
	task->n_requests = call->form == BLOCKING ? 0 : 2;
	message_load(message, 0);
	step("sending", "a message");
	n_messages++;
	if (call->form == BLOCKING) {
		MPI_Sendrecv(message->send.data, bytes, MPI_BYTE, message->to, message->tag,
			     message->recv.data, bytes, MPI_BYTE, message->from, message->tag,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		task_done(task);
	} else if (call->form == NONBLOCKING) {
		MPI_Isend(message->send.data, bytes, MPI_BYTE, message->to, message->tag,
			  MPI_COMM_WORLD, &task->requests[0]);
		MPI_Irecv(message->recv.data, bytes, MPI_BYTE, message->from, message->tag,
			  MPI_COMM_WORLD, &task->requests[1]);
		await(task);
	} else {
		MPI_Send_init(message->send.data, bytes, MPI_BYTE, message->to, message->tag,
			      MPI_COMM_WORLD, &task->requests[0]);
		MPI_Recv_init(message->recv.data, bytes, MPI_BYTE, message->from, message->tag,
			      MPI_COMM_WORLD, &task->requests[1]);
	}
}

/* Starts persistent ones that have rounds left: all, or some. */
static void start_persistent(bool all, struct random *random, struct random *local)
{
	MPI_Request requests[2 * MOST_STEPS];
	struct task *started[MOST_STEPS];
	uint64_t choices = random_next(random);
	bool at_once = choices & 1;
	int n = 0, n_started = 0;

	for (int i = 0; i < n_tasks; i++) {
		struct task *task = &tasks[i];
		bool chosen = all || random_mix(choices ^ task->number) & 1;

		if (task->form != PERSISTENT || task->round == task->rounds || !chosen)
			continue;
		waiting_finish_owner(&waiting, task, local);
		if (task->is_message)
			message_load(&task->message, task->round + 1);
		else
			job_load(&task->job, task->round + 1);
		task->round++;
		task->started = now();
		for (int j = 0; j < task->n_requests; j++)
			requests[n++] = task->requests[j];
		started[n_started++] = task;
		step("starting", task_name(task));
		for (int j = 0; j < task->n_requests && !at_once; j++)
			MPI_Start(&task->requests[j]);
		if (!at_once)
			await(task);
	}
	if (!at_once || !n)
		return;
	step("starting", "all of these");
	MPI_Startall(n, requests);
	n = 0;
	for (int i = 0; i < n_started; i++) {
		for (int j = 0; j < started[i]->n_requests; j++)
			if (requests[n++] != started[i]->requests[j])
				fail("MPI_Startall changed a request");
		await(started[i]);
	}
}

/* Nobody may leave a Barrier before everybody has come. Ranks that share a clock can tell. */
static void check_barriers(void)
{
	double times[2], latest[2];

	for (int i = 0; i < n_tasks; i++) {
		if (tasks[i].is_message || tasks[i].job.call.collective != BARRIER || many_clocks)
			continue;
		times[0] = tasks[i].started;
		times[1] = -tasks[i].ended;
		PMPI_Allreduce(times, latest, 2, MPI_DOUBLE, MPI_MAX, tasks[i].job.call.team->comm);
		if (latest[0] > -latest[1])
			fail("%s: %s: somebody left %.1f us before the last one came", job_doing(),
			     task_name(&tasks[i]), (latest[0] + latest[1]) * 1e6);
	}
}

static void free_tasks(void)
{
	for (int i = 0; i < n_tasks; i++) {
		struct task *task = &tasks[i];

		for (int j = 0; j < task->n_requests; j++) {
			if (task->form == PERSISTENT)
				MPI_Request_free(&task->requests[j]);
			if (task->requests[j] != MPI_REQUEST_NULL)
				fail("%s: %s: its request is not null in the end", job_doing(),
				     task_name(task));
		}
		if (!task->is_message)
			job_free(&task->job);
	}
	n_tasks = 0;
}

static enum form choose_form(const struct call *call, enum form chosen)
{
	enum form actual = form == FORMS ? chosen : (enum form)form;

	return issue_has(call->collective, actual, call->large) ? actual : NONBLOCKING;
}

/* Steps of this rank alone between two others. */
static void in_between(struct random *local)
{
	uint64_t kind = random_below(local, 64);

	if (kind == 0)
		sleep_ms(1);
	else if (kind < 3)
		busy((double)random_below(local, 2000) * 1e-6);
	else if (kind < 16)
		waiting_finish(&waiting, 1 + (int)random_below(local, 8), local);
	else if (kind < 24)
		waiting_poke(&waiting, local);
}

static int choose_length(struct random *random)
{
	uint64_t kind = random_below(random, 100);

	if (kind < 50)
		return 1;
	return 1 + (int)random_below(random, kind < 90 ? 12 : MOST_STEPS);
}

static void run_batch(uint64_t batch)
{
	struct random random = random_start((uint64_t)seed, batch, 0);
	struct random local = random_start((uint64_t)seed, batch, 0x100u + (uint64_t)world_rank);
	int steps = choose_length(&random);
	/* All on one communicator, or all non-blocking, in some. */
	bool one_team = random_below(&random, 4) == 0, all_started = random_below(&random, 4) == 0;
	const struct team *team = one_team ? &limits.teams[random_below(&random, TEAMS)] : NULL;

	for (int i = 0; i < steps; i++) {
		struct call call = call_choose(&limits, (uint64_t)seed, batch, (uint64_t)i, team);

		job_context("seed %ld batch %llu step %d", seed, (unsigned long long)batch, i);
		call.large = call.large && issue_has(call.collective, call.form, true);
		call.form = choose_form(&call, all_started ? NONBLOCKING : call.form);
		if (random_below(&random, 8) == 0)
			start_message(&call, (uint64_t)i, &random);
		else if (is_real(&call) && deviation_call_break(&call))
			left_out++;
		else
			start_call(&call, (uint64_t)i, &local);
		if (random_below(&random, 16) == 0)
			start_persistent(false, &random, &local);
		in_between(&local);
	}
	for (unsigned round = 0; round < 4; round++)
		start_persistent(true, &random, &local);
	step("ending", "what was started");
	while (waiting.n)
		waiting_finish(&waiting, 1 + (int)random_below(&local, (uint64_t)waiting.n),
			       &local);
	check_barriers();
	free_tasks();
}

static void read_names(void)
{
	form = -1;
	for (int i = 0; i <= FORMS; i++)
		if (!strcmp(form_name, form_names[i]))
			form = i;
	for (int i = 0; i < COLLECTIVES; i++)
		if (!strcmp(only_name, collectives[i].name))
			limits.only = i;
	if (form < 0 || (*only_name && limits.only < 0))
		fail("no such form or collective: %s, %s", form_name, only_name);
}

int main(int argc, char **argv)
{
	struct team teams[TEAMS];
	double start;

	program_start("collectives", &argc, &argv, options);
	read_names();
	operations_make();
	limits.n_operands = operands_make(&limits.operands, &limits.n_reducible);
	teams_make(teams);
	limits.teams = teams;
	waiting.complete = request_complete;

	teams_settle(teams, settle, (unsigned)stall);
	start = now();
	for (long batch = first; batch < first + batches; batch++)
		run_batch((uint64_t)batch);
	if (tolerated || left_out)
		say("collectives: of the real MPI, %lu wrong answers known of it, %lu calls left "
		    "out that it cannot take (on rank 0)",
		    tolerated, left_out);
	say("collectives: %ld batches ok, %lu calls, %lu messages, %d ranks, %d types, seed %ld, "
	    "%.1f s",
	    batches, n_calls, n_messages, world_size, limits.n_operands, seed, now() - start);
	watch((unsigned)stall, "MPI_Finalize");
	operations_free();
	teams_free(teams);
	MPI_Finalize();
	return 0;
}
