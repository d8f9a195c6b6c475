//! The fold in user space: among ranks of one host with the same meaning as `bpf/fold.h`; and of floating
//! point, which the kernel does not fold.
//!
//! Floating point is folded in the order in which the calls come, and to the same bits on every CPU: where
//! IEEE 754 leaves a choice, it is made here. Only rounding and denormals follow the settings of the
//! thread, as in an MPI.
#![allow(unsafe_code)]

use super::arithmetic::{Arithmetic, Element, Operator};
use super::order::Ordered;

/// `into[i] = op(into[i], from[i])` for whole elements, which need not be aligned.
///
/// Panics if the lengths differ, and at bitwise and logical ops of floating point.
pub fn fold(into: &mut [u8], from: &[u8], arithmetic: Arithmetic) {
    assert_eq!(into.len(), from.len());
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: this CPU has it.
        unsafe { with_avx2(into, from, arithmetic) };
        return;
    }
    portable(into, from, arithmetic);
}

/// The same in vectors of 256 bits, made of the same source by the compiler.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(into: &mut [u8], from: &[u8], arithmetic: Arithmetic) {
    portable(into, from, arithmetic);
}

#[inline(always)]
fn portable(into: &mut [u8], from: &[u8], Arithmetic { op, element }: Arithmetic) {
    match element {
        Element::I8 => integers::<i8, 1>(into, from, op),
        Element::U8 => integers::<u8, 1>(into, from, op),
        Element::I16 => integers::<i16, 2>(into, from, op),
        Element::U16 => integers::<u16, 2>(into, from, op),
        Element::I32 => integers::<i32, 4>(into, from, op),
        Element::U32 => integers::<u32, 4>(into, from, op),
        Element::I64 => integers::<i64, 8>(into, from, op),
        Element::U64 => integers::<u64, 8>(into, from, op),
        Element::F32 => reals::<f32, 4>(into, from, op),
        Element::F64 => reals::<f64, 8>(into, from, op),
    }
}

trait Value<const SIZE: usize>: Copy + PartialOrd {
    fn load(bytes: [u8; SIZE]) -> Self;
    fn store(self) -> [u8; SIZE];
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
}

trait Integer<const SIZE: usize>: Value<SIZE> + Ord + Default {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn truth(value: bool) -> Self;
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Value<{ size_of::<$type>() }> for $type {
            fn load(bytes: [u8; size_of::<$type>()]) -> Self { Self::from_ne_bytes(bytes) }
            fn store(self) -> [u8; size_of::<$type>()] { self.to_ne_bytes() }
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            fn prod(self, other: Self) -> Self { self.wrapping_mul(other) }
        }

        impl Integer<{ size_of::<$type>() }> for $type {
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
            fn truth(value: bool) -> Self { Self::from(value) }
        }
    )*};
}

integer!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! real {
    ($type:ident, $bits:ty, $quiet:literal, $indefinite:literal) => {
        impl Value<{ size_of::<$type>() }> for $type {
            fn load(bytes: [u8; size_of::<$type>()]) -> Self {
                Self::from_ne_bytes(bytes)
            }
            fn store(self) -> [u8; size_of::<$type>()] {
                self.to_ne_bytes()
            }
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                $type::settled(self + other, self, other)
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                $type::settled(self * other, self, other)
            }
        }

        impl Settled for $type {
            #[inline(always)]
            fn settled(result: Self, left: Self, right: Self) -> Self {
                let nan = |x: Self| x.is_nan();
                let from = if nan(left) {
                    left.to_bits() | $quiet
                } else if nan(right) {
                    right.to_bits() | $quiet
                } else {
                    $indefinite
                };
                Self::from_bits(if nan(result) { from } else { result.to_bits() })
            }
        }
    };
}

/// Settles which NaN a sum or product is. The left operand's NaN comes first, then the right one's, made
/// quiet, then the one that x86 makes of operations without a value. The compiler may exchange the
/// operands, after which the CPU would choose otherwise.
trait Settled {
    fn settled(result: Self, left: Self, right: Self) -> Self;
}

real!(f32, u32, 0x0040_0000, 0xffc0_0000);
real!(f64, u64, 0x0008_0000_0000_0000, 0xfff8_0000_0000_0000);

// One loop an op, so that the compiler makes vectors of each.
#[inline(always)]
fn integers<T: Integer<SIZE>, const SIZE: usize>(into: &mut [u8], from: &[u8], op: Operator) {
    let zero = T::default();
    match op {
        Operator::Sum => each::<T, SIZE>(into, from, T::sum),
        Operator::Prod => each::<T, SIZE>(into, from, T::prod),
        Operator::Min => each::<T, SIZE>(into, from, T::min),
        Operator::Max => each::<T, SIZE>(into, from, T::max),
        Operator::Band => each::<T, SIZE>(into, from, T::and),
        Operator::Bor => each::<T, SIZE>(into, from, T::or),
        Operator::Bxor => each::<T, SIZE>(into, from, T::xor),
        Operator::Land => each::<T, SIZE>(into, from, |x, y| T::truth(x != zero && y != zero)),
        Operator::Lor => each::<T, SIZE>(into, from, |x, y| T::truth(x != zero || y != zero)),
        Operator::Lxor => each::<T, SIZE>(into, from, |x, y| T::truth((x != zero) != (y != zero))),
    }
}

#[inline(always)]
fn reals<T: Value<SIZE> + Ordered<SIZE>, const SIZE: usize>(
    into: &mut [u8],
    from: &[u8],
    op: Operator,
) {
    match op {
        Operator::Sum => each::<T, SIZE>(into, from, T::sum),
        Operator::Prod => each::<T, SIZE>(into, from, T::prod),
        // The MPIs differ about NaNs and zeros of unlike signs, even within one MPI.
        Operator::Min => each::<T, SIZE>(into, from, |x, y| T::of(x.key(false).min(y.key(false)))),
        Operator::Max => each::<T, SIZE>(into, from, |x, y| T::of(x.key(true).max(y.key(true)))),
        _ => unreachable!("floating point has no {op:?}"),
    }
}

#[inline(always)]
fn each<T: Value<SIZE>, const SIZE: usize>(
    into: &mut [u8],
    from: &[u8],
    combine: impl Fn(T, T) -> T,
) {
    let (into, _) = into.as_chunks_mut::<SIZE>();
    let (from, _) = from.as_chunks::<SIZE>();
    for (x, y) in into.iter_mut().zip(from) {
        *x = combine(T::load(*x), T::load(*y)).store();
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::{Arithmetic, Element, Operator, fold, portable};

    #[test]
    fn sums_wrap_and_unsigned_compares_as_unsigned() {
        let check = |op, element, x: &[u8], y: &[u8], want: &[u8]| {
            let mut into = x.to_vec();
            fold(&mut into, y, Arithmetic { op, element });
            assert_eq!(into, want);
        };
        check(Operator::Sum, Element::I8, &[127], &[1], &[128]);
        check(Operator::Sum, Element::U16, &[255, 255], &[1, 0], &[0, 0]);
        check(Operator::Max, Element::U8, &[200], &[100], &[200]);
        check(Operator::Max, Element::I8, &[200], &[100], &[100]);
        check(Operator::Land, Element::U8, &[7, 0], &[9, 1], &[1, 0]);
        check(Operator::Lxor, Element::U8, &[7, 0], &[9, 1], &[0, 1]);
    }

    /// Random bits, and one in four a special value of floating point.
    fn inputs(seed: u64, count: usize, special: &[u64], width: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            // Splitmix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        let mut element = || match next() {
            n if n & 3 == 0 => special[(n >> 8) as usize % special.len()],
            n => n,
        };
        (0..count).flat_map(|_| element().to_ne_bytes()[..width].to_vec()).collect()
    }

    /// Zeros, infinities, NaNs quiet and not with payloads of their own, denormals, the ends.
    const SPECIAL_32: &[u64] = &[
        0,
        0x8000_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0001,
        0xffc1_2345,
        0x7f80_0077,
        0xffa0_0001,
        1,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x7f7f_ffff,
        0xff7f_ffff,
        0x3f80_0000,
    ];
    const SPECIAL_64: &[u64] = &[
        0,
        1 << 63,
        0x7ff0 << 48,
        0xfff0 << 48,
        0x7ff8 << 48 | 1,
        0xfff9 << 48 | 0x2345,
        0x7ff0 << 48 | 0x77,
        0xfff4 << 48 | 1,
        1,
        1 << 63 | 1,
        (1 << 52) - 1,
        1 << 52,
        0x7fef_ffff_ffff_ffff,
        0xffef_ffff_ffff_ffff,
        0x3ff0 << 48,
    ];

    macro_rules! twin {
        ($name:ident, $type:ident, $element:expr, $special:expr, $quiet:expr, $indefinite:expr) => {
            /// All ways of folding give the bits of one element at a time. This reference states all
            /// that is promised, and the compiler cannot make vectors of it.
            #[test]
            fn $name() {
                const WIDTH: usize = size_of::<$type>();
                let one = |x: $type, y: $type, op| -> $type {
                    let (x, y) = (black_box(x), black_box(y));
                    let is_less = y < x || (y == x && y.is_sign_negative());
                    let nan = <$type>::from_bits($indefinite).abs();
                    let result = black_box(match op {
                        Operator::Sum => x + y,
                        Operator::Prod => x * y,
                        _ if x.is_nan() || y.is_nan() => return nan,
                        _ if is_less == (op == Operator::Min) => return y,
                        _ => return x,
                    });
                    match (result.is_nan(), x.is_nan(), y.is_nan()) {
                        (false, ..) => result,
                        (_, true, _) => <$type>::from_bits(x.to_bits() | $quiet),
                        (_, _, true) => <$type>::from_bits(y.to_bits() | $quiet),
                        _ => <$type>::from_bits($indefinite),
                    }
                };
                let count = 4099;
                for op in [Operator::Sum, Operator::Prod, Operator::Min, Operator::Max] {
                    let arithmetic = Arithmetic { op, element: $element };
                    for (seed, skipped) in [(1, 0), (2, 1), (3, 3)] {
                        // Off every alignment.
                        let inputs = |seed| inputs(seed, count, $special, WIDTH);
                        let shifted = |seed| [vec![0; skipped], inputs(seed)].concat();
                        let (x, y) = (&shifted(seed)[skipped..], &shifted(seed + 100)[skipped..]);
                        let (mut by_simd, mut by_others) = (shifted(seed), shifted(seed));
                        let (by_simd, by_others) =
                            (&mut by_simd[skipped..], &mut by_others[skipped..]);
                        fold(by_simd, y, arithmetic);
                        portable(by_others, y, arithmetic);
                        let pairs = x.as_chunks::<WIDTH>().0.iter().zip(y.as_chunks::<WIDTH>().0);
                        for (i, (x, y)) in pairs.enumerate() {
                            let (x, y) = (<$type>::from_ne_bytes(*x), <$type>::from_ne_bytes(*y));
                            let want = one(x, y, op).to_ne_bytes();
                            let at = i * WIDTH..(i + 1) * WIDTH;
                            assert_eq!(by_simd[at.clone()], want, "{op:?}, {x:e}, {y:e}");
                            assert_eq!(by_others[at], want, "{op:?}, {x:e}, {y:e}");
                        }
                    }
                }
            }
        };
    }

    twin!(floats_are_the_same_bit_for_bit, f32, Element::F32, SPECIAL_32, 1 << 22, 0xffc0_0000);
    twin!(doubles_are_the_same_bit_for_bit, f64, Element::F64, SPECIAL_64, 1 << 51, 0xfff8 << 48);

    #[test]
    fn a_nan_is_seen_and_zeros_have_an_order() {
        let check = |op, x: f64, y: f64, want: f64| {
            let mut into = x.to_ne_bytes();
            fold(&mut into, &y.to_ne_bytes(), Arithmetic { op, element: Element::F64 });
            assert_eq!(into, want.to_ne_bytes(), "{op:?} of {x} and {y}");
        };
        for op in [Operator::Min, Operator::Max] {
            check(op, -f64::NAN, f64::INFINITY, f64::NAN);
            check(op, f64::NEG_INFINITY, -f64::NAN, f64::NAN);
        }
        for (x, y) in [(-0.0, 0.0), (0.0, -0.0)] {
            check(Operator::Min, x, y, -0.0);
            check(Operator::Max, x, y, 0.0);
        }
        check(Operator::Sum, -0.0, 0.0, 0.0);
        check(Operator::Min, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY);
    }
}
