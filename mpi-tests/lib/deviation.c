/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "deviation.h"

#include <string.h>

static bool family(const char *name)
{
	static char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	if (!*version)
		MPI_Get_library_version(version, &length);
	return !strncmp(version, name, strlen(name));
}

const char *deviation_answer(const struct plan *plan)
{
	MPI_Datatype handle = plan->type->handle;
	bool compares = plan->op == MIN || plan->op == MAX;

	if (plan->team->size == 1 || (plan->collective != ALLREDUCE && plan->collective != REDUCE))
		return NULL;
	if (family("Open MPI")) {
		/* In its AVX2 and AVX-512 code, which not every machine runs. */
		if (plan->op == SUM && plan->type->size <= 2)
			return "sums of 8- and 16-bit integers saturate";
		if (compares && handle == MPI_OFFSET)
			return "MPI_OFFSET is compared as unsigned";
		if (compares && handle == MPI_UNSIGNED_LONG)
			return "MPI_UNSIGNED_LONG is compared as signed";
	}
	if (family("MPICH") && compares && !plan->type->is_signed)
		return "unsigned integers are compared as signed";
	return NULL;
}

const char *deviation_break(const struct plan *plan)
{
	size_t bytes = plan->elements * plan->type->size;

	if (plan->team->size == 1)
		return NULL;
	if (family("Open MPI")) {
		/* It cuts messages up by elements of each rank's own datatype. */
		if (plan->collective == BCAST && plan->signature == SIGNATURE_MIXED && bytes > 2000)
			return "a large Bcast whose datatype differs between ranks fails or hangs";
	}
	if (family("MPICH")) {
		/* It reads from the address MPI_IN_PLACE. */
		if (plan->collective == REDUCE && plan->in_place && plan->root && bytes > 2048)
			return "a Reduce in place of more than 2 KiB to another root than 0 "
			       "crashes";
	}
	return NULL;
}
