/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Fourier transforms of a cube of complex numbers there and back, by FFTW over MPI, as in each step
 * of a spectral method. The cube must come back unchanged.
 *
 *     fft SIDE STEPS
 */
#include <fftw3-mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double value(ptrdiff_t at)
{
	return (double)(at % 97) / 97;
}

int main(int argc, char **argv)
{
	ptrdiff_t side = argc > 1 ? atol(argv[1]) : 64;
	long steps = argc > 2 ? atol(argv[2]) : 20;
	ptrdiff_t mine, first, room, points;
	double wrong = 0, scale = 1.0 / ((double)side * side * side);
	fftw_plan there, back;
	fftw_complex *cube;
	int rank;

	MPI_Init(&argc, &argv);
	fftw_mpi_init();
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	room = fftw_mpi_local_size_3d(side, side, side, MPI_COMM_WORLD, &mine, &first);
	points = mine * side * side;
	cube = fftw_alloc_complex(room);
	/* Not measured: each run shall do the same. */
	there = fftw_mpi_plan_dft_3d(side, side, side, cube, cube, MPI_COMM_WORLD, FFTW_FORWARD,
				     FFTW_ESTIMATE);
	back = fftw_mpi_plan_dft_3d(side, side, side, cube, cube, MPI_COMM_WORLD, FFTW_BACKWARD,
				    FFTW_ESTIMATE);
	for (ptrdiff_t at = 0; at < points; at++) {
		cube[at][0] = value(first * side * side + at);
		cube[at][1] = 0;
	}
	for (long step = 0; step < steps; step++) {
		fftw_execute(there);
		fftw_execute(back);
		for (ptrdiff_t at = 0; at < points; at++) {
			cube[at][0] *= scale;
			cube[at][1] *= scale;
		}
	}
	for (ptrdiff_t at = 0; at < points; at++) {
		double off = cube[at][0] - value(first * side * side + at);

		wrong = fmax(wrong, hypot(off, cube[at][1]));
	}
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0)
		printf("fft: off by %.1e at most\n", wrong);
	fftw_destroy_plan(there);
	fftw_destroy_plan(back);
	fftw_free(cube);
	MPI_Finalize();
	return wrong < 1e-10 ? 0 : 1;
}
