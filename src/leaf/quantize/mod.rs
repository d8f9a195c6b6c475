//! Floating point as integers of fewer bits, with an exponent that a block of numbers has in common on all ranks. So
//! a sum is one of integers: its bits are the same in any order, and the programs in the kernel can make it.
//! The proof in docs/using/quantization.md states how far it is off.
//!
//! Rounded to nearest or by chance, whatever the program has set. The compiler makes vectors of it, to the same bits:
//! portable ones, and of 256 bits where this CPU has them.

mod memory;
mod numbers;
mod vectors;

use std::iter;

use serde::{Deserialize, Serialize};

use super::arithmetic::{self, Element};
use Number::{BF16, F16, F32, F64};
pub use memory::{Lender, Lent};
use numbers::{Brain, Dither, Half, Lane, Noise, Real, Silence};
use vectors::{Work, in_the_usual_environment, vectorized};

/// A format of the numbers that are quantized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// IEEE 754's binary16.
    F16,
    /// bfloat16, the upper half of a float.
    BF16,
    /// IEEE 754's binary32.
    F32,
    /// IEEE 754's binary64.
    F64,
}

impl From<arithmetic::Real> for Number {
    fn from(real: arithmetic::Real) -> Self {
        match real {
            arithmetic::Real::F32 => Self::F32,
            arithmetic::Real::F64 => Self::F64,
        }
    }
}

impl Number {
    /// The format as processes fold it, if they do.
    pub fn real(self) -> Option<arithmetic::Real> {
        match self {
            F32 => Some(arithmetic::Real::F32),
            F64 => Some(arithmetic::Real::F64),
            F16 | BF16 => None,
        }
    }
}

/// The type of integers that are sent.
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

    /// Its type.
    pub fn element(self) -> Element {
        match self {
            Self::Int8 => Element::I8,
            Self::Int16 => Element::I16,
            Self::Int32 => Element::I32,
        }
    }

    /// Bits of the greatest integer that one of `ranks` may bring, so that no sum overflows; `None`: there are too
    /// many ranks.
    pub fn bits(self, ranks: usize) -> Option<u32> {
        let most = i32::MAX as usize >> (32 - 8 * self.bytes());
        (most / ranks.max(1)).checked_ilog2().filter(|bits| *bits > 0)
    }
}

/// The choice of the integer that a number becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// The nearest, of ties the even one.
    Nearest,
    /// One of the two next to it, the nearer one the likelier, so that the mean of many is the number. The seed is
    /// from [`Rounding::drawn_for`].
    Stochastic(u64),
}

impl Rounding {
    /// By chance, another for words that hardly differ, alike in every run.
    /// (The step of SplitMix64: Steele, Lea and Flood, OOPSLA 2014.)
    pub fn drawn_for(words: [u64; 4]) -> Self {
        Self::Stochastic(words.into_iter().fold(0, |seed, word| {
            let mut mixed = (seed ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        }))
    }
}

/// Numbers of a kind, cut into blocks, that so many ranks add up.
#[derive(Clone, Copy, Debug)]
pub struct Quantizer {
    element: Number,
    width: Width,
    /// Numbers of a block; the last one may have fewer.
    block: usize,
    bits: u32,
}

impl Quantizer {
    /// `None`: there are too many ranks, or a block has no numbers.
    pub fn new(element: Number, width: Width, block: usize, ranks: usize) -> Option<Self> {
        Some(Self { element, width, block, bits: width.bits(ranks)? }).filter(|_| block > 0)
    }

    /// Bytes of a number.
    pub fn size(&self) -> usize {
        match self.element {
            F16 | BF16 => 2,
            F32 => 4,
            F64 => 8,
        }
    }

    /// Blocks of so many numbers.
    pub fn blocks(&self, numbers: usize) -> usize {
        numbers.div_ceil(self.block)
    }

    /// The exponent of a block that has an infinity or a NaN.
    pub fn special(&self) -> u16 {
        match self.element {
            F16 => 0x1f,
            F32 | BF16 => 0xff,
            F64 => 0x7ff,
        }
    }

    /// The greatest exponent of each block, as the format has it. The common exponent is the greatest of all
    /// ranks'.
    ///
    /// Panics if there are not as many exponents as blocks.
    pub fn exponents(&self, numbers: &[u8], into: &mut [u16]) {
        assert_eq!(self.blocks(numbers.len() / self.size()), into.len());
        vectorized(Exponents { element: self.element, numbers, block: self.block, into });
    }

    /// Integers for numbers, none of which has a greater exponent than its block.
    ///
    /// Panics if the lengths differ.
    pub fn quantize(&self, numbers: &[u8], exponents: &[u16], rounding: Rounding, into: &mut [u8]) {
        let count = numbers.len() / self.size();
        assert!(self.blocks(count) == exponents.len() && into.len() == count * self.width.bytes());
        in_the_usual_environment(Integers { of: *self, numbers, exponents, rounding, into });
    }

    /// Adds the rounding errors of earlier integers to numbers.
    ///
    /// Panics if the lengths differ.
    pub fn add(&self, numbers: &[u8], left_out: &[u8], into: &mut [u8]) {
        assert!(numbers.len() == left_out.len() && numbers.len() == into.len());
        in_the_usual_environment(Sums { element: self.element, parts: [numbers, left_out], into });
    }

    /// Replaces numbers by the rounding errors of their integers.
    ///
    /// Panics if the lengths differ.
    pub fn leave_out(&self, numbers: &mut [u8], exponents: &[u16], integers: &[u8]) {
        let count = numbers.len() / self.size();
        assert!(self.blocks(count) == exponents.len());
        assert!(integers.len() == count * self.width.bytes());
        in_the_usual_environment(LeftOut { of: *self, numbers, exponents, integers });
    }

    /// Numbers of sums of integers: from one on, as many as there is room for.
    ///
    /// Panics if there are fewer sums, or not as many exponents as blocks.
    pub fn dequantize(&self, sums: &[u8], exponents: &[u16], first: usize, into: &mut [u8]) {
        let (count, width) = (into.len() / self.size(), self.width.bytes());
        assert!(self.blocks(sums.len() / width) == exponents.len());
        let sums = &sums[first * width..(first + count) * width];
        let begun = first % self.block;
        let exponents = &exponents[first / self.block..];
        in_the_usual_environment(Numbers { of: *self, sums, exponents, begun, into });
    }
}

/// Memory for the sums of a communicator, one after the other. It is kept, since the kernel has to clear new
/// memory first, page by page.
#[derive(Default)]
pub struct Scratch {
    words: Vec<u16>,
    integers: Vec<u8>,
    numbers: Vec<u8>,
    /// The rounding errors of the last sum of each length, with the element, for the sums that were made
    /// last.
    left_out: Vec<(Number, Vec<u8>)>,
    /// Sums so far.
    sums: u64,
    /// The sum that was begun last.
    begun: Begun,
}

#[derive(Default)]
struct Begun {
    /// Exponents and integers that it has room for.
    words: usize,
    integers: usize,
    carries: bool,
}

/// Lengths whose error is carried over, at most.
const MOST_LENGTHS: usize = 64;

/// Words whose greatest among all ranks tell whether they bring as many numbers.
const WITNESS: usize = 4;

/// The witness of so many numbers: their bits, and these inverted, whose greatest are the least's.
pub fn witness_of(count: usize) -> [u16; WITNESS] {
    let [low, high] = [count as u16, (count >> 16) as u16];
    [low, high, !low, !high]
}

/// Whether all ranks have the same witness, of which these are the greatest words.
pub fn is_alike(greatest: &[u16]) -> bool {
    matches!(greatest, &[low, high, not_low, not_high] if (low, high) == (!not_low, !not_high))
}

/// Room for the sum that was begun last, whatever is in it.
pub struct Room<'a> {
    /// For the exponents of the blocks, and behind them [`witness_of`] the numbers.
    pub words: &'a mut [u16],
    /// For the integers of a part.
    pub integers: &'a mut [u8],
    /// If errors are carried over: room for the numbers, and the errors of the last time.
    pub carried: Option<(&'a mut Vec<u8>, &'a mut Vec<u8>)>,
    /// The number of this sum, counted from 1.
    pub number: u64,
}

impl Scratch {
    /// Forgets the rounding errors of earlier sums.
    pub fn forget(&mut self) {
        self.left_out.clear();
    }

    /// Begins a sum of so many bytes by a quantizer, `part` numbers at a time.
    pub fn begin(&mut self, quantizer: &Quantizer, bytes: usize, part: usize, carry: bool) {
        let count = bytes / quantizer.size();
        let words = quantizer.blocks(count) + WITNESS;
        let integers = count.min(part) * quantizer.width.bytes();
        self.words.resize(self.words.len().max(words), 0);
        self.integers.resize(self.integers.len().max(integers), 0);
        if carry {
            self.numbers.resize(bytes, 0);
            find_left_out(&mut self.left_out, quantizer.element, bytes);
        }
        self.sums += 1;
        self.begun = Begun { words, integers, carries: carry };
    }

    /// Its room.
    pub fn room(&mut self) -> Room<'_> {
        let Begun { words, integers, carries } = self.begun;
        let carried = self.left_out.last_mut().filter(|_| carries);
        Room {
            words: &mut self.words[..words],
            integers: &mut self.integers[..integers],
            carried: carried.map(|(_, left_out)| (&mut self.numbers, left_out)),
            number: self.sums,
        }
    }

    /// Carries its rounding errors, which stand in the place of its numbers, over to the next sum of its length.
    pub fn carry(&mut self) {
        if let Some((numbers, left_out)) = self.room().carried {
            std::mem::swap(numbers, left_out);
        }
    }
}

/// Puts the rounding errors of sums of this length last; zeros, at first.
fn find_left_out(all: &mut Vec<(Number, Vec<u8>)>, element: Number, bytes: usize) {
    let is_this = |(of, left): &(Number, Vec<u8>)| *of == element && left.len() == bytes;
    match all.iter().position(is_this) {
        Some(at) => all[at..].rotate_left(1),
        None => {
            if all.len() == MOST_LENGTHS {
                all.remove(0);
            }
            all.push((element, vec![0; bytes]));
        }
    }
}

/// Does a work's part for its own type of numbers.
macro_rules! of_its_numbers {
    ($work:ident) => {
        match $work.element {
            F16 => $work.of::<Half, 2>(),
            BF16 => $work.of::<Brain, 2>(),
            F32 => $work.of::<f32, 4>(),
            F64 => $work.of::<f64, 8>(),
        }
    };
}

/// Does a work's part for its own type of numbers and of integers.
macro_rules! of_its_kind {
    ($work:ident) => {
        match ($work.of.element, $work.of.width) {
            (F16, Width::Int8) => $work.of::<Half, 2, i8, 1>(),
            (F16, Width::Int16) => $work.of::<Half, 2, i16, 2>(),
            (F16, Width::Int32) => $work.of::<Half, 2, i32, 4>(),
            (BF16, Width::Int8) => $work.of::<Brain, 2, i8, 1>(),
            (BF16, Width::Int16) => $work.of::<Brain, 2, i16, 2>(),
            (BF16, Width::Int32) => $work.of::<Brain, 2, i32, 4>(),
            (F32, Width::Int8) => $work.of::<f32, 4, i8, 1>(),
            (F32, Width::Int16) => $work.of::<f32, 4, i16, 2>(),
            (F32, Width::Int32) => $work.of::<f32, 4, i32, 4>(),
            (F64, Width::Int8) => $work.of::<f64, 8, i8, 1>(),
            (F64, Width::Int16) => $work.of::<f64, 8, i16, 2>(),
            (F64, Width::Int32) => $work.of::<f64, 8, i32, 4>(),
        }
    };
}

/// Whether floats hold all values between numbers and integers of so many bytes. A unit is a float, maybe a
/// subnormal one, and so is its product with 16 bits.
#[inline(always)]
fn are_floats<N: Real<S>, const S: usize, const W: usize>() -> bool {
    N::IS_IN_FLOATS && W <= 2
}

struct Exponents<'a> {
    element: Number,
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
        of_its_numbers!(self)
    }
}

struct Integers<'a> {
    of: Quantizer,
    numbers: &'a [u8],
    exponents: &'a [u16],
    rounding: Rounding,
    into: &'a mut [u8],
}

impl Integers<'_> {
    #[inline(always)]
    fn of<N: Real<S>, const S: usize, L: Lane<W>, const W: usize>(self) {
        match self.rounding {
            Rounding::Nearest if are_floats::<N, S, W>() => self.in_floats::<N, S, L, W>(),
            Rounding::Nearest => self.with::<N, S, L, W>(Silence),
            Rounding::Stochastic(seed) => self.with::<N, S, L, W>(Noise::new(seed)),
        }
    }

    #[inline(always)]
    fn in_floats<N: Real<S>, const S: usize, L: Lane<W>, const W: usize>(self) {
        let Quantizer { block, bits, .. } = self.of;
        let (numbers, _) = self.numbers.as_chunks::<S>();
        let (into, _) = self.into.as_chunks_mut::<W>();
        let blocks = numbers.chunks(block).zip(into.chunks_mut(block)).zip(self.exponents);
        for ((numbers, into), exponent) in blocks {
            let scale = N::scale((*exponent).into(), bits).map(|scale| scale as f32);
            for (number, lane) in numbers.iter().zip(into) {
                *lane = L::narrow(N::load(number).scaled_in_floats(scale));
            }
        }
    }

    #[inline(always)]
    fn with<N: Real<S>, const S: usize, L: Lane<W>, const W: usize>(self, dither: impl Dither) {
        let Quantizer { block, bits, .. } = self.of;
        let (numbers, _) = self.numbers.as_chunks::<S>();
        let (into, _) = self.into.as_chunks_mut::<W>();
        let blocks = numbers.chunks(block).zip(into.chunks_mut(block)).zip(self.exponents);
        let mut first = 0_u32;
        for ((numbers, into), exponent) in blocks {
            let scale = N::scale((*exponent).into(), bits);
            for (place, (number, lane)) in (first..).zip(numbers.iter().zip(into)) {
                *lane = L::narrow(N::load(number).scaled(scale, dither.at(place)));
            }
            first = first.wrapping_add(block as u32);
        }
    }
}

impl Work for Integers<'_> {
    #[inline(always)]
    fn work(self) {
        of_its_kind!(self)
    }
}

struct Sums<'a> {
    element: Number,
    parts: [&'a [u8]; 2],
    into: &'a mut [u8],
}

impl Sums<'_> {
    #[inline(always)]
    fn of<N: Real<S>, const S: usize>(self) {
        let [(first, _), (second, _)] = self.parts.map(|part| part.as_chunks::<S>());
        let (into, _) = self.into.as_chunks_mut::<S>();
        for ((first, second), sum) in first.iter().zip(second).zip(into) {
            *sum = N::store(N::load(first).wide() + N::load(second).wide());
        }
    }
}

impl Work for Sums<'_> {
    #[inline(always)]
    fn work(self) {
        of_its_numbers!(self)
    }
}

struct LeftOut<'a> {
    of: Quantizer,
    numbers: &'a mut [u8],
    exponents: &'a [u16],
    integers: &'a [u8],
}

impl LeftOut<'_> {
    #[inline(always)]
    fn of<N: Real<S>, const S: usize, L: Lane<W>, const W: usize>(self) {
        let Quantizer { block, bits, .. } = self.of;
        let (numbers, _) = self.numbers.as_chunks_mut::<S>();
        let (integers, _) = self.integers.as_chunks::<W>();
        let blocks = numbers.chunks_mut(block).zip(integers.chunks(block)).zip(self.exponents);
        for ((numbers, integers), exponent) in blocks {
            let exponent = (*exponent).into();
            let (scale, unit) = (N::scale(exponent, bits), N::unit(exponent, bits));
            for (number, lane) in numbers.iter_mut().zip(integers) {
                let left = N::load(number).without(L::widen(*lane), scale, unit);
                *number = N::store(left);
            }
        }
    }
}

impl Work for LeftOut<'_> {
    #[inline(always)]
    fn work(self) {
        of_its_kind!(self)
    }
}

struct Numbers<'a> {
    of: Quantizer,
    sums: &'a [u8],
    exponents: &'a [u16],
    /// Numbers of the first block that are not asked for.
    begun: usize,
    into: &'a mut [u8],
}

impl Numbers<'_> {
    #[inline(always)]
    fn of<N: Real<S>, const S: usize, L: Lane<W>, const W: usize>(self) {
        let Quantizer { block, bits, .. } = self.of;
        let (sums, _) = self.sums.as_chunks::<W>();
        let (into, _) = self.into.as_chunks_mut::<S>();
        let rest = sums.len().min(block - self.begun);
        let ((sums, more_sums), (into, more_into)) = (sums.split_at(rest), into.split_at_mut(rest));
        let sums = iter::once(sums).chain(more_sums.chunks(block));
        let into = iter::once(into).chain(more_into.chunks_mut(block));
        for ((sums, into), exponent) in sums.zip(into).zip(self.exponents) {
            let unit = N::unit((*exponent).into(), bits);
            if are_floats::<N, S, W>() {
                for (sum, number) in sums.iter().zip(into) {
                    *number = N::store_float(L::widen(*sum) as f32 * unit as f32);
                }
                continue;
            }
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

    /// The result of ranks that add these up.
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
            quantizer.quantize(numbers, &exponents, Rounding::Nearest, &mut lanes);
            for (sum, lane) in sums.iter_mut().zip(lanes.chunks(width.bytes())) {
                *sum += integer(lane);
            }
        }
        assert!(sums.iter().all(|sum| sum.abs() < 1 << (bits - 1)));
        let lanes: Vec<u8> =
            sums.iter().flat_map(|sum| sum.to_le_bytes()[..width.bytes()].to_vec()).collect();
        let mut into = vec![0xa5; count * quantizer.size()];
        quantizer.dequantize(&lanes, &exponents, 0, &mut into);
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
    }

    #[test]
    fn unlike_counts_have_witnesses() {
        let counts = [0, 1, 2, 0xffff, 0x1_0000, 0x1_0001, 0x2_0000, 0x7fff_ffff];
        for one in counts {
            for other in counts {
                let (one_of, other_of) = (witness_of(one), witness_of(other));
                let greatest: Vec<_> =
                    one_of.iter().zip(&other_of).map(|(a, b)| *a.max(b)).collect();
                assert_eq!(is_alike(&greatest), one == other, "{one}, {other}");
            }
        }
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

    /// The vectors of this CPU and portable ones.
    #[test]
    fn all_vectors_make_the_same_bits() {
        // Not a whole number of vectors, nor of blocks.
        let (count, block) = (1013, 100);
        for element in [F32, F64, F16, BF16] {
            for width in [Width::Int8, Width::Int16, Width::Int32] {
                let of = Quantizer::new(element, width, block, 4).unwrap();
                let value =
                    |at: usize| (at as f64 * 0.37).sin() * 1.5_f64.powi(at as i32 % 40 - 20);
                let numbers: Vec<u8> = match of.size() {
                    2 => bytes_of((0..count).map(|at| ((at as u16 * 59) & 0xb3ff).to_ne_bytes())),
                    4 => bytes_of((0..count).map(|at| (value(at) as f32).to_ne_bytes())),
                    _ => bytes_of((0..count).map(|at| value(at).to_ne_bytes())),
                };
                let made = |work: &dyn Fn(&mut [u8]), bytes| {
                    let mut into = vec![0xa5; bytes];
                    work(&mut into);
                    into
                };
                let mut exponents = [vec![0; of.blocks(count)], vec![0; of.blocks(count)]];
                of.exponents(&numbers, &mut exponents[0]);
                Exponents { element, numbers: &numbers, block, into: &mut exponents[1] }.work();
                assert_eq!(exponents[0], exponents[1]);
                let exponents = &exponents[0][..];
                for rounding in [Rounding::Nearest, Rounding::Stochastic(7)] {
                    let bytes = count * width.bytes();
                    let numbers = &numbers[..];
                    let integers =
                        made(&|into| of.quantize(numbers, exponents, rounding, into), bytes);
                    let portable = made(
                        &|into| Integers { of, numbers, exponents, rounding, into }.work(),
                        bytes,
                    );
                    assert!(integers == portable, "{element:?} {width:?} {rounding:?}");
                    let sums = &integers[..];
                    let back = made(&|into| of.dequantize(sums, exponents, 0, into), numbers.len());
                    let portable = made(
                        &|into| Numbers { of, sums, exponents, begun: 0, into }.work(),
                        numbers.len(),
                    );
                    assert!(back == portable, "{element:?} {width:?} back");
                }
            }
        }
    }
}
