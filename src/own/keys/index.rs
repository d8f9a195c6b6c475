//! Records of two words, combined as they come: pure.
//!
//! An index is a hash table of buckets with linear probing (Knuth, The Art of Computer Programming, 6.4). Buckets are in
//! the order of hashes. So another index takes the records of this one bucket after bucket: it is written in a stream,
//! even if it is larger than any cache.

use std::ops::Range;

use super::buckets::{Bucket, Buckets, Job, Narrow, SLOTS, Width, by_widest};
use super::hash::place;

/// A key and a word.
pub(super) type Record = [u64; 2];

/// Buckets at first.
const LEAST: usize = 64;
/// Slots may be in use up to a half, in a small index to three eighths: then few buckets are full, and the CPU foresees
/// most branches.
const FULL: [usize; 2] = [3, 4];
/// Records whose buckets are fetched while others are taken, and buckets from which on that pays: a cache has fewer.
const GROUP: usize = 16;
const LARGE: usize = 1 << 14;

/// Records of different keys, all of one owner.
pub(super) struct Index {
    /// The owner is one of so many ranks.
    ranks: usize,
    buckets: Buckets,
    /// The record of key 0.
    zero: Option<Record>,
    /// Slots in use, and the most that may be.
    used: usize,
    most: usize,
    /// Bytes of its memory that the system has got back.
    given: usize,
}

/// Puts `count` records into the indices of their owners, of which the first is `first`.
#[inline(always)]
pub(super) fn put(
    indices: &mut [Index],
    first: usize,
    count: usize,
    record: impl Fn(usize) -> Record,
    fold: impl Fn(u64, u64) -> u64 + Copy,
) {
    by_widest(Puts { indices, first, count, record, fold });
}

/// Records to be put.
struct Puts<'a, R, F> {
    indices: &'a mut [Index],
    first: usize,
    count: usize,
    record: R,
    fold: F,
}

impl<R: Fn(usize) -> Record, F: Fn(u64, u64) -> u64 + Copy> Job for Puts<'_, R, F> {
    #[inline(always)]
    fn run<W: Width>(self) {
        let Self { indices, first, count, record, fold } = self;
        let Some(Index { ranks, buckets, .. }) = indices.first() else { return };
        let ranks = *ranks;
        let find = |key: u64| {
            let (owner, number) = place(key, ranks);
            (owner - first, number)
        };
        if buckets.len() * indices.len() < LARGE {
            for record in (0..count).map(record) {
                let (index, place) = find(record[0]);
                indices[index].put::<W>(place, record, fold);
            }
            return;
        }
        let fetch = |indices: &[Index], group: usize| {
            let mut places = [(0, 0); GROUP];
            for (at, to) in (group..count).zip(&mut places) {
                *to = find(record(at)[0]);
                indices[to.0].prefetch(to.1);
            }
            places
        };
        let mut next = fetch(indices, 0);
        for group in (0..count).step_by(GROUP) {
            let places = next;
            next = fetch(indices, group + GROUP);
            for (at, (index, place)) in (group..count).zip(places) {
                indices[index].put::<W>(place, record(at), fold);
            }
        }
    }
}

/// Records for which so many buckets have room.
fn most(buckets: usize) -> usize {
    buckets * SLOTS / 8 * FULL[usize::from(buckets >= LARGE)]
}

/// Buckets with room for so many records, if there may be so many.
fn buckets_for(records: usize) -> Option<usize> {
    let eighths = records.checked_mul(8)?;
    let buckets = eighths.div_ceil(SLOTS * FULL[1]).next_multiple_of(8);
    let buckets = if buckets < LARGE {
        eighths.div_ceil(SLOTS * FULL[0]).next_multiple_of(8)
    } else {
        buckets
    };
    Some(buckets.max(LEAST))
}

impl Index {
    /// Without records.
    pub(super) fn new(ranks: usize) -> Self {
        Self { ranks, buckets: Buckets::NONE, zero: None, used: 0, most: 0, given: 0 }
    }

    /// The ranks of which one is the owner.
    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Records.
    pub(super) fn len(&self) -> usize {
        self.used + usize::from(self.zero.is_some())
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>() - self.given
    }

    /// Bytes of memory while so many more records come, at most.
    pub(super) fn bytes_with(&self, more: usize) -> usize {
        let records = self.used.saturating_add(more);
        if records <= self.most {
            return self.bytes();
        }
        let mut buckets = self.buckets.len().max(LEAST);
        while most(buckets) < records {
            let Some(more) = buckets.checked_mul(2).filter(|more| *more < usize::MAX >> 10) else {
                return usize::MAX;
            };
            buckets = more;
        }
        // The last one is there while records move.
        (buckets + buckets / 2) * size_of::<Bucket>()
    }

    /// Whether it has room for so many records in all.
    pub(super) fn has_room(&self, records: usize) -> bool {
        records <= self.most
    }

    /// Makes room for so many records in all.
    pub(super) fn reserve(&mut self, records: usize) {
        if let Some(buckets) = buckets_for(records).filter(|_| !self.has_room(records)) {
            self.grow(buckets);
        }
    }

    #[inline(always)]
    fn prefetch(&self, place: u64) {
        self.buckets.prefetch(self.bucket(place));
    }

    /// The bucket where a search begins.
    #[inline(always)]
    fn bucket(&self, place: u64) -> usize {
        ((u128::from(place) * self.buckets.len() as u128) >> 64) as usize
    }

    #[inline(always)]
    fn put<W: Width>(&mut self, place: u64, record: Record, fold: impl Fn(u64, u64) -> u64) {
        let [key, word] = record;
        if key == 0 {
            self.zero = Some([0, self.zero.map_or(word, |zero| fold(zero[1], word))]);
            return;
        }
        let mut at = self.bucket(place);
        loop {
            if let Some(bucket) = self.buckets.get_mut(at) {
                if let Some(slot) = bucket.find::<W>(key) {
                    bucket.words[slot] = fold(bucket.words[slot], word);
                    return;
                }
                match bucket.find::<W>(0) {
                    None => at += 1,
                    Some(slot) if self.used < self.most => {
                        (bucket.keys[slot], bucket.words[slot]) = (key, word);
                        self.used += 1;
                        return;
                    }
                    Some(_) => {
                        self.grow(2 * self.buckets.len());
                        at = self.bucket(place);
                    }
                }
            } else if self.buckets.is_empty() {
                self.grow(LEAST);
                at = self.bucket(place);
            } else {
                at = 0;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, buckets: usize) {
        let old = std::mem::replace(&mut self.buckets, Buckets::new(buckets));
        (self.most, self.used, self.given) = (most(buckets), 0, 0);
        for record in old.iter().flat_map(Bucket::records) {
            self.put::<Narrow>(place(record[0], self.ranks).1, record, |old, _| old);
        }
    }

    /// All records.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        self.zero.into_iter().chain(self.buckets.iter().flat_map(Bucket::records))
    }

    /// The number behind all buckets.
    pub(super) fn end(&self) -> usize {
        self.buckets.len()
    }

    /// Appends records from a bucket on to `words`, of some words at most. Returns the bucket behind them.
    pub(super) fn copy(&self, from: usize, most: usize, words: &mut Vec<u64>) -> usize {
        words.reserve(most.min(2 * self.len()));
        let end = words.len().saturating_add(most);
        if let Some(zero) = self.zero.filter(|_| from == 0) {
            words.extend_from_slice(&zero);
        }
        for (bucket, at) in self.buckets.get(from..).unwrap_or(&[]).iter().zip(from..) {
            // Whole buckets go.
            if words.len() + 2 * SLOTS > end {
                return at;
            }
            bucket.records().for_each(|record| words.extend_from_slice(&record));
        }
        self.buckets.len().max(from)
    }

    /// Forgets the records of some buckets, as they have been copied. Key 0 is in the first one.
    pub(super) fn clear(&mut self, buckets: Range<usize>) {
        if buckets.start == 0 {
            self.zero = None;
        }
        let Some(cleared) = self.buckets.get(buckets.clone()) else { return };
        self.used -= cleared.iter().flat_map(Bucket::records).count();
        if self.used == 0 {
            *self = Self { zero: self.zero, ..Self::new(self.ranks) };
        } else {
            self.given += self.buckets.clear(buckets);
        }
    }

    /// Counts its memory anew: records may come again where there were some.
    pub(super) fn count_memory(&mut self) {
        self.given = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::random::Rng;

    const RANKS: usize = 3;

    fn put_all(indices: &mut [Index], records: &[Record]) {
        put(indices, 0, records.len(), |at| records[at], u64::wrapping_add);
    }

    fn contents(index: &Index) -> BTreeMap<u64, u64> {
        let all: BTreeMap<_, _> = index.records().map(|record| (record[0], record[1])).collect();
        assert_eq!(all.len(), index.len(), "no key comes twice");
        all
    }

    /// All records leave once, in the order of places.
    #[test]
    fn records_leave_in_parts() {
        for count in [0, 1, 3, 170, 171, 5000, 300_000] {
            let mut random = Rng(count as u64);
            let records: Vec<_> = (0..count).map(|_| [random.below(count as u64), 1]).collect();
            let mut indices: Vec<_> = (0..RANKS).map(|_| Index::new(RANKS)).collect();
            put_all(&mut indices, &records);
            let mut expected = BTreeMap::new();
            records.iter().for_each(|[key, _]| *expected.entry(*key).or_insert(0) += 1);
            let mut got = BTreeMap::new();
            for (rank, index) in indices.iter_mut().enumerate() {
                got.append(&mut contents(index));
                let mut other = [Index::new(RANKS)];
                let (mut from, mut places) = (0, Vec::new());
                while index.len() > 0 {
                    let (before, mut words) = (index.len(), Vec::new());
                    let to = index.copy(from, 1001, &mut words);
                    index.clear(from..to);
                    from = to;
                    let (records, _) = words.as_chunks();
                    assert_eq!(index.len() + records.len(), before);
                    assert!(records.len() > 490 || index.len() == 0);
                    put(&mut other, rank, records.len(), |at| records[at], u64::wrapping_add);
                    places.extend(records.iter().map(|record| place(record[0], RANKS)));
                }
                assert_eq!(index.bytes(), 0);
                assert!(places.iter().all(|(owner, _)| *owner == rank));
                let unordered = places.windows(2).filter(|two| two[0] > two[1]).count();
                assert!(unordered <= places.len() / 3, "{unordered} of {}", places.len());
                let copied = contents(&other[0]);
                assert!(copied.iter().all(|(key, value)| expected[key] == *value));
                assert_eq!(copied.len(), places.len());
            }
            assert_eq!(got, expected);
        }
    }

    /// A record that comes behind others which have left is combined with its key, or has a slot of its own.
    #[test]
    fn records_come_after_some_have_left() {
        let mut index = [Index::new(1)];
        let all: Vec<_> = (0..200_000).map(|key| [key, 1]).collect();
        put_all(&mut index, &all);
        let mut left = Vec::new();
        let to = index[0].copy(0, 300_000, &mut left);
        index[0].clear(0..to);
        let before = index[0].bytes();
        index[0].count_memory();
        assert!(index[0].bytes() > before, "some of it was given back");
        put_all(&mut index, &all);
        index[0].copy(0, usize::MAX, &mut left);
        let mut sums = BTreeMap::new();
        left.as_chunks::<2>().0.iter().for_each(|[key, value]| {
            *sums.entry(*key).or_insert(0) += value;
        });
        assert!(sums.len() == all.len() && sums.values().all(|sum| *sum == 2));
    }

    #[test]
    fn memory_is_told_beforehand() {
        let mut index = [Index::new(1)];
        for (count, more) in [(0, 1), (100, 70), (100, 71), (4000, 90_000), (4000, 10)] {
            let records: Vec<_> = (0..count + more).map(|key| [key as u64, 1]).collect();
            index[0] = Index::new(1);
            put_all(&mut index, &records[..count]);
            let told = index[0].bytes_with(more);
            put_all(&mut index, &records[count..]);
            assert!(index[0].bytes() <= told && told < 3 * 128 * (count + more).max(SLOTS * LEAST));
        }
        assert_eq!(index[0].bytes_with(usize::MAX), usize::MAX);
    }
}
