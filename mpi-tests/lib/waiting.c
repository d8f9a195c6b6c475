/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "waiting.h"

#include <dlfcn.h>

#include "deviation.h"
#include "program.h"

/* A choice of the requests, in some order, with null ones in between. */
struct set {
	MPI_Request handles[2 * WAITING_MOST];
	MPI_Status statuses[2 * WAITING_MOST];
	struct waited what[2 * WAITING_MOST];
	bool real[2 * WAITING_MOST]; /* not null, not complete */
	int n, left;
	bool with_statuses;
	struct waiting *waiting;
};

enum way {
	WAIT,
	TEST,
	WAITALL,
	TESTALL,
	WAITANY,
	TESTANY,
	WAITSOME,
	TESTSOME,
	GET_STATUS,
	GET_STATUS_ANY,
	GET_STATUS_ALL,
	GET_STATUS_SOME,
	WAYS
};

static const char *const way_names[WAYS] = {
    "MPI_Wait",
    "MPI_Test",
    "MPI_Waitall",
    "MPI_Testall",
    "MPI_Waitany",
    "MPI_Testany",
    "MPI_Waitsome",
    "MPI_Testsome",
    "MPI_Request_get_status",
    "MPI_Request_get_status_any",
    "MPI_Request_get_status_all",
    "MPI_Request_get_status_some",
};

void waiting_add(struct waiting *waiting, const struct waited *waited)
{
	if (waiting->n == WAITING_MOST)
		fail("more than %d requests at once", WAITING_MOST);
	if (*waited->request == MPI_REQUEST_NULL)
		fail("a started operation has no request");
	waiting->all[waiting->n++] = *waited;
}

/* Moves the request at `index` to the set. */
static void take(struct waiting *waiting, int index, struct set *set)
{
	int at = set->n++;

	set->what[at] = waiting->all[index];
	set->handles[at] = *set->what[at].request;
	set->real[at] = true;
	set->left++;
	waiting->all[index] = waiting->all[--waiting->n];
}

static void add_null(struct set *set)
{
	set->real[set->n] = false;
	set->handles[set->n++] = MPI_REQUEST_NULL;
}

static void check_status(const struct waited *what, const MPI_Status *status, enum way way)
{
	int bytes;

	if (!what->receives)
		return;
	MPI_Get_count(status, MPI_BYTE, &bytes);
	if (status->MPI_SOURCE != what->source || status->MPI_TAG != what->tag ||
	    bytes != what->bytes)
		fail("%s: a message of %d bytes from %d with tag %d, want %d from %d with %d",
		     way_names[way], bytes, status->MPI_SOURCE, status->MPI_TAG, what->bytes,
		     what->source, what->tag);
}

static void completed(struct set *set, int index, const MPI_Status *status, enum way way)
{
	struct waited *what = &set->what[index];

	if (index < 0 || index >= set->n || !set->real[index])
		fail("%s: says that request %d of %d is complete, which is none", way_names[way],
		     index, set->n);
	if ((set->handles[index] == MPI_REQUEST_NULL) == what->persistent)
		fail("%s: leaves a complete request %s", way_names[way],
		     what->persistent ? "null that is persistent" : "as it was");
	if (what->persistent && set->handles[index] != *what->request)
		fail("%s: changed a persistent request", way_names[way]);
	if (set->with_statuses)
		check_status(what, status, way);
	*what->request = set->handles[index];
	if (what->persistent && deviation_inactive())
		set->handles[index] = MPI_REQUEST_NULL;
	set->real[index] = false;
	set->left--;
	set->waiting->complete(what->owner);
}

/* Of the null ones and inactive ones nothing is left to say. */
static void check_empty(struct set *set, struct random *local)
{
	MPI_Status status;
	int index = 0, flag = 0;

	if (set->left)
		fail("%d requests are left", set->left);
	if (random_below(local, 4))
		return;
	MPI_Waitany(set->n, set->handles, &index, &status);
	if (index != MPI_UNDEFINED)
		fail("MPI_Waitany of null or inactive requests: index %d", index);
	MPI_Testall(set->n, set->handles, &flag, MPI_STATUSES_IGNORE);
	if (!flag)
		fail("MPI_Testall of null or inactive requests: not complete");
}

static void one_by_one(struct set *set, enum way way, struct random *local)
{
	for (int i = 0; i < set->n; i++) {
		MPI_Status *status = set->with_statuses ? &set->statuses[i] : MPI_STATUS_IGNORE;
		int flag = 0;

		bool asks = !(set->what[i].persistent && deviation_get_status());

		if (way == GET_STATUS && asks)
			while (!flag)
				MPI_Request_get_status(set->handles[i], &flag, MPI_STATUS_IGNORE);
		if (way == TEST)
			for (flag = 0; !flag;) {
				MPI_Test(&set->handles[i], &flag, status);
				if (!flag && random_below(local, 64) == 0)
					sleep_ms(0.1);
			}
		else
			MPI_Wait(&set->handles[i], status);
		if (set->real[i])
			completed(set, i, &set->statuses[i], way);
	}
}

static void all_at_once(struct set *set, enum way way)
{
	MPI_Status *statuses = set->with_statuses ? set->statuses : MPI_STATUSES_IGNORE;
	int flag = 0;

	if (way == WAITALL)
		MPI_Waitall(set->n, set->handles, statuses);
	while (way == TESTALL && !flag)
		MPI_Testall(set->n, set->handles, &flag, statuses);
	for (int i = 0; i < set->n; i++)
		if (set->real[i])
			completed(set, i, &set->statuses[i], way);
}

static void any(struct set *set, enum way way)
{
	MPI_Status *status = set->with_statuses ? set->statuses : MPI_STATUS_IGNORE;

	while (set->left) {
		int index = -1, flag = 1;

		if (way == WAITANY)
			MPI_Waitany(set->n, set->handles, &index, status);
		else
			MPI_Testany(set->n, set->handles, &index, &flag, status);
		if (flag)
			completed(set, index, set->statuses, way);
	}
}

static void some(struct set *set, enum way way)
{
	MPI_Status *statuses = set->with_statuses ? set->statuses : MPI_STATUSES_IGNORE;
	int indices[2 * WAITING_MOST];

	while (set->left) {
		int count = -1;

		if (way == WAITSOME)
			MPI_Waitsome(set->n, set->handles, &count, indices, statuses);
		else
			MPI_Testsome(set->n, set->handles, &count, indices, statuses);
		if (count < (way == WAITSOME) || count > set->left)
			fail("%s: %d of %d requests", way_names[way], count, set->left);
		for (int i = 0; i < count; i++)
			completed(set, indices[i], &set->statuses[i], way);
	}
}

/* MPI-4.1 has these three; in headers of other MPIs they are not declared. */
typedef int any_t(int, const MPI_Request *, int *, int *, MPI_Status *);
typedef int all_t(int, const MPI_Request *, int *, MPI_Status *);
typedef int some_t(int, const MPI_Request *, int *, int *, MPI_Status *);

/* Asks until some are complete, which this does not change; then takes them. */
static void ask(struct set *set, enum way way, void *function)
{
	MPI_Status *statuses = set->with_statuses ? set->statuses : MPI_STATUSES_IGNORE;
	MPI_Status *status = set->with_statuses ? set->statuses : MPI_STATUS_IGNORE;
	int indices[2 * WAITING_MOST], count = 0, flag = 0;

	while (way == GET_STATUS_ANY && !flag)
		((any_t *)function)(set->n, set->handles, indices, &flag, status);
	while (way == GET_STATUS_ALL && !flag)
		((all_t *)function)(set->n, set->handles, &flag, statuses);
	while (way == GET_STATUS_SOME && !count)
		((some_t *)function)(set->n, set->handles, &count, indices, statuses);
	if (way == GET_STATUS_ANY)
		count = 1;
	for (int i = 0; way != GET_STATUS_ALL && i < count; i++) {
		int at = indices[i];
		MPI_Status said = set->statuses[i];

		if (at < 0 || at >= set->n || !set->real[at])
			fail("%s: says that request %d of %d is complete", way_names[way], at,
			     set->n);
		for (flag = 0; !flag;)
			MPI_Test(&set->handles[at], &flag, MPI_STATUS_IGNORE);
		completed(set, at, &said, way);
	}
	for (int i = 0; way == GET_STATUS_ALL && i < set->n; i++) {
		MPI_Status said = set->statuses[i];

		flag = 0;
		MPI_Test(&set->handles[i], &flag, MPI_STATUS_IGNORE);
		if (!flag)
			fail("%s: request %d of %d is not complete", way_names[way], i, set->n);
		if (set->real[i])
			completed(set, i, &said, way);
	}
}

static void finish(struct set *set, struct random *local)
{
	enum way way = (enum way)random_below(local, WAYS);
	void *function = way > GET_STATUS ? dlsym(RTLD_DEFAULT, way_names[way]) : NULL;

	for (int i = 0; i < set->n && function && deviation_get_status(); i++)
		if (set->real[i] && set->what[i].persistent)
			function = NULL;
	if (way > GET_STATUS && !function)
		way = WAITALL;
	for (int i = 0; i < set->n && way == TESTALL && deviation_inactive(); i++)
		if (set->real[i] && set->what[i].persistent)
			way = WAITALL;
	set->with_statuses = random_below(local, 2);
	switch (way) {
	case WAIT:
	case TEST:
	case GET_STATUS:
		one_by_one(set, way, local);
		break;
	case GET_STATUS_ANY:
	case GET_STATUS_ALL:
	case GET_STATUS_SOME:
		ask(set, way, function);
		if (set->left)
			some(set, WAITSOME);
		break;
	case WAITALL:
	case TESTALL:
		all_at_once(set, way);
		break;
	case WAITANY:
	case TESTANY:
		any(set, way);
		break;
	default:
		some(set, way);
	}
	check_empty(set, local);
}

void waiting_finish(struct waiting *waiting, int how_many, struct random *local)
{
	static struct set set;

	set.n = set.left = 0;
	set.waiting = waiting;
	for (; how_many && waiting->n; how_many--) {
		if (random_below(local, 8) == 0)
			add_null(&set);
		take(waiting, (int)random_below(local, (uint64_t)waiting->n), &set);
	}
	if (set.n)
		finish(&set, local);
}

void waiting_finish_owner(struct waiting *waiting, void *owner, struct random *local)
{
	static struct set set;

	set.n = set.left = 0;
	set.waiting = waiting;
	for (int i = waiting->n; i--;)
		if (waiting->all[i].owner == owner)
			take(waiting, i, &set);
	if (set.n)
		finish(&set, local);
}

void waiting_poke(struct waiting *waiting, struct random *local)
{
	static struct set set;
	int index, flag;

	if (!waiting->n)
		return;
	index = (int)random_below(local, (uint64_t)waiting->n);
	set.n = set.left = 0;
	set.waiting = waiting;
	set.with_statuses = true;
	take(waiting, index, &set);
	MPI_Test(&set.handles[0], &flag, &set.statuses[0]);
	if (flag)
		completed(&set, 0, &set.statuses[0], TEST);
	else
		waiting->all[waiting->n++] = set.what[0];
}
