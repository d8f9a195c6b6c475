/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "elements.h"

#include <stdlib.h>
#include <string.h>

#include "random.h"

enum {
	ARITHMETIC = 1 << SUM | 1 << PROD | 1 << MIN | 1 << MAX,
	BITWISE = 1 << BAND | 1 << BOR | 1 << BXOR,
	LOGICAL = 1 << LAND | 1 << LOR | 1 << LXOR,

	/* MPI-4.0, 6.9.2: logical operations are for C integers and Fortran logicals only. */
	C_INTEGER = ARITHMETIC | BITWISE | LOGICAL,
	FORTRAN_INTEGER = ARITHMETIC | BITWISE,
	MULTI_LANGUAGE = ARITHMETIC | BITWISE,
	BYTE = BITWISE,
	MOVED = 0, /* not reduced here: no integer, or (MPI_CHAR) no operation allowed */
};

static struct type table[64];

static void add(int *n, const char *name, MPI_Datatype handle, bool is_signed, unsigned ops)
{
	int size;

	if (handle == MPI_DATATYPE_NULL)
		return;
	MPI_Type_size(handle, &size);
	/* Open MPI has a type of size 0 in the place of one that its Fortran compiler lacks. */
	if (size == 0)
		return;
	table[(*n)++] = (struct type){name, handle, (size_t)size, is_signed, ops};
}

int elements_types(const struct type **types, int *reducible)
{
	int n = 0;

#define ADD(type, is_signed, ops) add(&n, #type, type, is_signed, ops)
	ADD(MPI_SIGNED_CHAR, true, C_INTEGER);
	ADD(MPI_UNSIGNED_CHAR, false, C_INTEGER);
	ADD(MPI_SHORT, true, C_INTEGER);
	ADD(MPI_UNSIGNED_SHORT, false, C_INTEGER);
	ADD(MPI_INT, true, C_INTEGER);
	ADD(MPI_UNSIGNED, false, C_INTEGER);
	ADD(MPI_LONG, true, C_INTEGER);
	ADD(MPI_UNSIGNED_LONG, false, C_INTEGER);
	ADD(MPI_LONG_LONG_INT, true, C_INTEGER);
	ADD(MPI_UNSIGNED_LONG_LONG, false, C_INTEGER);
	ADD(MPI_INT8_T, true, C_INTEGER);
	ADD(MPI_INT16_T, true, C_INTEGER);
	ADD(MPI_INT32_T, true, C_INTEGER);
	ADD(MPI_INT64_T, true, C_INTEGER);
	ADD(MPI_UINT8_T, false, C_INTEGER);
	ADD(MPI_UINT16_T, false, C_INTEGER);
	ADD(MPI_UINT32_T, false, C_INTEGER);
	ADD(MPI_UINT64_T, false, C_INTEGER);
	ADD(MPI_AINT, true, MULTI_LANGUAGE);
	ADD(MPI_OFFSET, true, MULTI_LANGUAGE);
	ADD(MPI_COUNT, true, MULTI_LANGUAGE);
	ADD(MPI_INTEGER, true, FORTRAN_INTEGER);
	ADD(MPI_INTEGER1, true, FORTRAN_INTEGER);
	ADD(MPI_INTEGER2, true, FORTRAN_INTEGER);
	ADD(MPI_INTEGER4, true, FORTRAN_INTEGER);
	ADD(MPI_INTEGER8, true, FORTRAN_INTEGER);
	ADD(MPI_BYTE, false, BYTE);
	*reducible = n;
	ADD(MPI_CHAR, true, MOVED);
	ADD(MPI_WCHAR, true, MOVED);
	ADD(MPI_C_BOOL, false, MOVED);
	ADD(MPI_FLOAT, true, MOVED);
	ADD(MPI_DOUBLE, true, MOVED);
	/* No MPI_LONG_DOUBLE: 6 of its 16 bytes are padding, which MPI need not keep. */
	ADD(MPI_C_DOUBLE_COMPLEX, true, MOVED);
#undef ADD
	*types = table;
	return n;
}

const char *elements_op_name(enum op op)
{
	static const char *const names[OPS] = {"MPI_SUM",  "MPI_PROD", "MPI_MIN",  "MPI_MAX",
					       "MPI_BAND", "MPI_BOR",  "MPI_BXOR", "MPI_LAND",
					       "MPI_LOR",  "MPI_LXOR"};

	return names[op];
}

MPI_Op elements_op(enum op op)
{
	switch (op) {
	case SUM:
		return MPI_SUM;
	case PROD:
		return MPI_PROD;
	case MIN:
		return MPI_MIN;
	case MAX:
		return MPI_MAX;
	case BAND:
		return MPI_BAND;
	case BOR:
		return MPI_BOR;
	case BXOR:
		return MPI_BXOR;
	case LAND:
		return MPI_LAND;
	case LOR:
		return MPI_LOR;
	case LXOR:
		return MPI_LXOR;
	default:
		abort();
	}
}

static uint64_t load(const void *from, size_t size)
{
	uint64_t bits = 0;

	memcpy(&bits, from, size < 8 ? size : 8); /* little-endian, like every host so far */
	return bits;
}

static void store(void *to, uint64_t bits, size_t size)
{
	memcpy(to, &bits, size);
}

uint64_t elements_bits(const void *from, const struct type *type)
{
	return load(from, type->size);
}

static uint64_t flavoured(enum flavour flavour, uint64_t bits, const struct type *type)
{
	uint64_t top = 1ull << (8 * type->size - 1);

	switch (flavour) {
	case FLAVOUR_SMALL:
		return type->is_signed ? (bits & 15) - 8 : bits & 15;
	case FLAVOUR_EXTREME: {
		const uint64_t ends[8] = {0, 1, ~0ull, ~1ull, top, top - 1, top + 1, top - 2};

		return ends[bits & 7];
	}
	case FLAVOUR_SPARSE:
		/* Never by the bits that remain: an element is 0, or anything. */
		return random_mix(bits) & 3 ? 0 : bits;
	default:
		return bits;
	}
}

void elements_input(void *to, const struct type *type, size_t count, enum flavour flavour,
		    uint64_t seed, uint64_t call, int rank)
{
	struct random random = random_start(seed, call, 0x1000u + (uint64_t)rank);
	size_t bytes = count * type->size;
	char *at = to;

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t bits = random_next(&random);

		memcpy(at + i, &bits, bytes - i < 8 ? bytes - i : 8);
	}
	if (flavour == FLAVOUR_ANY || type->size > 8)
		return;
	for (size_t i = 0; i < count; i++, at += type->size)
		store(at, flavoured(flavour, load(at, type->size), type), type->size);
}

static int64_t sign_extend(uint64_t bits, size_t size)
{
	unsigned shift = 64 - 8 * (unsigned)size;

	return (int64_t)(bits << shift) >> shift;
}

static bool less(uint64_t a, uint64_t b, const struct type *type)
{
	if (type->is_signed)
		return sign_extend(a, type->size) < sign_extend(b, type->size);
	return a < b;
}

/* Unsigned arithmetic: its low bits are the same in two's-complement arithmetic of any width. */
static inline uint64_t fold(uint64_t a, uint64_t b, const struct type *type, enum op op)
{
	switch (op) {
	case SUM:
		return a + b;
	case PROD:
		return a * b;
	case MIN:
		return less(b, a, type) ? b : a;
	case MAX:
		return less(a, b, type) ? b : a;
	case BAND:
		return a & b;
	case BOR:
		return a | b;
	case BXOR:
		return a ^ b;
	case LAND:
		return a && b;
	case LOR:
		return a || b;
	case LXOR:
		return !a != !b;
	default:
		abort();
	}
}

void elements_fold(void *to, const void *from, const struct type *type, size_t count, enum op op)
{
	size_t size = type->size;
	const char *in = from;
	char *out = to;

	for (size_t i = 0; i < count; i++, in += size, out += size)
		store(out, fold(load(out, size), load(in, size), type, op), size);
}
