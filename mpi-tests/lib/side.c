/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "side.h"

#include <stdlib.h>
#include <string.h>

const char *unit_name(enum unit_kind kind)
{
	static const char *const names[UNITS] = {"plain", "contiguous", "vector", "backwards",
						 "column"};

	return names[kind];
}

static void *array(size_t n, size_t size)
{
	void *place = calloc(n ? n : 1, size);

	if (!place)
		abort();
	return place;
}

/* Puts the blocks into some order, with gaps. Returns the number of units that they span. */
static size_t lay_out(struct side *side, bool scattered, struct random *local)
{
	int *order = array((size_t)side->blocks, sizeof(int));
	size_t end = 0;

	for (int i = 0; i < side->blocks; i++) {
		int j = scattered ? (int)random_below(local, (uint64_t)i + 1) : i;

		order[i] = order[j];
		order[j] = i;
	}
	for (int i = 0; i < side->blocks; i++) {
		int block = order[i];

		if (scattered)
			end += random_below(local, 4);
		side->first[block] = end;
		end += (size_t)side->counts[block];
	}
	if (scattered && random_below(local, 2))
		side->origin = random_below(local, end + 1);
	free(order);
	return end;
}

static size_t elements_apart(const struct side *side, size_t units)
{
	switch (side->unit.kind) {
	case UNIT_VECTOR:
	case UNIT_BACKWARDS:
		return 1 + side->unit.gap;
	case UNIT_COLUMN:
		return units + 1; /* a row of the matrix */
	default:
		return 1;
	}
}

static MPI_Datatype make_type(const struct side *side)
{
	MPI_Datatype of = side->operand->handle, handle, column;
	int n = (int)side->unit.elements, apart = (int)(side->apart / side->operand->size);
	int *places;

	switch (side->unit.kind) {
	case UNIT_CONTIGUOUS:
		MPI_Type_contiguous(n, of, &handle);
		break;
	case UNIT_VECTOR:
		MPI_Type_vector(n, 1, apart, of, &handle);
		break;
	case UNIT_BACKWARDS:
		places = array((size_t)n, sizeof(int));
		for (int i = 0; i < n; i++)
			places[i] = (n - 1 - i) * apart;
		MPI_Type_create_indexed_block(n, 1, places, of, &handle);
		free(places);
		break;
	case UNIT_COLUMN:
		MPI_Type_vector(n, 1, apart, of, &column);
		MPI_Type_create_resized(column, 0, (MPI_Aint)side->operand->size, &handle);
		MPI_Type_free(&column);
		break;
	default:
		MPI_Type_dup(of, &handle);
	}
	return handle;
}

/* The same datatype, with the buffer's address in it. */
static void make_absolute(struct side *side)
{
	MPI_Datatype relative = side->handle;
	MPI_Aint address;
	int one = 1;

	MPI_Get_address(side->address, &address);
	MPI_Type_create_hindexed(1, &one, &address, relative, &side->handle);
	MPI_Type_free(&relative);
	side->address = MPI_BOTTOM;
}

void side_make(struct side *side, const struct operand *operand, const struct unit_choice *unit,
	       int blocks, const size_t *elements, bool scattered, struct random *local)
{
	size_t n = (size_t)blocks, units;
	struct image image = side->image;

	*side = (struct side){.operand = operand, .unit = *unit, .image = image, .blocks = blocks};
	side->elements = array(n, sizeof(size_t));
	side->first = array(n, sizeof(size_t));
	side->counts = array(n, sizeof(int));
	side->displs = array(n, sizeof(int));
	side->large_counts = array(n, sizeof(MPI_Count));
	side->large_displs = array(n, sizeof(MPI_Aint));
	for (int i = 0; i < blocks; i++) {
		side->elements[i] = elements[i];
		side->counts[i] = (int)(elements[i] / unit->elements);
		side->large_counts[i] = side->counts[i];
	}
	side->count = blocks ? side->counts[0] : 0;
	units = lay_out(side, scattered, local);
	for (int i = 0; i < blocks; i++) {
		side->displs[i] = (int)side->first[i] - (int)side->origin;
		side->large_displs[i] = side->displs[i];
	}

	side->apart = elements_apart(side, units) * operand->size;
	side->stride = (unit->elements - 1) * side->apart + operand->size;
	side->bytes = side->stride;
	if (unit->kind == UNIT_COLUMN)
		side->stride = operand->size;
	side->bytes = units ? (units - 1) * side->stride + side->bytes : 0;
	side->shift = random_below(local, 4) * operand->size;
	side_clear(side);
	side->address = side->image.data + side->origin * side->stride;
	side->handle = operand->handle;
	if (unit->kind == UNIT_PLAIN && !unit->absolute)
		return;
	side->handle = make_type(side);
	if (unit->absolute)
		make_absolute(side);
	MPI_Type_commit(&side->handle);
}

void side_free(struct side *side)
{
	if (side->operand && side->handle != MPI_DATATYPE_NULL &&
	    side->handle != side->operand->handle)
		MPI_Type_free(&side->handle);
	free(side->elements);
	free(side->first);
	free(side->counts);
	free(side->displs);
	free(side->large_counts);
	free(side->large_displs);
	*side = (struct side){.image = side->image};
}

void side_clear(struct side *side)
{
	image_prepare(&side->image, side->bytes, side->shift);
}

size_t side_position(const struct side *side, int block, size_t element)
{
	size_t in_unit = side->unit.elements, unit = side->first[block] + element / in_unit;
	size_t at = element % in_unit;

	if (side->unit.kind == UNIT_BACKWARDS)
		at = in_unit - 1 - at;
	return unit * side->stride + at * side->apart;
}

void side_put(const struct side *side, struct image *image, int block, const void *elements,
	      size_t count)
{
	size_t size = side->operand->size;

	if (!count)
		return;
	if (side->unit.kind == UNIT_PLAIN || side->unit.kind == UNIT_CONTIGUOUS) {
		memcpy(image->data + side_position(side, block, 0), elements, count * size);
		return;
	}
	for (size_t i = 0; i < count; i++)
		memcpy(image->data + side_position(side, block, i),
		       (const char *)elements + i * size, size);
}
