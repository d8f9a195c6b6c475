// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A SPANK plugin for Slurm: `srun --foldback ./program` preloads libfoldback.so into the tasks of
 * the step.
 *
 *   srun, sbatch, salloc     look at the option's value, and refuse a wrong one
 *
 *   slurmstepd, as the user  looks whether this node has the library
 *
 *   each task, before exec   gets LD_PRELOAD, and FOLDBACK_REPORT if that was asked for
 *
 *   slurmstepd, at its end   ends the step on all nodes, if this node has no library
 *
 * Slurm itself hands the option from sbatch and salloc to srun, and from srun to the nodes. Batch
 * scripts and interactive shells are steps too, with numbers of their own: they get nothing.
 *
 * LD_PRELOAD is set as late as Slurm allows it, so that slurmstepd and its helpers stay without.
 * The plugin does not set it in srun, whose environment reaches all nodes: --export may drop it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(foldback, 1);

/* The Makefile's; `library=` in plugstack.conf comes before it. */
#ifndef LIBRARY
#define LIBRARY "/usr/local/lib/libfoldback.so"
#endif

/* All names of the library, whatever its version, begin with this. */
#define NAME "libfoldback.so"
#define PRELOAD "LD_PRELOAD"
#define REPORT "FOLDBACK_REPORT"
/* Separators of the entries of LD_PRELOAD (ld.so(8)). */
#define SEPARATORS ": "
/* The exit status of a task that cannot have the library. */
#define EXIT_WITHOUT_LIBRARY 127
/* How often a step without a library is ended, a second apart. */
#define KILLS 3

/* Values of the option. ON_LINE and ON_FULL are values of FOLDBACK_REPORT besides. */
enum choice { UNSAID, OFF, ON, ON_LINE, ON_FULL };

static const struct {
	const char *word;
	enum choice choice;
} choices[] = {
    {"on", ON},
    {"off", OFF},
    {"line", ON_LINE},
    {"full", ON_FULL},
};

#define CHOICES "on, off, line or full"

static enum choice asked = UNSAID, by_default = OFF;
static const char *library = LIBRARY;
/* Whether this node has no library for the tasks of this step. */
static bool is_missing;

/* Returns UNSAID for a word that is none. */
static enum choice choice_of(const char *word)
{
	for (size_t at = 0; at < sizeof(choices) / sizeof(*choices); at++)
		if (strcmp(word, choices[at].word) == 0)
			return choices[at].choice;
	return UNSAID;
}

/*
 * Takes the option's value. Slurm calls this in srun, sbatch and salloc, and again on each node. An
 * option without a value comes as nothing, as "", or as "(null)" by way of the environment.
 */
static int take_option(int number, const char *value, int remote)
{
	(void)number;
	(void)remote;
	if (value == NULL || *value == '\0' || strcmp(value, "(null)") == 0)
		value = "on";
	enum choice choice = choice_of(value);
	if (choice == UNSAID) {
		slurm_error("foldback: --foldback=%s: it may be " CHOICES, value);
		return -1;
	}
	asked = choice;
	return 0;
}

static struct spank_option option = {
    .name = "foldback",
    .arginfo = "[on|off|line|full]",
    .usage = "fold MPI collectives in the kernel; line or full reports at the end what was folded",
    .has_arg = 2,
    .cb = take_option,
};

/* Takes a word of the line in plugstack.conf. Returns false, with a line said, if it is wrong. */
static bool take_argument(const char *word)
{
	static const char of_library[] = "library=", of_default[] = "default=";

	if (strncmp(word, of_library, sizeof(of_library) - 1) == 0) {
		library = word + sizeof(of_library) - 1;
		if (*library == '/' && library[strcspn(library, SEPARATORS)] == '\0')
			return true;
		slurm_error("foldback: plugstack.conf: %s: the path must be absolute, without "
			    "colons",
			    word);
		return false;
	}
	if (strncmp(word, of_default, sizeof(of_default) - 1) == 0) {
		by_default = choice_of(word + sizeof(of_default) - 1);
		if (by_default != UNSAID)
			return true;
		slurm_error("foldback: plugstack.conf: %s: it may be " CHOICES, word);
		return false;
	}
	slurm_error("foldback: plugstack.conf: %s: there are library= and default=", word);
	return false;
}

int slurm_spank_init(spank_t spank, int count, char *words[])
{
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
	case S_CTX_REMOTE:
		break;
	default:
		/* slurmd, prolog and epilog. */
		return 0;
	}
	/* Without the option, srun refuses it: a wrong line takes foldback away and nothing else.
	 */
	for (int at = 0; at < count; at++) {
		if (!take_argument(words[at])) {
			by_default = OFF;
			return -1;
		}
	}
	return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

/*
 * Whether a program is a launcher's own daemon, which srun starts for mpirun or mpiexec. A daemon
 * hands its environment to its ranks, and the launcher's host has no daemon: of one job some ranks
 * would have the library.
 */
static bool is_daemon(const char *program)
{
	static const char *const daemons[] = {"orted", "prted", "hydra_pmi_proxy",
					      "hydra_bstrap_proxy"};
	const char *slash = strrchr(program, '/');
	const char *name = slash ? slash + 1 : program;

	for (size_t at = 0; at < sizeof(daemons) / sizeof(*daemons); at++)
		if (strcmp(name, daemons[at]) == 0)
			return true;
	return false;
}

/* The option's value for this step's tasks, or OFF for steps that are none of a user's program. */
static enum choice choice_for(spank_t spank)
{
	enum choice choice = asked == UNSAID ? by_default : asked;
	uint32_t step;
	int count;
	char **words;

	if (choice == OFF || spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
		return OFF;
	/* A batch script, an interactive shell, a container of processes that Slurm adopts. */
	if (step >= SLURM_MAX_NORMAL_STEP_ID)
		return OFF;
	if (spank_get_item(spank, S_JOB_ARGV, &count, &words) == ESPANK_SUCCESS && count > 0 &&
	    words[0] != NULL && is_daemon(words[0]))
		return OFF;
	return choice;
}

/* In slurmstepd, once for a step on this node, with the rights of the user. */
int slurm_spank_user_init(spank_t spank, int count, char *words[])
{
	int file;

	(void)count;
	(void)words;
	if (choice_for(spank) == OFF)
		return 0;
	file = open(library, O_RDONLY | O_CLOEXEC);
	if (file >= 0) {
		close(file);
		return 0;
	}
	is_missing = true;
	slurm_error("foldback: %s: %m: the step ends (--foldback=off runs without)", library);
	/* If plugstack.conf says `required`, no task of this node starts. */
	return -1;
}

/* Ends the step on all nodes. */
static void end_step(spank_t spank)
{
	/* Newer releases have a fourth parameter, of flags. */
	typedef int of_older(uint32_t, uint32_t, uint16_t);
	typedef int of_newer(uint32_t, uint32_t, uint16_t, uint16_t);
	void (*function)(void) = (void (*)(void))slurm_kill_job_step;
	uint32_t job, step;

	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
		return;
	if (_Generic(&slurm_kill_job_step, of_older * : true, default : false))
		((of_older *)function)(job, step, SIGKILL);
	else
		((of_newer *)function)(job, step, SIGKILL, 0);
}

/*
 * In slurmstepd, when its tasks have ended. Ranks with the library and ranks without it are no job:
 * the ranks of other nodes would wait for this node's. More than once: a node that has not begun
 * the step yet is not reached.
 */
int slurm_spank_exit(spank_t spank, int count, char *words[])
{
	(void)count;
	(void)words;
	for (int left = is_missing ? KILLS : 0; left > 0; left--) {
		end_step(spank);
		sleep(1);
	}
	return 0;
}

/* Whether an entry of LD_PRELOAD, of so many bytes, names the library. */
static bool is_library(const char *entry, size_t length)
{
	size_t begin = length;

	while (begin > 0 && entry[begin - 1] != '/')
		begin--;
	return length - begin >= sizeof(NAME) - 1 &&
	       memcmp(entry + begin, NAME, sizeof(NAME) - 1) == 0;
}

/*
 * The libraries to preload: foldback's, and the user's behind it, as they are. If the user preloads
 * a libfoldback.so, that one is it. Returns NULL if there is no memory.
 */
static char *preloading(const char *users)
{
	const char *ours = library;
	size_t ours_length = strlen(library);
	char *all, *end;

	for (const char *at = users; *at; at += strcspn(at, SEPARATORS)) {
		at += strspn(at, SEPARATORS);
		if (is_library(at, strcspn(at, SEPARATORS))) {
			ours = at;
			ours_length = strcspn(at, SEPARATORS);
			break;
		}
	}
	all = malloc(ours_length + 1 + strlen(users) + 1);
	if (all == NULL)
		return NULL;
	end = mempcpy(all, ours, ours_length);
	for (const char *at = users; *at;) {
		at += strspn(at, SEPARATORS);
		size_t length = strcspn(at, SEPARATORS);
		if (length > 0 && !is_library(at, length)) {
			*end++ = ':';
			end = mempcpy(end, at, length);
		}
		at += length;
	}
	*end = '\0';
	return all;
}

/* A variable of the task, which may be of any length; or NULL. */
static const char *variable(spank_t spank, const char *name)
{
	size_t length = strlen(name);
	char **all;

	if (spank_get_item(spank, S_JOB_ENV, &all) != ESPANK_SUCCESS || all == NULL)
		return NULL;
	for (; *all != NULL; all++)
		if (strncmp(*all, name, length) == 0 && (*all)[length] == '=')
			return *all + length + 1;
	return NULL;
}

/* In each task, as the user, before the program. */
int slurm_spank_task_init(spank_t spank, int count, char *words[])
{
	enum choice choice = choice_for(spank);
	const char *users = variable(spank, PRELOAD);
	char *all;

	(void)count;
	(void)words;
	if (choice == OFF)
		return 0;
	if (is_missing)
		_exit(EXIT_WITHOUT_LIBRARY);
	all = preloading(users != NULL ? users : "");
	if (all == NULL || spank_setenv(spank, PRELOAD, all, 1) != ESPANK_SUCCESS) {
		slurm_error("foldback: LD_PRELOAD cannot be set");
		_exit(EXIT_WITHOUT_LIBRARY);
	}
	free(all);
	/* The user's own setting stays. */
	if (choice == ON_LINE || choice == ON_FULL)
		spank_setenv(spank, REPORT, choice == ON_LINE ? "line" : "full", 0);
	return 0;
}
