/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Reproducible numbers: the same on every rank, with every MPI, for the same seed. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

struct random {
	uint64_t state;
};

/* The finalizer of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", 2014): every input bit reaches every output bit. */
static inline uint64_t random_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* A stream of its own for every (seed, call, stream). */
static inline struct random random_start(uint64_t seed, uint64_t call, uint64_t stream)
{
	return (struct random){random_mix(random_mix(random_mix(seed) ^ call) ^ stream)};
}

static inline uint64_t random_next(struct random *random)
{
	random->state += 0x9e3779b97f4a7c15u;
	return random_mix(random->state);
}

/* 0 .. bound - 1. The bias of the remainder is of no matter here. */
static inline uint64_t random_below(struct random *random, uint64_t bound)
{
	return random_next(random) % bound;
}

#endif
