// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The folds of the module in user space, for tests/simd.rs.
 *
 *   check            compares them with fb_fold(), and prints the number of equal folds
 *   check measure    times both, and what saving the registers costs
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "folds.h"
#include "fold.h"

enum {
	ROOM = FB_JUMBO_BYTES + 2 * FB_FOLD_BLOCK,
	UNALIGNED = 32, /* starts of a payload */
};

static const char *const ops[] = {"none", "sum",  "prod", "min", "max", "band",
				  "bor",  "bxor", "land", "lor", "lxor"};
static const char *const types[] = {"i8",  "u8",  "i16", "u16", "i32",
				    "u32", "i64", "u64", "f32", "f64"};

static uint64_t state = 88172645463325252ULL;

/* xorshift64, Marsaglia. */
static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* Words of random bits, and now and then of elements that are equal, zero or the least or the
 * greatest of their type. */
static void fill(unsigned char *bytes, unsigned count)
{
	static const uint64_t special[] = {0,
					   ~0ULL,
					   0x8080808080808080ULL,
					   0x7f7f7f7f7f7f7f7fULL,
					   0x8000800080008000ULL,
					   0x7fff7fff7fff7fffULL,
					   0x8000000080000000ULL,
					   0x7fffffff7fffffffULL,
					   0x8000000000000000ULL,
					   0x7fffffffffffffffULL,
					   0x0100010001000100ULL,
					   0x0000000100000001ULL};

	for (unsigned i = 0; i < count; i += 8) {
		uint64_t word = next(), kind = next();

		if (kind % 3 == 0)
			word = special[(kind >> 8) % (sizeof(special) / sizeof(*special))];
		if (kind % 3 == 1)
			word &= next() & (0xffULL << (kind >> 8) % 57);
		memcpy(bytes + i, &word, 8);
	}
}

static void fail(const char *what, __u32 op, __u32 type, __u32 length, unsigned at)
{
	printf("%s: %s of %s, %u bytes from byte %u\n", what, ops[op], types[type], length, at);
	exit(1);
}

/* One fold by both, of payloads that start at byte `at`. */
static void compare(__u32 op, __u32 type, __u32 length, unsigned at)
{
	static struct fb_payload words, from;
	static unsigned char a[ROOM + UNALIGNED], b[ROOM + UNALIGNED], behind[FB_FOLD_BLOCK];
	unsigned whole = (length + FB_FOLD_BLOCK - 1) / FB_FOLD_BLOCK * FB_FOLD_BLOCK;

	fill(a + at, whole + FB_FOLD_BLOCK);
	fill(b + at, whole);
	memcpy(words.data, a + at, whole);
	memcpy(from.data, b + at, whole);
	memcpy(behind, a + at + whole, sizeof(behind));
	if (fb_fold(&words, &from, op, type, length) ||
	    fb_simd_fold(a + at, b + at, whole, op, type))
		fail("refused", op, type, length, at);
	if (memcmp(words.data, a + at, whole))
		fail("differ", op, type, length, at);
	if (memcmp(behind, a + at + whole, sizeof(behind)))
		fail("beyond the last block", op, type, length, at);
}

/* Sums of floating point, element by element, of every kind of number. */
#define COMPARE_SUMS(NUMBER, TYPE)                                                                 \
	do {                                                                                       \
		static NUMBER a[FB_JUMBO_BYTES / sizeof(NUMBER)], b[sizeof(a) / sizeof(*a)],       \
		    sum[sizeof(a) / sizeof(*a)];                                                   \
		fill((unsigned char *)a, sizeof(a));                                               \
		fill((unsigned char *)b, sizeof(b));                                               \
		for (unsigned i = 0; i < sizeof(a) / sizeof(*a); i++)                              \
			sum[i] = a[i] + b[i];                                                      \
		if (fb_simd_fold(a, b, sizeof(a), FB_OP_SUM, TYPE))                                \
			fail("refused", FB_OP_SUM, TYPE, sizeof(a), 0);                            \
		for (unsigned i = 0; i < sizeof(a) / sizeof(*a); i++)                              \
			if (memcmp(a + i, sum + i, sizeof(*a)) &&                                  \
			    !(a[i] != a[i] && sum[i] != sum[i]))                                   \
				fail("differ", FB_OP_SUM, TYPE, sizeof(a), 0);                     \
	} while (0)

static void compare_all(void)
{
	unsigned folds = 0;

	for (__u32 op = FB_OP_SUM; op < FB_OP_PLACE; op++)
		for (__u32 type = 0; type < FB_TYPE_COUNT; type++) {
			for (__u32 length = 0; length <= 320; length++, folds++)
				compare(op, type, length, next() % UNALIGNED);
			for (unsigned at = 0; at < UNALIGNED; at++, folds++)
				compare(op, type, FB_CHUNK_BYTES, at);
			for (__u32 length = 1024; length <= FB_JUMBO_BYTES; length += 656, folds++)
				compare(op, type, length, 0);
			compare(op, type, FB_JUMBO_BYTES, 8);
			folds++;
		}
	for (int i = 0; i < 100; i++, folds += 2) {
		COMPARE_SUMS(float, FB_SIMD_F32);
		COMPARE_SUMS(double, FB_SIMD_F64);
	}
	/* Ops and types that do not exist are refused. */
	for (__u32 op = 0; op < 300; op++)
		for (__u32 type = 0; type < 300; type++) {
			unsigned char a[FB_FOLD_BLOCK] = {0}, b[FB_FOLD_BLOCK] = {0};
			int has = op >= FB_OP_SUM && op < FB_OP_PLACE && type < FB_TYPE_COUNT;

			has |= op == FB_OP_SUM && (type == FB_SIMD_F32 || type == FB_SIMD_F64);
			if (has != !fb_simd_fold(a, b, sizeof(a), op, type)) {
				printf("op %u of type %u: taken or refused wrongly\n", op, type);
				exit(1);
			}
		}
	printf("equal: %u folds\n", folds);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Nanoseconds of a STATEMENT: the median of 101 times 1000. */
#define NANOSECONDS(STATEMENT)                                                                     \
	({                                                                                         \
		double times[101];                                                                 \
		for (int t = 0; t < 101; t++) {                                                    \
			double start = now();                                                      \
			for (int i = 0; i < 1000; i++) {                                           \
				STATEMENT;                                                         \
				__asm__ volatile("" ::: "memory");                                 \
			}                                                                          \
			times[t] = (now() - start) / 1000;                                         \
		}                                                                                  \
		qsort(times, 101, sizeof(*times), by_time);                                        \
		times[50];                                                                         \
	})

/* Saves and loads the registers of the components in `mask`, as kernel_fpu_begin() and the way back
 * to user space do. */
static __attribute__((target("xsave,xsavec"))) void measure_state(uint64_t mask, const char *name)
{
	static unsigned char area[16384] __attribute__((aligned(64)));
	double saved = NANOSECONDS(_xsavec64(area, mask));
	double all = NANOSECONDS(_xsavec64(area, mask); _xrstor64(area, mask));

	printf("%s: xsavec %.0f ns, xsavec and xrstor %.0f ns\n", name, saved, all);
}

static void measure(void)
{
	static struct fb_payload into, from;
	const unsigned lengths[] = {64, 128, 256, 512, 1024, FB_CHUNK_BYTES, FB_JUMBO_BYTES};

	fill(into.data, sizeof(into.data));
	fill(from.data, sizeof(from.data));
	for (unsigned l = 0; l < sizeof(lengths) / sizeof(*lengths); l++)
		for (__u32 op = FB_OP_SUM; op < FB_OP_PLACE; op++)
			for (__u32 type = 0; type < FB_TYPE_COUNT + 2; type++) {
				__u32 bytes = lengths[l];
				double words, vectors;

				if (type >= FB_TYPE_COUNT && op != FB_OP_SUM)
					continue;
				words = type >= FB_TYPE_COUNT
					    ? 0
					    : NANOSECONDS(fb_fold(&into, &from, op, type, bytes));
				vectors = NANOSECONDS(
				    fb_simd_fold(into.data, from.data, bytes, op, type));
				printf("%u B, %s of %s: SWAR %.0f ns, AVX2 %.0f ns\n", bytes,
				       ops[op], types[type], words, vectors);
			}
	/* Registers that nobody has written are not saved. */
	__asm__ volatile("vpcmpeqd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
	measure_state(0x7, "AVX");
	if (__builtin_cpu_supports("avx512f")) {
		__asm__ volatile("vpternlogd $255, %%zmm16, %%zmm16, %%zmm16" ::: "memory");
		measure_state(0xe7, "AVX-512");
	}
}

int main(int count, char **arguments)
{
	if (!__builtin_cpu_supports("avx2")) {
		printf("no AVX2\n");
		return 0;
	}
	if (count > 1 && !strcmp(arguments[1], "measure"))
		measure();
	else
		compare_all();
	return 0;
}
