//! Exact sums of floating point, rounded once, to nearest (`bpf/exact.h`, natively by `bpf/exact.c`). The bits
//! are the same in any order, however the numbers are spread over ranks and hosts, and whatever floating-point
//! environment the program has set.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;

use super::arithmetic::Real;
use crate::bindings as b;

/// `into[i] = parts[0][i] + parts[1][i] + ...`, exactly, then rounded to nearest, ties to even, for elements of
/// this format, which need not be aligned. The old contents of `into` do not count.
///
/// Beyond the largest number is infinity. A NaN, or infinities of both signs, make the positive quiet NaN
/// without payload. A sum of zero is -0 if all its terms are, else +0; without parts it is +0.
///
/// Panics if the lengths differ or are not of whole elements.
pub fn sum(into: &mut [u8], parts: &[&[u8]], format: Real) {
    sum_by(into, parts, format, fastest());
}

/// Does `work` in the default floating-point environment, whatever the program has set: to nearest, with subnormal
/// numbers. The compiler moves no calculation across the calls, since `work` is called too.
pub fn plainly<T>(work: &mut dyn FnMut() -> T) -> T {
    /// Longer than `fenv_t` of any machine.
    type Environment = [u64; 8];
    unsafe extern "C" {
        fn fegetenv(environment: *mut Environment) -> c_int;
        fn fesetenv(environment: *const Environment) -> c_int;
    }
    /// FE_DFL_ENV.
    const DEFAULT: *const Environment = ptr::without_provenance(usize::MAX);
    let mut before: Environment = [0; 8];
    // SAFETY: room for an environment, which is then set again; the default is a constant of glibc's.
    unsafe {
        fegetenv(&raw mut before);
        fesetenv(DEFAULT);
        let done = std::hint::black_box(work)();
        fesetenv(&raw const before);
        done
    }
}

/// The fastest way to sum that this CPU has (`enum fb_exact_by`).
pub fn fastest() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx512dq") {
            b::FB_EXACT_BY_AVX512
        } else if has!("avx2") {
            b::FB_EXACT_BY_AVX2
        } else {
            b::FB_EXACT_BY_SSE2
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    b::FB_EXACT_BY_INTEGERS
}

/// [`sum`] in the given way, or a lesser one if this CPU does not have it. The bits are the same.
pub fn sum_by(into: &mut [u8], parts: &[&[u8]], format: Real, by: u32) {
    /// Parts that need no allocation.
    const FEW: usize = 64;

    let width = match format {
        Real::F32 => 4,
        Real::F64 => 8,
    };
    assert!(into.len().is_multiple_of(width), "whole elements");
    assert!(parts.iter().all(|part| part.len() == into.len()), "parts as long as the sum");
    let mut few = [ptr::null(); FEW];
    let many: Vec<*const c_void>;
    let pointers = if parts.len() <= FEW {
        for (pointer, part) in few.iter_mut().zip(parts) {
            *pointer = part.as_ptr().cast();
        }
        &few[..parts.len()]
    } else {
        many = parts.iter().map(|part| part.as_ptr().cast()).collect();
        &many
    };
    // SAFETY: `into` and all parts have so many elements of this width, and need not be aligned. The CPU has
    // what the sum is made by.
    unsafe {
        b::fb_exact_sum(
            into.as_mut_ptr().cast(),
            pointers.as_ptr(),
            pointers.len() as u64,
            (into.len() / width) as u64,
            width as u64,
            by.min(fastest()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::Real::{F32, F64};
    use super::sum;

    fn doubles(parts: &[&[f64]]) -> Vec<f64> {
        let bytes = |part: &[f64]| part.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>();
        let parts: Vec<_> = parts.iter().map(|part| bytes(part)).collect();
        let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        let mut into = vec![0x5a; parts[0].len()];
        sum(&mut into, &parts, F64);
        into.as_chunks().0.iter().map(|x| f64::from_ne_bytes(*x)).collect()
    }

    #[test]
    fn a_sum_is_rounded_once() {
        let huge = 1e300;
        assert_eq!(doubles(&[&[huge, 1.0], &[1.0, huge], &[-huge, -huge]]), [1.0, 1.0]);
        // Ten tenths are a little more than 1, by less than half of what 1 can be told from.
        assert_eq!(doubles(&[&[0.1][..]; 10]), [1.0]);
        let (one, half, bit) = (1.0, f64::EPSILON / 2.0, f64::from_bits(1));
        assert_eq!(doubles(&[&[one; 2], &[half; 2], &[bit, -bit]]), [1.0 + f64::EPSILON, 1.0]);
        assert_eq!(doubles(&[&[f64::MAX], &[f64::MAX], &[-f64::MAX]]), [f64::MAX]);
        assert_eq!(doubles(&[&[f64::MAX; 2], &[1.0, 1e292]]), [f64::MAX, f64::INFINITY]);
    }

    #[test]
    fn zeros_have_signs_and_nans_have_not() {
        let bits = |parts: &[&[f64]]| doubles(parts)[0].to_bits();
        assert_eq!(bits(&[&[-0.0][..]; 3]), 1 << 63);
        assert_eq!(bits(&[&[-0.0], &[0.0], &[-0.0]]), 0);
        assert_eq!(bits(&[&[-1.0], &[1.0], &[-0.0]]), 0);
        assert_eq!(bits(&[&[f64::INFINITY], &[1.0], &[f64::NEG_INFINITY]]), 0x7ff8 << 48);
        for count in 1..5 {
            assert_eq!(bits(&vec![&[f64::from_bits(0xfff0 << 48 | 7)][..]; count]), 0x7ff8 << 48);
        }
    }

    #[test]
    fn a_single_is_not_rounded_to_a_double_first() {
        // 1 + 2^-24 is half-way; what comes below decides, and is lost in a double.
        let parts = [1.0f32, 2f32.powi(-24), 2f32.powi(-80)].map(f32::to_ne_bytes);
        let parts = parts.each_ref().map(|part| &part[..]);
        let mut into = [0; 4];
        sum(&mut into, &parts, F32);
        assert_eq!(f32::from_ne_bytes(into), 1.0 + f32::EPSILON);
    }

    #[test]
    fn no_parts_are_zero_and_no_elements_nothing() {
        let mut into = [0x5a; 8];
        sum(&mut into, &[], F64);
        assert_eq!(into, [0; 8]);
        sum(&mut [], &[&[], &[]], F32);
    }

    #[test]
    #[should_panic(expected = "parts as long as the sum")]
    fn a_part_that_is_too_short_is_refused() {
        sum(&mut [0; 8], &[&[0; 8], &[0; 7]], F64);
    }
}
