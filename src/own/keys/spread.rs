//! Pairs that are spread over the ranks of a communicator: what a rank has added, and its share.

use std::ffi::c_int;

use super::combined::{self, Combined};
use super::forecast::Keys;
use super::hash::owner;
use super::shuffle::{Ranks, Stop, bits};
use super::store::Store;
use super::strings::{Numbers, Registry, Strings, decode, encode};
use super::table::{Order, Table};
use super::values::Values;
use super::words::{SAMPLE, next_sample};
use super::{Kind, memory};
use crate::mpi::abi::Error;

/// The bits of a string's hash that count.
const HASH_BITS: u64 = u64::MAX;
/// New strings after which memory is looked at again.
const STRINGS_AT_ONCE: u64 = 1024;
/// Bytes of a string that are looked at each time.
const LONG_STRING: usize = 4096;
/// The greatest part of pairs that may be left, for combining to pay before they leave.
const PAYS: f64 = 0.5;

/// Pairs of a communicator.
pub(super) struct Spread {
    pub(super) ranks: Ranks,
    /// This one.
    rank: usize,
    /// Bytes of memory that the pairs of this rank may take.
    limit: usize,
    /// Pairs on their way, by owner.
    outgoing: Store,
    /// Pairs whose keys are this rank's numbers of strings.
    numbered: Store,
    numbers: Numbers,
    /// The keys of these strings, as far as they are known.
    keys: Vec<u64>,
    /// The strings of this rank's share.
    registry: Registry,
    share: Store,
    count: usize,
    /// Records that have gone to other ranks, since they were asked for.
    sent: u64,
    kind: Option<Kind>,
}

impl Spread {
    /// Without pairs. Collective.
    pub(super) fn new(ranks: Ranks, values: &Values) -> Result<Self, Stop> {
        let own = memory::machine();
        let here = ranks.all(&[own])?.into_iter().filter(|machine| *machine == own).count();
        let (rank, count) = (ranks.mpi.rank(ranks.comm), ranks.count);
        Ok(Self {
            rank,
            limit: memory::limit(here),
            outgoing: Store::new(values, count, 0..count),
            numbered: Store::new(values, 1, 0..1),
            numbers: Numbers::new(HASH_BITS),
            keys: Vec::new(),
            registry: Registry::new(HASH_BITS),
            share: Store::new(values, count, rank..rank + 1),
            count: 0,
            sent: 0,
            kind: None,
            ranks,
        })
    }

    /// Keys of this rank's share.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of memory.
    fn bytes(&self) -> usize {
        let stores = [&self.outgoing, &self.numbered, &self.share];
        let bytes: usize = stores.into_iter().map(Store::bytes).sum();
        bytes + self.numbers.bytes() + self.registry.bytes() + 8 * self.keys.capacity()
    }

    /// The store that takes pairs of a kind.
    fn of(&mut self, kind: Kind) -> &mut Store {
        match kind {
            Kind::Keys => &mut self.outgoing,
            Kind::Strings => &mut self.numbered,
        }
    }

    /// Combines what has been added.
    fn settle(&mut self, values: &Values) -> Result<(), c_int> {
        self.outgoing.settle(values).and_then(|()| self.numbered.settle(values))
    }

    /// Whether so many bytes more have room.
    fn has_room(&self, more: usize) -> bool {
        self.bytes().checked_add(more).is_some_and(|bytes| bytes <= self.limit)
    }

    /// Begins to add pairs.
    pub(super) fn begin<'a>(
        &'a mut self,
        values: &'a Values,
        kind: Kind,
    ) -> Result<Addition<'a>, c_int> {
        if *self.kind.get_or_insert(kind) != kind {
            log::error!("pairs have keys or strings, not both");
            return Err(self.ranks.mpi.abi.family.class(Error::Argument));
        }
        let strings = self.numbers.len();
        Ok(Addition {
            spread: self,
            values,
            kind,
            apart: None,
            strings,
            added: 0,
            expected: 0,
            before: None,
            may_pile: !combined::is_wanted(),
        })
    }

    /// Brings all that was added to its owners. `before`: this rank has something to say first. Collective.
    ///
    /// If some rank has trouble, pairs that have moved are in their owner's share, and all others stay where they are.
    pub(super) fn flush(&mut self, values: &Values, before: Result<(), c_int>) -> Result<(), Stop> {
        let flushed = self.try_flush(values, before);
        let settled = self.share.settle(values);
        self.count = self.share.count();
        self.outgoing.count_memory();
        flushed?;
        // The op is the program's own, and may fail where it likes.
        if let Values::Other { .. } = values {
            self.agree(failed(settled))?;
        }
        Ok(())
    }

    fn try_flush(&mut self, values: &Values, before: Result<(), c_int>) -> Result<(), Stop> {
        let settled = self.settle(values);
        let trouble = match before {
            Ok(()) => failed(settled),
            Err(code) if code == self.ranks.mpi.abi.family.class(Error::Memory) => bits::MEMORY,
            Err(_) => bits::FAILED,
        };
        let own = match self.kind {
            Some(Kind::Keys) => bits::NUMBERS,
            Some(Kind::Strings) => bits::STRINGS,
            None => 0,
        };
        let combined = Combined::new(&self.ranks, values);
        let how = if combined.is_some() { 0 } else { bits::NO_COMBINER };
        let all = self.agree(own | trouble | how)?;
        let combined = combined.filter(|_| all & bits::NO_COMBINER == 0);
        let kind = match all & (bits::NUMBERS | bits::STRINGS) {
            0 => return Ok(()),
            bits::NUMBERS => Kind::Keys,
            bits::STRINGS => Kind::Strings,
            _ => return Err(Stop::Trouble(bits::ARGUMENT)),
        };
        self.kind = Some(kind);
        let mut trouble = 0;
        if kind == Kind::Strings {
            self.name_strings()?;
            trouble = failed(self.give_keys(values));
        }
        self.shuffle(values, trouble, combined.as_ref())
    }

    /// The bits of all ranks, unless one has trouble.
    fn agree(&self, own: u64) -> Result<u64, Stop> {
        let all = self.ranks.any(own)?;
        if all & bits::TROUBLE == 0 { Ok(all) } else { Err(Stop::Trouble(all)) }
    }

    /// Sends strings without keys to the owners of their hashes, which give them keys.
    fn name_strings(&mut self) -> Result<(), Stop> {
        let ranks = self.ranks.count;
        let new = self.keys.len()..self.numbers.len();
        let owners: Vec<_> =
            new.clone().map(|number| owner(self.numbers.hash(number), ranks)).collect();
        let mut outgoing = vec![Vec::new(); ranks];
        for (number, to) in new.zip(&owners) {
            encode(self.numbers.strings().get(number), &mut outgoing[*to]);
        }
        // Strings on their way are there twice, and the registry has more about each.
        let room = |words: usize| {
            if self.has_room(words * 5 * size_of::<u64>()) { 0 } else { bits::MEMORY }
        };
        let incoming = self.ranks.exchange(&outgoing, room)?;
        let mut answers = vec![Vec::new(); ranks];
        for (message, answer) in incoming.iter().zip(&mut answers) {
            let mut rest = message.as_slice();
            while !rest.is_empty() {
                let string = decode(&mut rest);
                answer.push(self.registry.key(&string, |key| owner(key, ranks) == self.rank));
            }
        }
        let given = self.ranks.exchange(&answers, |_| 0)?;
        let mut given: Vec<_> = given.iter().map(|keys| keys.iter()).collect();
        for of in owners {
            self.keys.push(*given[of].next().expect("a key for each string"));
        }
        Ok(())
    }

    /// Brings the pairs of strings to the others, now that there are keys.
    fn give_keys(&mut self, values: &Values) -> Result<(), c_int> {
        let Self { numbered, outgoing, keys, .. } = self;
        let mut given = Ok(());
        for mut records in numbered.take(0) {
            for record in records.chunks_exact_mut(values.stride()) {
                record[0] = keys[record[0] as usize];
            }
            given = given.and(outgoing.push(values, &records));
        }
        given.and_then(|()| outgoing.settle(values))
    }

    /// Sends the outgoing pairs to their owners.
    fn shuffle(
        &mut self,
        values: &Values,
        mut trouble: u64,
        combined: Option<&Combined>,
    ) -> Result<(), Stop> {
        let (ranks, stride) = (self.ranks.count, values.stride());
        let others: Vec<_> = (0..ranks).filter(|rank| *rank != self.rank).collect();
        let most = self.ranks.most_words(stride);
        // Memory of all rounds, and the records of each rank that have left.
        let (mut words, mut arrived) = (Vec::new(), Vec::new());
        let mut left = vec![0..0; ranks];
        trouble |= failed(self.share.absorb(values, &mut self.outgoing, self.rank));
        loop {
            words.clear();
            let (mut counts, mut later) = (vec![0; ranks], vec![0; ranks]);
            for &rank in &others {
                let (before, from) = (words.len(), left[rank].end);
                left[rank] = from..self.outgoing.copy(rank, from, most, &mut words);
                counts[rank] = words.len() - before;
                later[rank] = self.outgoing.words_of(rank) - counts[rank];
            }
            let is_later = later.iter().any(|words| *words > 0);
            let own_pile = self.outgoing.words_of(self.rank) / stride;
            let Self { ranks, share, outgoing, registry, numbers, limit, keys, .. } = self;
            let all_else = outgoing.bytes() + registry.bytes() + numbers.bytes() + 8 * keys.len();
            let mut room = |words: usize| {
                let is_too_much = |share: &Store| {
                    share.bytes_with(own_pile + words / stride).saturating_add(all_else) > *limit
                };
                if is_too_much(share) && share.settle(values).is_err() {
                    return bits::FAILED;
                }
                if is_too_much(share) { bits::MEMORY } else { 0 }
            };
            let told = trouble | if is_later { bits::LATER } else { 0 };
            let arrived = &mut arrived;
            let (told, later) = match combined {
                Some(way) => (way.round(ranks, &words, &counts, told, &mut room, arrived)?, 0),
                None => {
                    let heard = ranks.round(&words, &counts, &later, told, &mut room, arrived)?;
                    (heard.bits, heard.from.iter().map(|told| told.also).sum::<usize>() / stride)
                }
            };
            let coming = arrived.len() / stride + later;
            share.absorb_pile(outgoing, self.rank, own_pile + coming);
            for &rank in &others {
                self.outgoing.clear(rank, left[rank].clone());
            }
            self.sent += (words.len() / stride) as u64;
            // An error does not keep the store from having the records.
            trouble |= failed(self.share.push_some(values, arrived, coming));
            if told & bits::LATER == 0 {
                return Ok(());
            }
        }
    }

    /// Records that have gone to other ranks since the last time.
    pub(super) fn take_sent(&mut self) -> u64 {
        std::mem::take(&mut self.sent)
    }

    /// The records of each key of the share, in an order that stays until it changes.
    pub(super) fn each_key(&self, each: impl FnMut(&[u64])) {
        self.share.each_key(each);
    }

    /// The string for which a key of the share stands, if the keys are strings.
    pub(super) fn string(&self, key: u64) -> Option<&[u8]> {
        (self.kind == Some(Kind::Strings)).then(|| self.registry.string(key))
    }

    /// The share in any order.
    fn unsorted(&self, values: &Values) -> Table {
        let mut table = Table::unsorted(&self.share, values);
        if self.kind == Some(Kind::Strings) {
            let mut strings = Strings::default();
            table.keys.iter().for_each(|key| strings.push(self.registry.string(*key)));
            table.strings = Some(strings);
        }
        table
    }

    /// The first pairs of all shares in an order, at `root` or at all. Collective.
    pub(super) fn gather(
        &self,
        values: &Values,
        order: Order,
        most: usize,
        root: Option<c_int>,
    ) -> Result<Table, Stop> {
        let size = values.size();
        let own = self.unsorted(values).first(values, order, most).encode(size);
        let room = self.limit.saturating_sub(self.bytes());
        let all = self.ranks.all(&[own.len() as u64, room as u64])?;
        let (all, _) = all.as_chunks::<2>();
        let lengths: Vec<_> = all.iter().map(|[length, _]| *length as usize).collect();
        // Pairs are there as they came, and in their order.
        let needed = 2 * size_of::<u64>() as u64 * lengths.iter().sum::<usize>() as u64;
        let is_here = |rank: usize| root.is_none_or(|root| root as usize == rank);
        if all.iter().enumerate().any(|(rank, [_, room])| is_here(rank) && needed > *room) {
            return Err(Stop::Trouble(bits::MEMORY));
        }
        let gathered = self.ranks.gather(&own, &lengths, root)?;
        let strings = (self.kind == Some(Kind::Strings)).then(Strings::default);
        let mut table = Table { strings, ..Table::default() };
        gathered.iter().for_each(|words| table.decode(words, size));
        Ok(table.first(values, order, most))
    }
}

fn failed<T>(result: Result<T, c_int>) -> u64 {
    if result.is_ok() { 0 } else { bits::FAILED }
}

/// Pairs that are being added. They are taken all, or, without room, none.
pub(super) struct Addition<'a> {
    spread: &'a mut Spread,
    values: &'a Values,
    kind: Kind,
    /// The pairs, if they may be too many.
    apart: Option<Store>,
    /// The number of strings before.
    strings: usize,
    /// Pairs so far, and those to come in all.
    added: usize,
    expected: usize,
    /// Keys before, if values are words.
    before: Option<usize>,
    /// Whether pairs may lie as they came. Kernels want them in the order of hashes.
    may_pile: bool,
}

impl Addition<'_> {
    /// The number of a string, which is its key here.
    pub(super) fn number(&mut self, string: &[u8]) -> Result<u64, c_int> {
        let before = self.spread.numbers.len();
        let number = self.spread.numbers.number(string) as u64;
        let is_grown = self.spread.numbers.len() > before;
        if is_grown && (number.is_multiple_of(STRINGS_AT_ONCE) || string.len() > LONG_STRING) {
            self.check()?;
        }
        Ok(number)
    }

    /// Owners of the store that takes them.
    fn owners(&self) -> usize {
        if self.kind == Kind::Keys { self.spread.ranks.count } else { 1 }
    }

    /// Makes room for so many pairs.
    pub(super) fn expect(&mut self, count: usize) -> Result<(), c_int> {
        let (kind, owners) = (self.kind, self.owners());
        self.expected = count;
        if count > SAMPLE {
            let store = self.spread.of(kind);
            let more = store.bytes_to_close_pile() - store.bytes();
            // The sample tells how many keys are new among all.
            if self.spread.has_room(more) {
                self.spread.of(kind).close_pile();
            }
        }
        let is_word = matches!(self.values, Values::Word(_));
        self.before = is_word.then(|| self.spread.of(kind).count());
        let has_room = |spread: &mut Spread| {
            let store = spread.of(kind);
            let more = store.bytes_with(count) - store.bytes();
            spread.has_room(more)
        };
        if has_room(self.spread) {
            return Ok(());
        }
        self.spread.settle(self.values)?;
        if !has_room(self.spread) {
            self.apart = Some(Store::new(self.values, owners, 0..owners));
        }
        self.check()
    }

    /// Adds pairs with packed values.
    pub(super) fn add(&mut self, keys: &[u64], packed: &[u8]) -> Result<(), c_int> {
        let Self { spread, values, kind, apart, .. } = self;
        let is_apart = apart.is_some();
        let store = apart.as_mut().unwrap_or(spread.of(*kind));
        store.add(values, keys, packed)?;
        let sampled = self.added;
        self.added += keys.len();
        let next = next_sample(sampled, self.added, self.expected);
        if let (Some(next), Some(before), false) = (next, self.before, is_apart) {
            let new = store.count() - before;
            let keys = Keys::from_sample(before, new, self.added);
            let left = keys.after(next) - before;
            let pays = left as f64 <= PAYS * next as f64;
            if pays || self.added < SAMPLE || !self.may_pile {
                store.reserve(before + left);
            } else {
                store.open_pile(self.expected - self.added, keys);
            }
        }
        if is_apart { self.check() } else { Ok(()) }
    }

    /// # Errors
    /// There is no room, and nothing is taken.
    fn check(&mut self) -> Result<(), c_int> {
        let has_room = |own: &Self| own.spread.has_room(own.apart.as_ref().map_or(0, Store::bytes));
        if has_room(self) {
            return Ok(());
        }
        match &mut self.apart {
            Some(apart) => apart.settle(self.values)?,
            None => self.spread.settle(self.values)?,
        }
        if has_room(self) {
            return Ok(());
        }
        self.spread.numbers.truncate(self.strings);
        let spread = &self.spread;
        log::error!("pairs would take more than {} bytes (FOLDBACK_PAIRS_MEMORY)", spread.limit);
        Err(spread.ranks.mpi.abi.family.class(Error::Memory))
    }

    /// Takes the pairs.
    pub(super) fn finish(self) -> Result<(), c_int> {
        let owners = self.owners();
        let Self { spread, values, kind, apart, .. } = self;
        let Some(mut apart) = apart else { return Ok(()) };
        apart.settle(values)?;
        let store = spread.of(kind);
        (0..owners).try_for_each(|owner| store.absorb(values, &mut apart, owner))
    }
}
