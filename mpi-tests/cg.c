/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Conjugate gradients for Poisson's equation on a cube, as many a solver does it: the seven-point
 * stencil, slabs of planes, two dot products an iteration. Tells the history of the residual to the
 * last bit, as a hash: it is another one whenever a sum over ranks is rounded in another way.
 */
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "random.h"

static long points = 32, iterations = 60, seed = 1;

static const struct option_spec options[] = {
    {"--points", OPTION_NUMBER, &points, "of each side of the cube; the ranks divide it (32)"},
    {"--iterations", OPTION_NUMBER, &iterations, "how many (60)"},
    {"--seed", OPTION_NUMBER, &seed, "of the right-hand side (1)"},
    {0},
};

/* Points of a plane, planes of this rank, and what that makes. */
static size_t plane, planes, mine;

static double *vector(void)
{
	/* A plane of each neighbour's on either side. */
	double *all = calloc(mine + 2 * plane, sizeof(double));

	if (!all)
		fail("out of memory");
	return all + plane;
}

static double dot(const double *x, const double *y)
{
	double own = 0, sum;

	for (size_t i = 0; i < mine; i++)
		own += x[i] * y[i];
	MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return sum;
}

/* The planes beside this rank's, from its neighbours; zeros beyond the cube. */
static void exchange(double *x)
{
	int below = world_rank ? world_rank - 1 : MPI_PROC_NULL;
	int above = world_rank < world_size - 1 ? world_rank + 1 : MPI_PROC_NULL;
	int count = (int)plane;

	MPI_Sendrecv(x, count, MPI_DOUBLE, below, 1, x + mine, count, MPI_DOUBLE, above, 1,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Sendrecv(x + mine - plane, count, MPI_DOUBLE, above, 2, x - plane, count, MPI_DOUBLE,
		     below, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void apply(double *x, double *y)
{
	size_t side = (size_t)points;

	exchange(x);
	for (size_t i = 0; i < mine; i++) {
		size_t column = i % side, row = i / side % side;
		double sum = 6 * x[i] - x[i - plane] - x[i + plane];

		sum -= (row ? x[i - side] : 0) + (row < side - 1 ? x[i + side] : 0);
		sum -= (column ? x[i - 1] : 0) + (column < side - 1 ? x[i + 1] : 0);
		y[i] = sum;
	}
}

int main(int argc, char **argv)
{
	uint64_t history = 0;
	double square, first;

	program_start("cg", &argc, &argv, options);
	if (points < 2 || points % world_size)
		fail("%d ranks do not divide %ld points", world_size, points);
	plane = (size_t)(points * points);
	planes = (size_t)(points / world_size);
	mine = plane * planes;

	double *x = vector(), *r = vector(), *p = vector(), *q = vector();

	for (size_t i = 0; i < mine; i++) {
		size_t place = (size_t)world_rank * mine + i;
		struct random random = random_start((uint64_t)seed, place, 0);

		p[i] = r[i] = (double)(random_next(&random) >> 11) * 0x1p-53 - 0.5;
	}
	watch(PATIENCE, "the first residual");
	first = square = dot(r, r);
	for (long iteration = 0; iteration < iterations; iteration++) {
		double alpha, before = square;
		uint64_t bits;

		watch(PATIENCE, "iteration %ld", iteration);
		apply(p, q);
		alpha = square / dot(p, q);
		for (size_t i = 0; i < mine; i++) {
			x[i] += alpha * p[i];
			r[i] -= alpha * q[i];
		}
		square = dot(r, r);
		for (size_t i = 0; i < mine; i++)
			p[i] = r[i] + square / before * p[i];
		memcpy(&bits, &square, sizeof(bits));
		history = random_mix(history ^ bits);
	}
	if (!(square < first))
		fail("the residual does not fall: %g, then %g", sqrt(first), sqrt(square));
	say("cg: %ld iterations, residual %.3e of %.3e, history %016llx, %d ranks", iterations,
	    sqrt(square), sqrt(first), (unsigned long long)history, world_size);
	free(x - plane);
	free(r - plane);
	free(p - plane);
	free(q - plane);
	watch(0, "MPI_Finalize");
	MPI_Finalize();
	return 0;
}
