/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exact sums of FB_LANES elements side by side, where the CPU's own arithmetic provably suffices.
 * exact.c includes it once for each width of vectors. FB_LANES_SOME and FB_LANES_SUM name its two
 * functions, and FB_LANES_TARGET has their CPU.
 *
 * A chain of sums t[i] = t[i-1] + x[i], rounded, has errors e[i] that are doubles and known exactly
 * (Knuth's TwoSum; TAOCP 2, 4.2.2, Theorem B), so the sum is t + (e[2] + ... + e[n]). A sum that
 * overflows or is not finite makes an error a NaN, and no comparison with that is true. A TwoSum
 * whose sum does not overflow is exact, or not finite (Boldo, Graillat and Muller, On the
 * robustness of the 2Sum and Fast2Sum algorithms, ACM TOMS 2017). Additions are exact among
 * subnormals.
 *
 * Binary64. The errors' sum E is made by TwoSums too. If all of those are exact, t + E is the sum,
 * and rounded once. Else E is wrong by (n-2) u (|e[2]| + ... + |e[n]|) at most, to first order,
 * with u = 2^-53 (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). `slack` is 2 n u
 * times that, so that its own rounding, the rounding of `slack` + E, and the second order are in
 * it, for n up to FB_LANES_MOST. Rounding never decreases: if t + (E - slack) and t + (E + slack)
 * are rounded to the same number, the sum between them is too.
 *
 * Binary32. The chain is in doubles. If all errors are 0, it is the sum, and rounded once. Else the
 * sum is between t - slack and t + slack. `slack` is 2 (|e[2]| + ... + |e[n]|), and 2 u |t| for the
 * rounding of these two. If both are converted to the same single, so is the sum.
 *
 * Of two parts, IEEE 754's sum is the exact one, rounded, except for the choice of a NaN. That
 * holds for singles too if it is rounded to a double before, which has more than twice as many bits
 * (Figueroa, When is double rounding innocuous?, ACM SIGNUM 1995).
 *
 * Zeroes have the right sign: a sum of two is -0 only if both are, and so is the chain. t - (+0) is
 * t, sign included. With errors, a sum of zero in binary64 is the same by both ways only if both
 * are exactly zero, hence +0. In binary32 the two ways are 2 `slack` apart, four times the least
 * subnormal and more, and are not both zero.
 *
 * Needs rounding to nearest, and subnormals: exact.c sees to that.
 */

/* The elements from number `at` on, as many as there are lanes. */
FB_LANES_TARGET
FB_EXACT_INLINE void FB_LANES_SOME(void *into, const void *const *parts, __u64 count, __u64 at,
				   __u64 width)
{
	typedef double numbers __attribute__((vector_size(8 * FB_LANES)));
	typedef float singles __attribute__((vector_size(4 * FB_LANES)));
	typedef long long words __attribute__((vector_size(8 * FB_LANES)));

	const words magnitude = (words){} + 0x7fffffffffffffffLL;
	numbers sum = {}, error = {}, errors = {}, slack, least, most;
	words inexact = {}, sure;
	singles narrow = {};
	long long each[FB_LANES];

	for (__u64 i = 0; i < count; i++) {
		const char *part = (const char *)parts[i] + at * width;
		numbers x, t, b, e;

		if (width == 8) {
			memcpy(&x, part, sizeof(x));
		} else {
			memcpy(&narrow, part, sizeof(narrow));
			x = __builtin_convertvector(narrow, numbers);
		}
		if (i == 0) {
			sum = x;
			continue;
		}
		t = sum + x;
		b = t - sum;
		e = (sum - (t - b)) + (x - b);
		sum = t;
		errors += (numbers)((words)e & magnitude);
		if (width == 8) {
			t = error + e;
			b = t - error;
			inexact |= (words)((error - (t - b)) + (e - b));
			error = t;
		}
	}
	if (count == 2) {
		sure = sum == sum;
		least = sum;
		narrow = __builtin_convertvector(sum, singles);
	} else if (width == 8) {
		slack = errors * ((double)count * 0x1p-52);
		slack = (numbers)((words)slack & (words)(inexact != 0));
		least = sum - (slack - error);
		most = sum + (slack + error);
		sure = least == most;
	} else {
		slack = errors * 2 + (numbers)((words)sum & magnitude) * 0x1p-52;
		slack = (numbers)((words)slack & (words)(errors != 0));
		narrow = __builtin_convertvector(sum + slack, singles);
		most = __builtin_convertvector(narrow, numbers);
		narrow = __builtin_convertvector(sum - slack, singles);
		least = __builtin_convertvector(narrow, numbers);
		sure = least == most;
	}
	memcpy(each, &sure, sizeof(each));
	for (__u64 lane = 0; lane < FB_LANES; lane++) {
		if (each[lane])
			continue;
		if (width == 8)
			fb_one_of_64((char *)&least + lane * 8, parts, count, at + lane);
		else
			fb_one_of_32((char *)&narrow + lane * 4, parts, count, at + lane);
	}
	/* Only now, since `into` may be a part. */
	memcpy((char *)into + at * width, width == 8 ? (void *)&least : (void *)&narrow,
	       FB_LANES * width);
}

/* All vectors' full of elements from number `at` on. Returns the number of the first of the rest.
 */
FB_LANES_TARGET
static __attribute__((noinline)) __u64 FB_LANES_SUM(void *into, const void *const *parts,
						    __u64 count, __u64 at, __u64 elements,
						    __u64 width)
{
	/* Each case is compiled separately. */
	for (; at + FB_LANES <= elements; at += FB_LANES) {
		if (width == 8 && count == 2)
			FB_LANES_SOME(into, parts, 2, at, 8);
		else if (width == 8)
			FB_LANES_SOME(into, parts, count, at, 8);
		else if (count == 2)
			FB_LANES_SOME(into, parts, 2, at, 4);
		else
			FB_LANES_SOME(into, parts, count, at, 4);
	}
	return at;
}

#undef FB_LANES
#undef FB_LANES_SOME
#undef FB_LANES_SUM
#undef FB_LANES_TARGET
