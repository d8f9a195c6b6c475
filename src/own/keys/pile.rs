//! Records of two words as they came: pure.
//!
//! If few records have a key in common, to combine them before they leave is work without a gain. To append one to a pile
//! takes a fraction of the time that a slot of a table takes, and half the memory.
//!
//! The records of an owner lie in parts by hash. So a table that takes them part by part is written in one place after
//! the other, which a cache holds, and not all over.

use std::ops::Range;

use super::forecast::Keys;
use super::hash::place;
use super::index::Record;
use super::zeroed::Zeroed;

/// Records that lie side by side: an odd number of cache lines, so that parts which grow alike are in other lines of a
/// cache.
const CHUNK: usize = 252;
/// Parts of all owners, about: a cache holds a line of each.
const PARTS: usize = 256;

/// Records of some owners.
pub(super) struct Pile {
    /// The owners are some of so many ranks, from the first one on.
    ranks: usize,
    owners: Range<usize>,
    /// Parts of each owner.
    parts_each: usize,
    parts: Vec<Part>,
    /// Records of each owner that have left.
    left: Vec<usize>,
    /// Chunks of all parts.
    memory: Zeroed<Record>,
    /// The first one that no part has.
    unused: usize,
    /// Records that may still come.
    room: usize,
    /// The keys that they have.
    keys: Option<Keys>,
}

/// Records of an owner whose hashes begin alike.
#[derive(Clone, Default)]
struct Part {
    /// Their chunks, by the first record of each. All are full except the last one.
    chunks: Vec<usize>,
    /// The place of the next record, and the end of its chunk.
    next: usize,
    end: usize,
}

impl Pile {
    /// Without room.
    pub(super) fn new(ranks: usize, owners: Range<usize>) -> Self {
        let (parts_each, left) = ((PARTS / owners.len()).max(1), vec![0; owners.len()]);
        let (memory, parts) = (Zeroed::NONE, Vec::new());
        Self { ranks, owners, parts_each, parts, left, memory, unused: 0, room: 0, keys: None }
    }

    /// Records in memory for so many.
    fn most(&self, records: usize) -> usize {
        records.saturating_add(self.owners.len() * self.parts_each * CHUNK)
    }

    /// Bytes of memory with room for so many records.
    pub(super) fn bytes_for(&self, records: usize) -> usize {
        self.most(records).saturating_mul(size_of::<Record>())
    }

    /// Makes room for so many records, where there are none.
    pub(super) fn open(&mut self, records: usize, keys: Keys) {
        debug_assert!(self.is_empty(), "no records");
        self.memory = Zeroed::new(self.most(records));
        self.parts = vec![Part::default(); self.owners.len() * self.parts_each];
        (self.room, self.keys) = (records, Some(keys));
    }

    /// Records that may still come.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Takes records, for which there is room.
    pub(super) fn append(&mut self, count: usize, record: impl Fn(usize) -> Record) {
        assert!(count <= self.room, "room for {count} records");
        self.room -= count;
        let (ranks, first, parts_each) = (self.ranks, self.owners.start, self.parts_each as u64);
        for record in (0..count).map(record) {
            let (owner, number) = place(record[0], ranks);
            let part = ((number >> 32) * parts_each) >> 32;
            let part = &mut self.parts[(owner - first) * self.parts_each + part as usize];
            if part.next == part.end {
                part.chunks.push(self.unused);
                part.next = self.unused;
                self.unused += CHUNK;
                part.end = self.unused;
            }
            self.memory[part.next] = record;
            part.next += 1;
        }
    }

    /// Whether it has neither records nor room.
    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The ranks of which the owners are some.
    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// The keys of its records, and of others that lie elsewhere; `None`: it is empty.
    pub(super) fn keys(&self) -> Option<Keys> {
        self.keys
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.memory.len() * size_of::<Record>()
    }

    fn parts_of(&self, owner: usize) -> &[Part] {
        let first = (owner - self.owners.start) * self.parts_each;
        self.parts.get(first..first + self.parts_each).unwrap_or(&[])
    }

    /// Records of all owners.
    pub(super) fn all(&self) -> usize {
        self.owners.clone().map(|owner| self.len(owner)).sum()
    }

    /// Records of an owner.
    pub(super) fn len(&self, owner: usize) -> usize {
        let came: usize = self.parts_of(owner).iter().map(Part::len).sum();
        came - self.left[owner - self.owners.start]
    }

    /// The records of an owner, in some pieces.
    pub(super) fn pieces(&self, owner: usize) -> impl Iterator<Item = &[Record]> {
        let mut left = self.left[owner - self.owners.start];
        let pieces = self.parts_of(owner).iter().flat_map(Part::pieces);
        pieces.filter_map(move |piece| {
            let gone = left.min(piece.len());
            left -= gone;
            let piece = piece.start + gone..piece.end;
            (!piece.is_empty()).then(|| &self.memory[piece])
        })
    }

    /// Forgets the first records of an owner.
    pub(super) fn clear(&mut self, owner: usize, count: usize) {
        assert!(count <= self.len(owner), "records that are here");
        self.left[owner - self.owners.start] += count;
        if self.owners.clone().all(|owner| self.len(owner) == 0) {
            *self = Self::new(self.ranks, self.owners.clone());
        }
    }
}

impl Part {
    fn len(&self) -> usize {
        self.chunks.len() * CHUNK - (self.end - self.next)
    }

    fn pieces(&self) -> impl Iterator<Item = Range<usize>> {
        let end = |first: usize| if first + CHUNK == self.end { self.next } else { first + CHUNK };
        self.chunks.iter().map(move |first| *first..end(*first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    /// All records leave once, and each owner gets its own part by part.
    #[test]
    fn records_leave_as_they_came() {
        const RANKS: usize = 5;
        for (owners, count) in [(0..RANKS, 1), (1..3, 300), (0..RANKS, 200_000)] {
            let mut random = Rng(count as u64);
            let mut records = Vec::new();
            while records.len() < count {
                let record = [random.next() >> 40, records.len() as u64];
                if owners.contains(&place(record[0], RANKS).0) {
                    records.push(record);
                }
            }
            let mut pile = Pile::new(RANKS, owners.clone());
            assert!(pile.is_empty() && pile.keys().is_none());
            pile.open(count, Keys::from_sample(0, 1, 1));
            assert!(pile.bytes() <= pile.bytes_for(count));
            for records in records.chunks(16_000) {
                pile.append(records.len(), |at| records[at]);
            }
            assert_eq!((pile.room(), pile.all()), (0, count));
            let mut all = Vec::new();
            for owner in owners {
                let (before, mut own) = (pile.all(), Vec::new());
                while pile.len(owner) > 0 {
                    let length = pile.len(owner);
                    let first: Vec<_> = pile.pieces(owner).flatten().take(999).copied().collect();
                    assert_eq!(pile.pieces(owner).map(<[_]>::len).sum::<usize>(), length);
                    pile.clear(owner, first.len());
                    assert_eq!(pile.len(owner), length - first.len());
                    own.extend(first);
                }
                assert_eq!(pile.all(), before - own.len());
                let part = |record: &Record| {
                    let (rank, number) = place(record[0], RANKS);
                    assert_eq!(rank, owner);
                    ((number >> 32) * pile.parts_each as u64) >> 32
                };
                let key = |record: &Record| (part(record), record[1]);
                assert!(own.is_sorted_by_key(key), "parts, each in the order of arrival");
                all.extend(own);
            }
            all.sort_unstable_by_key(|record| record[1]);
            assert_eq!(all, records);
            assert!(pile.is_empty() && pile.bytes() == 0 && pile.keys().is_none());
        }
    }
}
