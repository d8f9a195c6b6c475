//! The way of pairs whose owners' kernels combine them: where the communicator has a group for that, and values are
//! words.

use std::ops::Range;
use std::sync::Arc;

use super::shuffle::{Announced, Heard, Ranks, Stop};
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
}

/// Whether the user wants kernels to combine pairs.
pub(super) fn is_wanted() -> bool {
    let process = process::get();
    process.is_some_and(|process| {
        Config::or_default(&process.config).pairs_by == config::Combiner::Kernel
    })
}

impl Combined {
    /// The way of these ranks, if this one has it. Collective.
    pub(super) fn new(ranks: &Ranks, values: &Values) -> Option<Self> {
        let (process, Values::Word(word)) = (process::get()?, values) else { return None };
        if !is_wanted() || !process.is_running() {
            return None;
        }
        let communicator = process.communicator(ranks.mpi.abi.handle(ranks.comm))?;
        let is_made = {
            let mut folding = communicator.folding();
            folding.as_mut().is_some_and(|folding| folding.group.make_combiner())
        };
        is_made.then(|| Self { communicator, folds_as: word.folds_as() })
    }

    /// Brings pairs to their owners: `outgoing` has `counts` words for each other rank, in the order of an
    /// [index](super::index). `takes` some trouble if there is no room for so many words. The pairs that have come
    /// replace all in `arrived`. Returns the bits of all ranks. Collective.
    pub(super) fn round(
        &self,
        ranks: &Ranks,
        outgoing: &[u64],
        counts: &[usize],
        bits: u64,
        takes: impl FnOnce(usize) -> u64,
        arrived: &mut Vec<u64>,
    ) -> Result<u64, Stop> {
        let mut sheaves = Vec::new();
        let (mut told, mut start) = (Vec::with_capacity(counts.len()), 0);
        for (owner, count) in counts.iter().enumerate() {
            let before = sheaves.len();
            bind(owner as u8, start..start + count, &mut sheaves);
            start += count;
            let frames: usize = sheaves[before..].iter().map(Sheaf::frames).sum();
            told.push(Announced { words: *count, also: frames });
        }
        let Heard { from, bits } = ranks.announce(&told, bits, takes)?;
        let mut folding = self.communicator.folding();
        let group = folding.as_mut().map(|folding| &mut folding.group);
        let Some(group) = group.filter(|group| group.combines()) else {
            // The group is a new one, in place of one that has lost its programs, on all ranks.
            drop(folding);
            ranks.transfer(outgoing, counts, &from, arrived)?;
            return Ok(bits);
        };
        arrived.clear();
        let mut waiter = process::get().and_then(|process| process.waiter());
        let wait = |has_moved: bool| {
            let Some(waiter) = &mut waiter else { return };
            if has_moved {
                waiter.made_progress();
            }
            waiter.wait_a_turn();
        };
        let frames = from.iter().map(|told| told.also as u64);
        group.combine(self.folds_as, (outgoing, &sheaves), frames, arrived, wait);
        Ok(bits)
    }
}

/// Divides pairs, which are in the order of an index, over the parts of their owner's table. Equal keys of two ranks come
/// to the same part, most often. Few pairs share a part, so that frames are full.
fn bind(owner: u8, words: Range<usize>, sheaves: &mut Vec<Sheaf>) {
    let (all, pairs) = (FB_PARTS as usize, words.len() / 2);
    let parts = (pairs / FB_FRAME_PAIRS as usize / LEAST_FRAMES).clamp(1, all);
    let parts = 1 << parts.ilog2();
    let end = |part: usize| words.start + 2 * (pairs * part / parts);
    for part in 0..parts {
        let words = end(part)..end(part + 1);
        if !words.is_empty() {
            sheaves.push(Sheaf { owner, part: (part * (all / parts)) as u8, words });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_are_bound_once() {
        for pairs in [0, 1, 87, 5000, 100_000] {
            let mut sheaves = Vec::new();
            bind(3, 10..10 + 2 * pairs, &mut sheaves);
            let mut end = 10;
            for sheaf in &sheaves {
                assert_eq!((sheaf.owner, sheaf.words.start), (3, end));
                end = sheaf.words.end;
                assert!(u32::from(sheaf.part) < FB_PARTS && !sheaf.words.is_empty());
            }
            assert_eq!(end, 10 + 2 * pairs);
            assert!(sheaves.windows(2).all(|two| two[0].part < two[1].part));
            let frames: usize = sheaves.iter().map(Sheaf::frames).sum();
            assert!(frames <= pairs.div_ceil(88) + sheaves.len());
            assert!(sheaves.len() <= 1 + pairs / 88 / LEAST_FRAMES, "{}", sheaves.len());
        }
    }
}
