//! The pairs of a rank, for one owner or for several: pure.

use std::ffi::c_int;
use std::ops::Range;

use super::forecast::Keys;
use super::parts::Parts;
use super::values::Values;
use super::words::Words;

/// Pairs of some owners.
pub(super) enum Store {
    /// Of two words.
    Words(Box<Words>),
    /// All others, which are combined now and then.
    Others(Box<Parts>),
}

impl Store {
    /// An empty one, of some owners among so many ranks.
    pub(super) fn new(values: &Values, ranks: usize, owners: Range<usize>) -> Self {
        match values {
            Values::Word(word) => Self::Words(Box::new(Words::new(*word, ranks, owners))),
            _ => Self::Others(Box::new(Parts::new(values, ranks, owners))),
        }
    }

    /// Takes pairs, whose values are packed.
    ///
    /// # Errors
    /// What MPI returned.
    pub(super) fn add(
        &mut self,
        values: &Values,
        keys: &[u64],
        packed: &[u8],
    ) -> Result<(), c_int> {
        match self {
            Self::Words(all) => {
                all.add(keys, packed);
                Ok(())
            }
            Self::Others(parts) => {
                values.records(keys, packed, |record| parts.push(values, record))
            }
        }
    }

    /// Takes records.
    ///
    /// # Errors
    /// What MPI returned. The store has all records then, too.
    pub(super) fn push(&mut self, values: &Values, records: &[u64]) -> Result<(), c_int> {
        self.push_some(values, records, records.len() / values.stride())
    }

    /// Takes records, some of as many as come.
    ///
    /// # Errors
    /// What MPI returned. The store has all records then, too.
    pub(super) fn push_some(
        &mut self,
        values: &Values,
        records: &[u64],
        coming: usize,
    ) -> Result<(), c_int> {
        match self {
            Self::Words(words) => {
                words.push(records.as_chunks().0, coming);
                Ok(())
            }
            Self::Others(parts) => {
                let push =
                    |so_far: Result<(), c_int>, record| so_far.and(parts.push(values, record));
                records.chunks_exact(values.stride()).fold(Ok(()), push)
            }
        }
    }

    /// Combines all records of equal keys, except those in a pile.
    ///
    /// # Errors
    /// What MPI returned.
    pub(super) fn settle(&mut self, values: &Values) -> Result<(), c_int> {
        match self {
            Self::Words(_) => Ok(()),
            Self::Others(parts) => parts.settle(values),
        }
    }

    /// Has so many records that come next, few of which have keys in common, lie in a pile.
    pub(super) fn open_pile(&mut self, records: usize, keys: Keys) {
        if let Self::Words(all) = self {
            all.open_pile(records, keys);
        }
    }

    /// Combines the records of a pile.
    pub(super) fn close_pile(&mut self) {
        if let Self::Words(all) = self {
            all.close_pile();
        }
    }

    /// Bytes of memory while the records of a pile are combined, at most.
    pub(super) fn bytes_to_close_pile(&self) -> usize {
        match self {
            Self::Words(all) => all.bytes_with(all.piled()),
            Self::Others(_) => self.bytes(),
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Words(all) => all.bytes(),
            Self::Others(parts) => parts.bytes(),
        }
    }

    /// Bytes of memory while so many more records come, at most.
    pub(super) fn bytes_with(&self, records: usize) -> usize {
        match self {
            Self::Words(all) => all.bytes_with(records),
            Self::Others(parts) => parts.bytes_with(records),
        }
    }

    /// Makes room for so many keys in all, if that saves moves later.
    pub(super) fn reserve(&mut self, keys: usize) {
        if let Self::Words(all) = self {
            all.reserve(keys);
        }
    }

    /// Counts memory anew that the system has got back, if records may come again there.
    pub(super) fn count_memory(&mut self) {
        if let Self::Words(all) = self {
            all.count_memory();
        }
    }

    /// Words of all records.
    pub(super) fn words(&self) -> usize {
        match self {
            Self::Words(all) => 2 * all.all(),
            Self::Others(parts) => parts.words(),
        }
    }

    /// Words of the records of an owner.
    pub(super) fn words_of(&self, owner: usize) -> usize {
        match self {
            Self::Words(all) => 2 * all.len(owner),
            Self::Others(parts) => parts.words_of(owner),
        }
    }

    /// Appends records of an owner, from one on, to `words`, which are whole records and no more than `most`. Returns the
    /// number behind them. Numbers begin with 0.
    pub(super) fn copy(
        &self,
        owner: usize,
        from: usize,
        most: usize,
        words: &mut Vec<u64>,
    ) -> usize {
        match self {
            Self::Words(all) => all.copy(owner, from, most, words),
            Self::Others(parts) => {
                let before = words.len();
                parts.copy_last(owner, most, words);
                from + words.len() - before
            }
        }
    }

    /// Forgets the records of an owner that have been copied.
    pub(super) fn clear(&mut self, owner: usize, numbers: Range<usize>) {
        match self {
            Self::Words(all) => all.clear(owner, numbers),
            Self::Others(parts) => parts.drop_last(owner, numbers.len()),
        }
    }

    /// Takes all records of an owner, in some parts.
    pub(super) fn take(&mut self, owner: usize) -> Vec<Vec<u64>> {
        match self {
            Self::Words(all) => {
                let mut words = Vec::new();
                let end = all.copy(owner, 0, usize::MAX, &mut words);
                all.clear(owner, 0..end);
                vec![words]
            }
            Self::Others(parts) => parts.take(owner).collect(),
        }
    }

    /// Takes the records of an owner from another store of the same ranks and values, except those in its pile.
    ///
    /// # Errors
    /// What MPI returned.
    pub(super) fn absorb(
        &mut self,
        values: &Values,
        other: &mut Self,
        owner: usize,
    ) -> Result<(), c_int> {
        if let (Self::Words(own), Self::Words(others)) = (&mut *self, &mut *other) {
            own.absorb(others, owner);
            return Ok(());
        }
        let parts = other.take(owner);
        parts.iter().try_for_each(|records| self.push(values, records))
    }

    /// Takes the records of an owner from another store's pile: some of as many as come.
    pub(super) fn absorb_pile(&mut self, other: &mut Self, owner: usize, coming: usize) {
        if let (Self::Words(own), Self::Words(others)) = (self, other) {
            own.absorb_pile(others, owner, coming);
        }
    }

    /// Different keys, after they have been settled, without a pile.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Words(all) => all.keys(),
            Self::Others(parts) => parts.keys().count(),
        }
    }

    /// The records of each key, side by side, after they have been settled, without a pile.
    pub(super) fn each_key(&self, mut each: impl FnMut(&[u64])) {
        match self {
            Self::Words(all) => all.each_record(|record| each(&record)),
            Self::Others(parts) => parts.keys().for_each(each),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::leaf::arithmetic::{Arithmetic, Element, Operator, Real};
    use crate::own::keys::hash::owner;
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
        store.each_key(|records| {
            let mut value = Vec::new();
            values.finish(records, &mut value);
            assert!(all.insert(records[0], value).is_none(), "a key comes twice");
        });
        assert_eq!(store.count(), all.len());
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
                let mut store = Store::new(values, owners, 0..owners);
                // Some of the words lie in a pile.
                let piled = count * (kind % 2) / 2;
                if piled > 0 {
                    store.open_pile(piled, Keys::from_sample(0, count, count));
                }
                store.add(values, &keys, &bytes).expect("room");
                store.settle(values).expect("settled");
                if kind != 3 {
                    store.close_pile();
                    assert_eq!(contents(&store, values), map, "kind {kind}, {count} pairs");
                }
                for of in 0..owners {
                    let mut share = Store::new(values, owners, of..of + 1);
                    // Half of them goes as a whole.
                    if of % 2 == 0 {
                        share.absorb(values, &mut store, of).expect("room");
                        share.absorb_pile(&mut store, of, count);
                    }
                    let mut from = 0;
                    while store.words_of(of) > 0 {
                        let mut words = Vec::new();
                        let to = store.copy(of, from, 1000 * values.stride() + 1, &mut words);
                        assert!(
                            words.chunks_exact(values.stride()).all(|r| owner(r[0], owners) == of)
                        );
                        let before = store.words_of(of);
                        store.clear(of, from..to);
                        assert_eq!(store.words_of(of) + words.len(), before);
                        from = to;
                        share.push(values, &words).expect("room");
                    }
                    share.settle(values).expect("settled");
                    shares.append(&mut contents(&share, values));
                }
                assert_eq!((store.words(), store.count()), (0, 0));
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
                let mut store = Store::new(&values, 2, 0..2);
                store.add(&values, &keys, &bytes).expect("room");
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

    /// Memory follows the number of keys, not of pairs, also while pairs come of which nobody knows whether they are new.
    #[test]
    fn a_store_is_as_large_as_its_distinct_keys() {
        for values in [sums_of_u64(), others()] {
            let mut store = Store::new(&values, 4, 0..4);
            let mut random = Rng(5);
            for _ in 0..200 {
                let keys: Vec<_> = (0..10_000).map(|_| random.below(1000)).collect();
                let told = store.bytes_with(keys.len());
                store.add(&values, &keys, &vec![1; keys.len() * values.size()]).expect("room");
                assert!(store.bytes() <= told || matches!(store, Store::Others(_)));
            }
            assert!(store.bytes() < 48 << 20, "{}", store.bytes());
            store.settle(&values).expect("settled");
            assert_eq!(store.count(), 1000);
        }
    }
}
