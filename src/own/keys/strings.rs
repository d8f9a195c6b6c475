//! Strings as keys: pure.
//!
//! A string's key is its hash, or the next number that its owner has not given to another string. So different strings
//! have different keys, and all that comes after knows numbers only. A rank numbers its strings, and learns their keys
//! when pairs go to their owners.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hasher};

use foldhash::fast::RandomState;

use super::values::{bytes, words};

/// Some strings, one behind the other. Behind each is a zero, which is no part of it.
#[derive(Clone, Default)]
pub(super) struct Strings {
    bytes: Vec<u8>,
    /// Their ends, zeros included.
    ends: Vec<usize>,
}

impl Strings {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.bytes.push(0);
        self.ends.push(self.bytes.len());
    }

    fn start(&self, number: usize) -> usize {
        number.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    pub(super) fn get(&self, number: usize) -> &[u8] {
        &self.bytes[self.start(number)..self.ends[number] - 1]
    }

    fn truncate(&mut self, length: usize) {
        self.bytes.truncate(self.start(length));
        self.ends.truncate(length);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|number| self.get(number))
    }
}

/// Appends the words of a string: its length and its bytes.
pub(super) fn encode(string: &[u8], message: &mut Vec<u64>) {
    message.push(string.len() as u64);
    message.extend(words(string));
}

/// The first string of words, which become the rest. Panics if there is none.
pub(super) fn decode(message: &mut &[u64]) -> Vec<u8> {
    let length = message[0] as usize;
    let (string, rest) = message[1..].split_at(length.div_ceil(size_of::<u64>()));
    *message = rest;
    bytes(string).take(length).collect()
}

/// Different strings, each with a number, from 0.
///
/// They are found by a fast hash of this process, whose seed nobody can know. So nobody can make strings that collide.
pub(super) struct Numbers {
    strings: Strings,
    /// By that hash: open addressing, at most half full.
    table: Vec<Slot>,
    fast: RandomState,
    /// The bits of hashes that count: tests make others collide.
    mask: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Bits of the hash, so that few other strings are looked at.
    tag: u32,
    /// A number from 1; 0: none.
    number: u32,
}

impl Numbers {
    pub(super) fn new(mask: u64) -> Self {
        let table = vec![Slot::default(); 16];
        Self { strings: Strings::default(), table, fast: RandomState::default(), mask }
    }

    pub(super) fn len(&self) -> usize {
        self.strings.len()
    }

    pub(super) fn strings(&self) -> &Strings {
        &self.strings
    }

    /// The hash of a string that is the same on all ranks: SipHash with fixed keys.
    pub(super) fn hash(&self, number: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.strings.get(number));
        hasher.finish() & self.mask
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let Strings { bytes, ends } = &self.strings;
        bytes.capacity() + 8 * ends.capacity() + size_of::<Slot>() * self.table.capacity()
    }

    /// The number of a string, a new one if it has none.
    pub(super) fn number(&mut self, string: &[u8]) -> usize {
        let (mut slot, tag) = self.place(string);
        while let Some(number) = (self.table[slot].number as usize).checked_sub(1) {
            if self.table[slot].tag == tag && self.strings.get(number) == string {
                return number;
            }
            slot = self.next(slot);
        }
        self.strings.push(string);
        let number = u32::try_from(self.len()).expect("fewer strings than 2^32");
        self.table[slot] = Slot { tag, number };
        if self.len() * 2 > self.table.len() {
            self.make_table(self.table.len() * 2);
        }
        self.len() - 1
    }

    /// Forgets the strings from this number on.
    pub(super) fn truncate(&mut self, length: usize) {
        if length < self.len() {
            self.strings.truncate(length);
            self.make_table(self.table.len());
        }
    }

    /// The first slot for a string, and its tag.
    fn place(&self, string: &[u8]) -> (usize, u32) {
        let mut hasher = self.fast.build_hasher();
        hasher.write(string);
        let hash = hasher.finish() & self.mask;
        (hash as usize & (self.table.len() - 1), (hash >> 32) as u32)
    }

    fn next(&self, slot: usize) -> usize {
        (slot + 1) & (self.table.len() - 1)
    }

    fn make_table(&mut self, slots: usize) {
        self.table = vec![Slot::default(); slots];
        for at in 0..self.len() {
            let (mut slot, tag) = self.place(self.strings.get(at));
            while self.table[slot].number != 0 {
                slot = self.next(slot);
            }
            self.table[slot] = Slot { tag, number: at as u32 + 1 };
        }
    }
}

/// The strings whose keys a rank gives.
pub(super) struct Registry {
    numbers: Numbers,
    /// By number.
    keys: Vec<u64>,
    by_key: HashMap<u64, usize, RandomState>,
}

impl Registry {
    pub(super) fn new(mask: u64) -> Self {
        Self { numbers: Numbers::new(mask), keys: Vec::new(), by_key: HashMap::default() }
    }

    /// The key of a string, which is this rank's, as all keys are that it gives.
    pub(super) fn key(&mut self, string: &[u8], is_own: impl Fn(u64) -> bool) -> u64 {
        let number = self.numbers.number(string);
        if number == self.keys.len() {
            let mut key = self.numbers.hash(number);
            while self.by_key.contains_key(&key) || !is_own(key) {
                key = key.wrapping_add(1);
            }
            self.keys.push(key);
            self.by_key.insert(key, number);
        }
        self.keys[number]
    }

    /// The string of a key that it has given.
    pub(super) fn string(&self, key: u64) -> &[u8] {
        self.numbers.strings.get(self.by_key[&key])
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.bytes() + 8 * self.keys.capacity() + 17 * self.by_key.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::own::keys::hash::owner;
    use crate::random::Rng;

    fn some(random: &mut Rng) -> Vec<u8> {
        match random.below(4) {
            0 => vec![b'x'; random.below(20) as usize],
            1 => vec![0; random.below(9) as usize],
            2 => [vec![b'p'; 30], vec![random.next() as u8]].concat(),
            _ => (0..random.below(12)).map(|_| random.below(3) as u8).collect(),
        }
    }

    #[test]
    fn words_have_the_string_to_the_byte() {
        let mut random = Rng(2);
        let strings: Vec<_> = (0..200).map(|_| some(&mut random)).collect();
        let mut message = Vec::new();
        strings.iter().for_each(|string| encode(string, &mut message));
        let mut rest = message.as_slice();
        strings.iter().for_each(|string| assert_eq!(decode(&mut rest), *string));
        assert!(rest.is_empty());
    }

    #[test]
    fn strings_are_forgotten_from_a_number_on() {
        let (mut numbers, mut random) = (Numbers::new(3), Rng(4));
        let strings: Vec<_> = (0..1000).map(|_| some(&mut random)).collect();
        let of: Vec<_> = strings.iter().map(|string| numbers.number(string)).collect();
        numbers.truncate(40);
        assert_eq!(numbers.len(), 40);
        for (string, number) in strings.iter().zip(of).filter(|(_, number)| *number < 40) {
            assert_eq!(numbers.number(string), number);
        }
        assert_eq!(numbers.number(b"a new one"), 40);
    }

    /// Two different strings are never one key, whatever their hashes are; one string has one key.
    #[test]
    fn different_strings_have_different_keys() {
        for mask in [0, 3, 0xff, u64::MAX] {
            let ranks = 3;
            let (mut random, mut given) = (Rng(mask), HashMap::new());
            let mut ones: Vec<_> = (0..2).map(|_| Numbers::new(mask)).collect();
            let mut registries: Vec<_> = (0..ranks).map(|_| Registry::new(mask)).collect();
            for _ in 0..4000 {
                let string = some(&mut random);
                let numbers = &mut ones[random.below(2) as usize];
                let number = numbers.number(&string);
                assert_eq!(numbers.strings().get(number), string);
                let rank = owner(numbers.hash(number), ranks);
                let key = registries[rank].key(&string, |key| owner(key, ranks) == rank);
                assert_eq!(owner(key, ranks), rank);
                assert_eq!(registries[rank].string(key), string);
                assert_eq!(*given.entry(string).or_insert(key), key);
            }
            let keys: HashSet<_> = given.values().collect();
            assert_eq!(keys.len(), given.len());
            assert!(given.len() > 500);
        }
    }
}
