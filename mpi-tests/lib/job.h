/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A collective call in the making: its buffers, and their right contents afterwards.
 *
 * Each rank knows the input of every rank (operand_input), so it works the answer out and needs no
 * MPI to know it. Everything around the received data must not change: guards, gaps of datatypes
 * and between blocks, buffers that are not significant here. Sent data must not change either.
 */
#ifndef JOB_H
#define JOB_H

#include "call.h"
#include "issue.h"

struct job {
	struct call call;
	struct side send, recv;
	struct image sent; /* what the send buffer must stay */
	struct image want;
	struct arguments arguments;
	bool in_place; /* here */
	bool sends, receives;
};

/* Buffers and arguments; the choices of this rank alone by `local`. */
void job_make(struct job *job, const struct call *call, struct random *local);
void job_free(struct job *job);

/* The data of round `round`. */
void job_load(struct job *job, unsigned round);

/* Fails if anything is not as it must be. `real`: take the real MPI's word where it is known to be
 * wrong; returns whether that was needed. */
bool job_check(struct job *job, unsigned round, bool real);

/* Forgets the datatypes, which MPI allows as soon as the operation is started. */
void job_free_types(struct job *job);

/* The present step, in front of every failure: "seed 1 batch 2". */
void job_context(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *job_doing(void);

#endif
