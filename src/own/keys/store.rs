//! The pairs of a rank: pure.
//!
//! They lie in parts by the hash of their keys, so that the pairs of one owner are together. To settle a part is to
//! combine its records of equal keys. A part grows to twice the length after the last time, and is settled again. So a
//! pair costs amortized constant time, and a part takes about twice the room of its distinct keys. In front of the parts,
//! records of one word have a small cache, in which hot keys are combined at once.

use std::ffi::c_int;

use super::values::{Scratch, Values};
use super::word::Word;

/// Parts of a store.
const PARTS: usize = 256;
/// Parts of each owner, at least.
const LEAST_PARTS: usize = 4;
/// Records of all parts below which none is settled.
const UNSETTLED: usize = 1 << 20;
/// Records of a part below which it is not settled, however many parts there are.
const LEAST_UNSETTLED: usize = 64;
/// Slots of the cache.
const SLOTS: usize = 1 << 14;
/// Records after which the cache has to have combined half.
const SAMPLE: u32 = 1 << 16;
/// Records that pass the cache by, after a sample of which it has not.
const PASS_BY: u32 = 16 * SAMPLE;

/// A hash with all bits mixed: the finalizer of MurmurHash3. The same on all ranks.
#[inline(always)]
fn mix(key: u64) -> u64 {
    let key = (key ^ key >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let key = (key ^ key >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ key >> 33
}

/// Bits of a hash that choose neither the part nor (for a table that is not huge) the owner.
#[inline(always)]
pub(super) fn slot_hash(key: u64) -> u64 {
    mix(key) / PARTS as u64
}

/// The rank, of so many, that has a key.
pub(super) fn owner(key: u64, ranks: usize) -> usize {
    ((u128::from(mix(key) >> 32) * ranks as u128) >> 32) as usize
}

/// Parts of each owner, of so many.
pub(super) fn parts_each(owners: usize) -> usize {
    (PARTS / owners).max(LEAST_PARTS).next_power_of_two()
}

/// The part of a key's owner that has it, of so many.
pub(super) fn part(key: u64, parts_each: usize) -> usize {
    mix(key) as usize & (parts_each - 1)
}

/// The pairs of a rank, for one owner or for several.
pub(super) struct Store {
    owners: usize,
    stride: usize,
    /// Parts of each owner: a power of two.
    parts_each: usize,
    parts: Vec<Part>,
    /// Words of a part below which it is not settled.
    least: usize,
    cache: Option<Cache>,
    scratch: Scratch,
}

/// Records of keys whose hashes have some bits in common.
#[derive(Default)]
struct Part {
    records: Vec<u64>,
    /// Words at which it is settled.
    limit: usize,
}

/// Records of two words, by some bits of the hash; the newest key has the slot.
struct Cache {
    records: Vec<[u64; 2]>,
    is_used: Vec<bool>,
    /// Records of this sample, and those among them that were combined.
    tried: u32,
    combined: u32,
    /// Records that are yet to pass by.
    passing: u32,
}

impl Store {
    /// An empty one. `is_cached`: keys come in any order and number, not once or twice each.
    pub(super) fn new(owners: usize, values: &Values, is_cached: bool) -> Self {
        let parts_each = parts_each(owners);
        let parts = owners * parts_each;
        let stride = values.stride();
        let least = (UNSETTLED / parts).max(LEAST_UNSETTLED) * stride;
        let part = || Part { records: Vec::new(), limit: least };
        let is_cached = is_cached && matches!(values, Values::Word(_));
        let cache = is_cached.then(Cache::new);
        let parts = (0..parts).map(|_| part()).collect();
        let scratch = Scratch::default();
        Self { owners, stride, parts_each, parts, least, cache, scratch }
    }

    /// Takes a record.
    ///
    /// # Errors
    /// What MPI returned. The store then has all records, this one too.
    #[inline]
    pub(super) fn push(&mut self, values: &Values, record: &[u64]) -> Result<(), c_int> {
        match (&mut self.cache, values) {
            (Some(cache), Values::Word(word)) => match cache.push(*word, record) {
                Some(record) => self.append(values, &record),
                None => Ok(()),
            },
            _ => self.append(values, record),
        }
    }

    fn append(&mut self, values: &Values, record: &[u64]) -> Result<(), c_int> {
        let hash = mix(record[0]);
        let owner = ((hash >> 32) as usize * self.owners) >> 32;
        let part = owner * self.parts_each + (hash as usize & (self.parts_each - 1));
        let part = &mut self.parts[part];
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
        if let Some(mut cache) = self.cache.take() {
            let mut slots = cache.is_used.iter_mut().zip(&cache.records);
            let moved = slots.try_for_each(|(is_used, record)| match std::mem::take(is_used) {
                true => self.append(values, record),
                false => Ok(()),
            });
            self.cache = Some(cache);
            moved?;
        }
        let Self { parts, scratch, least, .. } = self;
        parts.iter_mut().try_for_each(|part| part.settle(values, scratch, *least))
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.records.capacity() * size_of::<u64>()).sum()
    }

    /// Words of the records of an owner.
    pub(super) fn words(&self, owner: usize) -> usize {
        self.of(owner).iter().map(|part| part.records.len()).sum()
    }

    fn of(&self, owner: usize) -> &[Part] {
        &self.parts[owner * self.parts_each..(owner + 1) * self.parts_each]
    }

    /// Appends the last records of an owner to `words`, which are whole records and no more than `most`.
    pub(super) fn copy_last(&self, owner: usize, most: usize, words: &mut Vec<u64>) {
        let mut left = most / self.stride * self.stride;
        for part in self.of(owner).iter().rev() {
            let from = part.records.len().saturating_sub(left);
            words.extend_from_slice(&part.records[from..]);
            left -= part.records.len() - from;
        }
    }

    /// Forgets as many of its last records as these words are.
    pub(super) fn drop_last(&mut self, owner: usize, words: usize) {
        let (mut left, least) = (words, self.least);
        let each = self.parts_each;
        for part in self.parts[owner * each..(owner + 1) * each].iter_mut().rev() {
            let kept = part.records.len().saturating_sub(left);
            left -= part.records.len() - kept;
            if kept < part.records.len() {
                part.records.truncate(kept);
                part.records.shrink_to_fit();
                part.limit = least.max(2 * kept);
            }
        }
    }

    /// Takes all records out of a store that has been settled, part by part.
    pub(super) fn take_parts(&mut self) -> impl Iterator<Item = Vec<u64>> {
        let least = self.least;
        self.parts.iter_mut().map(move |part| {
            let part = std::mem::replace(part, Part { records: Vec::new(), limit: least });
            part.records
        })
    }

    /// Takes the records of a settled store of the same kind.
    ///
    /// # Errors
    /// What MPI returned.
    pub(super) fn absorb(&mut self, values: &Values, mut other: Self) -> Result<(), c_int> {
        for part in other.take_parts() {
            part.chunks_exact(self.stride).try_for_each(|record| self.append(values, record))?;
        }
        Ok(())
    }

    /// The records of each key of a settled store, side by side.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u64]> {
        self.parts.iter().flat_map(|part| runs(&part.records, self.stride))
    }

    /// All records.
    pub(super) fn records(&self) -> impl Iterator<Item = &[u64]> {
        self.parts.iter().flat_map(|part| part.records.chunks_exact(self.stride))
    }
}

/// The records of each key, which lie side by side.
pub(super) fn runs(mut records: &[u64], stride: usize) -> impl Iterator<Item = &[u64]> {
    std::iter::from_fn(move || {
        let key = *records.first()?;
        let is_other = |record: &[u64]| record[0] != key;
        let own = records.chunks_exact(stride).position(is_other);
        let (own, others) = records.split_at(own.map_or(records.len(), |own| own * stride));
        records = others;
        Some(own)
    })
}

impl Cache {
    fn new() -> Self {
        let (records, is_used) = (vec![[0; 2]; SLOTS], vec![false; SLOTS]);
        Self { records, is_used, tried: 0, combined: 0, passing: 0 }
    }

    /// Takes a record. Returns the one that has to go on: the older one in the slot, or the record itself where most
    /// keys are not hot.
    #[inline]
    fn push(&mut self, word: Word, record: &[u64]) -> Option<[u64; 2]> {
        let record = [record[0], record[1]];
        if self.passing > 0 {
            self.passing -= 1;
            return Some(record);
        }
        self.tried += 1;
        if self.tried == SAMPLE {
            self.passing = if self.combined < SAMPLE / 2 { PASS_BY } else { 0 };
            (self.tried, self.combined) = (0, 0);
        }
        let slot = slot_hash(record[0]) as usize % SLOTS;
        let there = &mut self.records[slot];
        if !std::mem::replace(&mut self.is_used[slot], true) {
            *there = record;
        } else if there[0] == record[0] {
            there[1] = word.fold(there[1], record[1]);
            self.combined += 1;
        } else {
            return Some(std::mem::replace(there, record));
        }
        None
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::leaf::arithmetic::{Arithmetic, Element, Operator, Real};
    use crate::own::keys::word::Word;
    use crate::random::Rng;

    fn sums_of_u64() -> Values {
        let arithmetic = Arithmetic { op: Operator::Sum, element: Element::U64 };
        Values::Word(Word::of(arithmetic).expect("a word"))
    }

    /// Elements of 12 bytes that are added byte by byte.
    fn others() -> Values {
        let combine = |vectors: &[&[u8]], into: &mut [u8]| {
            let both = vectors[0].iter().zip(vectors[1]);
            into.iter_mut().zip(both).for_each(|(to, (x, y))| *to = x.wrapping_add(*y));
            0
        };
        Values::Other { size: 12, combine: Box::new(combine) }
    }

    /// Keys by some distribution.
    fn key(random: &mut Rng, kind: usize) -> u64 {
        let any = random.next();
        match kind {
            0 => any,
            1 => 7,
            2 => any % 1000,
            3 if any % 100 < 99 => u64::MAX,
            3 => any >> 40,
            4 => [0, u64::MAX][any as usize % 2],
            _ => any % 100_000,
        }
    }

    fn pairs(kind: usize, count: usize, size: usize) -> (Vec<u64>, Vec<u8>) {
        let mut random = Rng(kind as u64 + 100);
        let keys = (0..count).map(|_| key(&mut random, kind)).collect();
        let bytes = (0..count * size).map(|_| random.next() as u8).collect();
        (keys, bytes)
    }

    fn contents(store: &Store, values: &Values) -> BTreeMap<u64, Vec<u8>> {
        let mut all = BTreeMap::new();
        for records in store.keys() {
            let mut value = Vec::new();
            values.finish(records, &mut value);
            assert!(all.insert(records[0], value).is_none(), "a key comes twice");
        }
        all
    }

    /// Stores hold what a map holds, by any owners, and nothing is lost on the way to these.
    fn check(values: &Values, expected: impl Fn(&mut Vec<u8>, &[u8])) {
        let size = values.size();
        for kind in 0..6 {
            for count in [0, 1, 2, 1000, 150_000] {
                let (keys, bytes) = pairs(kind, count, size);
                let mut map: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
                for (key, value) in keys.iter().zip(bytes.chunks_exact(size)) {
                    match map.get_mut(key) {
                        Some(so_far) => expected(so_far, value),
                        None => drop(map.insert(*key, value.to_vec())),
                    }
                }
                let mut shares = BTreeMap::new();
                let owners = [1, 3, 100][count % 3];
                let mut store = Store::new(owners, values, true);
                values.records(&keys, &bytes, |record| store.push(values, record)).expect("room");
                store.settle(values).expect("settled");
                assert_eq!(contents(&store, values), map, "kind {kind}, {count} pairs");
                for of in 0..owners {
                    let mut share = Store::new(1, values, false);
                    while store.words(of) > 0 {
                        let mut words = Vec::new();
                        store.copy_last(of, 1000 * values.stride() + 1, &mut words);
                        assert!(
                            words.chunks_exact(values.stride()).all(|r| owner(r[0], owners) == of)
                        );
                        store.drop_last(of, words.len());
                        words.chunks_exact(values.stride()).for_each(|record| {
                            share.push(values, record).expect("room");
                        });
                    }
                    share.settle(values).expect("settled");
                    shares.append(&mut contents(&share, values));
                }
                assert_eq!(shares, map, "kind {kind}, {count} pairs, {owners} owners");
            }
        }
    }

    #[test]
    fn a_store_holds_what_a_map_does() {
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
        check(&sums_of_u64(), |so_far, value| {
            let sum = word(so_far).wrapping_add(word(value));
            so_far.copy_from_slice(&sum.to_ne_bytes());
        });
        check(&others(), |so_far, value| {
            so_far.iter_mut().zip(value).for_each(|(x, y)| *x = x.wrapping_add(*y));
        });
    }

    /// Sums of floating point have the bits of the exact sum of all numbers.
    #[test]
    fn sums_are_exact() {
        for (real, complex) in [(Real::F64, false), (Real::F64, true), (Real::F32, false)] {
            let values = Values::Exact { real, complex };
            let size = values.size();
            for kind in 0..6 {
                let (keys, mut bytes) = pairs(kind, 3000, size);
                if kind == 5 {
                    bytes.chunks_exact_mut(real.bytes()).for_each(|number| number.fill(0));
                }
                let mut map: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
                for (key, value) in keys.iter().zip(bytes.chunks_exact(size)) {
                    map.entry(*key).or_default().push(value);
                }
                let mut store = Store::new(2, &values, true);
                values.records(&keys, &bytes, |record| store.push(&values, record)).expect("room");
                store.settle(&values).expect("settled");
                let sum = |parts: Vec<&[u8]>| {
                    let mut into = vec![0; size];
                    crate::leaf::exact::sum(&mut into, &parts, real);
                    into
                };
                let expected = map.into_iter().map(|(key, parts)| (key, sum(parts))).collect();
                assert_eq!(contents(&store, &values), expected, "{real:?}, kind {kind}");
            }
        }
    }

    /// Memory follows the number of keys, not of pairs.
    #[test]
    fn a_store_is_as_large_as_its_distinct_keys() {
        let values = sums_of_u64();
        let mut store = Store::new(4, &values, true);
        let mut random = Rng(5);
        for _ in 0..3_000_000 {
            store.push(&values, &[random.below(1000), 1]).expect("room");
        }
        assert!(store.bytes() < 8 << 20, "{}", store.bytes());
        store.settle(&values).expect("settled");
        assert_eq!(store.keys().count(), 1000);
        assert_eq!(store.keys().map(|records| records[1]).sum::<u64>(), 3_000_000);
    }
}
