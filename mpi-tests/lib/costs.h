/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The costs of what a benchmark does, besides time. */
#ifndef COSTS_H
#define COSTS_H

/* Microseconds of CPU time, user and system, of this process. On the first rank of a host also the
 * frames that the host's interfaces (all but lo) have sent, and their bytes. */
enum { CPU, FRAMES, BYTES, COSTS };

/* Collective, once before read_costs(). */
void find_first_of_host(void);

/* All costs so far. Their sum over all ranks is the sum over all hosts. */
void read_costs(double costs[COSTS]);

#endif
