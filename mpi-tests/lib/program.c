/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "program.h"

#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *program_name = "?";
int world_rank;
int world_size;

static char doing[512];
static volatile sig_atomic_t said;

/* Only async-signal-safe calls: the process may be anywhere. */
static void stalled(int signal)
{
	static const char head[] = ": no progress within the time allowed, in: ";

	(void)signal;
	if (said)
		_exit(3);
	said = 1;
	alarm(FAREWELL);
	if (write(STDERR_FILENO, program_name, strlen(program_name)) < 0 ||
	    write(STDERR_FILENO, head, sizeof(head) - 1) < 0 ||
	    write(STDERR_FILENO, doing, strlen(doing)) < 0)
		_exit(4);
}

static void usage(const struct option_spec *options)
{
	static const char *const argument[] = {"", " N", " TEXT"};

	fprintf(stderr, "usage: %s [OPTIONS]\n", program_name);
	for (; options->name; options++)
		fprintf(stderr, "  %s%s\t%s\n", options->name, argument[options->kind],
			options->help);
}

static const struct option_spec *find(const struct option_spec *options, const char *name)
{
	for (; options->name; options++)
		if (!strcmp(options->name, name))
			return options;
	return NULL;
}

static bool set(const struct option_spec *option, const char *text)
{
	char *end;

	if (option->kind == OPTION_TEXT) {
		*(const char **)option->value = text;
		return true;
	}
	*(long *)option->value = strtol(text, &end, 0);
	return end != text && !*end;
}

/* The index of the first argument that is no option, or -1 if one of the options is wrong. */
static int parse(int argc, char **argv, const struct option_spec *options)
{
	int i;

	for (i = 1; i < argc && !strncmp(argv[i], "--", 2); i++) {
		const struct option_spec *option = find(options, argv[i]);

		if (!option)
			return -1;
		if (option->kind == OPTION_FLAG)
			*(long *)option->value = 1;
		else if (++i == argc || !set(option, argv[i]))
			return -1;
	}
	return i;
}

int program_start(const char *name, int *argc, char ***argv, const struct option_spec *options)
{
	int first;

	program_name = name;
	signal(SIGALRM, stalled);
	MPI_Init(argc, argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &world_size);
	first = parse(*argc, *argv, options);
	if (first < 0) {
		if (world_rank == 0)
			usage(options);
		MPI_Finalize();
		exit(2);
	}
	return first;
}

int program_start_bare(const char *name, int argc, char **argv, const struct option_spec *options)
{
	int first;

	program_name = name;
	signal(SIGALRM, stalled);
	first = parse(argc, argv, options);
	if (first < 0) {
		usage(options);
		exit(2);
	}
	return first;
}

int program_start_threads(const char *name, int *argc, char ***argv,
			  const struct option_spec *options, int (*level)(void))
{
	int first = program_start_bare(name, *argc, *argv, options), provided;

	MPI_Init_thread(argc, argv, level(), &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &world_size);
	if (provided < level())
		fail("this MPI does not support threads at the level asked for");
	return first;
}

void fail(const char *format, ...)
{
	va_list arguments;
	char text[1024];
	int initialized;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "%s: FAILED: rank %d: %s\n", program_name, world_rank, text);
	fflush(stderr);
	MPI_Initialized(&initialized);
	if (initialized)
		MPI_Abort(MPI_COMM_WORLD, 1);
	_exit(1);
}

void say(const char *format, ...)
{
	va_list arguments;

	if (world_rank != 0)
		return;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

void watch(unsigned seconds, const char *format, ...)
{
	va_list arguments;
	int length;

	length = snprintf(doing, sizeof(doing), "rank %d: ", world_rank);
	va_start(arguments, format);
	vsnprintf(doing + length, sizeof(doing) - (size_t)length - 1, format, arguments);
	va_end(arguments);
	strcat(doing, "\n");
	said = 0;
	alarm(seconds);
}

int lines_of(const char *command)
{
	FILE *pipe = popen(command, "r");
	int count = 0;

	if (!pipe)
		fail("cannot run %s", command);
	for (int c; (c = fgetc(pipe)) != EOF;)
		count += c == '\n';
	if (pclose(pipe))
		fail("%s fails", command);
	return count;
}

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void sleep_ms(double ms)
{
	struct timespec time = {.tv_sec = (time_t)(ms / 1e3)};

	time.tv_nsec = (long)((ms / 1e3 - (double)time.tv_sec) * 1e9);
	nanosleep(&time, NULL);
}
