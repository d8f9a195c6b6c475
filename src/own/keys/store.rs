//! The pairs of a rank, for one owner or for several: pure.

use std::ffi::c_int;
use std::ops::Range;

use super::index::{self, Index, Record};
use super::parts::Parts;
use super::values::Values;
use super::word::Word;
use crate::leaf::arithmetic::Operator;

/// Records by which to foresee the number of keys.
pub(super) const SAMPLE: usize = 1 << 17;

/// Pairs of some owners.
pub(super) struct Store {
    /// The first owner.
    first: usize,
    kind: Kind,
}

/// How records are combined.
enum Kind {
    /// As they come, if they have a word for a value: an index for each owner.
    Words(Word, Vec<Index>),
    /// Now and then.
    Others(Box<Parts>),
}

impl Store {
    /// An empty one, of some owners among so many ranks.
    pub(super) fn new(values: &Values, ranks: usize, owners: Range<usize>) -> Self {
        let first = owners.start;
        let kind = match values {
            Values::Word(word) => Kind::Words(*word, owners.map(|_| Index::new(ranks)).collect()),
            _ => Kind::Others(Box::new(Parts::new(values, ranks, owners))),
        };
        Self { first, kind }
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
        match &mut self.kind {
            Kind::Words(word, indices) => {
                let widened: Vec<[u8; 8]>;
                let words = if word.is_plain() {
                    packed.as_chunks().0
                } else {
                    let mut words = Vec::with_capacity(keys.len());
                    word.widen(packed, |_, value| words.push(value.to_ne_bytes()));
                    widened = words;
                    &widened
                };
                let record = |at: usize| [keys[at], u64::from_ne_bytes(words[at])];
                put(*word, indices, self.first, keys.len(), record);
                Ok(())
            }
            Kind::Others(parts) => {
                values.records(keys, packed, |record| parts.push(values, record))
            }
        }
    }

    /// Takes records.
    ///
    /// # Errors
    /// What MPI returned. The store has all records then, too.
    pub(super) fn push(&mut self, values: &Values, records: &[u64]) -> Result<(), c_int> {
        match &mut self.kind {
            Kind::Words(..) => {
                let records = records.as_chunks().0;
                let (sample, others) = records.split_at(SAMPLE.min(records.len()));
                let before = self.count();
                self.put(sample);
                if !others.is_empty() {
                    let new = self.count() - before;
                    // As many of the others are new, but no more than there are keys: those before are some of them.
                    let more = records.len() * new / sample.len();
                    let all = before.saturating_mul(sample.len()).checked_div(sample.len() - new);
                    self.reserve(all.unwrap_or(usize::MAX).min(before + more));
                    self.put(others);
                }
                Ok(())
            }
            Kind::Others(parts) => {
                let push =
                    |so_far: Result<(), c_int>, record| so_far.and(parts.push(values, record));
                records.chunks_exact(values.stride()).fold(Ok(()), push)
            }
        }
    }

    /// Takes records of two words.
    fn put(&mut self, records: &[Record]) {
        if let Kind::Words(word, indices) = &mut self.kind {
            put(*word, indices, self.first, records.len(), |at| records[at]);
        }
    }

    /// Combines all records of equal keys.
    ///
    /// # Errors
    /// What MPI returned.
    pub(super) fn settle(&mut self, values: &Values) -> Result<(), c_int> {
        match &mut self.kind {
            Kind::Words(..) => Ok(()),
            Kind::Others(parts) => parts.settle(values),
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Words(_, indices) => indices.iter().map(Index::bytes).sum(),
            Kind::Others(parts) => parts.bytes(),
        }
    }

    /// Bytes of memory while so many more records come, at most.
    pub(super) fn bytes_with(&self, records: usize) -> usize {
        match &self.kind {
            Kind::Words(_, indices) => {
                // All might have one owner.
                let most = indices.iter().map(|index| index.bytes_with(records) - index.bytes());
                self.bytes().saturating_add(most.max().unwrap_or(0))
            }
            Kind::Others(parts) => parts.bytes_with(records),
        }
    }

    /// Makes room for so many keys in all, if that saves moves later.
    pub(super) fn reserve(&mut self, keys: usize) {
        if let Kind::Words(_, indices) = &mut self.kind {
            let each = keys / indices.len();
            // Not all owners have equally many.
            indices.iter_mut().for_each(|index| index.reserve(each + each / 32));
        }
    }

    /// Counts memory anew that the system has got back, if records may come again there.
    pub(super) fn count_memory(&mut self) {
        if let Kind::Words(_, indices) = &mut self.kind {
            indices.iter_mut().for_each(Index::count_memory);
        }
    }

    /// Words of all records.
    pub(super) fn words(&self) -> usize {
        match &self.kind {
            Kind::Words(_, indices) => indices.iter().map(|index| 2 * index.len()).sum(),
            Kind::Others(parts) => parts.words(),
        }
    }

    /// Words of the records of an owner.
    pub(super) fn words_of(&self, owner: usize) -> usize {
        match &self.kind {
            Kind::Words(_, indices) => 2 * indices[owner - self.first].len(),
            Kind::Others(parts) => parts.words_of(owner),
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
        match &self.kind {
            Kind::Words(_, indices) => indices[owner - self.first].copy(from, most, words),
            Kind::Others(parts) => {
                let before = words.len();
                parts.copy_last(owner, most, words);
                from + words.len() - before
            }
        }
    }

    /// Forgets the records of an owner that have been copied.
    pub(super) fn clear(&mut self, owner: usize, numbers: Range<usize>) {
        match &mut self.kind {
            Kind::Words(_, indices) => indices[owner - self.first].clear(numbers),
            Kind::Others(parts) => parts.drop_last(owner, numbers.len()),
        }
    }

    /// Takes all records of an owner, in some parts.
    pub(super) fn take(&mut self, owner: usize) -> Vec<Vec<u64>> {
        match &mut self.kind {
            Kind::Words(..) => {
                let mut words = Vec::new();
                let end = self.copy(owner, 0, usize::MAX, &mut words);
                self.clear(owner, 0..end);
                vec![words]
            }
            Kind::Others(parts) => parts.take(owner).collect(),
        }
    }

    /// Takes the records of an owner from another store of the same ranks and values.
    ///
    /// # Errors
    /// What MPI returned.
    pub(super) fn absorb(
        &mut self,
        values: &Values,
        other: &mut Self,
        owner: usize,
    ) -> Result<(), c_int> {
        if let (Kind::Words(_, own), Kind::Words(_, others)) = (&mut self.kind, &mut other.kind) {
            let (own, others) = (&mut own[owner - self.first], &mut others[owner - other.first]);
            // The one with more records stays where it is.
            if own.len() < others.len() {
                std::mem::swap(own, others);
            }
        }
        let parts = other.take(owner);
        parts.iter().try_for_each(|records| self.push(values, records))
    }

    /// Different keys, after they have been settled.
    pub(super) fn count(&self) -> usize {
        match &self.kind {
            Kind::Words(_, indices) => indices.iter().map(Index::len).sum(),
            Kind::Others(parts) => parts.keys().count(),
        }
    }

    /// The records of each key, side by side, after they have been settled.
    pub(super) fn each_key(&self, mut each: impl FnMut(&[u64])) {
        match &self.kind {
            Kind::Words(_, indices) => {
                indices.iter().flat_map(Index::records).for_each(|record| each(&record));
            }
            Kind::Others(parts) => parts.keys().for_each(each),
        }
    }
}

/// Puts `count` records into the indices of their owners.
fn put(
    word: Word,
    indices: &mut [Index],
    first: usize,
    count: usize,
    record: impl Fn(usize) -> Record,
) {
    // The op that most programs have, without a choice for each record.
    if word.folds_as().0 == Operator::Sum {
        index::put(indices, first, count, record, u64::wrapping_add);
    } else {
        index::put(indices, first, count, record, |x, y| word.fold(x, y));
    }
}

/// The number of different keys among `all` pairs, if the first `sample` have `found`, and all keys come as often.
pub(super) fn foresee(found: usize, sample: usize, all: usize) -> usize {
    if found >= sample {
        return all;
    }
    let different = |keys: f64, pairs: usize| keys * -(-(pairs as f64) / keys).exp_m1();
    // The number of keys there are lies between these.
    let (mut least, mut most) = (found as f64, (sample * sample) as f64);
    for _ in 0..100 {
        let keys = (least * most).sqrt();
        if different(keys, sample) < found as f64 { least = keys } else { most = keys }
    }
    (different(most, all) as usize).min(all)
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
                store.add(values, &keys, &bytes).expect("room");
                store.settle(values).expect("settled");
                assert_eq!(contents(&store, values), map, "kind {kind}, {count} pairs");
                for of in 0..owners {
                    let mut share = Store::new(values, owners, of..of + 1);
                    // Half of them goes as a whole.
                    if of % 2 == 0 {
                        share.absorb(values, &mut store, of).expect("room");
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

    #[test]
    fn keys_are_foreseen() {
        let mut random = Rng(3);
        for keys in [1000, 100_000, 1_000_000, u64::MAX] {
            let count = 1_000_000;
            let records: Vec<_> = (0..count).map(|_| random.below(keys)).collect();
            let different =
                |some: &[u64]| some.iter().collect::<std::collections::HashSet<_>>().len();
            let told = foresee(different(&records[..100_000]), 100_000, count);
            let right = different(&records);
            assert!(told.abs_diff(right) <= right / 10, "{told}, not {right}");
        }
        assert_eq!((foresee(7, 7, 70), foresee(1, 100, 1000)), (70, 1));
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
                assert!(store.bytes() <= told || matches!(store.kind, Kind::Others(_)));
            }
            assert!(store.bytes() < 48 << 20, "{}", store.bytes());
            store.settle(&values).expect("settled");
            assert_eq!(store.count(), 1000);
        }
    }
}
