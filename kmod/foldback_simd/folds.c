// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Folds by vectors: into[i] = op(into[i], from[i]), with the results of fb_fold() (bpf/fold.h).
 *
 * A file of its own, since the compiler may use vector registers all over it. Plain C with the
 * vector extensions of gcc and clang, so that tests compile it for user space.
 */
#include "folds.h"

#define VECTOR(ELEMENT) ELEMENT __attribute__((vector_size(32), aligned(1), may_alias))

typedef VECTOR(signed char) vector_i8;
typedef VECTOR(unsigned char) vector_u8;
typedef VECTOR(short) vector_i16;
typedef VECTOR(unsigned short) vector_u16;
typedef VECTOR(int) vector_i32;
typedef VECTOR(unsigned int) vector_u32;
typedef VECTOR(long long) vector_i64;
typedef VECTOR(unsigned long long) vector_u64;
typedef VECTOR(float) vector_f32;
typedef VECTOR(double) vector_f64;

/* EXPR over a and b, vectors of TYPE, gives the new one: for each of a block's two. */
#define FOLD_LOOP(TYPE, EXPR)                                                                      \
	do {                                                                                       \
		for (__u32 at = 0; at < bytes; at += FB_FOLD_BLOCK) {                              \
			TYPE *x = (TYPE *)((char *)into + at);                                     \
			const TYPE *y = (const TYPE *)((const char *)from + at);                   \
			_Pragma("GCC unroll 2") for (int i = 0; i < 2; i++)                        \
			{                                                                          \
				TYPE a = x[i], b = y[i];                                           \
				x[i] = (TYPE)(EXPR);                                               \
			}                                                                          \
		}                                                                                  \
		return 0;                                                                          \
	} while (0)

/* The loops of the four sizes. */
#define FOLD_SIZES(EXPR)                                                                           \
	do {                                                                                       \
		switch (type >> 1) {                                                               \
		case 0:                                                                            \
			FOLD_LOOP(vector_u8, EXPR);                                                \
		case 1:                                                                            \
			FOLD_LOOP(vector_u16, EXPR);                                               \
		case 2:                                                                            \
			FOLD_LOOP(vector_u32, EXPR);                                               \
		default:                                                                           \
			FOLD_LOOP(vector_u64, EXPR);                                               \
		}                                                                                  \
	} while (0)

/* The loops of all types of enum fb_type. */
#define FOLD_TYPES(EXPR)                                                                           \
	do {                                                                                       \
		switch (type) {                                                                    \
		case FB_TYPE_I8:                                                                   \
			FOLD_LOOP(vector_i8, EXPR);                                                \
		case FB_TYPE_U8:                                                                   \
			FOLD_LOOP(vector_u8, EXPR);                                                \
		case FB_TYPE_I16:                                                                  \
			FOLD_LOOP(vector_i16, EXPR);                                               \
		case FB_TYPE_U16:                                                                  \
			FOLD_LOOP(vector_u16, EXPR);                                               \
		case FB_TYPE_I32:                                                                  \
			FOLD_LOOP(vector_i32, EXPR);                                               \
		case FB_TYPE_U32:                                                                  \
			FOLD_LOOP(vector_u32, EXPR);                                               \
		case FB_TYPE_I64:                                                                  \
			FOLD_LOOP(vector_i64, EXPR);                                               \
		default:                                                                           \
			FOLD_LOOP(vector_u64, EXPR);                                               \
		}                                                                                  \
	} while (0)

/* a where the condition, all bits or none of each element, holds, else b. C has no ?: of vectors.
 */
#define CHOOSE(CONDITION, a, b)                                                                    \
	({                                                                                         \
		__typeof__(a) chosen = (__typeof__(a))(CONDITION);                                 \
		(a & chosen) | (b & ~chosen);                                                      \
	})

int fb_simd_fold(void *into, const void *from, __u32 bytes, __u32 op, __u32 type)
{
	if (op == FB_OP_SUM && type == FB_SIMD_F32)
		FOLD_LOOP(vector_f32, a + b);
	if (op == FB_OP_SUM && type == FB_SIMD_F64)
		FOLD_LOOP(vector_f64, a + b);
	if (type >= FB_TYPE_COUNT)
		return -1;
	switch (op) {
	case FB_OP_SUM:
		FOLD_SIZES(a + b);
	case FB_OP_PROD:
		FOLD_SIZES(a * b);
	case FB_OP_MIN:
		FOLD_TYPES(CHOOSE(a < b, a, b));
	case FB_OP_MAX:
		FOLD_TYPES(CHOOSE(a > b, a, b));
	case FB_OP_BAND:
		FOLD_LOOP(vector_u64, a & b);
	case FB_OP_BOR:
		FOLD_LOOP(vector_u64, a | b);
	case FB_OP_BXOR:
		FOLD_LOOP(vector_u64, a ^ b);
	case FB_OP_LAND:
		FOLD_SIZES((a != 0) & (b != 0) & 1);
	case FB_OP_LOR:
		FOLD_SIZES(((a | b) != 0) & 1);
	case FB_OP_LXOR:
		FOLD_SIZES(((a != 0) ^ (b != 0)) & 1);
	default:
		return -1;
	}
}
