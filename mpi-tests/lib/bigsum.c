/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bigsum.h"

#include <math.h>

enum { LOWEST = -1074, BITS = 64 * BIGSUM_WORDS };

void bigsum_add(struct bigsum *sum, double x)
{
	int exponent;
	double fraction = frexp(x, &exponent); /* x = fraction * 2^exponent */
	uint64_t number, add[BIGSUM_WORDS] = {0}, carry;

	sum->terms++;
	sum->other |= x != 0 || !signbit(x);
	sum->nan |= isnan(x);
	if (isinf(x))
		*(x > 0 ? &sum->plus : &sum->minus) = true;
	if (!isfinite(x) || x == 0)
		return;
	/* As a whole number of the lowest bit's worth: 53 bits, of which those below are zeros. */
	number = (uint64_t)ldexp(fabs(fraction), 53);
	for (int place = exponent - 53 - LOWEST; number; number >>= 1, place++)
		if (number & 1)
			add[place / 64] |= 1ULL << place % 64;
	carry = x < 0;
	for (int i = 0; i < BIGSUM_WORDS; i++) {
		unsigned __int128 word = (x < 0 ? ~add[i] : add[i]);

		word += carry;
		carry = (uint64_t)(word >> 64);
		word = (uint64_t)word;
		word += sum->words[i];
		sum->words[i] = (uint64_t)word;
		carry += (uint64_t)(word >> 64);
	}
}

static bool bit_of(const uint64_t words[], int place)
{
	return place >= 0 && words[place / 64] >> place % 64 & 1;
}

/* The nearest number of `precision` bits whose lowest is worth 2^least at least; above `largest`,
 * infinity. */
static double rounded(const struct bigsum *sum, int precision, int least, double largest)
{
	bool negative = sum->words[BIGSUM_WORDS - 1] >> 63, half, rest = false;
	uint64_t magnitude[BIGSUM_WORDS], number = 0;
	int top = -1, last;
	double result;

	if (sum->nan || (sum->plus && sum->minus))
		return NAN;
	if (sum->plus || sum->minus)
		return sum->plus ? INFINITY : -INFINITY;
	for (int i = 0, carry = negative; i < BIGSUM_WORDS; i++) {
		magnitude[i] = (negative ? ~sum->words[i] : sum->words[i]) + (uint64_t)carry;
		carry = carry && magnitude[i] == 0;
	}
	for (int place = BITS - 1; place >= 0 && top < 0; place--)
		if (bit_of(magnitude, place))
			top = place;
	if (top < 0)
		return sum->terms && !sum->other ? -0.0 : 0.0;
	last = top - precision + 1;
	if (last < least - LOWEST)
		last = least - LOWEST;
	for (int place = top; place >= last; place--)
		number = number << 1 | bit_of(magnitude, place);
	half = bit_of(magnitude, last - 1);
	for (int place = last - 2; place >= 0 && !rest; place--)
		rest = bit_of(magnitude, place);
	number += half && (rest || number & 1);
	result = ldexp((double)number, last + LOWEST);
	if (result > largest)
		result = INFINITY;
	return negative ? -result : result;
}

double bigsum_double(const struct bigsum *sum)
{
	return rounded(sum, 53, -1074, 0x1.fffffffffffffp1023);
}

float bigsum_float(const struct bigsum *sum)
{
	return (float)rounded(sum, 24, -149, 0x1.fffffep127);
}
