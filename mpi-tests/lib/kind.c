/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "kind.h"

#include <complex.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "program.h"

struct map { /* x -> a x + b */
	float a;
	/* 4 bytes of padding */
	double b;
};

struct square { /* a matrix of 2 by 2 */
	double at[4];
};

struct place {
	double value;
	int index;
	/* 4 bytes of padding */
};

struct kind kinds[KINDS];
int n_kinds;
static MPI_Op own_map, own_square, own_sum;
static MPI_Datatype map, square;

/* Of any magnitude within reach of products of some, and signs. */
static double number(struct random *random)
{
	double mantissa = 1 + (double)(random_next(random) >> 12) / (double)(1ull << 52);
	double scale = 1;

	for (uint64_t i = random_below(random, 12); i > 0; i--)
		scale *= 2;
	return (random_next(random) & 1 ? -mantissa : mantissa) / 32 * scale;
}

/* With `special`, also NaNs with payloads, infinities, zeros and denormals. One rule then stands
 * for the hardware's choice of a NaN: the left operand's, else the right one's, made quiet, else
 * x86's own. In minima and maxima a NaN is the positive quiet one without payload, and -0 is below
 * +0. */
#define FLOATING(name, TYPE, BITS, WIDTH, EXPONENT, QUIET)                                         \
	static void fill_##name(void *to, struct random *random, enum op op, bool special)         \
	{                                                                                          \
		static const BITS specials[] = {                                                   \
		    0,                                                                             \
		    (BITS)1 << (WIDTH - 1),                                                        \
		    (BITS)EXPONENT,                                                                \
		    (BITS)EXPONENT | (BITS)1 << (WIDTH - 1),                                       \
		    (BITS)EXPONENT | QUIET | 5,                                                    \
		    (BITS)EXPONENT | 9,                                                            \
		    (BITS)EXPONENT | (BITS)1 << (WIDTH - 1) | QUIET | 77,                          \
		    1,                                                                             \
		    (BITS)1 << (WIDTH - 1) | 3,                                                    \
		};                                                                                 \
		TYPE value = (TYPE)number(random);                                                 \
                                                                                                   \
		(void)op;                                                                          \
		memcpy(to, &value, sizeof(value));                                                 \
		if (special && random_below(random, 3) == 0)                                       \
			memcpy(to,                                                                 \
			       &specials[random_below(random, sizeof(specials) / sizeof(BITS))],   \
			       sizeof(value));                                                     \
	}                                                                                          \
                                                                                                   \
	static void fold_##name(void *left, const void *right, enum op op)                         \
	{                                                                                          \
		TYPE x, y, result;                                                                 \
		BITS bits;                                                                         \
		bool nan;                                                                          \
                                                                                                   \
		memcpy(&x, left, sizeof(x));                                                       \
		memcpy(&y, right, sizeof(y));                                                      \
		nan = x != x || y != y;                                                            \
		if (op == MIN || op == MAX) {                                                      \
			bool less = y < x || (y == x && signbit(y) && !signbit(x));                \
			const void *wins = less == (op == MIN) ? right : left;                     \
                                                                                                   \
			bits = (BITS)EXPONENT | QUIET;                                             \
			memcpy(left, nan ? &bits : wins, sizeof(bits));                            \
			return;                                                                    \
		}                                                                                  \
		result = op == SUM ? x + y : x * y;                                                \
		memcpy(&bits, x != x ? left : right, sizeof(bits));                                \
		bits |= QUIET;                                                                     \
		memcpy(left, nan ? (void *)&bits : (void *)&result, sizeof(bits));                 \
	}

FLOATING(float, float, uint32_t, 32, 0x7f800000u, 0x00400000u)
FLOATING(double, double, uint64_t, 64, 0x7ff0000000000000u, 0x0008000000000000u)

static void fill_long_double(void *to, struct random *random, enum op op, bool special)
{
	long double value = (long double)number(random) / 3;

	(void)op, (void)special;
	memcpy(to, &value, sizeof(value));
}

static void fold_long_double(void *left, const void *right, enum op op)
{
	long double x, y;

	memcpy(&x, left, sizeof(x));
	memcpy(&y, right, sizeof(y));
	x = op == SUM ? x + y : op == PROD ? x * y : op == MIN ? (y < x ? y : x) : (x < y ? y : x);
	memcpy(left, &x, sizeof(x));
}

#define COMPLEX_KIND(name, TYPE)                                                                   \
	static void fill_##name(void *to, struct random *random, enum op op, bool special)         \
	{                                                                                          \
		double real = number(random), imaginary = number(random);                          \
		TYPE complex value = (TYPE)real + (TYPE)imaginary * I;                             \
                                                                                                   \
		(void)op, (void)special;                                                           \
		memcpy(to, &value, sizeof(value));                                                 \
	}                                                                                          \
                                                                                                   \
	static void fold_##name(void *left, const void *right, enum op op)                         \
	{                                                                                          \
		TYPE complex x, y;                                                                 \
                                                                                                   \
		memcpy(&x, left, sizeof(x));                                                       \
		memcpy(&y, right, sizeof(y));                                                      \
		x = op == SUM ? x + y : x * y;                                                     \
		memcpy(left, &x, sizeof(x));                                                       \
	}

COMPLEX_KIND(float_complex, float)
COMPLEX_KIND(double_complex, double)

static void fill_place(void *to, struct random *random, enum op op, bool special)
{
	/* Few values, so that there are ties. */
	struct place place = {(double)random_below(random, 3), (int)random_below(random, 100)};

	(void)op, (void)special;
	memcpy(to, &place, sizeof(place));
}

static void fold_place(void *left, const void *right, enum op op)
{
	struct place x, y;

	memcpy(&x, left, sizeof(x));
	memcpy(&y, right, sizeof(y));
	if (x.value == y.value ? y.index < x.index
			       : (op == MINLOC ? y.value < x.value : x.value < y.value))
		memcpy(left, right, sizeof(x));
}

static void fill_map(void *to, struct random *random, enum op op, bool special)
{
	struct map map = {.a = (float)number(random), .b = number(random)};

	(void)op, (void)special;
	memcpy(to, &map, sizeof(map));
}

static void fold_map(void *left, const void *right, enum op op)
{
	struct map x, y;

	(void)op;
	memcpy(&x, left, sizeof(x));
	memcpy(&y, right, sizeof(y));
	x.b = (double)y.a * x.b + y.b;
	x.a = y.a * x.a;
	memcpy(left, &x, sizeof(x));
}

static void fill_square(void *to, struct random *random, enum op op, bool special)
{
	struct square square;

	(void)op, (void)special;
	for (int i = 0; i < 4; i++)
		square.at[i] = number(random);
	memcpy(to, &square, sizeof(square));
}

static void fold_square(void *left, const void *right, enum op op)
{
	struct square x, y, product;

	(void)op;
	memcpy(&x, left, sizeof(x));
	memcpy(&y, right, sizeof(y));
	for (int i = 0; i < 4; i++)
		product.at[i] = x.at[i & 2] * y.at[i & 1] + x.at[(i & 2) + 1] * y.at[(i & 1) + 2];
	memcpy(left, &product, sizeof(product));
}

/* For MPI: inout = in op inout. It calls MPI, as it may. */
static void apply(void *in, void *inout, int count, MPI_Datatype type, size_t extent,
		  void (*fold)(void *, const void *, enum op))
{
	MPI_Aint low, actual;

	MPI_Type_get_extent(type, &low, &actual);
	if ((size_t)actual != extent || (uintptr_t)inout % _Alignof(double))
		fail("an operation was called with a type of extent %ld, or out of line",
		     (long)actual);
	for (int i = 0; i < count; i++) {
		char *left = (char *)in + (size_t)i * extent;
		char *right = (char *)inout + (size_t)i * extent, result[64];

		memcpy(result, left, extent);
		fold(result, right, OWN);
		memcpy(right, result, extent);
	}
}

static void apply_map(void *in, void *inout, int *count, MPI_Datatype *type)
{
	apply(in, inout, *count, *type, sizeof(struct map), fold_map);
}

static void apply_square(void *in, void *inout, int *count, MPI_Datatype *type)
{
	apply(in, inout, *count, *type, sizeof(struct square), fold_square);
}

static void fold_sum(void *left, const void *right, enum op op)
{
	(void)op;
	fold_double(left, right, SUM);
}

/* MPI may take it to commute, which it does, and to associate, which it does not. */
static void apply_sum(void *in, void *inout, int *count, MPI_Datatype *type)
{
	apply(in, inout, *count, *type, sizeof(double), fold_sum);
}

static void add(struct kind kind)
{
	MPI_Aint low, extent;

	MPI_Type_get_extent(kind.type, &low, &extent);
	kind.extent = (size_t)extent;
	kind.significant = kind.significant ? kind.significant : ~0ull;
	while (kind.n_ops < 4 && (int)kind.ops[kind.n_ops] >= 0)
		kind.n_ops++;
	kinds[n_kinds++] = kind;
}

#define END ((enum op) - 1)

void kinds_make(void)
{
	int lengths[] = {1, 1};
	MPI_Aint places[] = {offsetof(struct map, a), offsetof(struct map, b)};
	MPI_Datatype types[] = {MPI_FLOAT, MPI_DOUBLE};
	const uint64_t x87 = sizeof(long double) == 16 ? 0x3ff : 0; /* 10 of its 16 bytes */

	MPI_Type_create_struct(2, lengths, places, types, &map);
	MPI_Type_commit(&map);
	MPI_Type_contiguous(4, MPI_DOUBLE, &square);
	MPI_Type_commit(&square);
	MPI_Op_create(apply_map, 0, &own_map);
	MPI_Op_create(apply_square, 0, &own_square);
	MPI_Op_create(apply_sum, 1, &own_sum);
#define KIND(which, handle, ...)                                                                   \
	add((struct kind){.name = #handle,                                                         \
			  .type = handle,                                                          \
			  .fill = fill_##which,                                                    \
			  .fold = fold_##which,                                                    \
			  __VA_ARGS__})
	KIND(float, MPI_FLOAT, .ops = {SUM, PROD, MIN, MAX}, .waits_too = true);
	KIND(double, MPI_DOUBLE, .ops = {SUM, PROD, MIN, MAX}, .waits_too = true);
	KIND(float, MPI_REAL, .ops = {SUM, PROD, MIN, MAX}, .waits_too = true);
	KIND(double, MPI_DOUBLE_PRECISION, .ops = {SUM, PROD, MIN, MAX}, .waits_too = true);
	KIND(long_double, MPI_LONG_DOUBLE, .ops = {SUM, PROD, MIN, MAX}, .significant = x87);
	KIND(float_complex, MPI_C_FLOAT_COMPLEX, .ops = {SUM, END}, .waits_too = true);
	KIND(double_complex, MPI_C_DOUBLE_COMPLEX, .ops = {SUM, END}, .waits_too = true);
	KIND(float_complex, MPI_C_FLOAT_COMPLEX, .ops = {PROD, END});
	KIND(double_complex, MPI_C_DOUBLE_COMPLEX, .ops = {PROD, END});
	KIND(place, MPI_DOUBLE_INT, .ops = {MINLOC, MAXLOC, END}, .significant = 0xfff);
	KIND(map, map, .ops = {OWN, END}, .significant = 0xff0f);
	KIND(square, square, .ops = {OWN, END});
	KIND(double, MPI_DOUBLE, .ops = {OWN, END});
	kinds[n_kinds - 1].fold = fold_sum;
#undef KIND
}

MPI_Op kind_op(const struct kind *kind, enum op op)
{
	if (op == OWN && kind->fill == fill_map)
		return own_map;
	if (op == OWN)
		return kind->fill == fill_square ? own_square : own_sum;
	return op == MINLOC ? MPI_MINLOC : op == MAXLOC ? MPI_MAXLOC : elements_op(op);
}

void kinds_free(void)
{
	MPI_Op_free(&own_map);
	MPI_Op_free(&own_square);
	MPI_Op_free(&own_sum);
	MPI_Type_free(&map);
	MPI_Type_free(&square);
}
