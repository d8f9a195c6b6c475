//! Pairs in an order, as a program reads them: pure.

use std::cmp::Reverse;

use super::store::Store;
use super::strings::{Strings, decode, encode};
use super::values::{Values, bytes, words};

/// Pairs that are looked through at once, at least, for the first ones.
const LEAST_ROOM: usize = 1024;

/// An order of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The least key first; of strings as memcmp has them.
    Key,
    /// The greatest value first, then by key.
    Value,
}

/// Pairs.
#[derive(Default)]
pub(super) struct Table {
    pub(super) keys: Vec<u64>,
    /// Packed.
    pub(super) values: Vec<u8>,
    /// The strings that the keys stand for, if they stand for any.
    pub(super) strings: Option<Strings>,
}

impl Table {
    /// The pairs of a settled store, in any order.
    pub(super) fn unsorted(store: &Store, values: &Values) -> Self {
        let most = store.words() / values.stride();
        let (mut keys, mut packed) =
            (Vec::with_capacity(most), Vec::with_capacity(most * values.size()));
        store.each_key(|records| {
            keys.push(records[0]);
            values.finish(records, &mut packed);
        });
        Self { keys, values: packed, strings: None }
    }

    fn value(&self, size: usize, at: usize) -> &[u8] {
        &self.values[at * size..(at + 1) * size]
    }

    /// The numbers of its first pairs in this order, `most` at most.
    fn numbers(&self, values: &Values, order: Order, most: usize) -> Vec<usize> {
        let rank = |at: usize| match order {
            Order::Key => Reverse(0),
            Order::Value => Reverse(values.rank(self.value(values.size(), at))),
        };
        let all = 0..self.keys.len();
        match &self.strings {
            None => {
                let named = all.map(|at| (rank(at), self.keys[at], at));
                least(named, most).into_iter().map(|(.., at)| at).collect()
            }
            Some(strings) => {
                let named = all.map(|at| {
                    let string = strings.get(at);
                    (rank(at), first_bytes(string), string, at)
                });
                least(named, most).into_iter().map(|(.., at)| at).collect()
            }
        }
    }

    /// Its first pairs in this order, `most` at most.
    pub(super) fn first(&self, values: &Values, order: Order, most: usize) -> Self {
        let numbers = self.numbers(values, order, most);
        let mut packed = Vec::with_capacity(numbers.len() * values.size());
        for at in &numbers {
            packed.extend_from_slice(self.value(values.size(), *at));
        }
        let strings = self.strings.as_ref().map(|strings| {
            let mut own = Strings::default();
            numbers.iter().for_each(|at| own.push(strings.get(*at)));
            own
        });
        Self { keys: numbers.iter().map(|at| self.keys[*at]).collect(), values: packed, strings }
    }

    /// The words of its pairs: keys, values padded to words, strings.
    pub(super) fn encode(&self, size: usize) -> Vec<u64> {
        let mut message = Vec::new();
        for (at, key) in self.keys.iter().enumerate() {
            message.push(*key);
            message.extend(words(self.value(size, at)));
            if let Some(strings) = &self.strings {
                encode(strings.get(at), &mut message);
            }
        }
        message
    }

    /// Appends the pairs of such words, which are of the same kind.
    pub(super) fn decode(&mut self, mut message: &[u64], size: usize) {
        let value_words = size.div_ceil(size_of::<u64>());
        while let Some((key, rest)) = message.split_first() {
            self.keys.push(*key);
            let (value, rest) = rest.split_at(value_words);
            self.values.extend(bytes(value).take(size));
            message = rest;
            if let Some(strings) = &mut self.strings {
                strings.push(&decode(&mut message));
            }
        }
    }
}

/// The first bytes of a string as a number in the order of strings. Few comparisons have to look further.
fn first_bytes(string: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = string.len().min(first.len());
    first[..length].copy_from_slice(&string[..length]);
    u64::from_be_bytes(first)
}

/// The least of some, `most` at most, in order. Of all others few are kept, and none for long.
fn least<T: Ord>(all: impl Iterator<Item = T>, most: usize) -> Vec<T> {
    let Some(last) = most.checked_sub(1) else { return Vec::new() };
    let room = most.saturating_mul(2).max(LEAST_ROOM);
    let mut kept = Vec::with_capacity(room.min(all.size_hint().0));
    // Then the greatest of the least so far is at `last`.
    let mut is_cut = false;
    for one in all {
        if is_cut && one >= kept[last] {
            continue;
        }
        kept.push(one);
        if kept.len() == room {
            kept.select_nth_unstable(last);
            kept.truncate(most);
            is_cut = true;
        }
    }
    // Of several ranks each has sent its own in order, and this sort merges what is in order.
    kept.sort();
    kept.truncate(most);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::arithmetic::Real;
    use crate::leaf::arithmetic::{Arithmetic, Element, Operator};
    use crate::own::keys::word::Word;
    use crate::random::Rng;

    fn values() -> Values {
        let arithmetic = Arithmetic { op: Operator::Sum, element: Element::I16 };
        Values::Word(Word::of(arithmetic).expect("a word"))
    }

    /// Different keys, with the least and the greatest, in any order.
    fn some_keys(random: &mut Rng, count: usize) -> Vec<u64> {
        let any = (1..count as u64).map(|at| (random.next() >> 40 << 24) + at);
        [0].into_iter().chain(any).map(u64::reverse_bits).take(count).collect()
    }

    fn table(pairs: &[(u64, i16)], strings: Option<&[&str]>) -> Table {
        let strings = strings.map(|all| {
            let mut strings = Strings::default();
            all.iter().for_each(|string| strings.push(string.as_bytes()));
            strings
        });
        let keys = pairs.iter().map(|pair| pair.0).collect();
        Table {
            keys,
            values: pairs.iter().flat_map(|pair| pair.1.to_ne_bytes()).collect(),
            strings,
        }
    }

    #[test]
    fn pairs_are_sorted_by_key_or_by_value_and_cut() {
        let pairs = [(9, -1), (0, 5), (u64::MAX, 5), (4, 7)];
        let keys = |table: &Table, order, most| table.first(&values(), order, most).keys;
        let plain = table(&pairs, None);
        assert_eq!(keys(&plain, Order::Key, usize::MAX), [0, 4, 9, u64::MAX]);
        assert_eq!(keys(&plain, Order::Value, usize::MAX), [4, 0, u64::MAX, 9]);
        assert_eq!(keys(&plain, Order::Value, 2), [4, 0]);
        assert!(keys(&plain, Order::Key, 0).is_empty());
        assert_eq!(keys(&plain, Order::Key, 3), [0, 4, 9]);
        assert_eq!(plain.first(&values(), Order::Key, 1).values, 5i16.to_ne_bytes());
        let named = table(&pairs, Some(&["b", "ab", "a", "\0"]));
        assert_eq!(keys(&named, Order::Key, usize::MAX), [4, u64::MAX, 0, 9]);
        assert_eq!(keys(&named, Order::Value, usize::MAX), [4, u64::MAX, 0, 9]);
        let strings = named.first(&values(), Order::Key, 2).strings.expect("strings");
        assert!(strings.iter().eq([&b"\0"[..], b"a"]));
    }

    /// Tables of all kinds of records are what a plain sort of their pairs is.
    #[test]
    fn a_store_is_read_by_key() {
        let sums = |real, complex| Values::Exact { real, complex };
        let other = Values::Other { size: 5, combine: Box::new(|_, _| 0) };
        for values in [values(), sums(Real::F64, false), sums(Real::F32, true), other] {
            for count in [0, 1, 2, 1000, 70_000] {
                let mut random = Rng(count as u64);
                let mut keys = some_keys(&mut random, count);
                if let [_, .., last] = keys.as_mut_slice() {
                    *last = u64::MAX;
                }
                let number = |at: usize| (at % 100) as f32;
                let packed: Vec<_> = match &values {
                    Values::Word(_) => {
                        (0..count).flat_map(|at| (at as i16).to_ne_bytes()).collect()
                    }
                    Values::Exact { real: Real::F64, .. } => {
                        (0..count).flat_map(|at| f64::from(number(at)).to_ne_bytes()).collect()
                    }
                    Values::Exact { .. } => {
                        (0..2 * count).flat_map(|at| number(at).to_ne_bytes()).collect()
                    }
                    Values::Other { .. } => (0..5 * count).map(|_| random.next() as u8).collect(),
                };
                let mut store = Store::new(&values, 1, 0..1);
                values.records(&keys, &packed, |record| store.push(&values, record)).expect("room");
                store.settle(&values).expect("settled");
                let mut pairs: Vec<_> =
                    keys.into_iter().zip(packed.chunks_exact(values.size())).collect();
                pairs.sort_unstable();
                let table = Table::unsorted(&store, &values).first(&values, Order::Key, usize::MAX);
                assert!(table.keys.iter().eq(pairs.iter().map(|(key, _)| key)), "{count} pairs");
                let right: Vec<u8> = pairs.iter().flat_map(|(_, value)| *value).copied().collect();
                assert!(table.values == right, "{count} pairs");
                assert!(Table::unsorted(&store, &values).keys.len() == count);
            }
        }
    }

    /// A sum that takes several records is one pair.
    #[test]
    fn records_of_a_key_are_read_as_one_value() {
        let values = Values::Exact { real: Real::F64, complex: false };
        let mut store = Store::new(&values, 1, 0..1);
        for (key, number) in [(7, 1e100), (3, 1.0), (7, 1.0), (3, 2.0), (7, -1e100)] {
            store.push(&values, &[key, f64::to_bits(number)]).expect("room");
        }
        for (key, number) in [(9, 1e100), (9, 1.0), (1, 4.0), (9, 1e-100)] {
            store.push(&values, &[key, f64::to_bits(number)]).expect("room");
        }
        store.settle(&values).expect("settled");
        let table = Table::unsorted(&store, &values).first(&values, Order::Key, usize::MAX);
        assert_eq!(table.keys, [1, 3, 7, 9]);
        let right: Vec<u8> =
            [4.0f64, 3.0, 1.0, 1e100].iter().flat_map(|x| x.to_ne_bytes()).collect();
        assert_eq!(table.values, right);
    }

    /// A plain sort has the same first pairs, however few are wanted, and whether some are in order already.
    #[test]
    fn the_first_pairs_are_as_a_plain_sort_has_them() {
        let mut random = Rng(8);
        for (count, of_runs) in [(1, false), (3000, false), (3000, true), (70_000, true)] {
            let mut keys = some_keys(&mut random, count);
            if of_runs {
                keys.chunks_mut(count / 3).for_each(<[u64]>::sort_unstable);
            }
            // Many have the same first bytes; some begin with others, and some have zeros.
            let string = |key: &u64| match key % 3 {
                0 => vec![0; (key % 11) as usize],
                _ => [&b"abcdefg"[..(key % 8) as usize], &key.to_be_bytes()].concat(),
            };
            let mut strings: Vec<_> = keys.iter().map(string).collect();
            strings.sort_unstable();
            strings.dedup();
            let named = (0..count).map(|at| strings[at * 7919 % strings.len()].clone());
            let strings: Vec<_> = named.collect();
            let pairs: Vec<_> = keys.iter().map(|key| (*key, (key % 50) as i16 - 25)).collect();
            let mut own = Strings::default();
            strings.iter().for_each(|string| own.push(string));
            for strings in [None, Some((own, strings))] {
                let mut table = table(&pairs, None);
                let mut right: Vec<_> = (0..count).collect();
                if let Some((own, strings)) = strings {
                    table.strings = Some(own);
                    right.sort_by_key(|at| (&strings[*at], *at));
                } else {
                    right.sort_by_key(|at| pairs[*at].0);
                }
                for order in [Order::Key, Order::Value] {
                    if order == Order::Value {
                        right.sort_by_key(|at| Reverse(pairs[*at].1));
                    }
                    for most in [0, 1, 10, 1000, count, usize::MAX] {
                        let expected: Vec<_> = right.iter().take(most).copied().collect();
                        assert!(table.numbers(&values(), order, most) == expected, "{most}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for strings in [None, Some(&["", "a string of some length", "\0\0"][..])] {
            let one = table(&[(1, 2), (0, -3), (u64::MAX, 4)], strings);
            let mut other =
                Table { strings: strings.map(|_| Strings::default()), ..Table::default() };
            let message = one.encode(2);
            other.decode(&message, 2);
            other.decode(&[], 2);
            assert_eq!((&other.keys, &other.values), (&one.keys, &one.values));
            assert_eq!(other.encode(2), message);
        }
    }
}
