//! Pairs in an order, as a program reads them: pure.

use std::cmp::Reverse;

use super::strings::{Strings, decode, encode};
use super::values::{Values, bytes, words};

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
                let named = all.zip(&self.keys).map(|(at, key)| (rank(at), *key, at));
                least(named.collect(), most).into_iter().map(|(.., at)| at).collect()
            }
            Some(strings) => {
                let named = all.map(|at| (rank(at), strings.get(at), at));
                least(named.collect(), most).into_iter().map(|(.., at)| at).collect()
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

/// The least of some, `most` at most, in order.
fn least<T: Ord>(mut all: Vec<T>, most: usize) -> Vec<T> {
    if let Some(last) = most.checked_sub(1).filter(|last| *last < all.len()) {
        all.select_nth_unstable(last);
    }
    all.truncate(most);
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::arithmetic::{Arithmetic, Element, Operator};
    use crate::own::keys::word::Word;

    fn values() -> Values {
        let arithmetic = Arithmetic { op: Operator::Sum, element: Element::I16 };
        Values::Word(Word::of(arithmetic).expect("a word"))
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
