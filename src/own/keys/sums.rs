//! Sums of floating point, exact and rounded once: pure.
//!
//! A sum under way is a few doubles whose exact sum it is. Most are a non-overlapping expansion (Shewchuk, "Adaptive
//! precision floating-point arithmetic and fast robust geometric predicates", 1997), which grows by a number without
//! any rounding error. So the sum has the same bits in any order, however its numbers are spread over ranks.

use std::cmp::Ordering;

use crate::leaf::arithmetic::Real;
use crate::leaf::{exact, order};

/// From here on a sum of two might be infinite.
const HUGE: f64 = f64::from_bits((1000 + 1023) << 52);

/// A sum under way.
#[derive(Default)]
pub(super) struct Sum {
    /// The expansion, the least first.
    expansion: Vec<f64>,
    /// Numbers that are no part of it: huge ones.
    apart: Vec<f64>,
    /// An infinity or a NaN, beside which nothing else counts.
    special: Option<f64>,
    /// Some number was not -0.
    is_other: bool,
}

impl Sum {
    pub(super) fn clear(&mut self) {
        self.expansion.clear();
        self.apart.clear();
        (self.special, self.is_other) = (None, false);
    }

    /// Adds a number. In the default [environment](exact::plainly).
    pub(super) fn add(&mut self, number: f64) {
        self.is_other |= number.to_bits() != (-0f64).to_bits();
        if !number.is_finite() {
            self.special = Some(self.special.map_or(number, |special| special + number));
        } else if number.abs() >= HUGE {
            self.apart.push(number);
        } else if number != 0.0 {
            self.grow(number);
        }
    }

    /// Shewchuk's Grow-Expansion, without zeros.
    fn grow(&mut self, number: f64) {
        let (mut sum, mut kept) = (number, 0);
        for at in 0..self.expansion.len() {
            let (next, error) = two_sum(sum, self.expansion[at]);
            if error != 0.0 {
                self.expansion[kept] = error;
                kept += 1;
            }
            sum = next;
        }
        self.expansion.truncate(kept);
        if sum.abs() >= HUGE {
            self.apart.push(sum);
        } else if sum != 0.0 {
            self.expansion.push(sum);
        }
    }

    /// Numbers with the same sum, at least one; none is added if all were -0.
    pub(super) fn numbers(&self, numbers: &mut Vec<f64>) {
        numbers.clear();
        if let Some(special) = self.special {
            numbers.push(special);
            return;
        }
        numbers.extend(&self.apart);
        // Shewchuk's Compress: from the greatest number down, each takes what it can of the next.
        let mut sum = 0.0;
        for number in self.expansion.iter().rev() {
            let (greater, left) = two_sum(sum, *number);
            if left == 0.0 {
                sum = greater;
            } else {
                numbers.push(greater);
                sum = left;
            }
        }
        if sum != 0.0 {
            numbers.push(sum);
        }
        if numbers.is_empty() {
            numbers.push(if self.is_other { 0.0 } else { -0.0 });
        }
    }
}

/// `x + y`, rounded, and what that leaves out (Knuth).
fn two_sum(x: f64, y: f64) -> (f64, f64) {
    let sum = x + y;
    let of_y = sum - x;
    let of_x = sum - of_y;
    (sum, (x - of_x) + (y - of_y))
}

/// The sum of some numbers, rounded once to this format, as it lies in memory. Numbers for a float are sums of floats.
pub(super) fn rounded(numbers: &[f64], format: Real, values: &mut Vec<u8>) {
    let sum = sum(numbers);
    match format {
        Real::F64 => values.extend(sum.to_ne_bytes()),
        Real::F32 => values.extend(single(sum, numbers).to_ne_bytes()),
    }
}

/// The exact sum of some numbers, rounded to a double.
fn sum(numbers: &[f64]) -> f64 {
    let words: Vec<_> = numbers.iter().map(|number| number.to_ne_bytes()).collect();
    let parts: Vec<&[u8]> = words.iter().map(<[u8; 8]>::as_slice).collect();
    let mut into = [0; 8];
    exact::sum(&mut into, &parts, Real::F64);
    f64::from_ne_bytes(into)
}

/// The sum of some numbers, rounded to a float, where `sum` is the double next to it.
///
/// A double half-way between two floats would be rounded twice. So where it is not the sum itself, the odd one of the
/// two doubles around the sum stands for it, which is half-way between no floats.
fn single(sum: f64, numbers: &[f64]) -> f32 {
    if sum.is_nan() {
        return f32::from_bits(0x7fc0_0000);
    }
    let is_even = sum.to_bits() & 1 == 0;
    if numbers.len() == 1 || !sum.is_finite() || !is_even {
        return sum as f32;
    }
    let left: Vec<f64> = numbers.iter().copied().chain([-sum]).collect();
    let odd = match self::sum(&left).partial_cmp(&0.0) {
        Some(Ordering::Greater) => sum.next_up(),
        Some(Ordering::Less) => sum.next_down(),
        _ => sum,
    };
    odd as f32
}

/// The numbers of values as they lie in memory.
pub(super) fn widen(values: &[u8], format: Real, mut each: impl FnMut(f64)) {
    match format {
        Real::F64 => {
            values.as_chunks().0.iter().for_each(|bytes| each(f64::from_ne_bytes(*bytes)));
        }
        Real::F32 => {
            values.as_chunks().0.iter().for_each(|bytes| each(f32::from_ne_bytes(*bytes).into()));
        }
    }
}

/// A number in the order of reals, of one as it lies in memory. A NaN is the greatest.
pub(super) fn rank(value: &[u8], format: Real) -> u64 {
    let key = order::keys(value, format, true);
    let key = match key.len() {
        4 => i32::from_ne_bytes(key[..4].try_into().expect("4 bytes")).into(),
        _ => i64::from_ne_bytes(key[..8].try_into().expect("8 bytes")),
    };
    key.cast_unsigned() ^ 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    /// The sum by expansions, of which several are made and then put together, as ranks do.
    fn by_expansions(numbers: &[f64], ranks: usize, format: Real) -> Vec<u8> {
        let (mut whole, mut some) = (Sum::default(), Vec::new());
        for rank in 0..ranks {
            let mut sum = Sum::default();
            numbers.iter().skip(rank).step_by(ranks).for_each(|number| sum.add(*number));
            if rank < numbers.len() {
                sum.numbers(&mut some);
                some.iter().for_each(|number| whole.add(*number));
            }
        }
        whole.numbers(&mut some);
        let mut value = Vec::new();
        rounded(&some, format, &mut value);
        value
    }

    fn by_leaf(numbers: &[f64], format: Real) -> Vec<u8> {
        let bytes = |number: &f64| match format {
            Real::F32 => (*number as f32).to_ne_bytes().to_vec(),
            Real::F64 => number.to_ne_bytes().to_vec(),
        };
        let words: Vec<_> = numbers.iter().map(bytes).collect();
        let parts: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut into = vec![0; format.bytes()];
        exact::sum(&mut into, &parts, format);
        into
    }

    #[test]
    fn sums_are_the_exact_ones_however_they_are_spread() {
        let mut random = Rng(17);
        for format in [Real::F64, Real::F32] {
            for round in 0..3000 {
                let count = 1 + random.below(40) as usize;
                let mut numbers: Vec<f64> = (0..count)
                    .map(|_| {
                        let bits = random.next();
                        let any = match format {
                            // Small mantissas make ties, and exponents near each other cancel.
                            Real::F64 if round % 3 == 0 => f64::from_bits(
                                bits & (0x8007 << 48 | 0xff) | (1000 + random.below(60)) << 52,
                            ),
                            Real::F64 => f64::from_bits(bits),
                            Real::F32 if round % 3 == 0 => {
                                let exponent = (100 + random.below(60)) as u32;
                                let bits = bits as u32;
                                f32::from_bits(bits & 0x8060_0003 | exponent << 23).into()
                            }
                            Real::F32 => f32::from_bits(bits as u32).into(),
                        };
                        match random.below(20) {
                            0 => 0.0,
                            1 => -0.0,
                            _ if any.is_finite() => any,
                            _ if round % 5 == 0 => any,
                            _ => 1.0,
                        }
                    })
                    .collect();
                if random.below(4) == 0 {
                    let opposite: Vec<_> = numbers.iter().map(|number| -number).collect();
                    numbers.extend(opposite);
                }
                for ranks in [1, 2, 5] {
                    assert_eq!(
                        by_expansions(&numbers, ranks, format),
                        by_leaf(&numbers, format),
                        "{numbers:?} on {ranks} as {format:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn zeros_ties_and_huge_numbers_are_as_in_exact_sums() {
        let max = f64::MAX;
        for numbers in [
            &[-0.0][..],
            &[-0.0, -0.0],
            &[-0.0, 0.0],
            &[1.0, -1.0],
            &[1e300, 1.0, -1e300],
            &[max, max, -max, -max, 5e-324],
            &[max, max],
            &[max, 1e292],
            &[f64::INFINITY, max, max],
            &[f64::INFINITY, 1.0, f64::NEG_INFINITY],
            &[f64::NAN, 1.0],
        ] {
            for ranks in [1, 3] {
                assert_eq!(by_expansions(numbers, ranks, Real::F64), by_leaf(numbers, Real::F64));
            }
        }
        // Half-way between two floats but for a little more or less, which a double does not show.
        let half = f64::from(f32::EPSILON) / 2.0;
        let little = f64::from(2f32.powi(-100));
        let big = f64::from(f32::MAX);
        for numbers in [
            &[1.0, half][..],
            &[1.0, half, little],
            &[1.0, half, -little],
            &[1.0, 3.0 * half, -little],
            &[big, big, -big],
            &[big, big],
            &[big, f64::from(2f32.powi(103))],
            &[big, f64::from(2f32.powi(103)), -little],
        ] {
            assert_eq!(by_expansions(numbers, 1, Real::F32), by_leaf(numbers, Real::F32));
        }
    }

    /// Many numbers of like size take no more room than some.
    #[test]
    fn an_expansion_stays_short() {
        let (mut sum, mut random) = (Sum::default(), Rng(1));
        for _ in 0..100_000 {
            sum.add(random.next() as i64 as f64 * 1e-9);
        }
        let mut numbers = Vec::new();
        sum.numbers(&mut numbers);
        assert!(numbers.len() <= 3, "{numbers:?}");
    }
}
