//! Records of two words, for one owner or for several: pure.
//!
//! Records are combined as they come, in an index. If few records that are to come have keys in common, they lie in a
//! pile.

use std::ops::Range;

use super::forecast::Keys;
use super::index::{Index, Record};
use super::pile::Pile;
use super::word::Word;
use crate::leaf::arithmetic::Operator;

/// Records by which to foresee the number of keys; few at first, so that tables have the right size while more come.
pub(super) const SAMPLE: usize = 1 << 17;
const FIRST_SAMPLE: usize = 1 << 13;
/// The number from which on records lie in the pile; lower ones are of buckets.
const PILED: usize = 1 << 62;

/// The number of records for which to make room, if so many of all have been seen, and a sample is complete.
pub(super) fn next_sample(before: usize, seen: usize, all: usize) -> Option<usize> {
    let is_complete = |sample: usize| before < sample && seen >= sample && seen < all;
    if is_complete(SAMPLE) { Some(all) } else { is_complete(FIRST_SAMPLE).then(|| all.min(SAMPLE)) }
}

/// Records of some owners.
pub(super) struct Words {
    word: Word,
    index: Index,
    pile: Pile,
    /// There is room for all that comes: a pile has told of it, better than a sample can.
    has_room: bool,
}

impl Words {
    /// Without records, of some owners among so many ranks.
    pub(super) fn new(word: Word, ranks: usize, owners: Range<usize>) -> Self {
        let (index, pile) = (Index::new(ranks, owners.clone()), Pile::new(ranks, owners));
        Self { word, index, pile, has_room: false }
    }

    /// Takes pairs, whose values are packed.
    pub(super) fn add(&mut self, keys: &[u64], packed: &[u8]) {
        let widened: Vec<[u8; 8]>;
        let words = if self.word.is_plain() {
            packed.as_chunks().0
        } else {
            let mut words = Vec::with_capacity(keys.len());
            self.word.widen(packed, |_, value| words.push(value.to_ne_bytes()));
            widened = words;
            &widened
        };
        let piled = keys.len().min(self.pile.room());
        self.pile.append(piled, |at| [keys[at], u64::from_ne_bytes(words[at])]);
        let (keys, words) = (&keys[piled..], &words[piled..]);
        self.put(keys.len(), move |at| [keys[at], u64::from_ne_bytes(words[at])]);
    }

    /// Puts records into the index.
    fn put(&mut self, count: usize, record: impl Fn(usize) -> Record) {
        let word = self.word;
        // The op that most programs have, without a choice for each record.
        if word.folds_as().0 == Operator::Sum {
            self.index.put_all(count, record, u64::wrapping_add);
        } else {
            self.index.put_all(count, record, move |x, y| word.fold(x, y));
        }
    }

    /// Takes records, some of as many as come.
    pub(super) fn push(&mut self, records: &[Record], coming: usize) {
        let (before, mut seen) = (self.keys(), 0);
        for piece in records.chunks(FIRST_SAMPLE) {
            self.put(piece.len(), move |at| piece[at]);
            let sampled = seen;
            seen += piece.len();
            let next = next_sample(sampled, seen, coming).filter(|_| !self.has_room);
            if let Some(next) = next {
                let new = self.keys() - before;
                // As many of the others are new, but no more than there are keys: those before are some of them.
                let keys = Keys::from_sample(before, new, seen).all();
                self.reserve(keys.min(before + next * new / seen));
            }
        }
    }

    /// Makes room for so many keys in all.
    pub(super) fn reserve(&mut self, keys: usize) {
        let word = self.word;
        if !self.index.has_room(keys) {
            // Another sample may say a bit more.
            self.index.reserve(keys + keys / 16, move |x, y| word.fold(x, y));
        }
    }

    /// Has so many records that come next lie in a pile, unless there is one.
    pub(super) fn open_pile(&mut self, records: usize, keys: Keys) {
        if self.pile.is_empty() {
            self.pile.open(records, keys);
        }
    }

    /// Combines the records of the pile with the others.
    pub(super) fn close_pile(&mut self) {
        let (owners, ranks) = self.index.owners();
        let pile = std::mem::replace(&mut self.pile, Pile::new(ranks, owners.clone()));
        let Some(keys) = pile.keys() else { return };
        self.reserve(keys.after(self.all() + pile.all()));
        for owner in owners {
            pile.pieces(owner).for_each(|piece| self.put(piece.len(), move |at| piece[at]));
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.pile.bytes() + self.index.bytes()
    }

    /// Bytes of memory while so many more records come, at most.
    pub(super) fn bytes_with(&self, records: usize) -> usize {
        let grown = self.index.bytes_with(records) - self.index.bytes();
        let piled = if records > SAMPLE { self.pile.bytes_for(records) } else { 0 };
        self.bytes().saturating_add(grown.max(piled))
    }

    /// Counts memory anew that the system has got back, if records may come again there.
    pub(super) fn count_memory(&mut self) {
        self.index.count_memory();
    }

    /// Records of the pile.
    pub(super) fn piled(&self) -> usize {
        self.pile.all()
    }

    /// Records of an owner.
    pub(super) fn len(&self, owner: usize) -> usize {
        self.index.len_of(owner) + self.pile.len(owner)
    }

    /// Records of all owners.
    pub(super) fn all(&self) -> usize {
        self.keys() + self.pile.all()
    }

    /// Different keys, without the pile.
    pub(super) fn keys(&self) -> usize {
        self.index.len()
    }

    /// Has each record looked at, without the pile.
    pub(super) fn each_record(&self, each: impl FnMut(Record)) {
        self.index.each_record(each);
    }

    /// As [`Store::copy`](super::store::Store::copy).
    pub(super) fn copy(
        &self,
        owner: usize,
        from: usize,
        most: usize,
        words: &mut Vec<u64>,
    ) -> usize {
        let before = words.len();
        if from < PILED {
            let to = self.index.copy(owner, from, most, words);
            if to < self.index.end(owner) || self.pile.len(owner) == 0 {
                return to;
            }
        }
        let mut left = (most - (words.len() - before)) / 2;
        let mut to = from.max(PILED);
        for piece in self.pile.pieces(owner) {
            let some = &piece[..piece.len().min(left)];
            words.extend_from_slice(some.as_flattened());
            left -= some.len();
            to += some.len();
            if left == 0 {
                break;
            }
        }
        to
    }

    /// As [`Store::clear`](super::store::Store::clear).
    pub(super) fn clear(&mut self, owner: usize, numbers: Range<usize>) {
        if numbers.start < PILED {
            self.index.clear(owner, numbers.start..numbers.end.min(self.index.end(owner)));
        }
        let piled = numbers.end.saturating_sub(numbers.start.max(PILED));
        if piled > 0 {
            self.pile.clear(owner, piled);
        }
    }

    /// Takes the records of an owner from the index of another store.
    pub(super) fn absorb(&mut self, other: &mut Self, owner: usize) {
        self.has_room = false;
        if self.index.take(&mut other.index, owner) {
            return;
        }
        // The one with more records stays where it is, if it has no others.
        if self.keys() < other.keys() && self.index.owners() == other.index.owners() {
            std::mem::swap(&mut self.index, &mut other.index);
        }
        self.reserve(self.keys().max(other.index.len_of(owner)));
        let (mut words, mut from, end) = (Vec::new(), 0, other.index.end(owner));
        loop {
            from = other.index.copy(owner, from, 2 * FIRST_SAMPLE, &mut words);
            let records = words.as_chunks().0;
            self.put(records.len(), move |at| records[at]);
            words.clear();
            if from >= end {
                break;
            }
        }
        other.index.clear(owner, 0..end);
    }

    /// Takes the records of an owner from the pile of another store: some of as many as come.
    pub(super) fn absorb_pile(&mut self, other: &mut Self, owner: usize, coming: usize) {
        let count = other.pile.len(owner);
        if let Some(keys) = other.pile.keys() {
            self.reserve(keys.of_one(other.pile.ranks()).after(self.keys() + coming));
            self.has_room = true;
        }
        let pile = &mut other.pile;
        pile.pieces(owner).for_each(|piece| self.put(piece.len(), move |at| piece[at]));
        if count > 0 {
            pile.clear(owner, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::leaf::arithmetic::{Arithmetic, Element};
    use crate::random::Rng;

    fn sums(owners: Range<usize>) -> Words {
        let arithmetic = Arithmetic { op: Operator::Sum, element: Element::U64 };
        Words::new(Word::of(arithmetic).expect("a word"), 2, owners)
    }

    /// Adds pairs of value 1.
    fn add(words: &mut Words, keys: &[u64]) {
        words.add(keys, &1u64.to_ne_bytes().repeat(keys.len()));
    }

    /// One exchange brings the records of both kinds, in parts, and what stays after a failure comes with the next.
    #[test]
    fn indexed_and_piled_records_leave_together() {
        let mut random = Rng(9);
        let keys: Vec<_> = (0..60_000).map(|_| random.below(50_000)).collect();
        let mut expected = BTreeMap::new();
        keys.iter().for_each(|key| *expected.entry(*key).or_insert(0) += 1);
        let (mut words, mut sums_of) = (sums(0..2), BTreeMap::new());
        let (indexed, piled) = keys.split_at(20_000);
        add(&mut words, indexed);
        words.open_pile(piled.len(), Keys::from_sample(0, 1, 1));
        // Another one has to wait for the end of this one.
        words.open_pile(7, Keys::from_sample(0, 1, 1));
        add(&mut words, piled);
        assert_eq!(words.all(), words.keys() + piled.len());
        for owner in 0..2 {
            let mut from = 0;
            for round in 0.. {
                let (before, mut left) = (words.len(owner), Vec::new());
                let to = words.copy(owner, from, 7001, &mut left);
                words.clear(owner, from..to);
                assert_eq!(words.len(owner), before - left.len() / 2);
                // Each exchange counts from the beginning.
                from = if round == 2 { 0 } else { to };
                for [key, one] in left.as_chunks().0 {
                    *sums_of.entry(*key).or_insert(0) += one;
                }
                if words.len(owner) == 0 {
                    break;
                }
            }
        }
        assert_eq!(sums_of, expected);
        assert_eq!((words.all(), words.bytes()), (0, 0));
    }

    /// A share makes room once for the records that come, and no more than they need.
    #[test]
    fn a_pile_tells_a_share_of_its_size() {
        let mut random = Rng(4);
        let keys: Vec<_> = (0..400_000).map(|_| random.next()).collect();
        let (mut words, mut share) = (sums(0..2), sums(0..1));
        words.open_pile(keys.len(), Keys::from_sample(0, SAMPLE, SAMPLE));
        add(&mut words, &keys);
        let coming = words.len(0);
        share.absorb_pile(&mut words, 0, 2 * coming);
        let (bytes, keys) = (share.bytes(), share.keys());
        assert_eq!(keys, coming);
        let others: Vec<_> = (0..coming).map(|_| [random.next(), 1]).collect();
        let mut own = Vec::new();
        own.extend(others.iter().filter(|record| super::super::hash::owner(record[0], 2) == 0));
        share.push(&own, own.len());
        assert_eq!(share.bytes(), bytes, "room for {} keys", share.keys());
        assert!(bytes < 64 * share.keys(), "{bytes} bytes for {} keys", share.keys());
    }

    #[test]
    fn samples_follow_each_other() {
        let all = 1_000_000;
        assert_eq!(next_sample(0, FIRST_SAMPLE - 1, all), None);
        assert_eq!(next_sample(0, FIRST_SAMPLE, all), Some(SAMPLE));
        assert_eq!(next_sample(FIRST_SAMPLE, SAMPLE - 1, all), None);
        assert_eq!(next_sample(FIRST_SAMPLE, SAMPLE, all), Some(all));
        assert_eq!(next_sample(0, FIRST_SAMPLE, FIRST_SAMPLE + 1), Some(FIRST_SAMPLE + 1));
        assert_eq!(next_sample(0, 100, 100), None);
    }
}
