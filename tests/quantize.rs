//! Quantized sums against exact ones: never further off than docs/using/quantization.md says, whatever the numbers; and
//! each integer against the same one found in another way.

#[path = "quantize/environment.rs"]
mod environment;
#[path = "common/random.rs"]
mod random;

use foldback::leaf::arithmetic::Real;
use foldback::leaf::exact;
use foldback::leaf::quantize::Number::{self, BF16, F16, F32, F64};
use foldback::leaf::quantize::{Quantizer, Rounding, Width};
use random::Rng;

/// A format of floating point, in terms of doubles.
#[derive(Clone, Copy)]
struct Format {
    element: Number,
    size: usize,
    greatest: f64,
    least: f64,
    /// Of the numbers next to 1.
    epsilon: f64,
    bias: i32,
}

const BINARY32: Format = Format {
    element: F32,
    size: 4,
    greatest: f32::MAX as f64,
    least: 1.401_298_464_324_817e-45,
    epsilon: f32::EPSILON as f64,
    bias: 127,
};
const BINARY64: Format = Format {
    element: F64,
    size: 8,
    greatest: f64::MAX,
    least: 5e-324,
    epsilon: f64::EPSILON,
    bias: 1023,
};

const BINARY16: Format = Format {
    element: F16,
    size: 2,
    greatest: 65504.0,
    least: 1.0 / (1 << 24) as f64,
    epsilon: 1.0 / (1 << 10) as f64,
    bias: 15,
};
const BFLOAT16: Format = Format {
    element: BF16,
    size: 2,
    greatest: 3.389_531_389_251_535_5e38,
    least: 9.183_549_615_799_121e-41,
    epsilon: 1.0 / (1 << 7) as f64,
    bias: 127,
};

impl Format {
    /// A number of 16 bits.
    fn short(self, bits: u16) -> f64 {
        let mantissa = (1.0 / self.epsilon) as u16;
        let (exponent, rest) = (i32::from(bits % 0x8000 / mantissa), bits % mantissa);
        let implied = f64::from(u8::from(exponent > 0));
        let magnitude =
            (implied + f64::from(rest) * self.epsilon) * 2f64.powi(exponent.max(1) - self.bias);
        if bits < 0x8000 { magnitude } else { -magnitude }
    }

    /// The number of 16 bits next to it towards zero.
    fn cut(self, number: f64) -> u16 {
        let (mut bits, sign) = (0, u16::from(number.is_sign_negative()) << 15);
        for bit in (0..15).rev().map(|bit| 1 << bit) {
            if self.short(bits | bit) <= number.abs().min(self.greatest) {
                bits |= bit;
            }
        }
        bits | sign
    }

    fn store(self, numbers: &[f64]) -> Vec<u8> {
        let bytes = |number: &f64| match self.element {
            F16 | BF16 => self.cut(*number).to_ne_bytes().to_vec(),
            F32 => (*number as f32).to_ne_bytes().to_vec(),
            _ => number.to_ne_bytes().to_vec(),
        };
        numbers.iter().flat_map(bytes).collect()
    }

    fn load(self, bytes: &[u8]) -> Vec<f64> {
        let number = |bytes: &[u8]| match self.element {
            F16 | BF16 => self.short(u16::from_ne_bytes(bytes.try_into().unwrap())),
            F32 => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
            _ => f64::from_ne_bytes(bytes.try_into().unwrap()),
        };
        bytes.chunks_exact(self.size).map(number).collect()
    }
}

/// From -1 to 1.
fn uniform(rng: &mut Rng) -> f64 {
    (rng.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// A number of a kind.
fn number(rng: &mut Rng, format: Format, kind: u64, at: u64) -> f64 {
    let number = match kind {
        0 => uniform(rng),
        // About normal.
        1 => (0..12).map(|_| uniform(rng)).sum::<f64>() * 1e-3,
        // With a heavy tail.
        2 => uniform(rng).powi(-3),
        3 => uniform(rng) * format.least * 1e4,
        4 => [0.0, -0.0][rng.below(2) as usize],
        5 if at == 7 => uniform(rng) * 1e30,
        5 => uniform(rng) * 1e-30,
        6 => 1.0 / 3.0,
        7 => [format.greatest, -format.greatest][rng.below(2) as usize],
        // Any exponent.
        _ => {
            uniform(rng) * 2f64.powi(rng.below(2 * format.bias as u64 - 4) as i32 - format.bias + 2)
        }
    };
    number.clamp(-format.greatest, format.greatest)
}

struct Case {
    format: Format,
    width: Width,
    block: usize,
    rounding: Rounding,
    ranks: Vec<Vec<u8>>,
}

impl Case {
    fn drawn(rng: &mut Rng) -> Self {
        let format = [BINARY32, BINARY64, BINARY16, BFLOAT16][rng.below(4) as usize];
        let width = [Width::Int8, Width::Int16, Width::Int32][rng.below(3) as usize];
        let (block, count) = (1 + rng.below(40) as usize, 1 + rng.below(400));
        // Of 64 none has a bit of eight.
        let most = [63, 8, 8, 8][rng.below(4) as usize];
        let ranks = 1 + rng.below(most);
        let kind = rng.below(9);
        let numbers = |rng: &mut Rng| {
            let all: Vec<_> = (0..count).map(|at| number(rng, format, kind, at)).collect();
            format.store(&all)
        };
        let ranks = (0..ranks).map(|_| numbers(rng)).collect();
        let rounding = match rng.below(2) {
            0 => Rounding::Nearest,
            _ => Rounding::Stochastic(rng.next()),
        };
        Self { format, width, block, rounding, ranks }
    }

    fn check(&self, rng: &mut Rng) -> usize {
        let Self { format, width, block, rounding, ranks } = self;
        let members = ranks.len();
        let quantizer = Quantizer::new(format.element, *width, *block, members).expect("it serves");
        let bits = width.bits(members).unwrap() as i32;
        let count = ranks[0].len() / format.size;
        let mut exponents = vec![0; quantizer.blocks(count)];
        for numbers in ranks {
            let mut own = vec![0; exponents.len()];
            quantizer.exponents(numbers, &mut own);
            exponents.iter_mut().zip(own).for_each(|(all, own)| *all = own.max(*all));
        }
        // The unit of each number's block.
        let unit = |at: usize| {
            let exponent = i32::from(exponents[at / block].max(1)) - format.bias + 1 - bits;
            2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
        };
        let mut sums = vec![0_i64; count];
        let mut lanes = vec![0; count * width.bytes()];
        for numbers in ranks {
            quantizer.quantize(numbers, &exponents, *rounding, &mut lanes);
            let mut left_out = numbers.clone();
            quantizer.leave_out(&mut left_out, &exponents, &lanes);
            let left_out = format.load(&left_out);
            for (at, (lane, number)) in
                lanes.chunks(width.bytes()).zip(format.load(numbers)).enumerate()
            {
                let lane = match width {
                    Width::Int8 => i64::from(i8::from_ne_bytes(lane.try_into().unwrap())),
                    Width::Int16 => i64::from(i16::from_ne_bytes(lane.try_into().unwrap())),
                    Width::Int32 => i64::from(i32::from_ne_bytes(lane.try_into().unwrap())),
                };
                let want = number / unit(at);
                let is_right = match rounding {
                    Rounding::Nearest => lane as f64 == want.round_ties_even(),
                    Rounding::Stochastic(_) => (lane as f64 - want).abs() < 1.0,
                };
                assert!(is_right, "{lane} for {number:e} in units of {:e}", unit(at));
                assert!(lane.unsigned_abs() <= 1 << bits);
                let sent = lane as f64 * unit(at);
                // Exact, unless there is more of it than of the number.
                let left = left_out[at];
                let last = match rounding {
                    Rounding::Nearest => 0.0,
                    Rounding::Stochastic(_) => left.abs() * format.epsilon + format.least,
                };
                assert!(
                    (sent + left - number).abs() <= last || sent.is_infinite(),
                    "{number:e} is not {sent:e} and {left:e}"
                );
                sums[at] += lane;
            }
        }
        let narrow = |sum: &i64| match width {
            Width::Int8 => i8::try_from(*sum).expect("no overflow").to_ne_bytes().to_vec(),
            Width::Int16 => i16::try_from(*sum).expect("no overflow").to_ne_bytes().to_vec(),
            Width::Int32 => i32::try_from(*sum).expect("no overflow").to_ne_bytes().to_vec(),
        };
        let lanes: Vec<u8> = sums.iter().flat_map(narrow).collect();
        let mut got = vec![0xa5; ranks[0].len()];
        let set = environment::any(rng);
        let mut dequantize = || quantizer.dequantize(&lanes, &exponents, 0, &mut got);
        assert_eq!(environment::within(set, &mut dequantize), set);
        let wide: Vec<_> = ranks.iter().map(|rank| BINARY64.store(&format.load(rank))).collect();
        let mut exact = vec![0; count * 8];
        exact::sum(&mut exact, &wide.iter().map(Vec::as_slice).collect::<Vec<_>>(), Real::F64);
        let members = members as f64;
        for (at, (got, exact)) in
            format.load(&got).into_iter().zip(BINARY64.load(&exact)).enumerate()
        {
            if exact.abs() > format.greatest / 2.0 {
                // The last step may go beyond it, as a sum would; nothing can be said of the distance.
                continue;
            }
            let last = exact.abs().max(got.abs()) * format.epsilon / 2.0 + format.least;
            let off = if *rounding == Rounding::Nearest { 0.5 } else { 1.0 };
            let bound = members * unit(at) * off + last + exact.abs() * f64::EPSILON;
            assert!(
                (got - exact).abs() <= bound,
                "{got:e} for {exact:e}, more than {bound:e} off: {members} ranks, {width:?}"
            );
        }
        exponents.len()
    }
}

#[test]
fn no_sum_is_further_off_than_is_said() {
    let mut rng = Rng(1);
    let mut blocks = 0;
    while blocks < 1_000_000 {
        blocks += Case::drawn(&mut rng).check(&mut rng);
    }
}

/// On numbers of one magnitude.
#[test]
fn thirty_two_bits_are_no_worse_than_a_loop() {
    let mut rng = Rng(2);
    for members in [2, 4, 8, 16] {
        let (mut ours, mut loops) = (0.0, 0.0);
        let count = 100_000;
        let ranks: Vec<Vec<f64>> = (0..members)
            .map(|_| {
                (0..count).map(|_| f64::from((1.5 + uniform(&mut rng) / 2.0) as f32)).collect()
            })
            .collect();
        let quantizer = Quantizer::new(F32, Width::Int32, 256, members).unwrap();
        let mut exponents = vec![0; quantizer.blocks(count)];
        quantizer.exponents(&BINARY32.store(&ranks[0]), &mut exponents);
        let mut sums = vec![0_i32; count];
        for rank in &ranks {
            let mut lanes = vec![0; count * 4];
            let numbers = BINARY32.store(rank);
            quantizer.quantize(&numbers, &exponents, Rounding::Nearest, &mut lanes);
            for (sum, lane) in sums.iter_mut().zip(lanes.chunks(4)) {
                *sum += i32::from_ne_bytes(lane.try_into().unwrap());
            }
        }
        let lanes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_ne_bytes()).collect();
        let mut got = vec![0; count * 4];
        quantizer.dequantize(&lanes, &exponents, 0, &mut got);
        for (at, got) in BINARY32.load(&got).into_iter().enumerate() {
            // Exact in doubles.
            let exact: f64 = ranks.iter().map(|rank| rank[at]).sum();
            let looped = ranks.iter().fold(0.0_f32, |sum, rank| sum + rank[at] as f32);
            ours += (got - exact).abs();
            loops += (f64::from(looped) - exact).abs();
        }
        println!("{members} ranks: {:e} against {:e}", ours / count as f64, loops / count as f64);
        assert!(ours <= loops, "{members} ranks: {ours:e} against {loops:e}");
    }
}

/// The mean of many is the number, whatever its place and its distance from the next integers.
#[test]
fn what_chance_rounds_is_right_in_the_mean() {
    let quantizer = Quantizer::new(F32, Width::Int8, 1000, 2).unwrap();
    let count = 100_000;
    for (seed, fraction) in [0.0, 0.01, 0.25, 0.5, 0.75, 0.99].into_iter().enumerate() {
        // In units: 1 of the greatest number's 32.
        let numbers = vec![(20.0 + fraction) as f32 / 32.0; count];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let mut exponents = vec![0; quantizer.blocks(count)];
        quantizer.exponents(&bytes, &mut exponents);
        let mut lanes = vec![0; count];
        quantizer.quantize(&bytes, &exponents, Rounding::Stochastic(seed as u64), &mut lanes);
        let units: f64 = lanes.iter().map(|lane| f64::from(*lane as i8)).sum();
        let mean = units / count as f64 - 20.0;
        // Five times the deviation of a mean of so many.
        let far = 5.0 * (fraction * (1.0 - fraction) / count as f64).sqrt() + 1e-6;
        assert!((mean - fraction).abs() <= far, "{mean} for {fraction}");
        // And the draws of one place do not repeat another's.
        let repeats = lanes.chunks(1000).filter(|block| *block == &lanes[..1000]).count();
        assert!(fraction == 0.0 || repeats == 1, "{repeats} blocks are alike");
    }
}

/// However often numbers are sent, what has come of them is never further off than one time.
#[test]
fn what_is_left_out_comes_the_next_time() {
    let mut rng = Rng(3);
    let (format, count) = (BINARY32, 1000);
    for rounding in [Rounding::Nearest, Rounding::Stochastic(5)] {
        let quantizer = Quantizer::new(F32, Width::Int8, 64, 8).unwrap();
        let numbers: Vec<f64> = (0..count).map(|at| number(&mut rng, format, 1, at)).collect();
        let bytes = format.store(&numbers);
        let numbers = format.load(&bytes);
        let mut exponents = vec![0; quantizer.blocks(count as usize)];
        let (mut fed, mut left_out) = (vec![0; bytes.len()], vec![0; bytes.len()]);
        let (mut lanes, mut got) = (vec![0; count as usize], vec![0; bytes.len()]);
        let mut sums = vec![0.0; count as usize];
        for times in 1..=50 {
            quantizer.add(&bytes, &left_out, &mut fed);
            quantizer.exponents(&fed, &mut exponents);
            quantizer.quantize(&fed, &exponents, rounding, &mut lanes);
            quantizer.dequantize(&lanes, &exponents, 0, &mut got);
            quantizer.leave_out(&mut fed, &exponents, &lanes);
            std::mem::swap(&mut fed, &mut left_out);
            for (at, got) in format.load(&got).into_iter().enumerate() {
                sums[at] += got;
                let unit = 2f64.powi(i32::from(exponents[at / 64]) - 127 + 1 - 3);
                let off = sums[at] - f64::from(times) * numbers[at];
                assert!(off.abs() <= unit * 1.001, "{off:e} after {times} times, unit {unit:e}");
            }
        }
    }
}
