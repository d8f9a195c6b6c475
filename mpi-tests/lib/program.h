/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The common parts of all test programs: options, a way to fail, and a bound on every wait. */
#ifndef PROGRAM_H
#define PROGRAM_H

enum option_kind { OPTION_FLAG, OPTION_NUMBER, OPTION_TEXT };

struct option_spec {
	const char *name; /* "--calls" */
	enum option_kind kind;
	void *value; /* long *, set to 1 for a flag; const char ** for a text */
	const char *help;
};

extern const char *program_name;
extern int world_rank;
extern int world_size;

/* MPI_Init, and the options. A wrong option ends the program with status 2. Returns the index in
 * `argv` of the first argument that is no option. */
int program_start(const char *name, int *argc, char ***argv, const struct option_spec *options);

/* The same with MPI_Init_thread. The options are read first: `level` may depend on them. */
int program_start_threads(const char *name, int *argc, char ***argv,
			  const struct option_spec *options, int (*level)(void));

/* The same without MPI. The caller sets world_rank and world_size. */
int program_start_bare(const char *name, int argc, char **argv, const struct option_spec *options);

/* "NAME: rank R: …" on stderr, then MPI_Abort with status 1. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* On rank 0 only, a line on stdout at once. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The usual bound, for hangs alone: on one busy core what takes milliseconds may take a minute. */
enum { PATIENCE = 300 };
/* Seconds that are left then to whoever started the program, to look where its ranks are. */
enum { FAREWELL = 600 };
/* From now on the process has `seconds` to call watch() again. If it has not, it says what it was
 * doing, and exits with status 3 after FAREWELL: a hang is a failure with a name. 0: no bound. */
void watch(unsigned seconds, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The number of lines that a command prints, which must succeed. */
int lines_of(const char *command);

double now(void); /* CLOCK_MONOTONIC, in seconds */
void sleep_ms(double ms);

#endif
