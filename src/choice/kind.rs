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

impl Kind {
    pub(super) fn pace(&self) -> Pace {
        match self.trials {
            Some(trials) if trials.runs_ahead() => Pace::Ahead,
            _ => Pace::Together,
        }
    }
}

/// How ranks get through a stream of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Each call waits for all ranks.
    Together,
    /// Some ranks run ahead, as far as their MPI lets them.
    Ahead,
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
    /// The same where one rank is at one end of all pairs.
    PairsOfRoot,
}

impl Trials {
    /// Whether long messages may go by shards.
    pub fn has_shards(self) -> bool {
        matches!(self, Self::FoldToAll | Self::FanOut)
    }

    /// Whether pairs of ranks have data of their own, whatever the size.
    pub fn is_of_pairs(self) -> bool {
        matches!(self, Self::Pairs | Self::PairsOfRoot)
    }

    /// Whether ranks may run ahead of others in such calls: no rank waits for all others.
    pub fn runs_ahead(self) -> bool {
        matches!(self, Self::Star | Self::FanOut | Self::ToRoot | Self::PairsOfRoot)
    }
}
