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
    /// The stripe that begins with the first of so many `chunks`.
    pub(super) fn new(
        base: u64,
        chunks: Range<usize>,
        members: usize,
        root: Option<u8>,
        window: u64,
    ) -> Self {
        let most = members * most_rows(members, root, window);
        let (first, chunks) = (chunks.start, chunks.len().min(most));
        let rows = chunks.div_ceil(members);
        Self { base, first, chunks, rows, members, root, consumed: u64::MAX }
    }

    pub(super) fn pieces(&self) -> u64 {
        (sources(self.members, self.root) * self.rows) as u64
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

/// The number of members that send pieces.
fn sources(members: usize, root: Option<u8>) -> usize {
    if root.is_some() { 1 } else { members }
}

/// Rows that a stripe has at most: two stripes may be under way. 0: the window is too small.
fn most_rows(members: usize, root: Option<u8>, window: u64) -> usize {
    let numbers_of_a_row = sources(members, root) + members;
    let most = most_under_way(root.is_none(), window) as usize / (2 * numbers_of_a_row);
    most.min(b::FB_MOST_FRAMES as usize)
}

/// Numbers of the sequence that stripes and exchanges may have under way. If the results of a stripe go to all, that is
/// all that the invariant of docs/contributing/protocol.md, "Syncs", leaves to it. Else the sender would be too far
/// ahead for the cells to stay in caches.
pub(super) fn most_under_way(is_to_all: bool, window: u64) -> u64 {
    if is_to_all { window / 2 - 2 } else { window / 4 }
}

/// Whether groups of so many members can go by shards.
pub(super) fn serves(members: usize, window: u64) -> bool {
    most_rows(members, None, window) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of a stripe names one thing, and every chunk has one owner.
    #[test]
    fn stripes_divide_a_message() {
        let messages =
            [(2, 47, 1024), (3, 1, 256), (8, 46, 1024), (64, 200, 1024), (5, 1000, 4096)];
        for (members, of, window) in messages {
            divides(members, of, window, None);
            divides(members, of, window, Some(1));
        }
        assert!(serves(64, 1024) && serves(31, 256) && !serves(32, 256));
    }

    fn divides(members: usize, of: usize, window: u64, root: Option<u8>) {
        let (mut base, mut first) = (1, 0);
        while first < of {
            let stripe = Stripe::new(base, first..of, members, root, window);
            let most = most_under_way(root.is_none(), window);
            assert!(2 * stripe.numbers() <= most, "{stripe:?}");
            assert!(stripe.chunks > 0, "{stripe:?}");
            let mut numbers = Vec::new();
            for source in 0..sources(members, root) as u8 {
                numbers.extend((0..stripe.rows).map(|row| stripe.piece(source, row)));
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

    /// One row more would be too long for two stripes.
    #[test]
    fn a_stripe_is_as_long_as_two_may_be() {
        for (members, root, window) in [(8, None, 1024), (8, Some(0), 1024), (64, None, 4096)] {
            let numbers = |stripe: Stripe| {
                let row = (sources(members, root) + members) as u64;
                (2 * stripe.numbers(), 2 * (stripe.numbers() + row))
            };
            let (two, more) = numbers(Stripe::new(1, 0..9999, members, root, window));
            assert!((two..more).contains(&most_under_way(root.is_none(), window)));
        }
    }
}
