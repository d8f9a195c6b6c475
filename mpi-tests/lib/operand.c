/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "operand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"
#include "random.h"

enum {
	TRUTHS = 1 << LAND | 1 << LOR | 1 << LXOR,
	REALS = 1 << SUM | 1 << PROD | 1 << MIN | 1 << MAX,
	COMPLEXES = 1 << SUM | 1 << PROD,
	PAIRS = 1 << MINLOC | 1 << MAXLOC,
	MATRICES = 1 << OWN_ADD | 1 << OWN_MULTIPLY,
};

static struct operand table[128];

static uint64_t bytes_mask(size_t from, size_t bytes)
{
	return (bytes < 64 ? (1ull << bytes) - 1 : ~0ull) << from;
}

/* Types that this MPI lacks are left out: null handles, and in Open MPI types of size 0. */
static struct operand *add(int *n, const char *name, MPI_Datatype handle, enum value value,
			   unsigned operations)
{
	static struct operand dropped;
	MPI_Aint low, extent;
	int size = 0;

	if (handle != MPI_DATATYPE_NULL)
		MPI_Type_size(handle, &size);
	if (size == 0)
		return &dropped;
	MPI_Type_get_extent(handle, &low, &extent);
	table[*n] = (struct operand){.name = name,
				     .handle = handle,
				     .size = (size_t)extent,
				     .significant = bytes_mask(0, (size_t)extent),
				     .value = value,
				     .width = (size_t)extent,
				     .operations = operations};
	return &table[(*n)++];
}

static void add_integers(int *n, bool reducible)
{
	const struct type *types;
	int n_reducible, n_types = elements_types(&types, &n_reducible);

	for (int i = 0; i < n_types; i++) {
		bool counts = types[i].handle == MPI_INT64_T, first = types[i].handle == MPI_INT;
		unsigned operations = types[i].ops;

		/* Floating point is in both tables. */
		if (reducible != (i < n_reducible) || types[i].handle == MPI_FLOAT ||
		    types[i].handle == MPI_DOUBLE || types[i].handle == MPI_C_BOOL)
			continue;
		if (counts)
			operations |= 1u << OWN_COUNT;
		if (first)
			operations |= 1u << OWN_FIRST;
		add(n, types[i].name, types[i].handle, INTEGER, operations)->type = &types[i];
	}
}

#define ADD(handle, value, operations) add(n, #handle, handle, value, operations)

static void add_floating_point(int *n)
{
	enum { EXTENDED = 10 }; /* bytes of an x87 long double that count */
	struct operand *long_double, *long_double_complex;
	bool x87 = sizeof(long double) == 16;

	ADD(MPI_C_BOOL, TRUTH, TRUTHS);
	ADD(MPI_LOGICAL, TRUTH, TRUTHS);
	ADD(MPI_FLOAT, REAL, REALS);
	ADD(MPI_DOUBLE, REAL, REALS);
	ADD(MPI_REAL, REAL, REALS);
	ADD(MPI_DOUBLE_PRECISION, REAL, REALS);
	ADD(MPI_REAL4, REAL, REALS);
	ADD(MPI_REAL8, REAL, REALS);
	ADD(MPI_C_FLOAT_COMPLEX, COMPLEX, COMPLEXES)->width = 4;
	ADD(MPI_C_DOUBLE_COMPLEX, COMPLEX, COMPLEXES)->width = 8;
	ADD(MPI_COMPLEX, COMPLEX, COMPLEXES)->width = 4;
	ADD(MPI_DOUBLE_COMPLEX, COMPLEX, COMPLEXES)->width = 8;
	long_double = ADD(MPI_LONG_DOUBLE, REAL, REALS);
	long_double_complex = ADD(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX, COMPLEXES);
	long_double_complex->width = sizeof(long double);
	if (x87) {
		long_double->significant = bytes_mask(0, EXTENDED);
		long_double_complex->significant =
		    bytes_mask(0, EXTENDED) | bytes_mask(16, EXTENDED);
	}
}

static void add_pair(int *n, const char *name, MPI_Datatype handle, size_t width, bool real,
		     size_t second_width, bool second_real)
{
	struct operand *pair = add(n, name, handle, PAIR, PAIRS);
	size_t counts = real && width == 16 ? 10 : width;

	/* As a C compiler lays it out. */
	pair->width = width;
	pair->second = (width + second_width - 1) / second_width * second_width;
	pair->real[0] = real;
	pair->real[1] = second_real;
	pair->significant = bytes_mask(0, counts) | bytes_mask(pair->second, second_width);
}

static void add_pairs(int *n)
{
#define C_PAIR(handle, width, real) add_pair(n, #handle, handle, width, real, sizeof(int), false)
#define FORTRAN_PAIR(handle, width, real) add_pair(n, #handle, handle, width, real, width, real)
	C_PAIR(MPI_2INT, sizeof(int), false);
	C_PAIR(MPI_SHORT_INT, sizeof(short), false);
	C_PAIR(MPI_LONG_INT, sizeof(long), false);
	C_PAIR(MPI_FLOAT_INT, sizeof(float), true);
	C_PAIR(MPI_DOUBLE_INT, sizeof(double), true);
	C_PAIR(MPI_LONG_DOUBLE_INT, sizeof(long double), true);
	FORTRAN_PAIR(MPI_2INTEGER, 4, false);
	FORTRAN_PAIR(MPI_2REAL, 4, true);
	FORTRAN_PAIR(MPI_2DOUBLE_PRECISION, 8, true);
#undef C_PAIR
#undef FORTRAN_PAIR
}

static void add_own(int *n)
{
	struct operand *padded;

	add(n, "affine maps", operation_affine, AFFINE, 1 << OWN_CHAIN)->width = 4;
	padded = add(n, "padded affine maps", operation_padded_affine, AFFINE, 1 << OWN_CHAIN);
	padded->width = 8;
	padded->significant = bytes_mask(0, 12);
	add(n, "matrices", operation_matrix, MATRIX, MATRICES)->width = 4;
}

int operands_make(const struct operand **operands, int *reducible)
{
	int n = 0;

	add_integers(&n, true);
	add_floating_point(&n);
	add_pairs(&n);
	add_own(&n);
	*reducible = n;
	add_integers(&n, false);
	*operands = table;
	return n;
}

static long double real_input(enum op op, uint64_t bits)
{
	static const long double factors[4] = {1, -1, 2, 0.5L};

	if (op == PROD)
		return factors[bits & 3];
	/* Eighths: sums are exact in 24 bits. */
	return (long double)((int)(bits & 4095) - 2048) / 8;
}

static void one_input(char *to, const struct operand *operand, enum flavour flavour, enum op op,
		      uint64_t bits)
{
	static const signed char units[4][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
	size_t width = operand->width;

	switch (operand->value) {
	case TRUTH:
		number_store(to, width, false, flavour == FLAVOUR_SPARSE ? !(bits & 7) : bits & 1);
		break;
	case REAL:
		number_store(to, width, true, real_input(op, bits));
		break;
	case COMPLEX:
		for (size_t i = 0; i < 2; i++)
			number_store(to + i * width, width, true,
				     op == PROD ? units[bits & 3][i]
						: real_input(SUM, bits >> 16 * i));
		break;
	case PAIR:
		/* Few values: ties between ranks, now and then with one index too. */
		number_store(to, width, operand->real[0],
			     flavour == FLAVOUR_ANY ? real_input(SUM, bits) * 8
						    : (int)(bits & 3) - 1);
		number_store(to + operand->second, operand->real[1] ? width : 4, operand->real[1],
			     (int)(bits >> 32 & 63) - 3);
		break;
	default:
		break; /* any bits do */
	}
}

void operand_input(void *to, const struct operand *operand, size_t count, enum flavour flavour,
		   enum op op, uint64_t seed, uint64_t call, uint64_t stream)
{
	struct random random = random_start(seed, call, 0x10000u + stream);
	char *at = to;

	if (operand->value == INTEGER) {
		elements_input(to, operand->type, count, flavour, seed, call, (int)stream);
		return;
	}
	for (size_t i = 0; i < count; i++, at += operand->size) {
		uint64_t bits = random_next(&random);

		for (size_t j = 0; j < operand->size; j++)
			at[j] = (char)(bits >> 7 * (j % 8));
		one_input(at, operand, flavour, op, bits);
	}
}

bool operand_same(const void *a, const void *b, const struct operand *operand)
{
	const char *x = a, *y = b;
	bool same = true;

	for (size_t i = 0; i < operand->size && same; i++)
		same = x[i] == y[i] || !(operand->significant >> i & 1);
	if (same || (operand->value != REAL && operand->value != COMPLEX))
		return same;
	for (size_t i = 0; i < operand->size; i += operand->width)
		if (number_load(x + i, operand->width, true) !=
		    number_load(y + i, operand->width, true))
			return false;
	return true;
}

const char *operand_text(char *text, size_t size, const void *from, const struct operand *operand)
{
	const unsigned char *bytes = from;
	size_t used = 0;

	*text = 0;
	for (size_t i = operand->size; i-- && used + 3 < size;)
		used +=
		    (size_t)snprintf(text + used, size - used, i % 4 ? "%02x" : "%02x ", bytes[i]);
	return text;
}
