/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "layout.h"

#include <string.h>

enum { MOST_BLOCKS = 1024 };

const char *layout_name(enum layout_kind kind)
{
	static const char *const names[LAYOUTS] = {"plain", "contiguous", "vector", "backwards"};

	return names[kind];
}

/* A divisor of `elements` that leaves at most MOST_BLOCKS blocks, or 0. */
static size_t choose_block(size_t elements, struct random *random)
{
	static const size_t candidates[] = {1, 2, 3, 4, 5, 7, 8, 16, 100};
	size_t found[sizeof(candidates) / sizeof(*candidates) + 1];
	size_t n = 0;

	for (size_t i = 0; i < sizeof(candidates) / sizeof(*candidates); i++)
		if (elements % candidates[i] == 0 && elements / candidates[i] <= MOST_BLOCKS)
			found[n++] = candidates[i];
	found[n++] = elements;
	return found[random_below(random, n)];
}

static MPI_Datatype backwards(const struct layout *layout, MPI_Datatype of)
{
	int blocks = (int)(layout->elements / layout->block);
	int displacements[MOST_BLOCKS];
	MPI_Datatype handle;

	for (int i = 0; i < blocks; i++)
		displacements[i] = (blocks - 1 - i) * (int)(layout->block + layout->gap);
	MPI_Type_create_indexed_block(blocks, (int)layout->block, displacements, of, &handle);
	return handle;
}

struct layout layout_make(enum layout_kind kind, const struct type *type, size_t elements,
			  struct random *random)
{
	struct layout layout = {.kind = elements ? kind : LAYOUT_PLAIN,
				.handle = type->handle,
				.count = (int)elements,
				.elements = elements,
				.size = type->size,
				.block = elements};
	int block;

	if (layout.kind == LAYOUT_PLAIN)
		return layout;
	layout.block = choose_block(elements, random);
	layout.count = 1;
	block = (int)layout.block;
	switch (kind) {
	case LAYOUT_CONTIGUOUS:
		MPI_Type_contiguous(block, type->handle, &layout.handle);
		layout.count = (int)(elements / layout.block);
		break;
	case LAYOUT_VECTOR:
		layout.gap = 1 + random_below(random, 3);
		MPI_Type_vector((int)(elements / layout.block), block, block + (int)layout.gap,
				type->handle, &layout.handle);
		break;
	default:
		layout.gap = random_below(random, 3);
		layout.handle = backwards(&layout, type->handle);
		break;
	}
	MPI_Type_commit(&layout.handle);
	return layout;
}

void layout_free(struct layout *layout)
{
	if (layout->kind != LAYOUT_PLAIN)
		MPI_Type_free(&layout->handle);
}

size_t layout_bytes(const struct layout *layout)
{
	size_t blocks = layout->block ? layout->elements / layout->block : 0;

	return blocks ? (blocks * (layout->block + layout->gap) - layout->gap) * layout->size : 0;
}

size_t layout_position(const struct layout *layout, size_t element)
{
	size_t block = element / layout->block;

	if (layout->kind == LAYOUT_BACKWARDS)
		block = layout->elements / layout->block - 1 - block;
	return (block * (layout->block + layout->gap) + element % layout->block) * layout->size;
}

void layout_scatter(const struct layout *layout, void *to, const void *from)
{
	for (size_t i = 0; i < layout->elements; i += layout->block)
		memcpy((char *)to + layout_position(layout, i),
		       (const char *)from + i * layout->size, layout->block * layout->size);
}
