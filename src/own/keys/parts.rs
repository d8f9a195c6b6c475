//! Records that are combined now and then: pure.
//!
//! They lie in parts by the hash of their keys, so that the records of one owner are together. To settle a part is to
//! combine its records of equal keys. A part grows to twice the length after the last time, and is settled again. So a
//! record costs amortized constant time, and a part takes about twice the room of its distinct keys.

use std::ffi::c_int;
use std::ops::Range;

use super::hash::place;
use super::values::{Scratch, Values};

/// Parts of all owners.
const PARTS: usize = 256;
/// Parts of each owner, at least.
const LEAST_PARTS: usize = 4;
/// Records of all parts below which none is settled.
const UNSETTLED: usize = 1 << 20;
/// Records of a part below which it is not settled, however many parts there are.
const LEAST_UNSETTLED: usize = 64;

/// Records of some owners.
pub(super) struct Parts {
    /// The owners are some of so many ranks, from the first one on.
    ranks: usize,
    first: usize,
    stride: usize,
    /// Parts of each owner: a power of two.
    parts_each: usize,
    parts: Vec<Part>,
    /// Words of a part below which it is not settled.
    least: usize,
    scratch: Scratch,
}

/// Records of keys whose hashes have some bits in common.
#[derive(Default)]
struct Part {
    records: Vec<u64>,
    /// Words at which it is settled.
    limit: usize,
}

/// The records of each key, which lie side by side.
fn runs(mut records: &[u64], stride: usize) -> impl Iterator<Item = &[u64]> {
    std::iter::from_fn(move || {
        let key = *records.first()?;
        let is_other = |record: &[u64]| record[0] != key;
        let own = records.chunks_exact(stride).position(is_other);
        let (own, others) = records.split_at(own.map_or(records.len(), |own| own * stride));
        records = others;
        Some(own)
    })
}

impl Parts {
    /// Without records.
    pub(super) fn new(values: &Values, ranks: usize, owners: Range<usize>) -> Self {
        let parts_each = (PARTS / owners.len()).max(LEAST_PARTS).next_power_of_two();
        let parts = owners.len() * parts_each;
        let stride = values.stride();
        let least = (UNSETTLED / parts).max(LEAST_UNSETTLED) * stride;
        let part = || Part { records: Vec::new(), limit: least };
        let parts = (0..parts).map(|_| part()).collect();
        let (first, scratch) = (owners.start, Scratch::default());
        Self { ranks, first, stride, parts_each, parts, least, scratch }
    }

    /// Takes a record.
    ///
    /// # Errors
    /// What MPI returned. All records are there then, this one too.
    pub(super) fn push(&mut self, values: &Values, record: &[u64]) -> Result<(), c_int> {
        let (owner, number) = place(record[0], self.ranks);
        let part = ((number >> 32) as usize * self.parts_each) >> 32;
        let part = &mut self.parts[(owner - self.first) * self.parts_each + part];
        if part.records.len() == part.records.capacity() {
            let length = part.records.len();
            let more = length.max(16 * self.stride).min(part.limit.saturating_sub(length));
            part.records.reserve_exact(more.max(self.stride));
        }
        part.records.extend_from_slice(record);
        if part.records.len() >= part.limit {
            part.settle(values, &mut self.scratch, self.least)?;
        }
        Ok(())
    }

    /// Combines all records of equal keys.
    ///
    /// # Errors
    /// What MPI returned.
    pub(super) fn settle(&mut self, values: &Values) -> Result<(), c_int> {
        let Self { parts, scratch, least, .. } = self;
        parts.iter_mut().try_for_each(|part| part.settle(values, scratch, *least))
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.records.capacity() * size_of::<u64>()).sum()
    }

    /// Bytes of memory with so many more records, at most: a vector may be twice as long as its contents.
    pub(super) fn bytes_with(&self, records: usize) -> usize {
        let more = records.saturating_mul(2 * self.stride * size_of::<u64>());
        self.bytes().saturating_add(more)
    }

    fn numbers(&self, owner: usize) -> Range<usize> {
        let first = (owner - self.first) * self.parts_each;
        first..first + self.parts_each
    }

    /// Words of all records.
    pub(super) fn words(&self) -> usize {
        self.parts.iter().map(|part| part.records.len()).sum()
    }

    /// Words of the records of an owner.
    pub(super) fn words_of(&self, owner: usize) -> usize {
        self.parts[self.numbers(owner)].iter().map(|part| part.records.len()).sum()
    }

    /// Appends the last records of an owner to `words`, which are whole records and no more than `most`.
    pub(super) fn copy_last(&self, owner: usize, most: usize, words: &mut Vec<u64>) {
        let mut left = most / self.stride * self.stride;
        for part in self.parts[self.numbers(owner)].iter().rev() {
            let from = part.records.len().saturating_sub(left);
            words.extend_from_slice(&part.records[from..]);
            left -= part.records.len() - from;
        }
    }

    /// Forgets as many of its last records as these words are.
    pub(super) fn drop_last(&mut self, owner: usize, words: usize) {
        let (mut left, least) = (words, self.least);
        let numbers = self.numbers(owner);
        for part in self.parts[numbers].iter_mut().rev() {
            let kept = part.records.len().saturating_sub(left);
            left -= part.records.len() - kept;
            if kept < part.records.len() {
                part.records.truncate(kept);
                part.records.shrink_to_fit();
                part.limit = least.max(2 * kept);
            }
        }
    }

    /// Takes all records of an owner, part by part.
    pub(super) fn take(&mut self, owner: usize) -> impl Iterator<Item = Vec<u64>> {
        let (least, numbers) = (self.least, self.numbers(owner));
        self.parts[numbers].iter_mut().map(move |part| {
            let part = std::mem::replace(part, Part { records: Vec::new(), limit: least });
            part.records
        })
    }

    /// The records of each key, side by side, after they have been settled.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u64]> {
        self.parts.iter().flat_map(|part| runs(&part.records, self.stride))
    }
}

impl Part {
    fn settle(
        &mut self,
        values: &Values,
        scratch: &mut Scratch,
        least: usize,
    ) -> Result<(), c_int> {
        let settled = values.settle(&mut self.records, scratch);
        self.limit = least.max(2 * self.records.len());
        settled
    }
}
