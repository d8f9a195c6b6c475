//! Exchanges between all ranks of a communicator, by collectives as a program calls them.
//!
//! Words go in rounds, so that memory and the MPI's counts, which are ints, have a bound. In each round a rank first
//! learns what would come. Then all agree whether it may, so that a rank without room stops all alike.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::super::room;
use crate::codec::SUCCESS;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::preload::own;

/// Bytes from one rank to another in a round, at most.
const ROUND: usize = 16 << 20;
/// Bytes from a rank to all others in a round, about.
const ROUND_OF_ALL: usize = 256 << 20;

/// Words of some rank to all, as bits.
pub(super) mod bits {
    /// It has no room.
    pub(crate) const MEMORY: u64 = 1;
    /// Something else has failed, which its program has been told.
    pub(crate) const FAILED: u64 = 2;
    /// Its pairs are not of the kind that others have.
    pub(crate) const ARGUMENT: u64 = 4;
    /// More comes in another round.
    pub(crate) const LATER: u64 = 8;
    /// It has pairs by number.
    pub(crate) const NUMBERS: u64 = 16;
    /// It has pairs by string.
    pub(crate) const STRINGS: u64 = 32;
    /// Its host's kernel does not combine pairs.
    pub(crate) const NO_COMBINER: u64 = 64;
    /// All that stop a flush.
    pub(crate) const TROUBLE: u64 = MEMORY | FAILED | ARGUMENT;
}

/// Why an exchange has stopped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// The MPI has failed, and has told the program.
    Told(c_int),
    /// Some rank has [trouble](bits::TROUBLE). All know, and none has sent in this round.
    Trouble(u64),
}

/// The ranks of a communicator, of which nobody else knows.
pub(super) struct Ranks {
    pub(super) mpi: &'static Mpi,
    pub(super) comm: Handle,
    pub(super) count: usize,
}

fn told(code: c_int) -> Result<(), Stop> {
    if code == SUCCESS { Ok(()) } else { Err(Stop::Told(code)) }
}

/// The word of a rank to another about a round.
#[derive(Clone, Copy)]
pub(super) struct Announced {
    /// Words that come now.
    pub(super) words: usize,
    /// Their frames, or words that come later, or the most of both that can be said.
    pub(super) also: usize,
}

impl Announced {
    fn pack(&self) -> u64 {
        (self.also.min(u32::MAX as usize) as u64) << 32 | self.words as u64
    }

    fn unpack(word: u64) -> Self {
        Self { words: (word & u64::from(u32::MAX)) as usize, also: (word >> 32) as usize }
    }
}

/// The words of all ranks about a round, and their bits.
pub(super) struct Heard {
    pub(super) from: Vec<Announced>,
    pub(super) bits: u64,
}

/// Counts, and the places of words one behind the other, as the MPI has them.
fn layout(counts: &[usize]) -> (Vec<c_int>, Vec<c_int>) {
    let before = counts.iter().scan(0, |place, count| {
        *place += count;
        Some((*place - count) as c_int)
    });
    (counts.iter().map(|count| *count as c_int).collect(), before.collect())
}

fn address(words: &[u64]) -> *const c_void {
    words.as_ptr().cast()
}

impl Ranks {
    /// Words from one rank to another in a round, at most: a multiple of this.
    pub(super) fn most_words(&self, of: usize) -> usize {
        let words = ROUND.min(ROUND_OF_ALL / self.count) / size_of::<u64>();
        (words / of).max(1) * of
    }

    /// The bits that any rank has. Collective.
    pub(super) fn any(&self, bits: u64) -> Result<u64, Stop> {
        let (own, mut all) = (!bits, 0u64);
        let (word, band, comm) = (self.mpi.abi.word, self.mpi.abi.band, self.comm);
        let (from, to) = ((&raw const own).cast(), (&raw mut all).cast());
        // SAFETY: a live communicator, and a word at either end.
        told(unsafe { own::allreduce(from, to, 1, word, band, comm) })?;
        Ok(!all)
    }

    /// The words of each rank, as many of each, at all. Collective.
    pub(super) fn all(&self, own: &[u64]) -> Result<Vec<u64>, Stop> {
        let mut all: Vec<u64> = room(own.len() * self.count);
        let (count, word) = (own.len() as c_int, self.mpi.abi.word);
        let (from, to) = (address(own), all.as_mut_ptr().cast());
        // SAFETY: a live communicator, and as many words at either end.
        told(unsafe { own::allgather(from, count, word, to, count, word, self.comm) })?;
        Ok(all)
    }

    /// Tells each rank of a round, and hears of it from each. `takes` some trouble if there is no room for so many words.
    /// Collective.
    pub(super) fn announce(
        &self,
        told: &[Announced],
        bits: u64,
        takes: impl FnOnce(usize) -> u64,
    ) -> Result<Heard, Stop> {
        let (word, comm) = (self.mpi.abi.word, self.comm);
        let told: Vec<_> = told.iter().map(Announced::pack).collect();
        let mut heard: Vec<u64> = room(self.count);
        let (from, to) = (address(&told), heard.as_mut_ptr().cast());
        // SAFETY: a live communicator, and a word for each rank at either end.
        self::told(unsafe { own::alltoall(from, 1, word, to, 1, word, comm) })?;
        let from: Vec<_> = heard.into_iter().map(Announced::unpack).collect();
        let bits = self.any(bits | takes(from.iter().map(|told| told.words).sum()))?;
        if bits & bits::TROUBLE == 0 { Ok(Heard { from, bits }) } else { Err(Stop::Trouble(bits)) }
    }

    /// Exchanges words: `outgoing` has `counts` for each rank, which gets the numbers in `later` in other rounds. `takes`
    /// some trouble if there is no room for so many words. The words that come replace all in `arrived`. Collective.
    pub(super) fn round(
        &self,
        outgoing: &[u64],
        counts: &[usize],
        later: &[usize],
        bits: u64,
        takes: impl FnOnce(usize) -> u64,
        arrived: &mut Vec<u64>,
    ) -> Result<Heard, Stop> {
        let announced = counts.iter().zip(later);
        let told: Vec<_> =
            announced.map(|(words, also)| Announced { words: *words, also: *also }).collect();
        let heard = self.announce(&told, bits, takes)?;
        self.transfer(outgoing, counts, &heard.from, arrived)?;
        Ok(heard)
    }

    /// Exchanges words: `outgoing` has `counts` for each rank, and each has `coming`, which replace all in `arrived`.
    /// Collective.
    pub(super) fn transfer(
        &self,
        outgoing: &[u64],
        counts: &[usize],
        coming: &[Announced],
        arrived: &mut Vec<u64>,
    ) -> Result<(), Stop> {
        let (word, comm) = (self.mpi.abi.word, self.comm);
        // Never where an empty vector of Rust's is.
        arrived.reserve(1);
        let coming: Vec<_> = coming.iter().map(|told| told.words).collect();
        arrived.resize(coming.iter().sum(), 0);
        let ((send_counts, send_places), (counts, places)) = (layout(counts), layout(&coming));
        let nothing = 0u64;
        let from =
            if outgoing.is_empty() { (&raw const nothing).cast() } else { address(outgoing) };
        let to = arrived.as_mut_ptr().cast();
        let (send_counts, send_places) = (send_counts.as_ptr(), send_places.as_ptr());
        let (counts, places) = (counts.as_ptr(), places.as_ptr());
        // SAFETY: a live communicator; as many words at either end, as the ranks have told each other.
        told(unsafe {
            own::alltoallv(from, send_counts, send_places, word, to, counts, places, word, comm)
        })
    }

    /// Exchanges words of any number: one vector for each rank, and one from each. Collective.
    pub(super) fn exchange(
        &self,
        outgoing: &[Vec<u64>],
        takes: impl Fn(usize) -> u64,
    ) -> Result<Vec<Vec<u64>>, Stop> {
        let most = self.most_words(1);
        let mut incoming = vec![Vec::new(); self.count];
        let (mut sent, mut arrived) = (0, Vec::new());
        loop {
            let part = |words: &Vec<u64>| sent.min(words.len())..(sent + most).min(words.len());
            let counts: Vec<_> = outgoing.iter().map(|words| part(words).len()).collect();
            let parts: Vec<_> = outgoing.iter().map(|words| &words[part(words)]).collect();
            sent += most;
            let is_later = outgoing.iter().any(|words| words.len() > sent);
            let later = if is_later { bits::LATER } else { 0 };
            let so_far: usize = incoming.iter().map(Vec::len).sum();
            let takes = |all| takes(so_far + all);
            let none = vec![0; self.count];
            let heard = self.round(&parts.concat(), &counts, &none, later, takes, &mut arrived)?;
            let mut rest = arrived.as_slice();
            for (all, told) in incoming.iter_mut().zip(heard.from) {
                let (own, others) = rest.split_at(told.words);
                all.extend_from_slice(own);
                rest = others;
            }
            if heard.bits & bits::LATER == 0 {
                return Ok(incoming);
            }
        }
    }

    /// Gathers words at a rank, or at all: `lengths` has the number of each rank, known to all. Returns them by rank;
    /// elsewhere they are empty. Collective.
    pub(super) fn gather(
        &self,
        own: &[u64],
        lengths: &[usize],
        root: Option<c_int>,
    ) -> Result<Vec<Vec<u64>>, Stop> {
        let (most, word, comm) = (self.most_words(1), self.mpi.abi.word, self.comm);
        let is_here = root.is_none_or(|root| self.mpi.rank(comm) == root as usize);
        let mut gathered = vec![Vec::new(); self.count];
        let longest = lengths.iter().max().copied().unwrap_or(0);
        for sent in (0..longest).step_by(most) {
            let part = |length: usize| sent.min(length)..(sent + most).min(length);
            let counts: Vec<_> = lengths.iter().map(|length| part(*length).len()).collect();
            let outgoing = &own[part(own.len())];
            let nothing = 0u64;
            let from = match outgoing {
                [] => (&raw const nothing).cast(),
                words => address(words),
            };
            let all = if is_here { counts.iter().sum() } else { 0 };
            let mut words: Vec<u64> = room(all);
            let (c_counts, places) = layout(&counts);
            let (c_counts, places) = (c_counts.as_ptr(), places.as_ptr());
            let (count, to) = (outgoing.len() as c_int, words.as_mut_ptr().cast());
            // SAFETY: a live communicator; as many words of each rank as all know, with room for them where they come.
            told(unsafe {
                match root {
                    Some(root) => {
                        own::gatherv(from, count, word, to, c_counts, places, word, root, comm)
                    }
                    None => own::allgatherv(from, count, word, to, c_counts, places, word, comm),
                }
            })?;
            let mut rest = words.as_slice();
            for (all, count) in gathered.iter_mut().zip(&counts).filter(|_| is_here) {
                let (own, others) = rest.split_at(*count);
                all.extend_from_slice(own);
                rest = others;
            }
        }
        Ok(gathered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_one_word() {
        for (also, most) in [(77, 77), (1 << 40, u32::MAX as usize)] {
            let heard = Announced::unpack(Announced { words: 1 << 19, also }.pack());
            assert_eq!((heard.words, heard.also), (1 << 19, most));
        }
    }
}
