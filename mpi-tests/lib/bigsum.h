/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The exact sum of doubles, slowly and plainly: one long number in two's complement. */
#ifndef BIGSUM_H
#define BIGSUM_H

#include <stdbool.h>
#include <stdint.h>

/* Bit 0 is worth 2^-1074; the highest number has its highest bit at 2097, and the rest is for
 * carries. */
enum { BIGSUM_WORDS = 34 };

struct bigsum {
	uint64_t words[BIGSUM_WORDS];
	bool nan, plus, minus; /* a NaN, infinities */
	bool other;	       /* something that is not -0 */
	long terms;
};

void bigsum_add(struct bigsum *sum, double x);

/* Rounded to nearest, ties to even, to a double, or to a float. */
double bigsum_double(const struct bigsum *sum);
float bigsum_float(const struct bigsum *sum);

#endif
