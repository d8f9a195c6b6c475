/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "map.h"

#include <string.h>

MPI_Datatype map_basic(size_t element)
{
	if (element == 1)
		return MPI_BYTE;
	return element == 4 ? MPI_INT : MPI_DOUBLE;
}

/* Element numbers, in steps of the element, by kind. */
static size_t slot(enum map_kind kind, size_t element, size_t elements)
{
	switch (kind) {
	case MAP_VECTOR:
		return 2 * element;
	case MAP_STRUCT:
		return element < elements / 2 ? element : element + 3;
	case MAP_BACKWARDS:
		return elements - 1 - element;
	default:
		return element;
	}
}

static void make_struct(struct map *map, MPI_Datatype basic)
{
	int n = (int)map->elements, lengths[2] = {n / 2, n - n / 2};
	MPI_Aint places[2] = {0, (MPI_Aint)map->at[n / 2]};
	MPI_Datatype types[2] = {basic, basic};

	MPI_Type_create_struct(2, lengths, places, types, &map->handle);
}

static void make_backwards(struct map *map, MPI_Datatype basic)
{
	int n = (int)map->elements, places[MOST_GRAIN];

	for (int i = 0; i < n; i++)
		places[i] = n - 1 - i;
	MPI_Type_create_indexed_block(n, 1, places, basic, &map->handle);
}

static void make_resized(struct map *map, MPI_Datatype basic)
{
	MPI_Datatype together;

	MPI_Type_contiguous((int)map->elements, basic, &together);
	map->extent += 3 * map->element;
	MPI_Type_create_resized(together, 0, (MPI_Aint)map->extent, &map->handle);
	MPI_Type_free(&together);
}

static void make_handle(struct map *map, enum map_kind kind, MPI_Datatype basic)
{
	int n = (int)map->elements;

	switch (kind) {
	case MAP_VECTOR:
		MPI_Type_vector(n, 1, 2, basic, &map->handle);
		break;
	case MAP_STRUCT:
		make_struct(map, basic);
		break;
	case MAP_BACKWARDS:
		make_backwards(map, basic);
		break;
	case MAP_RESIZED:
		make_resized(map, basic);
		break;
	default:
		MPI_Type_contiguous(n, basic, &map->handle);
	}
	MPI_Type_commit(&map->handle);
	map->made = true;
}

struct map map_make(enum map_kind kind, size_t element, size_t elements)
{
	struct map map = {.handle = map_basic(element), .element = element};

	map.elements = kind == MAP_PLAIN ? 1 : elements;
	for (size_t i = 0; i < map.elements; i++) {
		map.at[i] = slot(kind, i, map.elements) * element;
		if (map.reach < map.at[i] + element)
			map.reach = map.at[i] + element;
	}
	map.extent = map.reach;
	if (kind != MAP_PLAIN)
		make_handle(&map, kind, map.handle);
	return map;
}

struct map map_of_nothing(void)
{
	struct map map = {.made = true, .element = 1, .elements = 1};

	MPI_Type_contiguous(0, MPI_INT, &map.handle);
	MPI_Type_commit(&map.handle);
	return map;
}

void map_free(struct map *map)
{
	if (map->made)
		MPI_Type_free(&map->handle);
	map->made = false;
}

size_t map_span(const struct map *map, size_t elements)
{
	return elements ? (elements / map->elements - 1) * map->extent + map->reach : 0;
}

void map_put(const struct map *map, unsigned char *to, const unsigned char *from, size_t elements)
{
	for (size_t i = 0; i < elements; i++)
		memcpy(to + i / map->elements * map->extent + map->at[i % map->elements],
		       from + i * map->element, map->element);
}
