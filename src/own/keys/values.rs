//! The values of pairs: how they travel, and how values of equal keys are combined. Pure.
//!
//! A *record* is a key and a payload of whole words. Records of equal keys may be combined at any time, in any order.

use std::ffi::c_int;

use super::sums::{self, Sum};
use super::word::Word;
use crate::codec::SUCCESS;
use crate::leaf::arithmetic::Real;
use crate::leaf::exact;

/// Pairs of elements that one call of MPI's combines, at most; and their bytes.
const AT_ONCE: usize = 65_536;
const BYTES_AT_ONCE: usize = 64 << 20;

/// Reduces two vectors of packed elements to a third. Returns what MPI does.
pub(super) type Combine = Box<dyn Fn(&[&[u8]], &mut [u8]) -> c_int>;

/// The kind of values, and the op that combines them.
pub(super) enum Values {
    Word(Word),
    /// Sums of floating point. The state of a key is one record or more, whose numbers have its exact sum.
    Exact {
        real: Real,
        complex: bool,
    },
    /// Packed elements, padded to words, by MPI_Reduce_local.
    Other {
        size: usize,
        combine: Combine,
    },
}

/// Memory that is used again and again.
#[derive(Default)]
pub(super) struct Scratch {
    order: Vec<(u64, u32)>,
    sums: [Sum; 2],
    numbers: [Vec<f64>; 2],
}

/// The bytes of words.
pub(super) fn bytes(words: &[u64]) -> impl Iterator<Item = u8> {
    words.iter().flat_map(|word| word.to_ne_bytes())
}

/// The words of bytes, the last one padded with zeros.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let last = (!rest.is_empty()).then(|| u64::from_ne_bytes(last));
    whole.iter().map(|word| u64::from_ne_bytes(*word)).chain(last)
}

impl Values {
    /// Bytes of a value, packed.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Word(word) => word.size(),
            Self::Exact { real, complex } => real.bytes() << usize::from(*complex),
            Self::Other { size, .. } => *size,
        }
    }

    /// Words of a record.
    pub(super) fn stride(&self) -> usize {
        1 + match self {
            Self::Word(_) => 1,
            Self::Exact { complex, .. } => 1 << usize::from(*complex),
            Self::Other { size, .. } => size.div_ceil(size_of::<u64>()),
        }
    }

    /// The records of pairs, whose values are packed.
    ///
    /// # Errors
    /// The first of `each`.
    pub(super) fn records(
        &self,
        keys: &[u64],
        packed: &[u8],
        mut each: impl FnMut(&[u64]) -> Result<(), c_int>,
    ) -> Result<(), c_int> {
        let mut done = Ok(());
        match self {
            Self::Word(word) => word.widen(packed, |at, value| {
                if done.is_ok() {
                    done = each(&[keys[at], value]);
                }
            }),
            Self::Exact { real, .. } => {
                let mut numbers = Vec::with_capacity(packed.len() / real.bytes());
                exact::plainly(&mut || {
                    sums::widen(packed, *real, |number| numbers.push(number.to_bits()));
                });
                let mut record = vec![0; self.stride()];
                let payloads = numbers.chunks_exact(self.stride() - 1);
                done = keys.iter().zip(payloads).try_for_each(|(key, payload)| {
                    record[0] = *key;
                    record[1..].copy_from_slice(payload);
                    each(&record)
                });
            }
            Self::Other { size, .. } => {
                let mut record = Vec::with_capacity(self.stride());
                done = keys.iter().enumerate().try_for_each(|(at, key)| {
                    record.clear();
                    record.push(*key);
                    record.extend(words(&packed[at * size..(at + 1) * size]));
                    each(&record)
                });
            }
        }
        done
    }

    /// Combines the records of equal keys, in their place. If a key keeps several, they lie side by side.
    ///
    /// # Errors
    /// What MPI returned. The records are then as they were.
    pub(super) fn settle(
        &self,
        records: &mut Vec<u64>,
        scratch: &mut Scratch,
    ) -> Result<(), c_int> {
        match self {
            // An index combines them as they come.
            Self::Word(_) => {}
            Self::Exact { .. } => {
                exact::plainly(&mut || *records = self.added_up(records, scratch));
            }
            Self::Other { size, combine } => {
                *records = self.combined(records, scratch, *size, combine)?;
            }
        }
        Ok(())
    }

    /// The numbers of records in the order of their keys.
    fn sort(&self, records: &[u64], order: &mut Vec<(u64, u32)>) {
        order.clear();
        let keys = records.chunks_exact(self.stride()).zip(0..);
        order.extend(keys.map(|(record, at)| (record[0], at)));
        order.sort_unstable();
    }

    fn added_up(&self, records: &[u64], scratch: &mut Scratch) -> Vec<u64> {
        let stride = self.stride();
        let Scratch { order, sums, numbers, .. } = scratch;
        self.sort(records, order);
        let record = |at: u32| &records[at as usize * stride..(at as usize + 1) * stride];
        let mut settled = Vec::new();
        for run in order.chunk_by(|(one, _), (other, _)| one == other) {
            if let [(_, at)] = run {
                settled.extend_from_slice(record(*at));
                continue;
            }
            for part in 0..stride - 1 {
                sums[part].clear();
                run.iter().for_each(|(_, at)| {
                    sums[part].add(f64::from_bits(record(*at)[1 + part]));
                });
                sums[part].numbers(&mut numbers[part]);
            }
            let most = numbers[..stride - 1].iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..most {
                settled.push(run[0].0);
                let number = |part: &Vec<f64>| part.get(at).copied().unwrap_or(-0.0).to_bits();
                settled.extend(numbers[..stride - 1].iter().map(number));
            }
        }
        settled
    }

    /// In rounds, each of which combines neighbours in pairs, so that a few calls do for many keys.
    fn combined(
        &self,
        records: &[u64],
        scratch: &mut Scratch,
        size: usize,
        combine: &Combine,
    ) -> Result<Vec<u64>, c_int> {
        let stride = self.stride();
        let at_once = AT_ONCE.min(BYTES_AT_ONCE / size.max(1)).max(1);
        self.sort(records, &mut scratch.order);
        let record =
            |(_, at): &(u64, u32)| &records[*at as usize * stride..(*at as usize + 1) * stride];
        let mut sorted: Vec<u64> = scratch.order.iter().flat_map(record).copied().collect();
        loop {
            let (mut next, mut pairs) = (Vec::with_capacity(sorted.len()), Vec::new());
            let (mut left, mut right) = (Vec::new(), Vec::new());
            let mut rest = sorted.chunks_exact(stride).peekable();
            while let Some(one) = rest.next() {
                if let Some(other) = rest.next_if(|other| other[0] == one[0]) {
                    left.extend(bytes(&one[1..]).take(size));
                    right.extend(bytes(&other[1..]).take(size));
                    pairs.push(next.len());
                }
                next.extend_from_slice(one);
            }
            if pairs.is_empty() {
                return Ok(next);
            }
            let mut into = vec![0; left.len()];
            let bytes_at_once = at_once * size.max(1);
            let vectors = left.chunks(bytes_at_once).zip(right.chunks(bytes_at_once));
            for ((left, right), into) in vectors.zip(into.chunks_mut(bytes_at_once)) {
                match combine(&[left, right], into) {
                    SUCCESS => {}
                    code => return Err(code),
                }
            }
            for (number, at) in pairs.into_iter().enumerate() {
                let value = words(&into[number * size..(number + 1) * size]);
                next[at + 1..at + stride].iter_mut().zip(value).for_each(|(to, word)| *to = word);
            }
            sorted = next;
        }
    }

    /// Appends the value that the records of one key make up, packed.
    pub(super) fn finish(&self, records: &[u64], values: &mut Vec<u8>) {
        match self {
            Self::Word(word) => word.narrow(records[1], values),
            Self::Exact { real, .. } => exact::plainly(&mut || {
                for part in 1..self.stride() {
                    let numbers = records.iter().skip(part).step_by(self.stride());
                    let numbers: Vec<_> = numbers.map(|bits| f64::from_bits(*bits)).collect();
                    sums::rounded(&numbers, *real, values);
                }
            }),
            Self::Other { size, .. } => values.extend(bytes(&records[1..]).take(*size)),
        }
    }

    /// Whether values have an order.
    pub(super) fn is_ordered(&self) -> bool {
        matches!(self, Self::Word(_) | Self::Exact { complex: false, .. })
    }

    /// A number in the order of values, of a packed one.
    pub(super) fn rank(&self, value: &[u8]) -> u64 {
        match self {
            Self::Word(word) => word.rank(value),
            Self::Exact { real, .. } => sums::rank(value, *real),
            Self::Other { .. } => 0,
        }
    }
}
