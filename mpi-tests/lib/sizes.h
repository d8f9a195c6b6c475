/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The arguments of benchmarks: lists with commas between, and buffers that are long enough.
 */
#ifndef SIZES_H
#define SIZES_H

#include <stdbool.h>

enum { MOST_SIZES = 32, LARGE = 8192 };

/* Sizes in bytes, each a number of whole integers. Returns their number; fails if one is wrong. */
int parse_sizes(const char *list, int sizes[MOST_SIZES]);

/* Whether `name` is one of `list`, or `list` is "all". */
bool is_listed(const char *list, const char *name);

/* Fails if `list` has a name that is none of the `n` at `names`, each `stride` bytes from the last.
 */
void check_listed(const char *list, const void *names, int n, unsigned long stride);

/* So many bytes, each of them `value`. */
char *buffer(long bytes, int value);

#endif
