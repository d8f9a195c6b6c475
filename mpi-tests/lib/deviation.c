/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "deviation.h"

#include <stdio.h>
#include <string.h>

#include "operation.h"

static const char *version(void)
{
	static char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	if (!*text)
		MPI_Get_library_version(text, &length);
	return text;
}

static bool family(const char *name)
{
	return !strncmp(version(), name, strlen(name));
}

/* Intel's is made of it. */
static bool of_mpich(void)
{
	return family("MPICH") || family("Intel(R) MPI");
}

static bool mpich_4(void)
{
	int major;

	return sscanf(version(), "MPICH Version: %d", &major) == 1 && major == 4;
}

/* Names the error of a blocking Reduce of so many bytes, to any root. */
static const char *wrong_reduce(const struct team *team, MPI_Op op, bool in_place, size_t bytes)
{
	int commutes;

	MPI_Op_commutative(op, &commutes);
	/* Each host reduces first, unless it has one rank. Rank 0 then takes its receive buffer for
	 * the answer of its host. */
	if (mpich_4() && commutes && team->lone_zero && !in_place && bytes > 2048)
		return "a Reduce of more than 2 KiB leaves out what rank 0 brings";
	return NULL;
}

/* The error of this operation on integers of this type, whatever the collective. */
static const char *wrong_operation(enum op op, const struct type *type)
{
	bool compares = op == MIN || op == MAX;

	if (family("Open MPI")) {
		/* In its AVX2 and AVX-512 code, which not every machine runs. */
		if (op == SUM && type->size <= 2)
			return "sums of 8- and 16-bit integers saturate";
		if (compares && type->handle == MPI_OFFSET)
			return "MPI_OFFSET is compared as unsigned";
		if (compares && type->handle == MPI_UNSIGNED_LONG)
			return "MPI_UNSIGNED_LONG is compared as signed";
	}
	if (mpich_4() && compares && !type->is_signed)
		return "unsigned integers are compared as signed";
	return NULL;
}

const char *deviation_answer(const struct plan *plan)
{
	const char *wrong = NULL;

	if (plan->team->size == 1 || (plan->collective != ALLREDUCE && plan->collective != REDUCE))
		return NULL;
	if (plan->collective == REDUCE)
		wrong = wrong_reduce(plan->team, elements_op(plan->op), plan->in_place,
				     plan->elements * plan->type->size);
	return wrong ? wrong : wrong_operation(plan->op, plan->type);
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
	if (of_mpich()) {
		/* It reads from the address MPI_IN_PLACE. */
		if (plan->collective == REDUCE && plan->in_place && plan->root && bytes > 2048)
			return "a Reduce in place of more than 2 KiB to another root than 0 "
			       "crashes";
	}
	return NULL;
}

const char *deviation_call_answer(const struct call *call)
{
	const char *wrong = NULL;

	if (call->team->size == 1 || !call->traits->reduces)
		return NULL;
	if (call->form == BLOCKING && call->collective == REDUCE)
		wrong = wrong_reduce(call->team, operation_handle(call->op), call->in_place,
				     call_bytes(call));
	if (wrong)
		return wrong;
	return call->operand->type ? wrong_operation(call->op, call->operand->type) : NULL;
}

static const char *breaks_open_mpi(const struct call *call)
{
	bool mixed = call->units == UNITS_MIXED;
	size_t bytes = call_bytes(call);

	if (call->team->size == 1)
		return NULL;
	/* It chooses by the size of one's datatype times the count of the other's. */
	if (call->form == BLOCKING && mixed && call->collective == ALLGATHERV)
		return "an Allgatherv whose datatypes differ between ranks or sides hangs";
	if (call->form == BLOCKING && mixed && call->collective == BCAST && bytes > 2000)
		return "a large Bcast whose datatype differs between ranks fails or hangs";
	if (call->form == BLOCKING && call->units != UNITS_PLAIN && call->collective == GATHER &&
	    call->team->size > 2)
		return "a Gather of derived datatypes by a tree is wrong";
	if (call->form != BLOCKING && call->in_place && call->collective == ALLTOALLV)
		return "an Ialltoallv in place that is of nothing for a rank lets later operations "
		       "go astray";
	/* It has room for 16 bytes of an element that a fragment ends in. */
	if (call->units != UNITS_PLAIN && call->operand->handle == MPI_C_LONG_DOUBLE_COMPLEX)
		return "a large message of a datatype of MPI_C_LONG_DOUBLE_COMPLEX crashes";
	return NULL;
}

static bool has_padding(const struct operand *operand)
{
	return ~operand->significant & ((2ull << (operand->size - 1)) - 1);
}

static const char *breaks_mpich(const struct call *call)
{
	/* If an element does not end with a piece of 8 KiB. */
	if (call_bytes(call) > 8000 && (call->units != UNITS_PLAIN || has_padding(call->operand)))
		return "a large message of a datatype with gaps may be truncated or lose elements";
	/* It makes room for the size of the datatype, where its extent is needed. */
	if ((call->collective == REDUCE_SCATTER || call->collective == REDUCE_SCATTER_BLOCK) &&
	    call->operand->handle == operation_padded_affine)
		return "a Reduce_scatter of a datatype with padding, by an operation that does not "
		       "commute, writes out of bounds";
	if (call->form == PERSISTENT &&
	    (call->collective == GATHER || call->collective == SCATTER ||
	     call->collective == ALLGATHER))
		return "a persistent Gather, Scatter or Allgather is wrong after its first round";
	if (call->form == BLOCKING && call->units == UNITS_MIXED && call->collective == BCAST &&
	    call_bytes(call) > 2000)
		return "a large Bcast whose datatype differs between ranks may fail";
	if (call->collective == ALLGATHERV && call->team->size == 1)
		return "an Allgatherv by one rank alone ignores the displacement";
	if (call->collective == REDUCE && call->in_place && call->root && call_bytes(call) > 2048)
		return "a Reduce in place of more than 2 KiB to another root than 0 crashes";
	return NULL;
}

const char *deviation_call_break(const struct call *call)
{
	if (family("Open MPI"))
		return breaks_open_mpi(call);
	return of_mpich() ? breaks_mpich(call) : NULL;
}

bool deviation_inactive(void)
{
	/* MPI_Testall even fails with them. */
	return of_mpich();
}

bool deviation_get_status(void)
{
	return of_mpich() && !mpich_4();
}

bool deviation_free(void)
{
	return family("Open MPI");
}

/* Whether the call lets blocks go to neighbours, a block of its own to each. */
static bool differs_by_neighbour(const struct exchange_call *call)
{
	return exchange_traits[call->kind].neighbour && !exchange_traits[call->kind].by_source;
}

static const char *wrong_in_open_mpi(const struct exchange_call *call, const struct place *place)
{
	if (differs_by_neighbour(call) && place->wraps_short && call->form != BLOCKING)
		return "neighbours on both sides that are one rank: without blocking, blocks come "
		       "to the wrong side";
	/* Seen where the groups differ in size. */
	if (call->kind == X_SCATTERV && place->is_inter)
		return "a Scatterv between groups of unlike sizes truncates";
	/* It counts the ranks of its own group, not of the other. */
	if (call->kind == X_ALLTOALLW && place->is_inter && call->form != BLOCKING)
		return "an Ialltoallw between groups may crash";
	/* It counts neighbours, not ranks. */
	if (family("Open MPI v4") && call->kind == X_ALLTOALLW && place->has_topology &&
	    call->form != BLOCKING)
		return "an Ialltoallw on a communicator with a topology crashes";
	if (call->kind == X_ALLTOALLW && !place->is_inter && place->n_local == 1)
		return "an Alltoallw by one rank alone takes displacements for multiples of the "
		       "extent";
	if (call->in_place && call->form != BLOCKING &&
	    (call->kind == X_ALLTOALLV || call->kind == X_ALLTOALLW))
		return "an Ialltoallv or Ialltoallw in place that is of nothing for a rank lets "
		       "later operations go astray";
	return NULL;
}

static const char *wrong_in_mpich_4(const struct exchange_call *call, const struct place *place)
{
	if (call->kind != X_NEIGHBOR_ALLTOALL && differs_by_neighbour(call) && place->wraps_short)
		return "neighbours on both sides that are one rank: blocks of unlike lengths or "
		       "types come to the wrong side";
	if (call->kind == X_NEIGHBOR_ALLTOALL && place->repeats)
		return "several edges between two: a Neighbor_alltoall matches them in reverse";
	return NULL;
}

static const char *wrong_in_intel(const struct exchange_call *call, const struct place *place)
{
	if (differs_by_neighbour(call) && place->wraps_short)
		return "neighbours on both sides that are one rank: blocks come to the wrong side";
	return NULL;
}

const char *deviation_exchange(const struct exchange_call *call, const struct place *place)
{
	if (call->nothings)
		return "a message of nothing that one end counts as 0 and the other as several "
		       "elements of no bytes";
	if (family("Open MPI"))
		return wrong_in_open_mpi(call, place);
	if (of_mpich() && call->kind == X_ALLTOALLW && call->in_place && call->form != BLOCKING)
		return "an Ialltoallw in place, or a persistent one";
	if (of_mpich() && call->derived && call->bytes > 8000)
		return "a large message of a datatype with gaps may be truncated or lose elements";
	if (mpich_4())
		return wrong_in_mpich_4(call, place);
	return family("Intel(R) MPI") ? wrong_in_intel(call, place) : NULL;
}

bool deviation_distributed(void)
{
	return family("MPICH") && !mpich_4();
}

bool deviation_reorder(void)
{
	return family("Open MPI v4");
}
