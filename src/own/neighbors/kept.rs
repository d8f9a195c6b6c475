//! The vectors that ranks have of each other: pure.
//!
//! Both ends of an edge begin with zeros. From then on the sender tells all that changes, and the receiver takes all that
//! it is told. So both have the same vector after each call, and no reduction of it is older.

use std::ffi::c_int;
use std::ops::Range;

use super::super::reduction::Invertible;
use super::blocks::Cut;
use crate::codec::SUCCESS;

/// A rank's vector, as its neighbours have it.
pub(super) struct Sent {
    cut: Cut,
    vector: Vec<u8>,
}

impl Sent {
    pub(super) fn new(cut: Cut) -> Self {
        Self { cut, vector: vec![0; cut.bytes] }
    }

    /// The blocks in which a vector differs from what was sent.
    pub(super) fn compare(&self, new: &[u8]) -> Vec<u32> {
        self.cut.compare(new, &self.vector)
    }

    /// The text by which neighbours get these blocks of `new`: contents or, for an op that can be undone, differences.
    pub(super) fn changes(
        &mut self,
        new: &[u8],
        blocks: &[u32],
        by: Option<Invertible>,
    ) -> Vec<u8> {
        let Self { cut, vector } = self;
        let ranges = || blocks.iter().map(|block| cut.range(*block as usize));
        match by {
            Some(by) => {
                ranges().for_each(|range| by.difference(&new[range.clone()], &mut vector[range]));
            }
            None => copy(ranges(), new, vector),
        }
        let text = cut.encode(blocks, vector);
        copy(ranges(), new, vector);
        text
    }
}

fn copy(ranges: impl Iterator<Item = Range<usize>>, from: &[u8], to: &mut [u8]) {
    ranges.for_each(|range| to[range.clone()].copy_from_slice(&from[range]));
}

/// The reduction of the vectors of a rank's in-neighbours.
pub(super) struct Kept {
    cut: Cut,
    /// By in-neighbour, whether it is one (else MPI_PROC_NULL).
    sources: Vec<bool>,
    by: Option<Invertible>,
    /// All vectors, one after the other, unless changes come as differences.
    vectors: Vec<u8>,
    reduction: Vec<u8>,
    /// By block, whether it is to be reduced anew: all are at first.
    is_changed: Vec<bool>,
}

impl Kept {
    pub(super) fn new(cut: Cut, sources: Vec<bool>, by: Option<Invertible>) -> Self {
        let vectors = if by.is_some() { 0 } else { sources.len() };
        Self {
            cut,
            by,
            vectors: vec![0; vectors * cut.bytes],
            reduction: vec![0; cut.bytes],
            is_changed: vec![true; cut.blocks()],
            sources,
        }
    }

    /// The op, if changes come as differences.
    pub(super) fn by(&self) -> Option<Invertible> {
        self.by
    }

    /// By in-neighbour, whether it is one.
    pub(super) fn sources(&self) -> &[bool] {
        &self.sources
    }

    /// Takes what an in-neighbour says of so many blocks; `None`: this is not what a rank says.
    pub(super) fn take(&mut self, source: usize, blocks: u64, text: &[u8]) -> Option<()> {
        for (block, contents) in self.cut.decode(blocks, text)? {
            let range = self.cut.range(block);
            match self.by {
                Some(by) => by.add(&mut self.reduction[range], contents),
                None => {
                    self.vectors[source * self.cut.bytes..][range].copy_from_slice(contents);
                    self.is_changed[block] = true;
                }
            }
        }
        Some(())
    }

    /// The reduction, in which `reduce` reduces anew what has changed; `None`: there is no in-neighbour.
    ///
    /// # Errors
    /// What `reduce` returned.
    pub(super) fn reduction(
        &mut self,
        reduce: impl Fn(&[&[u8]], &mut [u8]) -> c_int,
    ) -> Result<Option<&[u8]>, c_int> {
        let Self { cut, sources, vectors, reduction, is_changed, .. } = self;
        if !sources.contains(&true) {
            return Ok(None);
        }
        if self.by.is_none() {
            let each = || vectors.chunks_exact(cut.bytes.max(1)).zip(&*sources);
            for range in runs(is_changed, *cut) {
                let there = each().filter(|(_, is_there)| **is_there);
                let parts: Vec<_> = there.map(|(vector, _)| &vector[range.clone()]).collect();
                match reduce(&parts, &mut reduction[range]) {
                    SUCCESS => {}
                    code => return Err(code),
                }
            }
            is_changed.fill(false);
        }
        Ok(Some(&self.reduction))
    }
}

/// The bytes of blocks that are marked, neighbouring blocks as one range.
fn runs(is_changed: &[bool], cut: Cut) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (block, _) in is_changed.iter().enumerate().filter(|(_, is_changed)| **is_changed) {
        let range = cut.range(block);
        match runs.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => runs.push(range),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::arithmetic::{Arithmetic, Element, Operator};
    use crate::leaf::fold::fold;
    use crate::random::Rng;

    #[test]
    fn neighbouring_blocks_are_one_run() {
        let cut = Cut { bytes: 45, block: 10 };
        assert_eq!(runs(&[true, true, false, true, true], cut), [0..20, 30..45]);
        assert_eq!(runs(&[false; 5], cut), []);
        assert_eq!(runs(&[false, true, true, true, true], cut), vec![10..45]);
    }

    /// A rank of the simulation, with its in-neighbours.
    struct Rank {
        vector: Vec<u8>,
        sources: Vec<Option<usize>>,
        sent: Sent,
        kept: Kept,
    }

    fn reduced(parts: &[&[u8]], into: &mut [u8], arithmetic: Arithmetic) -> c_int {
        into.copy_from_slice(parts[0]);
        parts[1..].iter().for_each(|part| fold(into, part, arithmetic));
        SUCCESS
    }

    /// Ranks change blocks by chance and name them, or have them compared. Edges are there twice, lead to oneself, or to
    /// nobody.
    fn simulate(arithmetic: Arithmetic, rounds: usize, seed: u64) {
        const RANKS: usize = 5;
        let mut random = Rng(seed);
        let cut = Cut { bytes: 8 * (1 + random.below(130) as usize), block: 16 };
        let by = Invertible::of(arithmetic);
        let mut rank = || {
            let degree = random.below(6);
            let source = |_| (random.below(8) > 0).then(|| random.below(RANKS as u64) as usize);
            let sources: Vec<_> = (0..degree).map(source).collect();
            let is_there = sources.iter().map(Option::is_some).collect();
            let (sent, kept) = (Sent::new(cut), Kept::new(cut, is_there, by));
            Rank { vector: vec![0; cut.bytes], sources, sent, kept }
        };
        let mut ranks: Vec<Rank> = (0..RANKS).map(|_| rank()).collect();
        for round in 0..rounds {
            let said: Vec<(u64, Vec<u8>)> = ranks
                .iter_mut()
                .map(|rank| {
                    let mut named = Vec::new();
                    for _ in 0..random.below(3) {
                        let block = random.below(cut.blocks() as u64) as usize;
                        let contents = rank.vector[cut.range(block)].iter_mut();
                        contents.for_each(|byte| *byte = random.next() as u8);
                        named.push(block as i32);
                    }
                    let blocks = match random.below(2) {
                        0 => rank.sent.compare(&rank.vector),
                        _ => cut.named(&named).expect("blocks"),
                    };
                    (blocks.len() as u64, rank.sent.changes(&rank.vector, &blocks, by))
                })
                .collect();
            let vectors: Vec<_> = ranks.iter().map(|rank| rank.vector.clone()).collect();
            for (number, rank) in ranks.iter_mut().enumerate() {
                for (at, source) in rank.sources.iter().enumerate() {
                    let Some(source) = source else { continue };
                    let (blocks, text) = &said[*source];
                    rank.kept.take(at, *blocks, text).expect("it is a text");
                }
                let there = rank.sources.iter().flatten().map(|source| &vectors[*source][..]);
                let parts: Vec<_> = there.collect();
                let reduce = |parts: &[&[u8]], into: &mut [u8]| reduced(parts, into, arithmetic);
                let kept = rank.kept.reduction(reduce).expect("it succeeds");
                let mut want = vec![0; cut.bytes];
                let want = (!parts.is_empty()).then(|| {
                    reduced(&parts, &mut want, arithmetic);
                    &want[..]
                });
                assert_eq!(kept, want, "rank {number}, round {round}, {arithmetic:?}, {seed}");
            }
        }
    }

    #[test]
    fn no_reduction_is_older_than_the_vectors() {
        for seed in 0..50 {
            for op in [Operator::Sum, Operator::Bxor, Operator::Min, Operator::Max] {
                for element in [Element::I8, Element::U16, Element::I32, Element::U64] {
                    simulate(Arithmetic { op, element }, 40, seed);
                }
            }
        }
    }
}
