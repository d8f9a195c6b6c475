/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "operation.h"

#include <string.h>

MPI_Datatype operation_affine, operation_padded_affine, operation_matrix;
static MPI_Op own[ALL_OPS];
volatile int operation_misused;

/* The program's own operations. `in` is the left operand, `out` the right one and the answer. */

static void count_in(void *in, void *out, int *count, MPI_Datatype *type)
{
	uint64_t *a = in, *b = out;

	if (*type != MPI_INT64_T)
		operation_misused = 1;
	for (int i = 0; i < *count; i++)
		b[i] = a[i] + b[i] + 1;
}

static void first(void *in, void *out, int *count, MPI_Datatype *type)
{
	if (*type != MPI_INT)
		operation_misused = 1;
	memcpy(out, in, (size_t)*count * sizeof(int));
}

/* First `from`, which is the lower rank's, then `to`. */
static void chain(struct affine from, struct affine *to)
{
	to->b = to->a * from.b + to->b;
	to->a *= from.a;
}

static void chain_padded(struct padded_affine from, struct padded_affine *to)
{
	to->b = (uint32_t)to->a * from.b + to->b;
	to->a *= from.a;
}

static void chain_in(void *in, void *out, int *count, MPI_Datatype *type)
{
	if (*type != operation_affine && *type != operation_padded_affine)
		operation_misused = 1;
	for (int i = 0; i < *count; i++)
		if (*type == operation_affine)
			chain(((struct affine *)in)[i], (struct affine *)out + i);
		else
			chain_padded(((struct padded_affine *)in)[i],
				     (struct padded_affine *)out + i);
}

static void multiply(const struct matrix *left, struct matrix *right)
{
	const uint32_t *a = left->at;
	struct matrix b = *right;

	for (int i = 0; i < 4; i++)
		right->at[i] = a[i & 2] * b.at[i & 1] + a[(i & 2) + 1] * b.at[(i & 1) + 2];
}

static void multiply_in(void *in, void *out, int *count, MPI_Datatype *type)
{
	if (*type != operation_matrix)
		operation_misused = 1;
	for (int i = 0; i < *count; i++)
		multiply((struct matrix *)in + i, (struct matrix *)out + i);
}

static void add_in(void *in, void *out, int *count, MPI_Datatype *type)
{
	uint32_t *a = in, *b = out;

	if (*type != operation_matrix)
		operation_misused = 1;
	for (int i = 0; i < 4 * *count; i++)
		b[i] += a[i];
}

void operations_make(void)
{
	int lengths[2] = {1, 1};
	MPI_Aint places[2] = {offsetof(struct padded_affine, a), offsetof(struct padded_affine, b)};
	MPI_Datatype members[2] = {MPI_UINT64_T, MPI_UINT32_T}, unpadded;

	MPI_Type_contiguous(2, MPI_UINT32_T, &operation_affine);
	MPI_Type_commit(&operation_affine);
	MPI_Type_create_struct(2, lengths, places, members, &unpadded);
	MPI_Type_create_resized(unpadded, 0, sizeof(struct padded_affine),
				&operation_padded_affine);
	MPI_Type_free(&unpadded);
	MPI_Type_commit(&operation_padded_affine);
	MPI_Type_contiguous(4, MPI_UINT32_T, &operation_matrix);
	MPI_Type_commit(&operation_matrix);
	MPI_Op_create(count_in, 1, &own[OWN_COUNT]);
	MPI_Op_create(first, 0, &own[OWN_FIRST]);
	MPI_Op_create(chain_in, 0, &own[OWN_CHAIN]);
	MPI_Op_create(add_in, 1, &own[OWN_ADD]);
	MPI_Op_create(multiply_in, 0, &own[OWN_MULTIPLY]);
}

void operations_free(void)
{
	for (int i = OWN_COUNT; i < ALL_OPS; i++)
		MPI_Op_free(&own[i]);
	MPI_Type_free(&operation_affine);
	MPI_Type_free(&operation_padded_affine);
	MPI_Type_free(&operation_matrix);
}

const char *operation_name(enum op op)
{
	static const char *const names[ALL_OPS - OPS] = {"MPI_MINLOC", "MPI_MAXLOC", "own count",
							 "own first",  "own chain",  "own sum",
							 "own product"};

	return op < OPS ? elements_op_name(op) : names[op - OPS];
}

MPI_Op operation_handle(enum op op)
{
	if (op < OPS)
		return elements_op(op);
	if (op == MINLOC)
		return MPI_MINLOC;
	return op == MAXLOC ? MPI_MAXLOC : own[op];
}

long double number_load(const void *from, size_t width, bool real)
{
	union {
		float f;
		double d;
		long double l;
		int8_t i8;
		int16_t i16;
		int32_t i32;
		int64_t i64;
	} number;

	memcpy(&number, from, width);
	switch (width) {
	case 1:
		return number.i8;
	case 2:
		return number.i16;
	case 4:
		return real ? (long double)number.f : (long double)number.i32;
	case 8:
		return real ? (long double)number.d : (long double)number.i64;
	default:
		return number.l;
	}
}

void number_store(void *to, size_t width, bool real, long double value)
{
	int64_t integer = (int64_t)value; /* little-endian: the low bytes come first */
	double d = (double)value;
	float f = (float)value;

	if (!real)
		memcpy(to, &integer, width);
	else
		memcpy(to, width == 4 ? (void *)&f : (width == 8 ? (void *)&d : (void *)&value),
		       width);
}

static void fold_reals(char *to, const char *from, size_t width, enum op op)
{
	long double a = number_load(to, width, true), b = number_load(from, width, true);

	number_store(to, width, true,
		     op == SUM	  ? a + b
		     : op == PROD ? a * b
		     : op == MIN  ? (b < a ? b : a)
				  : (a < b ? b : a));
}

static void fold_complexes(char *to, const char *from, size_t width, enum op op)
{
	long double a = number_load(to, width, true), b = number_load(to + width, width, true);
	long double c = number_load(from, width, true), d = number_load(from + width, width, true);

	number_store(to, width, true, op == SUM ? a + c : a * c - b * d);
	number_store(to + width, width, true, op == SUM ? b + d : a * d + b * c);
}

static void fold_pairs(char *to, const char *from, const struct operand *operand, enum op op)
{
	size_t second = operand->second, width = operand->real[1] ? operand->width : 4;
	long double a = number_load(to, operand->width, operand->real[0]);
	long double b = number_load(from, operand->width, operand->real[0]);
	long double i = number_load(to + second, width, operand->real[1]);
	long double j = number_load(from + second, width, operand->real[1]);

	if (a == b ? j < i : op == MINLOC ? b < a : a < b)
		memcpy(to, from, operand->size);
}

static void fold_truths(char *to, const char *from, size_t width, enum op op)
{
	bool a = number_load(to, width, false) != 0, b = number_load(from, width, false) != 0;

	number_store(to, width, false, op == LAND ? a && b : op == LOR ? a || b : a != b);
}

/* Of the program's own structures: `from` is the right operand. */
static void fold_own(char *to, const char *from, const struct operand *operand, enum op op)
{
	_Alignas(16) char right[sizeof(struct matrix)];

	memcpy(right, from, operand->size);
	if (op == OWN_CHAIN && operand->width == 4)
		chain(*(struct affine *)to, (struct affine *)right);
	else if (op == OWN_CHAIN)
		chain_padded(*(struct padded_affine *)to, (struct padded_affine *)right);
	else if (op == OWN_MULTIPLY)
		multiply((struct matrix *)to, (struct matrix *)right);
	else
		for (int i = 0; i < 4; i++)
			((struct matrix *)right)->at[i] += ((struct matrix *)to)->at[i];
	memcpy(to, right, operand->size);
}

static void fold_one(char *to, const char *from, const struct operand *operand, enum op op)
{
	switch (operand->value) {
	case INTEGER:
		if (op == OWN_COUNT) {
			uint64_t a, b;

			memcpy(&a, to, 8);
			memcpy(&b, from, 8);
			a += b + 1;
			memcpy(to, &a, 8);
		}
		break; /* OWN_FIRST: it stays */
	case TRUTH:
		fold_truths(to, from, operand->width, op);
		break;
	case REAL:
		fold_reals(to, from, operand->width, op);
		break;
	case COMPLEX:
		fold_complexes(to, from, operand->width, op);
		break;
	case PAIR:
		fold_pairs(to, from, operand, op);
		break;
	default:
		fold_own(to, from, operand, op);
	}
}

void operation_fold(void *to, const void *from, const struct operand *operand, size_t count,
		    enum op op)
{
	if (operand->value == INTEGER && op < OPS) {
		elements_fold(to, from, operand->type, count, op);
		return;
	}
	for (size_t i = 0; i < count; i++)
		fold_one((char *)to + i * operand->size, (const char *)from + i * operand->size,
			 operand, op);
}
