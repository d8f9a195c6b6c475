//! Records of two words, combined as they come: pure.
//!
//! An index is a hash table of buckets with linear probing (Knuth, The Art of Computer Programming, 6.4). Buckets are in
//! the order of hashes, and so by owner. So another index takes the records of an owner bucket after bucket: it is
//! written in a stream, even if it is larger than any cache.

use std::ops::Range;

use super::buckets::{Bucket, Buckets, Job, Narrow, SLOTS, Width, by_widest};
use super::hash::owner;
use super::zeroed::prefetch;

/// A key and a word.
pub(super) type Record = [u64; 2];

/// Buckets at first: of all owners, and of each.
const LEAST: usize = 64;
const LEAST_EACH: usize = 8;
/// Slots may be in use up to a half, in a small index to three eighths: then few buckets are full, and the CPU foresees
/// most branches.
const FULL: [usize; 2] = [3, 4];
/// Slots of one owner that may be in use, in eighths.
const FULL_EACH: usize = 7;
/// Records whose buckets are fetched while others are taken, and buckets from which on that pays: a cache has fewer.
const GROUP: usize = 16;
const LARGE: usize = 1 << 14;
/// Buckets whose records are looked at together.
const AT_ONCE: usize = 128;

/// Records of different keys, of some owners.
pub(super) struct Index {
    /// The owners are some of so many ranks.
    ranks: usize,
    owners: Range<usize>,
    /// As many of each owner.
    buckets: Buckets,
    each: usize,
    place: Place,
    /// The record of key 0.
    zero: Option<Record>,
    /// Slots in use, and the most that may be.
    used: usize,
    most: usize,
    /// Slots in use of each owner, if there are several.
    used_each: Vec<usize>,
    /// Indices of owners that have many more keys than others. They take each new key.
    beside: Vec<Option<Box<Index>>>,
    /// Bytes of its memory that the system has got back.
    given: usize,
}

/// Records to be put: so many.
struct Puts<'a, R, F> {
    index: &'a mut Index,
    count: usize,
    record: R,
    fold: F,
}

impl<R: Fn(usize) -> Record, F: Fn(u64, u64) -> u64 + Copy> Job for Puts<'_, R, F> {
    #[inline(always)]
    fn run<W: Width>(self) {
        let Self { index, count, record, fold } = self;
        let mut done = 0;
        while index.buckets.len() < LARGE {
            let found = index.place;
            let place = |at| found.of(record(at)[0]);
            done = index.present().fold::<W>(done..count, place, &record, fold);
            if done == count {
                return;
            }
            index.put::<W>(place(done), record(done), fold);
            done += 1;
        }
        // The buckets of a group, and where they are sought.
        let fetch = |index: &mut Index, group: usize| {
            let Present { buckets, place } = index.present();
            let mut places = [0; GROUP];
            for (at, to) in (group..count).zip(&mut places) {
                *to = place.of(record(at)[0]);
                prefetch(buckets, *to);
            }
            (places, place)
        };
        let mut next = fetch(index, done);
        while done < count {
            let (places, sought) = next;
            let group = done..count.min(done + GROUP);
            next = fetch(index, group.end);
            loop {
                let place = |at: usize| places[(at - group.start) % GROUP];
                // A key that is found where it was sought before its index has grown is the key.
                done = index.present().fold::<W>(done..group.end, place, &record, fold);
                if done == group.end {
                    break;
                }
                let is_old = index.place != sought;
                let at = if is_old { index.place.of(record(done)[0]) } else { place(done) };
                index.put::<W>(at, record(done), fold);
                done += 1;
            }
        }
    }
}

/// How the bucket is found where the search for a key begins.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Buckets if all ranks were owners, and buckets of owners before the first one here.
    of_all: usize,
    before: usize,
}

impl Place {
    #[inline(always)]
    fn of(self, key: u64) -> usize {
        owner(key, self.of_all) - self.before
    }
}

/// The buckets that an index has at present.
struct Present<'a> {
    buckets: &'a mut [Bucket],
    place: Place,
}

impl Present<'_> {
    /// Combines records with the records of their keys, each in the bucket where `place` says, up to the first whose key is not
    /// there. Returns its number. A loop of its own: nothing else takes the CPU's registers.
    #[inline(always)]
    fn fold<W: Width>(
        &mut self,
        numbers: Range<usize>,
        place: impl Fn(usize) -> usize,
        record: impl Fn(usize) -> Record,
        fold: impl Fn(u64, u64) -> u64,
    ) -> usize {
        for at in numbers.clone() {
            let [key, word] = record(at);
            let Some(bucket) = self.buckets.get_mut(place(at)).filter(|_| key != 0) else {
                return at;
            };
            let Some(slot) = bucket.find::<W>(key) else { return at };
            bucket.words[slot] = fold(bucket.words[slot], word);
        }
        numbers.end
    }
}

/// Records for which so many buckets have room.
fn most(buckets: usize) -> usize {
    buckets * SLOTS / 8 * FULL[usize::from(buckets >= LARGE)]
}

/// Buckets with room for so many records, if there may be so many.
fn buckets_for(records: usize) -> Option<usize> {
    let eighths = records.checked_mul(8)?;
    let buckets = eighths.div_ceil(SLOTS * FULL[1]);
    let is_large = buckets >= LARGE;
    Some(if is_large { buckets } else { eighths.div_ceil(SLOTS * FULL[0]) })
}

impl Index {
    /// Without records, of some owners among so many ranks.
    pub(super) fn new(ranks: usize, owners: Range<usize>) -> Self {
        let several = if owners.len() > 1 { owners.len() } else { 0 };
        let (used_each, beside) = (vec![0; several], owners.clone().map(|_| None).collect());
        let (buckets, zero) = (Buckets::NONE, None);
        let (each, place, used, most, given) = (0, Place { of_all: 0, before: 0 }, 0, 0, 0);
        Self { ranks, owners, buckets, each, place, zero, used, most, used_each, beside, given }
    }

    /// The owners, and the ranks of which they are some.
    pub(super) fn owners(&self) -> (Range<usize>, usize) {
        (self.owners.clone(), self.ranks)
    }

    fn all_beside(&self) -> impl Iterator<Item = &Self> {
        self.beside.iter().flatten().map(|beside| &**beside)
    }

    fn beside(&self, owner: usize) -> Option<&Self> {
        self.beside[owner - self.owners.start].as_deref()
    }

    /// Records.
    pub(super) fn len(&self) -> usize {
        let beside: usize = self.all_beside().map(Self::len).sum();
        self.used + usize::from(self.zero.is_some()) + beside
    }

    /// Records of an owner.
    pub(super) fn len_of(&self, owner: usize) -> usize {
        let has_zero = self.zero_of(owner).is_some();
        let beside = self.beside(owner).map_or(0, Self::len);
        self.used_of(owner) + usize::from(has_zero) + beside
    }

    /// Slots in use of an owner.
    fn used_of(&self, owner: usize) -> usize {
        self.used_each.get(owner - self.owners.start).copied().unwrap_or(self.used)
    }

    /// The record of key 0, if an owner has that.
    fn zero_of(&self, of: usize) -> Option<Record> {
        self.zero.filter(|_| owner(0, self.ranks) == of)
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let beside: usize = self.all_beside().map(Self::bytes).sum();
        self.buckets.len() * size_of::<Bucket>() - self.given + beside
    }

    /// Bytes of memory while so many more records come, at most.
    pub(super) fn bytes_with(&self, more: usize) -> usize {
        let all = self.bytes();
        let grown =
            self.grown_bytes(more) - (self.buckets.len() * size_of::<Bucket>() - self.given);
        // All might have one owner.
        let beside = |beside: &Self| beside.bytes_with(more) - beside.bytes();
        let beside = match self.owners.len() {
            1 => 0,
            _ => {
                let new = Self::new(self.ranks, self.owners.start..self.owners.start + 1);
                self.all_beside().map(beside).chain([new.bytes_with(more)]).max().unwrap_or(0)
            }
        };
        all.saturating_add(grown.max(beside))
    }

    /// Bytes of its buckets while so many more records come, at most.
    fn grown_bytes(&self, more: usize) -> usize {
        let records = self.used.saturating_add(more);
        let mut buckets = self.buckets.len();
        if records <= self.most {
            return buckets * size_of::<Bucket>() - self.given;
        }
        buckets = buckets.max(self.least());
        while most(buckets) < records {
            let Some(more) = buckets.checked_mul(2).filter(|more| *more < usize::MAX >> 10) else {
                return usize::MAX;
            };
            buckets = more;
        }
        // The last ones are there while records move.
        (buckets + buckets / 2) * size_of::<Bucket>()
    }

    /// Buckets at first.
    fn least(&self) -> usize {
        LEAST.div_ceil(self.owners.len()).max(LEAST_EACH) * self.owners.len()
    }

    /// Whether it has room for so many records in all.
    pub(super) fn has_room(&self, records: usize) -> bool {
        records <= self.most
    }

    /// Makes room for so many records in all. Records that have left in part come to have one key again, by `fold`.
    pub(super) fn reserve(&mut self, records: usize, fold: impl Fn(u64, u64) -> u64 + Copy) {
        if let Some(buckets) = buckets_for(records).filter(|_| !self.has_room(records)) {
            self.grow(buckets, fold);
        }
    }

    #[inline(always)]
    fn present(&mut self) -> Present<'_> {
        Present { buckets: &mut self.buckets, place: self.place }
    }

    /// Puts so many records.
    #[inline(always)]
    pub(super) fn put_all(
        &mut self,
        count: usize,
        record: impl Fn(usize) -> Record,
        fold: impl Fn(u64, u64) -> u64 + Copy,
    ) {
        if self.buckets.is_empty() && count > 0 {
            self.grow(0, fold);
        }
        by_widest(Puts { index: self, count, record, fold });
    }

    /// Puts a record. Its search begins in bucket `at`.
    #[inline(always)]
    fn put<W: Width>(
        &mut self,
        mut at: usize,
        record: Record,
        fold: impl Fn(u64, u64) -> u64 + Copy,
    ) {
        let [key, word] = record;
        if key == 0 {
            self.zero = Some([0, self.zero.map_or(word, |zero| fold(zero[1], word))]);
            return;
        }
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(slot) = bucket.find::<W>(key) {
                bucket.words[slot] = fold(bucket.words[slot], word);
                return;
            }
            if let Some(slot) = bucket.find::<W>(0) {
                if !self.insert(at, slot, key, word) {
                    self.put_elsewhere(key, word, fold);
                }
                return;
            }
            let number = self.number(at);
            at += 1;
            if at == (number + 1) * self.each {
                at -= self.each;
            }
        }
    }

    /// The number of the owner that has a bucket.
    #[inline(always)]
    fn number(&self, at: usize) -> usize {
        if self.used_each.is_empty() { 0 } else { at / self.each }
    }

    /// Puts a record of a new key, if there may be one more.
    #[inline(always)]
    fn insert(&mut self, at: usize, slot: usize, key: u64, word: u64) -> bool {
        if self.used >= self.most {
            return false;
        }
        if !self.used_each.is_empty() {
            let number = self.number(at);
            let used = &mut self.used_each[number];
            if *used >= self.each * SLOTS / 8 * FULL_EACH || self.beside[number].is_some() {
                return false;
            }
            *used += 1;
        }
        let bucket = &mut self.buckets[at];
        (bucket.keys[slot], bucket.words[slot]) = (key, word);
        self.used += 1;
        true
    }

    /// Puts a record of a key that is new here, and for which there is no room.
    #[cold]
    #[inline(never)]
    fn put_elsewhere(&mut self, key: u64, word: u64, fold: impl Fn(u64, u64) -> u64 + Copy) {
        let record = [key, word];
        if self.used >= self.most {
            self.grow(2 * self.buckets.len(), fold);
            let at = self.place.of(key);
            self.put::<Narrow>(at, record, fold);
            return;
        }
        let of = owner(key, self.ranks);
        let beside = &mut self.beside[of - self.owners.start];
        let new = || Box::new(Self::new(self.ranks, of..of + 1));
        beside.get_or_insert_with(new).put_all(1, |_| record, fold);
    }

    /// Has so many buckets, or a few more.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, buckets: usize, fold: impl Fn(u64, u64) -> u64 + Copy) {
        let old = self.set_buckets(buckets.max(self.least()).div_ceil(self.owners.len()));
        let beside: Vec<_> = self.beside.iter_mut().filter_map(Option::take).collect();
        for record in old.iter().flat_map(Bucket::records) {
            let at = self.place.of(record[0]);
            self.put::<Narrow>(at, record, fold);
        }
        for record in
            beside.iter().flat_map(|beside| beside.buckets.iter()).flat_map(Bucket::records)
        {
            let at = self.place.of(record[0]);
            self.put::<Narrow>(at, record, fold);
        }
    }

    /// Sets so many empty buckets of each owner in place of the present ones.
    fn set_buckets(&mut self, each: usize) -> Buckets {
        self.each = each;
        self.place = Place { of_all: self.ranks * each, before: self.owners.start * each };
        let buckets = Buckets::new(each * self.owners.len());
        (self.most, self.used, self.given) = (most(buckets.len()), 0, 0);
        self.used_each.fill(0);
        std::mem::replace(&mut self.buckets, buckets)
    }

    /// Has each record looked at.
    pub(super) fn each_record(&self, mut each: impl FnMut(Record)) {
        self.zero.into_iter().for_each(&mut each);
        each_of(&self.buckets, &mut each);
        self.all_beside().for_each(|beside| each_of(&beside.buckets, &mut each));
    }

    /// The number behind all buckets of an owner.
    pub(super) fn end(&self, owner: usize) -> usize {
        self.each + self.beside(owner).map_or(0, |beside| beside.each)
    }

    /// The buckets of an owner with these numbers.
    fn range(&self, owner: usize, numbers: &Range<usize>) -> Range<usize> {
        let first = (owner - self.owners.start) * self.each;
        first + numbers.start.min(self.each)..first + numbers.end.min(self.each)
    }

    /// Appends records of an owner, from a bucket on, to `words`, of some words at most. Returns the bucket behind them.
    pub(super) fn copy(
        &self,
        owner: usize,
        from: usize,
        most: usize,
        words: &mut Vec<u64>,
    ) -> usize {
        words.reserve(most.min(2 * (self.len_of(owner) + SLOTS)));
        let end = words.len().saturating_add(most);
        if let Some(zero) = self.zero_of(owner).filter(|_| from == 0) {
            words.extend_from_slice(&zero);
        }
        let buckets = &self.buckets[self.range(owner, &(from..self.each))];
        let to = from + append(buckets, end, words);
        let Some(beside) = self.beside(owner).filter(|_| to >= self.each) else {
            return to;
        };
        let beside = &beside.buckets[(to - self.each).min(beside.each)..];
        to + append(beside, end, words)
    }

    /// Forgets the records of some buckets of an owner, as they have been copied. Key 0 is in the first one.
    pub(super) fn clear(&mut self, owner: usize, buckets: Range<usize>) {
        if buckets.start == 0 && self.zero_of(owner).is_some() {
            self.zero = None;
        }
        let range = self.range(owner, &buckets);
        let gone = self.buckets[range.clone()].iter().flat_map(Bucket::records).count();
        let number = owner - self.owners.start;
        self.used -= gone;
        self.used_each.get_mut(number).into_iter().for_each(|used| *used -= gone);
        if let Some(beside) = &mut self.beside[number] {
            let behind = |at: usize| at.saturating_sub(self.each);
            beside.clear(owner, behind(buckets.start)..behind(buckets.end));
            if beside.len() == 0 {
                self.beside[number] = None;
            }
        }
        if self.used == 0 && self.all_beside().next().is_none() {
            let zero = self.zero;
            *self = Self { zero, ..Self::new(self.ranks, self.owners.clone()) };
        } else {
            self.given += self.buckets.clear(range);
        }
    }

    /// Takes all records of its owner from another index, bucket by bucket, if it has none. Returns whether it has done so.
    pub(super) fn take(&mut self, other: &mut Self, owner: usize) -> bool {
        let is_fit =
            self.len() == 0 && self.owners == (owner..owner + 1) && self.ranks == other.ranks;
        if !is_fit || other.each == 0 || other.beside(owner).is_some() {
            return false;
        }
        let range = other.range(owner, &(0..other.each));
        self.set_buckets(other.each);
        // It may be as full as it was.
        self.most = self.most.max(other.most / other.owners.len());
        self.buckets.copy_from_slice(&other.buckets[range]);
        (self.used, self.zero) = (other.used_of(owner), other.zero_of(owner));
        other.clear(owner, 0..other.each);
        true
    }

    /// Counts its memory anew: records may come again where there were some.
    pub(super) fn count_memory(&mut self) {
        self.given = 0;
        self.beside.iter_mut().flatten().for_each(|beside| beside.count_memory());
    }
}

/// Has each record of some buckets looked at.
fn each_of(buckets: &[Bucket], each: &mut impl FnMut(Record)) {
    let mut words = Vec::with_capacity(AT_ONCE * 2 * SLOTS);
    for buckets in buckets.chunks(AT_ONCE) {
        append(buckets, usize::MAX, &mut words);
        words.as_chunks().0.iter().copied().for_each(&mut *each);
        words.clear();
    }
}

/// Appends the records of buckets to `words` up to a length. Returns the number of buckets, which go whole.
fn append(buckets: &[Bucket], end: usize, words: &mut Vec<u64>) -> usize {
    for (at, bucket) in buckets.iter().enumerate() {
        if words.len() + 2 * SLOTS > end {
            return at;
        }
        bucket.append(words);
    }
    buckets.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::hash::place;
    use super::*;
    use crate::random::Rng;

    const RANKS: usize = 3;

    fn put_all(index: &mut Index, records: &[Record]) {
        index.put_all(records.len(), |at| records[at], u64::wrapping_add);
    }

    fn contents(index: &Index) -> BTreeMap<u64, u64> {
        let mut all = BTreeMap::new();
        index.each_record(|[key, word]| {
            all.insert(key, word);
        });
        assert_eq!(all.len(), index.len(), "no key comes twice");
        let (owners, _) = index.owners();
        assert_eq!(owners.map(|owner| index.len_of(owner)).sum::<usize>(), index.len());
        all
    }

    /// All records leave once, in the order of places.
    #[test]
    fn records_leave_in_parts() {
        for count in [0, 1, 3, 170, 171, 5000, 300_000] {
            let mut random = Rng(count as u64);
            let records: Vec<_> = (0..count).map(|_| [random.below(count as u64), 1]).collect();
            let mut index = Index::new(RANKS, 0..RANKS);
            put_all(&mut index, &records);
            let mut expected = BTreeMap::new();
            records.iter().for_each(|[key, _]| *expected.entry(*key).or_insert(0) += 1);
            assert_eq!(contents(&index), expected);
            for rank in 0..RANKS {
                let mut other = Index::new(RANKS, rank..rank + 1);
                let (mut from, mut places) = (0, Vec::new());
                while index.len_of(rank) > 0 {
                    let (before, mut words) = (index.len_of(rank), Vec::new());
                    let to = index.copy(rank, from, 1001, &mut words);
                    index.clear(rank, from..to);
                    from = to;
                    let (records, _) = words.as_chunks();
                    assert_eq!(index.len_of(rank) + records.len(), before);
                    assert!(records.len() > 490 || index.len_of(rank) == 0);
                    put_all(&mut other, records);
                    places.extend(records.iter().map(|record| place(record[0], RANKS)));
                }
                assert!(places.iter().all(|(owner, _)| *owner == rank));
                let unordered = places.windows(2).filter(|two| two[0] > two[1]).count();
                assert!(unordered <= places.len() / 3, "{unordered} of {}", places.len());
                let copied = contents(&other);
                assert!(copied.iter().all(|(key, value)| expected[key] == *value));
                assert_eq!(copied.len(), places.len());
            }
            assert_eq!((index.len(), index.bytes()), (0, 0));
        }
    }

    /// A record that comes behind others which have left is combined with its key, or has a slot of its own. Both are one
    /// again when the index grows: in run 7 that happens.
    #[test]
    fn records_come_after_some_have_left() {
        for seed in 0..20 {
            let (mut random, mut index, mut left) = (Rng(seed), Index::new(1, 0..1), Vec::new());
            let all: Vec<_> = (0..3000).map(|_| [random.next() | 1, 1]).collect();
            for _ in 0..20 {
                put_all(&mut index, &all);
                let from = random.below(index.end(0) as u64) as usize;
                let to = index.copy(0, from, 300, &mut left);
                index.clear(0, from..to);
            }
            put_all(&mut index, &all);
            let others: Vec<_> = (1..=20_000).map(|key| [key << 32, 21]).collect();
            put_all(&mut index, &others);
            contents(&index);
            index.copy(0, 0, usize::MAX, &mut left);
            let mut sums = BTreeMap::new();
            left.as_chunks::<2>().0.iter().for_each(|[key, value]| {
                *sums.entry(*key).or_insert(0) += value;
            });
            assert_eq!(sums.len(), all.len() + others.len());
            assert!(sums.values().all(|sum| *sum == 21), "run {seed}");
        }
    }

    /// Memory that left with records is counted again when others come.
    #[test]
    fn memory_is_given_back_in_large_pieces() {
        let mut index = Index::new(1, 0..1);
        put_all(&mut index, &(0..200_000).map(|key| [key, 1]).collect::<Vec<_>>());
        let (all, mut left) = (index.bytes(), Vec::new());
        let to = index.copy(0, 0, 300_000, &mut left);
        index.clear(0, 0..to);
        assert!(index.bytes() < all, "some of it was given back");
        index.count_memory();
        assert_eq!(index.bytes(), all);
    }

    /// Keys that somebody has chosen, all of one owner but a few, take no more memory than others.
    #[test]
    fn an_owner_may_have_most_keys() {
        const OF: usize = 16;
        for others in [0, 1000, 400_000] {
            let mut index = Index::new(OF, 0..OF);
            let keys = (1..).filter(|key| owner(*key, OF) == 5).take(50_000);
            let mut records: Vec<_> = keys.map(|key| [key, 1]).collect();
            let told = index.bytes_with(records.len());
            put_all(&mut index, &records);
            assert!(index.bytes() <= told && told < 3 * 128 * records.len(), "{told}");
            assert_eq!(index.len_of(5), records.len());
            records.extend((0..others).map(|at| [u64::MAX - at, 2]));
            put_all(&mut index, &records[50_000..]);
            put_all(&mut index, &records);
            let mut expected = BTreeMap::new();
            records.iter().for_each(|[key, value]| *expected.entry(*key).or_insert(0) += value);
            records[50_000..]
                .iter()
                .for_each(|[key, value]| *expected.entry(*key).or_insert(0) += value);
            records[..50_000]
                .iter()
                .for_each(|[key, value]| *expected.entry(*key).or_insert(0) += value);
            assert_eq!(contents(&index), expected);
            let mut got = BTreeMap::new();
            for of in 0..OF {
                let mut from = 0;
                while index.len_of(of) > 0 {
                    let mut words = Vec::new();
                    let to = index.copy(of, from, 10_000, &mut words);
                    index.clear(of, from..to);
                    from = to;
                    got.extend(words.as_chunks::<2>().0.iter().map(|[key, value]| (*key, *value)));
                }
            }
            assert_eq!(got, expected);
            assert_eq!(index.bytes(), 0);
        }
    }

    #[test]
    fn memory_is_told_beforehand() {
        for (count, more) in [(0, 1), (100, 70), (100, 71), (4000, 90_000), (4000, 10)] {
            let records: Vec<_> = (0..count + more).map(|key| [key as u64, 1]).collect();
            let mut index = Index::new(1, 0..1);
            put_all(&mut index, &records[..count]);
            let told = index.bytes_with(more);
            put_all(&mut index, &records[count..]);
            assert!(index.bytes() <= told && told < 3 * 128 * (count + more).max(SLOTS * LEAST));
        }
        assert_eq!(Index::new(1, 0..1).bytes_with(usize::MAX), usize::MAX);
    }
}
