//! Floating point as integers of fewer bits, with an exponent for each block of numbers that all who add up have in
//! common: so their sum is one of integers, the same bits in any order, and which the programs in the kernel can make.
//! docs/quantization.md states and proves how far it is off.
//!
//! Rounded to nearest, whatever the program has set. The compiler makes vectors of it: portable ones, and of 256 bits
//! where this CPU has them, to the same bits.
#![allow(unsafe_code)]

use serde::{Deserialize, Serialize};

use super::fold::{F32, F64};
use crate::bindings as b;

/// What numbers are sent as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Width {
    /// Two's complement, of 8 bits.
    Int8,
    /// Of 16.
    Int16,
    /// Of 32.
    Int32,
}

impl Width {
    /// Bytes of an integer.
    pub fn bytes(self) -> usize {
        match self {
            Self::Int8 => 1,
            Self::Int16 => 2,
            Self::Int32 => 4,
        }
    }

    /// Its type, of `enum fb_type`.
    pub fn element(self) -> u8 {
        match self {
            Self::Int8 => b::FB_TYPE_I8 as u8,
            Self::Int16 => b::FB_TYPE_I16 as u8,
            Self::Int32 => b::FB_TYPE_I32 as u8,
        }
    }

    /// Bits of the greatest integer that one of `ranks` may bring, so that no sum overflows; `None`: there are too
    /// many ranks.
    pub fn bits(self, ranks: usize) -> Option<u32> {
        let most = i32::MAX as usize >> (32 - 8 * self.bytes());
        (most / ranks.max(1)).checked_ilog2().filter(|bits| *bits > 0)
    }
}

/// Numbers of a kind, cut into blocks, that so many ranks add up.
#[derive(Clone, Copy, Debug)]
pub struct Quantizer {
    /// [`F32`] or [`F64`].
    element: u8,
    width: Width,
    /// Numbers of a block; the last one may have fewer.
    block: usize,
    bits: u32,
}

impl Quantizer {
    /// `None`: such numbers, or so many ranks, it does not serve.
    pub fn new(element: u8, width: Width, block: usize, ranks: usize) -> Option<Self> {
        let serves = matches!(element, F32 | F64) && block > 0;
        Some(Self { element, width, block, bits: width.bits(ranks)? }).filter(|_| serves)
    }

    /// Bytes of a number.
    fn size(&self) -> usize {
        if self.element == F32 { 4 } else { 8 }
    }

    /// Blocks of so many numbers.
    pub fn blocks(&self, numbers: usize) -> usize {
        numbers.div_ceil(self.block)
    }

    /// The exponent of a block that has an infinity, or what is no number.
    pub fn special(&self) -> u16 {
        if self.element == F32 { 0xff } else { 0x7ff }
    }

    /// The greatest exponent of each block, as the format has it. What ranks have in common is the greatest of
    /// theirs.
    ///
    /// Panics if there are not as many exponents as blocks.
    pub fn exponents(&self, numbers: &[u8], into: &mut [u16]) {
        assert_eq!(self.blocks(numbers.len() / self.size()), into.len());
        vectorized(Exponents { element: self.element, numbers, block: self.block, into });
    }

    /// Integers for numbers, none of which has a greater exponent than its block.
    ///
    /// Panics if the lengths differ.
    pub fn quantize(&self, numbers: &[u8], exponents: &[u16], into: &mut [u8]) {
        let count = numbers.len() / self.size();
        assert!(self.blocks(count) == exponents.len() && into.len() == count * self.width.bytes());
        in_the_usual_environment(Integers { of: *self, numbers, exponents, into });
    }

    /// Numbers of sums of integers.
    ///
    /// Panics if the lengths differ.
    pub fn dequantize(&self, sums: &[u8], exponents: &[u16], into: &mut [u8]) {
        let count = into.len() / self.size();
        assert!(self.blocks(count) == exponents.len() && sums.len() == count * self.width.bytes());
        in_the_usual_environment(Numbers { of: *self, sums, exponents, into });
    }
}

/// What one sum after the other is made in: memory that is new has to be cleared by the kernel first, page by page.
#[derive(Default)]
pub struct Scratch {
    exponents: Vec<u16>,
    integers: Vec<u8>,
}

impl Scratch {
    /// Room for so many exponents and so many bytes of integers, whatever is in it.
    pub fn room(&mut self, exponents: usize, bytes: usize) -> (&mut [u16], &mut [u8]) {
        if self.exponents.len() < exponents {
            self.exponents.resize(exponents, 0);
        }
        if self.integers.len() < bytes {
            self.integers.resize(bytes, 0);
        }
        (&mut self.exponents[..exponents], &mut self.integers[..bytes])
    }
}

/// Numbers as they lie in memory.
trait Real<const SIZE: usize>: Copy {
    fn load(bytes: &[u8; SIZE]) -> Self;
    /// The exponent, as the format has it.
    fn exponent(self) -> u32;
    /// How many of the units of a block with this exponent is 1, if its greatest number has so many `bits`.
    /// In two steps, each of which is in the range of doubles.
    fn scale(exponent: u32, bits: u32) -> [f64; 2];
    /// To nearest, ties to even.
    fn scaled(self, scale: [f64; 2]) -> i32;
    fn wide(self) -> f64;
    /// Such a unit.
    fn unit(exponent: u32, bits: u32) -> f64;
    /// A number, rounded.
    fn store(number: f64) -> [u8; SIZE];
}

macro_rules! real {
    ($real:ident, $mantissa:literal, $bias:literal) => {
        impl Real<{ size_of::<$real>() }> for $real {
            #[inline(always)]
            fn load(bytes: &[u8; size_of::<$real>()]) -> Self {
                Self::from_ne_bytes(*bytes)
            }

            #[inline(always)]
            fn exponent(self) -> u32 {
                ((self.to_bits() << 1) >> ($mantissa + 1)) as u32
            }

            fn scale(exponent: u32, bits: u32) -> [f64; 2] {
                let power = -unit_exponent(exponent, bits, $bias);
                [power / 2, power - power / 2].map(power_of_two)
            }

            // Scaling is exact, but for what comes to nothing. The sum is in units of 1, so it is rounded to
            // that, and its lowest bits are the integer's.
            #[inline(always)]
            fn scaled(self, [first, second]: [f64; 2]) -> i32 {
                const SHIFT: f64 = 1.5 * (1_u64 << 52) as f64;
                (Self::wide(self) * first * second + SHIFT).to_bits() as i32
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                self.into()
            }

            fn unit(exponent: u32, bits: u32) -> f64 {
                power_of_two(unit_exponent(exponent, bits, $bias))
            }

            #[inline(always)]
            fn store(number: f64) -> [u8; size_of::<$real>()] {
                (number as Self).to_ne_bytes()
            }
        }
    };
}

real!(f32, 23, 127);
real!(f64, 52, 1023);

/// Subnormals are of the same unit as the least normal numbers.
fn unit_exponent(exponent: u32, bits: u32, bias: i32) -> i32 {
    exponent.max(1) as i32 - bias + 1 - bits as i32
}

/// 2 to the `exponent`, which is at least -1074.
fn power_of_two(exponent: i32) -> f64 {
    match u64::try_from(exponent + 1022) {
        Ok(normal) => f64::from_bits((normal + 1) << 52),
        Err(_) => f64::from_bits(1 << (exponent + 1074)),
    }
}

/// Integers as they are sent.
trait Lane<const SIZE: usize> {
    fn narrow(value: i32) -> [u8; SIZE];
    fn widen(bytes: [u8; SIZE]) -> i32;
}

macro_rules! lane {
    ($lane:ident) => {
        impl Lane<{ size_of::<$lane>() }> for $lane {
            #[inline(always)]
            fn narrow(value: i32) -> [u8; size_of::<$lane>()] {
                (value as Self).to_ne_bytes()
            }

            #[inline(always)]
            fn widen(bytes: [u8; size_of::<$lane>()]) -> i32 {
                Self::from_ne_bytes(bytes).into()
            }
        }
    };
}

lane!(i8);
lane!(i16);
lane!(i32);

/// Does a work's part for the numbers and integers that it is of.
macro_rules! of_its_kind {
    ($work:ident) => {
        match ($work.of.element, $work.of.width) {
            (F32, Width::Int8) => $work.of::<f32, 4, i8, 1>(),
            (F32, Width::Int16) => $work.of::<f32, 4, i16, 2>(),
            (F32, Width::Int32) => $work.of::<f32, 4, i32, 4>(),
            (_, Width::Int8) => $work.of::<f64, 8, i8, 1>(),
            (_, Width::Int16) => $work.of::<f64, 8, i16, 2>(),
            (_, Width::Int32) => $work.of::<f64, 8, i32, 4>(),
        }
    };
}

/// What is made by the widest vectors that serve.
trait Work {
    /// To be inlined.
    fn work(self);
}

struct Exponents<'a> {
    element: u8,
    numbers: &'a [u8],
    block: usize,
    into: &'a mut [u16],
}

impl Exponents<'_> {
    #[inline(always)]
    fn of<N: Real<S>, const S: usize>(self) {
        let (numbers, _) = self.numbers.as_chunks::<S>();
        for (block, exponent) in numbers.chunks(self.block).zip(self.into) {
            let greatest = block.iter().map(|number| N::load(number).exponent()).fold(0, u32::max);
            *exponent = greatest as u16;
        }
    }
}

impl Work for Exponents<'_> {
    #[inline(always)]
    fn work(self) {
        match self.element {
            F32 => self.of::<f32, 4>(),
            _ => self.of::<f64, 8>(),
        }
    }
}

struct Integers<'a> {
    of: Quantizer,
    numbers: &'a [u8],
    exponents: &'a [u16],
    into: &'a mut [u8],
}

impl Integers<'_> {
    #[inline(always)]
    fn of<N: Real<S>, const S: usize, L: Lane<W>, const W: usize>(self) {
        let Quantizer { block, bits, .. } = self.of;
        let (numbers, _) = self.numbers.as_chunks::<S>();
        let (into, _) = self.into.as_chunks_mut::<W>();
        let blocks = numbers.chunks(block).zip(into.chunks_mut(block)).zip(self.exponents);
        for ((numbers, into), exponent) in blocks {
            let scale = N::scale((*exponent).into(), bits);
            for (number, lane) in numbers.iter().zip(into) {
                *lane = L::narrow(N::load(number).scaled(scale));
            }
        }
    }
}

impl Work for Integers<'_> {
    #[inline(always)]
    fn work(self) {
        of_its_kind!(self)
    }
}

struct Numbers<'a> {
    of: Quantizer,
    sums: &'a [u8],
    exponents: &'a [u16],
    into: &'a mut [u8],
}

impl Numbers<'_> {
    #[inline(always)]
    fn of<N: Real<S>, const S: usize, L: Lane<W>, const W: usize>(self) {
        let Quantizer { block, bits, .. } = self.of;
        let (sums, _) = self.sums.as_chunks::<W>();
        let (into, _) = self.into.as_chunks_mut::<S>();
        let blocks = sums.chunks(block).zip(into.chunks_mut(block)).zip(self.exponents);
        for ((sums, into), exponent) in blocks {
            let unit = N::unit((*exponent).into(), bits);
            for (sum, number) in sums.iter().zip(into) {
                *number = N::store(f64::from(L::widen(*sum)) * unit);
            }
        }
    }
}

impl Work for Numbers<'_> {
    #[inline(always)]
    fn work(self) {
        of_its_kind!(self)
    }
}

/// Does it by the widest vectors that serve.
#[inline(never)]
fn vectorized<W: Work>(work: W) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn with_avx2<W: Work>(work: W) {
            work.work();
        }
        // SAFETY: this CPU has it.
        unsafe { with_avx2(work) };
        return;
    }
    work.work();
}

/// The same, in the floating-point environment that every process begins with: rounding to nearest, subnormals kept.
/// What the program has set is there again afterwards, its flags too.
#[inline(never)]
fn in_the_usual_environment<W: Work>(work: W) {
    #[cfg(target_arch = "x86_64")]
    {
        let (usual, mut set): (u32, u32) = (0x1f80, 0);
        // SAFETY: a word of this function's is written, or read; what is set here is what Rust's own arithmetic
        // relies on.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut set, options(nostack));
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const usual, options(nostack));
        }
        vectorized(work);
        // SAFETY: likewise; it was set before.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const set, options(nostack)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    vectorized(work);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<const S: usize>(numbers: impl IntoIterator<Item = [u8; S]>) -> Vec<u8> {
        numbers.into_iter().flatten().collect()
    }

    /// A little-endian integer.
    fn integer(bytes: &[u8]) -> i64 {
        let unsigned = bytes.iter().rev().fold(0_i64, |all, byte| all << 8 | i64::from(*byte));
        let unused = 64 - 8 * bytes.len();
        unsigned << unused >> unused
    }

    /// What ranks get that add these up.
    fn sum_of(quantizer: &Quantizer, width: Width, ranks: &[Vec<u8>]) -> Option<Vec<u8>> {
        let count = ranks[0].len() / quantizer.size();
        let mut exponents = vec![0; quantizer.blocks(count)];
        for numbers in ranks {
            let mut own = vec![0; exponents.len()];
            quantizer.exponents(numbers, &mut own);
            exponents = exponents.iter().zip(&own).map(|(a, b)| *a.max(b)).collect();
        }
        if exponents.contains(&quantizer.special()) {
            return None;
        }
        let mut sums = vec![0_i64; count];
        let mut lanes = vec![0; count * width.bytes()];
        let bits = 8 * width.bytes() as u32;
        for numbers in ranks {
            quantizer.quantize(numbers, &exponents, &mut lanes);
            for (sum, lane) in sums.iter_mut().zip(lanes.chunks(width.bytes())) {
                *sum += integer(lane);
            }
        }
        assert!(sums.iter().all(|sum| sum.abs() < 1 << (bits - 1)));
        let lanes: Vec<u8> =
            sums.iter().flat_map(|sum| sum.to_le_bytes()[..width.bytes()].to_vec()).collect();
        let mut into = vec![0xa5; count * quantizer.size()];
        quantizer.dequantize(&lanes, &exponents, &mut into);
        Some(into)
    }

    #[test]
    fn room_is_left_for_the_sum_of_all() {
        for (width, most) in [
            (Width::Int8, i8::MAX as usize),
            (Width::Int16, i16::MAX as usize),
            (Width::Int32, i32::MAX as usize),
        ] {
            for ranks in 1..2000 {
                match width.bits(ranks) {
                    Some(bits) => assert!(ranks << bits <= most && ranks << (bits + 1) > most),
                    None => assert!(ranks << 1 > most),
                }
            }
        }
        assert_eq!((Width::Int8.bits(63), Width::Int8.bits(64)), (Some(1), None));
        assert_eq!((Width::Int16.bits(1 << 13), Width::Int16.bits(1 << 14)), (Some(1), None));
        assert!(Quantizer::new(F32, Width::Int16, 0, 2).is_none());
        assert!(Quantizer::new(b::FB_TYPE_I32 as u8, Width::Int16, 8, 2).is_none());
    }

    #[test]
    fn what_fits_is_exact() {
        // Powers of two and small integers have few bits.
        let numbers = [0.0, 1.0, -3.0, 5.5, -0.25, 1024.0, -7.5, 0.0625];
        for width in [Width::Int8, Width::Int16, Width::Int32] {
            let (f32s, f64s) = (
                bytes_of(numbers.map(|number| (number as f32).to_ne_bytes())),
                bytes_of(numbers.map(f64::to_ne_bytes)),
            );
            let block = if width == Width::Int32 { 8 } else { 1 };
            let of = |element| Quantizer::new(element, width, block, 4).unwrap();
            let four = |bytes: &Vec<u8>| vec![bytes.clone(); 4];
            let want = numbers.map(|number| 4.0 * number);
            let wide = sum_of(&of(F64), width, &four(&f64s)).unwrap();
            assert_eq!(wide, bytes_of(want.map(f64::to_ne_bytes)), "{width:?}");
            let narrow = sum_of(&of(F32), width, &four(&f32s)).unwrap();
            assert_eq!(narrow, bytes_of(want.map(|number| (number as f32).to_ne_bytes())));
        }
    }

    #[test]
    fn what_is_no_number_is_told_by_the_exponent() {
        for (element, numbers) in [
            (F32, bytes_of([1.0, f32::INFINITY, 2.0, 3.0].map(f32::to_ne_bytes))),
            (F64, bytes_of([1.0, 2.0, 3.0, f64::NAN].map(f64::to_ne_bytes))),
        ] {
            let quantizer = Quantizer::new(element, Width::Int16, 2, 2).unwrap();
            assert_eq!(sum_of(&quantizer, Width::Int16, &[numbers.clone(), numbers]), None);
        }
    }
}
