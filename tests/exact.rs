//! Exact sums (`bpf/exact.h`, `bpf/exact.c`) against the integers of another library, bit by bit. They are made
//! by every kind of the CPU's vectors and by integers alone, in any order, in parts that are merged, in any
//! floating-point environment.

#[path = "exact/accumulator.rs"]
mod accumulator;
#[path = "exact/environment.rs"]
mod environment;
#[path = "common/random.rs"]
mod random;
#[path = "exact/reference.rs"]
mod reference;
#[path = "exact/vectors.rs"]
mod vectors;

use accumulator::Accumulator;
use foldback::bindings as b;
use foldback::leaf::arithmetic::Real;
use foldback::leaf::exact::sum_by;
use random::Rng;
use reference::{BINARY32, BINARY64, Format};

const ALL_WAYS: [u32; 4] =
    [b::FB_EXACT_BY_INTEGERS, b::FB_EXACT_BY_SSE2, b::FB_EXACT_BY_AVX2, b::FB_EXACT_BY_AVX512];

/// Sums to be made at once, as of a message: `columns[i]` are the terms of element `i`.
struct Batch {
    format: Format,
    columns: Vec<Vec<u64>>,
}

impl Batch {
    /// Up to `most` elements of one number of parts.
    fn random(rng: &mut Rng, format: Format, most: u64) -> Self {
        let bound = if rng.below(2) == 0 { 8 } else { 127 };
        let parts = 1 + rng.below(bound) as usize;
        let columns = (0..1 + rng.below(most)).map(|_| vectors::any(rng, format, parts));
        Self { format, columns: columns.collect() }
    }

    fn wanted(&self) -> Vec<u64> {
        self.columns.iter().map(|terms| reference::sum(self.format, terms)).collect()
    }

    /// The parts as they lie in memory, each behind a byte that makes them unaligned.
    fn parts(&self) -> Vec<Vec<u8>> {
        let width = self.format.width();
        let part = |i: usize| {
            let bytes =
                self.columns.iter().flat_map(|terms| terms[i].to_le_bytes()[..width].to_vec());
            [0x5a].into_iter().chain(bytes).collect()
        };
        (0..self.columns[0].len()).map(part).collect()
    }

    fn real(&self) -> Real {
        if self.format.width() == 8 { Real::F64 } else { Real::F32 }
    }

    fn bits(&self, bytes: &[u8]) -> Vec<u64> {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
        bytes.chunks(self.format.width()).map(number).collect()
    }

    fn sum(&self, by: u32) -> Vec<u64> {
        let parts = self.parts();
        let parts: Vec<_> = parts.iter().map(|part| &part[1..]).collect();
        let mut into = vec![0x5a; self.columns.len() * self.format.width() + 3];
        sum_by(&mut into[3..], &parts, self.real(), by);
        self.bits(&into[3..])
    }

    fn shuffle(&mut self, rng: &mut Rng) {
        for terms in &mut self.columns {
            vectors::shuffle(rng, terms);
        }
    }

    /// By accumulators that each take some of the terms, and are merged.
    fn merged(&self, rng: &mut Rng) -> Vec<u64> {
        let merged = |terms: &Vec<u64>| {
            let mut partial = Vec::new();
            partial.resize_with(1 + rng.below(5) as usize, || Accumulator::new(self.format));
            for &term in terms {
                let at = rng.below(partial.len() as u64) as usize;
                partial[at].add(term);
                if rng.below(16) == 0 {
                    partial[at].carry();
                }
            }
            let mut all = Accumulator::new(self.format);
            for mut one in partial {
                if rng.below(2) == 0 {
                    one.carry();
                }
                all.merge(&one);
            }
            // Rounding may be repeated, and leaves nothing that clearing would not find.
            assert_eq!(all.round(), all.round());
            let sum = all.round();
            all.clear();
            assert!(all.is_empty(), "cleared");
            sum
        };
        self.columns.iter().map(merged).collect()
    }
}

/// So many sums, half of them of few terms.
fn sums_are_exact(format: Format, seeds: std::ops::Range<u64>, sums: u64) {
    let mut done = 0;
    for seed in seeds {
        let rng = &mut Rng(seed);
        let mut batch = Batch::random(rng, format, 15);
        let wanted = batch.wanted();
        let check = |what: &str, batch: &Batch, found: &[u64]| {
            for ((terms, wanted), found) in batch.columns.iter().zip(&wanted).zip(found) {
                assert_eq!(
                    found, wanted,
                    "seed {seed}, {what}: {found:#x}, not {wanted:#x}, of {terms:#x?}"
                );
            }
        };
        check("by integers", &batch, &batch.sum(b::FB_EXACT_BY_INTEGERS));
        for by in ALL_WAYS {
            batch.shuffle(rng);
            check(&format!("by {by}"), &batch, &batch.sum(by));
        }
        check("merged", &batch, &batch.merged(rng));
        done += batch.columns.len() as u64;
        if done >= sums {
            return;
        }
    }
    panic!("{done} sums only");
}

#[test]
fn sums_of_doubles_are_exact() {
    sums_are_exact(BINARY64, 0..u64::MAX, 200_000);
}

#[test]
fn sums_of_singles_are_exact() {
    sums_are_exact(BINARY32, 0..u64::MAX, 200_000);
}

#[test]
#[ignore = "long: minutes"]
fn ten_million_sums_of_doubles_are_exact() {
    sums_are_exact(BINARY64, 1 << 32..u64::MAX, 10_000_000);
}

#[test]
#[ignore = "long: minutes"]
fn ten_million_sums_of_singles_are_exact() {
    sums_are_exact(BINARY32, 1 << 32..u64::MAX, 10_000_000);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_programs_environment_is_none_of_the_sums_and_stays_as_it_is() {
    for seed in 0..5_000 {
        let rng = &mut Rng(seed);
        let format = if seed & 1 == 0 { BINARY64 } else { BINARY32 };
        let batch = Batch::random(rng, format, 30);
        let by = ALL_WAYS[rng.below(4) as usize];
        let mxcsr = environment::any(rng);
        let (found, after) = environment::sum_under(mxcsr, &batch, by);
        assert_eq!(found, batch.wanted(), "seed {seed}, MXCSR {mxcsr:#x}, by {by}");
        assert_eq!(after, mxcsr, "seed {seed}");
    }
}

#[test]
fn the_sum_may_take_a_parts_place() {
    for seed in 0..5_000 {
        let rng = &mut Rng(seed);
        let format = if seed & 1 == 0 { BINARY64 } else { BINARY32 };
        let batch = Batch::random(rng, format, 30);
        for by in ALL_WAYS {
            let place = rng.below(batch.columns[0].len() as u64) as usize;
            let found = environment::sum_in_place(&batch, place, by);
            assert_eq!(found, batch.wanted(), "seed {seed}, by {by}, part {place}");
        }
    }
}

/// As many of the greatest numbers as are allowed between carries, and then as many carried accumulators.
#[test]
fn the_most_that_may_be_added_without_a_carry_is_not_lost() {
    for format in [BINARY64, BINARY32] {
        for sign in [0, format.minus()] {
            // Each exponent is another shift of the number in its chunks.
            for exponent in [1, 31, 32, 33, 63, 64, 250, format.infinite() - 1] {
                let greatest = sign | (((exponent + 1) << format.fraction) - 1);
                let most = u64::from(b::FB_EXACT_MOST);
                let mut sum = Accumulator::new(format);
                (0..most).for_each(|_| sum.add(greatest));
                assert_eq!(sum.clone().round(), reference::times(format, greatest, most));
                sum.carry();
                let mut all = Accumulator::new(format);
                (0..most).for_each(|_| all.merge(&sum));
                let again = all.clone();
                assert_eq!(all.round(), reference::times(format, greatest, most * most));
                // The rest of that many with as many of the other sign, and one more.
                all.merge(&again);
                (0..2).for_each(|_| all.carry());
                let mut other = Accumulator::new(format);
                (0..most).for_each(|_| other.add(greatest ^ format.minus()));
                other.carry();
                (0..2 * most - 1).for_each(|i| {
                    all.merge(&other);
                    if i % 1000 == 0 {
                        all.carry();
                    }
                });
                assert_eq!(all.round(), reference::times(format, greatest, most));
            }
        }
    }
}

/// More parts than an accumulator takes without a carry.
#[test]
fn five_thousand_parts_are_summed() {
    for format in [BINARY64, BINARY32] {
        let rng = &mut Rng(5);
        let columns = (0..9).map(|_| vectors::any(rng, format, 5_000)).collect();
        let greatest = vec![(format.infinite() << format.fraction) - 1; 5_000];
        let mut batch = Batch { format, columns };
        batch.columns.push(greatest);
        for by in ALL_WAYS {
            assert_eq!(batch.sum(by), batch.wanted(), "by {by}");
        }
    }
}
