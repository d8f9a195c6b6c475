//! The places of a message's chunks, if it goes by shards, in a group's sequence. Pure.

use std::ops::Range;

use crate::bindings as b;

/// Chunks of a transfer that are under way together, and their places in the group's sequence. The
/// pieces come first, by source and row, then the broadcasts, in the order of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stripe {
    /// Its first number in the sequence.
    pub(super) base: u64,
    /// Its first chunk, in the transfer, and the number of its chunks.
    pub(super) first: usize,
    pub(super) chunks: usize,
    /// Chunks of a shard; the last shards may have fewer, or none.
    pub(super) rows: usize,
    pub(super) members: usize,
    /// The only source of pieces; `None`: every member is one.
    pub(super) root: Option<u8>,
    /// The least of what the members whose pieces have come say they have released.
    pub(super) consumed: u64,
}

impl Stripe {
    /// Rows that a stripe has at most: two stripes may be under way. 0: the window is too small.
    fn most_rows(members: usize, window: u64) -> usize {
        (in_flight(window) as usize / (4 * members)).min(b::FB_MOST_FRAMES as usize)
    }

    /// The stripe that begins with chunk `first` of so many.
    pub(super) fn new(base: u64, first: usize, of: usize, members: usize, window: u64) -> Self {
        let chunks = (of - first).min(members * Self::most_rows(members, window));
        let rows = chunks.div_ceil(members);
        Self { base, first, chunks, rows, members, root: None, consumed: u64::MAX }
    }

    pub(super) fn pieces(&self) -> u64 {
        let sources = if self.root.is_some() { 1 } else { self.members };
        (sources * self.rows) as u64
    }

    /// How much of the sequence it takes.
    pub(super) fn numbers(&self) -> u64 {
        self.pieces() + (self.members * self.rows) as u64
    }

    pub(super) fn piece(&self, source: u8, row: usize) -> u64 {
        let source = if self.root.is_some() { 0 } else { usize::from(source) };
        self.base + (source * self.rows + row) as u64
    }

    pub(super) fn broadcast(&self, chunk: usize) -> u64 {
        self.base + self.pieces() + (chunk - self.first) as u64
    }

    /// Chunks of the transfer that `member` is to broadcast.
    pub(super) fn shard(&self, member: u8) -> Range<usize> {
        let end = self.first + self.chunks;
        let start = (self.first + usize::from(member) * self.rows).min(end);
        start..(start + self.rows).min(end)
    }

    /// The member that broadcasts a chunk.
    pub(super) fn owner(&self, chunk: usize) -> u8 {
        ((chunk - self.first) / self.rows) as u8
    }
}

/// Numbers of the sequence that stripes may have under way: a quarter of the window, as
/// docs/contributing/protocol.md wants it.
pub(super) fn in_flight(window: u64) -> u64 {
    window / 4
}

/// Whether groups of so many members can go by shards.
pub(super) fn serves(members: usize, window: u64) -> bool {
    Stripe::most_rows(members, window) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of a stripe names one thing, and every chunk has one owner.
    #[test]
    fn stripes_divide_a_message() {
        for (members, chunks, window) in
            [(2, 47, 1024), (3, 1, 256), (8, 46, 1024), (64, 200, 1024), (5, 1000, 4096)]
        {
            let (mut base, mut first) = (1, 0);
            while first < chunks {
                let stripe = Stripe::new(base, first, chunks, members, window);
                assert!(stripe.numbers() <= window / 4 && stripe.chunks > 0, "{stripe:?}");
                let mut numbers = Vec::new();
                for member in 0..members as u8 {
                    numbers.extend((0..stripe.rows).map(|row| stripe.piece(member, row)));
                }
                for chunk in first..first + stripe.chunks {
                    assert!(stripe.shard(stripe.owner(chunk)).contains(&chunk), "{stripe:?}");
                    numbers.push(stripe.broadcast(chunk));
                }
                assert!(numbers.is_sorted_by(|a, b| a < b), "{stripe:?}");
                assert!(*numbers.last().unwrap() < base + stripe.numbers());
                (base, first) = (base + stripe.numbers(), first + stripe.chunks);
            }
        }
        assert!(serves(64, 1024) && !serves(64, 256));
    }
}
