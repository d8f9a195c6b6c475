//! The way of pairs whose owners' kernels combine them: where the communicator has a group for that, and values are
//! words.

use std::sync::Arc;

use super::shuffle::{Ranks, Stop};
use super::store::{part, parts_each};
use super::values::Values;
use crate::bindings::{FB_FRAME_PAIRS, FB_PARTS};
use crate::comm::Communicator;
use crate::config::{self, Config};
use crate::leaf::arithmetic::{Element, Operator};
use crate::process;
use crate::wire::Sheaf;

/// Frames of a part of the table, at least, if pairs are spread over several.
const LEAST_FRAMES: usize = 4;

/// The way of a communicator whose group combines pairs.
pub(super) struct Combined {
    communicator: Arc<Communicator>,
    folds_as: (Operator, Element),
    parts_each: usize,
}

impl Combined {
    /// The way of these ranks, if this one has it. Collective.
    pub(super) fn new(ranks: &Ranks, values: &Values) -> Option<Self> {
        let (process, Values::Word(word)) = (process::get()?, values) else { return None };
        let is_wanted = Config::or_default(&process.config).pairs_by == config::Combiner::Kernel;
        if !is_wanted || !process.is_running() {
            return None;
        }
        let communicator = process.communicator(ranks.mpi.abi.handle(ranks.comm))?;
        let is_made = {
            let mut folding = communicator.folding();
            folding.as_mut().is_some_and(|folding| folding.group.make_combiner())
        };
        let parts_each = parts_each(ranks.count).min(FB_PARTS as usize);
        is_made.then(|| Self { communicator, folds_as: word.folds_as(), parts_each })
    }

    /// Brings pairs to their owners: `outgoing` has `counts` words for each rank, as a [store](super::store::Store) has
    /// them, part by part. `takes` some trouble if there is no room for so many words. Returns the pairs that have come,
    /// and the bits of all ranks. Collective.
    pub(super) fn round(
        &self,
        ranks: &Ranks,
        outgoing: &[u64],
        counts: &[usize],
        bits: u64,
        takes: impl FnOnce(usize) -> u64,
    ) -> Result<(Vec<u64>, u64), Stop> {
        let me = ranks.mpi.rank(ranks.comm);
        let mut sheaves = Vec::new();
        let (mut own, mut told) = (0..0, Vec::with_capacity(counts.len()));
        let mut start = 0;
        for (owner, count) in counts.iter().enumerate() {
            let words = start..start + count;
            start = words.end;
            let before = sheaves.len();
            if owner == me {
                own = words;
            } else {
                bind(outgoing, words, (owner as u8, self.parts_each), &mut sheaves);
            }
            let frames: usize = sheaves[before..].iter().map(Sheaf::frames).sum();
            told.push(Announced { words: *count, frames }.pack());
        }
        let takes =
            |coming: &[u64]| takes(coming.iter().map(|word| Announced::unpack(*word).words).sum());
        let (coming, bits) = ranks.announce(&told, bits, takes)?;
        let coming: Vec<_> = coming.iter().map(|word| Announced::unpack(*word)).collect();
        let mut folding = self.communicator.folding();
        let group = folding.as_mut().map(|folding| &mut folding.group);
        let Some(group) = group.filter(|group| group.combines()) else {
            // The group is a new one, in place of one that has lost its programs, on all ranks.
            drop(folding);
            let lengths: Vec<_> = coming.iter().map(|told| told.words).collect();
            return Ok((ranks.transfer(outgoing, counts, &lengths)?, bits));
        };
        let mut pairs = outgoing[own].to_vec();
        let mut waiter = process::get().and_then(|process| process.waiter());
        let wait = |has_moved: bool| {
            let Some(waiter) = &mut waiter else { return };
            if has_moved {
                waiter.made_progress();
            }
            waiter.wait_a_turn();
        };
        let frames = coming.iter().map(|told| told.frames as u64);
        group.combine(self.folds_as, (outgoing, &sheaves), frames, &mut pairs, wait);
        Ok((pairs, bits))
    }
}

/// The word of a rank to another about a round.
struct Announced {
    words: usize,
    frames: usize,
}

impl Announced {
    fn pack(&self) -> u64 {
        (self.frames as u64) << 32 | self.words as u64
    }

    fn unpack(word: u64) -> Self {
        Self { words: (word & u64::from(u32::MAX)) as usize, frames: (word >> 32) as usize }
    }
}

/// Divides pairs of an owner, in so many parts, over the parts of its table. Few pairs share a part, so that frames are
/// full: neighbouring parts the first one's, on all ranks alike.
fn bind(
    outgoing: &[u64],
    words: std::ops::Range<usize>,
    (owner, parts_each): (u8, usize),
    sheaves: &mut Vec<Sheaf>,
) {
    let frames = words.len() / 2 / FB_FRAME_PAIRS as usize;
    let groups = (frames / LEAST_FRAMES).clamp(1, parts_each);
    let each = parts_each / (1 << groups.ilog2());
    let label = |at: usize| (part(outgoing[at], parts_each) / each * each) as u8;
    let mut start = words.start;
    while start < words.end {
        let own = label(start);
        let ends = (start..words.end).step_by(2).find(|at| label(*at) != own);
        let end = ends.unwrap_or(words.end);
        sheaves.push(Sheaf { owner, part: own, words: start..end });
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheaves(pairs: usize, parts_each: usize) -> (Vec<u64>, Vec<Sheaf>) {
        let mut keys: Vec<u64> = (0..pairs as u64).collect();
        keys.sort_by_key(|key| std::cmp::Reverse(part(*key, parts_each)));
        let words: Vec<u64> = keys.into_iter().flat_map(|key| [key, 1]).collect();
        let mut sheaves = Vec::new();
        bind(&words, 0..words.len(), (3, parts_each), &mut sheaves);
        (words, sheaves)
    }

    #[test]
    fn all_pairs_are_bound_once_and_by_their_parts() {
        for (pairs, parts_each) in [(0, 64), (1, 4), (87, 64), (5000, 64), (100_000, 128)] {
            let (words, sheaves) = sheaves(pairs, parts_each);
            let mut end = 0;
            for sheaf in &sheaves {
                assert_eq!((sheaf.owner, sheaf.words.start), (3, end));
                end = sheaf.words.end;
                assert!(usize::from(sheaf.part) < parts_each && !sheaf.words.is_empty());
            }
            assert_eq!(end, words.len());
            let frames: usize = sheaves.iter().map(Sheaf::frames).sum();
            assert!(frames <= pairs.div_ceil(88) + sheaves.len());
            assert!(sheaves.len() <= 1 + pairs / 88 / LEAST_FRAMES, "{}", sheaves.len());
        }
    }

    #[test]
    fn announcements_are_one_word() {
        let told = Announced { words: 1 << 19, frames: 77 };
        let heard = Announced::unpack(told.pack());
        assert_eq!((heard.words, heard.frames), (1 << 19, 77));
    }
}
