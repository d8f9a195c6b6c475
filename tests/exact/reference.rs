//! Exact sums by integers of any length, rounded by comparing with the half.

use std::cmp::Ordering;

use num_bigint::BigInt;

/// A binary format of IEEE 754.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Format {
    /// Bits of the fraction.
    pub fraction: u32,
    /// Bits of the exponent.
    exponent: u32,
}

pub const BINARY64: Format = Format { fraction: 52, exponent: 11 };
pub const BINARY32: Format = Format { fraction: 23, exponent: 8 };

impl Format {
    /// Bytes of a number.
    pub fn width(self) -> usize {
        (self.fraction + self.exponent + 1) as usize / 8
    }

    /// The exponent of infinities and NaNs.
    pub fn infinite(self) -> u64 {
        (1 << self.exponent) - 1
    }

    /// The sign.
    pub fn minus(self) -> u64 {
        1 << (self.fraction + self.exponent)
    }

    pub fn infinity(self) -> u64 {
        self.infinite() << self.fraction
    }

    fn is_nan(self, bits: u64) -> bool {
        bits & !self.minus() > self.infinity()
    }

    /// A finite number, in units of the least subnormal.
    fn integer(self, bits: u64) -> BigInt {
        let size = bits & !self.minus();
        let exponent = size >> self.fraction;
        let magnitude = if exponent == 0 {
            BigInt::from(size)
        } else {
            BigInt::from(size - ((exponent - 1) << self.fraction)) << (exponent - 1)
        };
        if bits & self.minus() == 0 { magnitude } else { -magnitude }
    }

    /// The number next to the integer; of two, the even one. Zero is +0.
    fn round(self, integer: &BigInt) -> u64 {
        let sign = if integer < &BigInt::ZERO { self.minus() } else { 0 };
        let magnitude = BigInt::from(integer.magnitude().clone());
        let beyond = magnitude.bits().saturating_sub(u64::from(self.fraction) + 1);
        let mut kept = &magnitude >> beyond;
        let twice_lost: BigInt = (magnitude - (&kept << beyond)) << 1;
        let up = match twice_lost.cmp(&(BigInt::from(1) << beyond)) {
            Ordering::Less => false,
            Ordering::Equal => kept.bit(0) && beyond > 0,
            Ordering::Greater => true,
        };
        kept += i32::from(up);
        let kept = u64::try_from(kept).expect("as many bits as a fraction has, and one or two");
        if beyond + 1 >= self.infinite() {
            return sign | self.infinity();
        }
        let size = if kept >> self.fraction == 0 {
            kept
        } else if kept >> (self.fraction + 1) == 0 {
            (beyond + 1) << self.fraction | kept & ((1 << self.fraction) - 1)
        } else {
            (beyond + 2) << self.fraction
        };
        sign | size
    }
}

pub fn sum(format: Format, terms: &[u64]) -> u64 {
    let any = |bits: u64| terms.contains(&bits);
    let (infinity, minus) = (format.infinity(), format.minus());
    if terms.iter().any(|&bits| format.is_nan(bits)) || any(infinity) && any(minus | infinity) {
        infinity | 1 << (format.fraction - 1)
    } else if any(infinity) {
        infinity
    } else if any(minus | infinity) {
        minus | infinity
    } else if !terms.is_empty() && terms.iter().all(|&bits| bits == minus) {
        minus
    } else {
        format.round(&terms.iter().map(|&bits| format.integer(bits)).sum())
    }
}

/// The sum of so many equal numbers.
pub fn times(format: Format, bits: u64, count: u64) -> u64 {
    format.round(&(format.integer(bits) * count))
}
