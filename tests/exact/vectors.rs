//! Terms of sums that are hard in one way or another.

use super::random::Rng;
use super::reference::Format;

pub fn shuffle(rng: &mut Rng, terms: &mut [u64]) {
    for last in (1..terms.len()).rev() {
        terms.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

/// Of an exponent of `from` to `to`, the rest random; one in eight with all or no bits of the fraction.
fn number(rng: &mut Rng, format: Format, from: u64, to: u64) -> u64 {
    let exponent = from + rng.below(to - from + 1);
    let ones = (1 << format.fraction) - 1;
    let fraction = match rng.below(16) {
        0 => ones,
        1 => 0,
        _ => rng.next() & ones,
    };
    sign(rng, format) | exponent << format.fraction | fraction
}

fn sign(rng: &mut Rng, format: Format) -> u64 {
    if rng.below(2) == 0 { format.minus() } else { 0 }
}

/// `count` terms of some kind, in random order.
pub fn any(rng: &mut Rng, format: Format, count: usize) -> Vec<u64> {
    let last = format.infinite() - 1;
    let near = 1 + rng.below(last - 12);
    let one_of = |rng: &mut Rng, among: &[u64]| among[rng.below(among.len() as u64) as usize];
    let mut terms: Vec<u64> = match rng.below(10) {
        0 => (0..count).map(|_| number(rng, format, 0, last)).collect(),
        1 => (0..count).map(|_| number(rng, format, near, near)).collect(),
        2 => (0..count).map(|_| number(rng, format, near, near + 12)).collect(),
        3 => (0..count).map(|_| number(rng, format, 0, 2)).collect(),
        // Over the limit, and now and then back.
        4 => (0..count).map(|_| number(rng, format, last - 1, last)).collect(),
        5 => cancelling(rng, format, count),
        6 => ties(rng, format, count),
        7 => (0..count).map(|_| integer(rng, format)).collect(),
        8 => {
            let rarely = rng.below(8);
            let zero = |rng: &mut Rng| sign(rng, format) & if rarely < 2 { 0 } else { u64::MAX };
            let mut terms: Vec<_> = (0..count).map(|_| zero(rng)).collect();
            if rarely & 1 == 0 {
                terms.fill(format.minus());
            }
            if rarely > 5 {
                terms[0] = number(rng, format, 0, last);
            }
            terms
        }
        _ => {
            // Infinities and NaNs among numbers.
            let (infinity, minus) = (format.infinity(), format.minus());
            let nan = infinity | (1 + rng.next() % ((1 << format.fraction) - 1));
            let specials = [infinity, minus | infinity, nan, minus | nan, minus, 0];
            let (kinds, share) = (1 + rng.below(6) as usize, 1 + rng.below(32));
            let offset = rng.below(6) as usize;
            let special = |rng: &mut Rng| specials[(offset + rng.below(kinds as u64) as usize) % 6];
            let term = |rng: &mut Rng| match rng.below(share) {
                0 => special(rng),
                1 => one_of(rng, &specials),
                _ => number(rng, format, last - 3, last),
            };
            (0..count).map(|_| term(rng)).collect()
        }
    };
    shuffle(rng, &mut terms);
    terms
}

/// Pairs of a number and its negative, or one that differs in the last bit; and a small remainder.
fn cancelling(rng: &mut Rng, format: Format, count: usize) -> Vec<u64> {
    let last = format.infinite() - 1;
    let (from, to) = if rng.below(2) == 0 { (0, last) } else { (last / 2, last / 2 + 9) };
    let mut terms = Vec::new();
    while terms.len() + 1 < count {
        let x = number(rng, format, from, to);
        let other = x ^ format.minus();
        terms.push(x);
        terms.push(if rng.below(4) == 0 { other ^ 1 } else { other });
    }
    let reach = rng.below(to) + 1;
    terms.resize_with(count, || number(rng, format, 0, reach));
    terms
}

/// A number, one half of its last bit, perhaps one or two that are far smaller, and pairs that cancel.
fn ties(rng: &mut Rng, format: Format, count: usize) -> Vec<u64> {
    let last = format.infinite() - 1;
    let digits = u64::from(format.fraction) + 1;
    let exponent = digits + 1 + rng.below(last - digits);
    let plus = number(rng, format, exponent, exponent) & !format.minus();
    let half = (exponent - digits) << format.fraction;
    let flip = sign(rng, format);
    let mut terms = vec![plus ^ flip, half ^ flip ^ sign(rng, format)];
    for _ in 0..rng.below(3) {
        let reach = rng.below(exponent - digits);
        terms.push(number(rng, format, 0, reach));
    }
    while terms.len() + 1 < count {
        let x = number(rng, format, 0, exponent);
        terms.extend([x, x ^ format.minus()]);
    }
    terms.resize(count, 0);
    terms
}

/// A whole number of up to 20 bits.
fn integer(rng: &mut Rng, format: Format) -> u64 {
    let n = (rng.next() >> (44 + rng.below(20))) as f32;
    let bits = if format.width() == 8 { f64::from(n).to_bits() } else { u64::from(n.to_bits()) };
    sign(rng, format) | bits
}
