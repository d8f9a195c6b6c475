//! Kinds of calls, of which each has ways of its own to compare.

/// A kind of calls.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in statistics and profiles.
    pub name: &'static str,
    /// The ways that are compared; `None`: the limits alone choose.
    pub trials: Option<Trials>,
    /// Whether all ranks know the size of a message. A call of a kind without sizes has size 0.
    pub has_sizes: bool,
}

/// The ways that are compared with the real MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trials {
    /// A star alone.
    Star,
    /// A star, direct frames and shards, as for a fold to all.
    FoldToAll,
    /// A star and direct frames, as for a deposit at all ranks.
    Deposit,
    /// A star and shards, as for a fan-out.
    FanOut,
    /// As for a deposit at all ranks, and, where rows are longer than a chunk, as for pairs.
    Columns,
    /// A star, and, for more than a chunk, as for pairs.
    ToRoot,
    /// From each to each, as pairs of ranks need it.
    Pairs,
}

impl Trials {
    /// Whether long messages may go by shards.
    pub fn has_shards(self) -> bool {
        matches!(self, Self::FoldToAll | Self::FanOut)
    }
}
