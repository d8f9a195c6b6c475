//! Floating point in the order of integers, so that a comparison of integers finds the least and the greatest:
//! by the programs in the kernel, too.
//!
//! Minimum and maximum follow IEEE 754-2019, section 9.6: −0 is below +0, and a NaN among the numbers is the answer.
//! The answer is then the positive quiet NaN without payload, as in exact sums. So it does not depend on the order
//! of comparisons.

use super::arithmetic::Real;

/// Numbers that have a key.
pub(super) trait Ordered<const SIZE: usize>: Copy {
    type Key: Ord + Copy;
    /// Keys are in the order of numbers. A NaN has the greatest key if `max`, else the least, so it wins.
    fn key(self, max: bool) -> Self::Key;
    /// The number of a key.
    fn of(key: Self::Key) -> Self;
    fn to_bytes(key: Self::Key) -> [u8; SIZE];
    fn from_bytes(bytes: [u8; SIZE]) -> Self::Key;
}

macro_rules! ordered {
    ($real:ident, $int:ident, $quiet:literal) => {
        impl Ordered<{ size_of::<$real>() }> for $real {
            type Key = $int;

            // Numbers are sign and magnitude, keys two's complement. Integers all the way: a comparison of floating
            // point may trap.
            #[inline(always)]
            fn key(self, max: bool) -> $int {
                let nan = if max { $int::MAX } else { $int::MIN };
                let bits = self.to_bits().cast_signed();
                let is_nan = bits & $int::MAX > Self::INFINITY.to_bits().cast_signed();
                if is_nan { nan } else { bits ^ ((bits >> ($int::BITS - 1)) & $int::MAX) }
            }

            #[inline(always)]
            fn of(key: $int) -> Self {
                let bits = key ^ ((key >> ($int::BITS - 1)) & $int::MAX);
                let is_nan = bits & $int::MAX > Self::INFINITY.to_bits().cast_signed();
                Self::from_bits(if is_nan { $quiet } else { bits.cast_unsigned() })
            }

            #[inline(always)]
            fn to_bytes(key: $int) -> [u8; size_of::<$real>()] {
                key.to_ne_bytes()
            }

            #[inline(always)]
            fn from_bytes(bytes: [u8; size_of::<$real>()]) -> $int {
                $int::from_ne_bytes(bytes)
            }
        }
    };
}

ordered!(f32, i32, 0x7fc0_0000);
ordered!(f64, i64, 0x7ff8_0000_0000_0000);

/// Keys of numbers as they lie in memory, of this format: signed integers of the same size, for their maximum (`max`)
/// or minimum.
pub fn keys(reals: &[u8], format: Real, max: bool) -> Vec<u8> {
    fn all<T: Ordered<SIZE>, const SIZE: usize>(
        reals: &[u8],
        load: impl Fn([u8; SIZE]) -> T,
        max: bool,
    ) -> Vec<u8> {
        let mut keys = reals.to_vec();
        for bytes in keys.as_chunks_mut::<SIZE>().0 {
            *bytes = T::to_bytes(load(*bytes).key(max));
        }
        keys
    }
    match format {
        Real::F32 => all(reals, f32::from_ne_bytes, max),
        Real::F64 => all(reals, f64::from_ne_bytes, max),
    }
}

/// The reverse of [`keys`].
///
/// Panics if `reals` is shorter than `keys`.
pub fn unkey(keys: &[u8], reals: &mut [u8], format: Real) {
    fn all<T: Ordered<SIZE>, const SIZE: usize>(reals: &mut [u8], store: impl Fn(T) -> [u8; SIZE]) {
        for bytes in reals.as_chunks_mut::<SIZE>().0 {
            *bytes = store(T::of(T::from_bytes(*bytes)));
        }
    }
    let reals = &mut reals[..keys.len()];
    reals.copy_from_slice(keys);
    match format {
        Real::F32 => all(reals, f32::to_ne_bytes),
        Real::F64 => all(reals, f64::to_ne_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_numbers() {
        let numbers = [
            f64::NEG_INFINITY,
            -1e300,
            -1.0,
            -f64::MIN_POSITIVE,
            -5e-324,
            -0.0,
            0.0,
            5e-324,
            1.0,
            f64::MAX,
            f64::INFINITY,
        ];
        for max in [false, true] {
            assert!(numbers.map(|x| x.key(max)).is_sorted_by(|x, y| x < y));
            assert!(numbers.map(|x| (x as f32).key(max)).is_sorted());
        }
        for nan in [f64::NAN, -f64::NAN, f64::from_bits(0xfff0_0000_0000_0005)] {
            assert!(numbers.iter().all(|x| x.key(false) > nan.key(false)));
            assert!(numbers.iter().all(|x| x.key(true) < nan.key(true)));
        }
    }

    #[test]
    fn keys_go_back_to_their_numbers_and_nans_to_one() {
        for exponent in 0..=0xff_u32 {
            for (sign, mantissa) in [(0, 0), (1, 0), (0, 1), (1, 0x7f_ffff), (0, 0x40_0005)] {
                let bits = sign << 31 | exponent << 23 | mantissa;
                let number = f32::from_bits(bits);
                let whole = number.to_ne_bytes();
                for max in [false, true] {
                    let mut back = [0; 4];
                    unkey(&keys(&whole, Real::F32, max), &mut back, Real::F32);
                    let want = if number.is_nan() { 0x7fc0_0000 } else { bits };
                    assert_eq!(u32::from_ne_bytes(back), want);
                }
            }
        }
    }
}
