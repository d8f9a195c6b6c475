//! The contract of a collective's file.

use crate::choice::Trials;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused, Share};
use crate::plan::{Case, Fit, Plan};
use crate::topology::Place;

/// All that foldback has to know of a collective. Calls to it are direct: `of_collective!` finds the file.
pub trait Descriptor {
    /// The work of the group for it, for people (docs/using/coverage.md).
    const HOW: &'static str;
    /// The types and ops that it is folded for, for people.
    const TYPES: &'static str;
    /// The unit of [`Admitted::bytes`].
    const AMOUNT: Amount;
    /// The ways that are compared; `None`: the limits alone choose.
    const TRIALS: Option<Trials>;
    /// The ranks on which the datatypes mean something: of the sending side, and of the receiving one.
    const SIGNIFICANT: (At, At);
    /// The elements of its arrays.
    const ARRAYS: Arrays = Arrays::Ranks;
    /// The calls that no rank can complete before all have begun them.
    const MEETS: Meets = Meets::Never;
    /// Whether it has an op.
    const IS_REDUCTION: bool = false;
    /// Whether its sums may be quantized.
    const MAY_BE_QUANTIZED: bool = false;

    /// Looks at a call without its group.
    ///
    /// # Errors
    /// It is the real MPI's.
    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left>;

    /// Judges the arguments of this rank.
    ///
    /// # Errors
    /// They are wrong.
    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused>;

    /// Finds the form in which a call goes through the group.
    ///
    /// # Errors
    /// It is too much, or nothing: the same on all ranks.
    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason>;

    /// The plan of a call that fits. Panics if `fit` is another call's.
    fn plan(case: Case<'_>, fit: Fit) -> Plan;

    /// The share of a reduction that this rank gets.
    fn share(ends: &Ends) -> Share {
        Share { elements: 0..ends.brings.map_or(0, |brings| brings.count), ranks: ends.ranks }
    }
}

/// The unit of [`Admitted::bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Nothing,
    /// The whole message.
    Whole,
    /// A part, of which there is one for each rank.
    Part,
    /// A part, of which each rank has one for each rank.
    PartOfEach,
    /// A part for each pair of ranks, whose size no other rank knows: there is no amount in common.
    Pairs,
}

impl Amount {
    /// Whether each rank knows the size of a message.
    pub const fn is_known_to_all(self) -> bool {
        !matches!(self, Self::Nothing | Self::Pairs)
    }
}

/// The elements of the arrays that a collective has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrays {
    /// One for each rank.
    Ranks,
    /// The same, at the root alone: elsewhere there may be no array.
    RanksAtRoot,
    /// One for each neighbour: of the sending side, for each that is sent to; of the receiving side, for each that
    /// sends.
    Neighbors,
}

/// The ranks on which an argument means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Nowhere,
    Root,
    Everywhere,
}

/// The calls that no rank can complete before all have begun them: each gets something that each brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// No call: some ranks may bring nothing, or get nothing.
    Never,
    /// Calls with some data.
    WithData,
    /// All calls.
    Always,
}
