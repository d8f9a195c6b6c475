/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "costs.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "program.h"

static int first_of_host;

void find_first_of_host(void)
{
	MPI_Comm host;
	int rank;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_rank, MPI_INFO_NULL, &host);
	MPI_Comm_rank(host, &rank);
	MPI_Comm_free(&host);
	first_of_host = rank == 0;
}

void read_costs(double costs[COSTS])
{
	struct rusage usage;
	char line[512];
	FILE *devices;

	memset(costs, 0, COSTS * sizeof(*costs));
	getrusage(RUSAGE_SELF, &usage);
	costs[CPU] = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
		     (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	devices = first_of_host ? fopen("/proc/self/net/dev", "r") : NULL;
	while (devices && fgets(line, sizeof(line), devices)) {
		char *numbers = strchr(line, ':');
		double bytes, frames;

		if (!numbers || !strncmp(line + strspn(line, " "), "lo:", 3))
			continue;
		/* Eight numbers of what came in, then what went out. */
		if (sscanf(numbers + 1, "%*s %*s %*s %*s %*s %*s %*s %*s %lf %lf", &bytes,
			   &frames) == 2) {
			costs[BYTES] += bytes;
			costs[FRAMES] += frames;
		}
	}
	if (devices)
		fclose(devices);
}
