//! Each collective, described by a file: its arguments, the form in which it goes through the group, and the group's
//! work for it. The [table] names the files.

#[cfg(test)]
mod agreement;
mod arguments;
mod descriptor;
mod pairs;

mod allgather;
mod allgatherv;
mod allreduce;
mod alltoall;
mod alltoallv;
mod alltoallw;
mod barrier;
mod bcast;
mod exscan;
mod gather;
mod gatherv;
mod neighbor_allgather;
mod neighbor_allgatherv;
mod neighbor_alltoall;
mod neighbor_alltoallv;
mod neighbor_alltoallw;
mod reduce;
mod reduce_scatter;
mod reduce_scatter_block;
mod scan;
mod scatter;
mod scatterv;

use crate::call::{COLLECTIVES, Call, Collective, Form, Message, table};
use crate::choice::{Kind, Trials};
use crate::config::Config;
use crate::gate::admit::{Candidate, Terms};
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused, Share};
use crate::mpi::types::Shape;
use crate::plan::{Case, Fit, Plan};
use crate::topology::Place;

pub use descriptor::Meets;
use descriptor::{Amount, Arrays, At, Descriptor};

/// Makes `of_collective!` of the table. `$d` is a dollar sign.
macro_rules! dispatch {
    ($d:tt $($name:ident: $file:ident, $limit:expr;)*) => {
        /// An item of the descriptor of a collective.
        macro_rules! of_collective {
            ($d collective:expr, $d ($d item:tt)*) => {
                match $d collective {
                    $(Collective::$name => <$file::$name as Descriptor>::$d ($d item)*,)*
                }
            };
        }
    };
}
table!(dispatch $);

macro_rules! kinds {
    ($($name:ident: $file:ident, $limit:expr;)*) => {
        /// Each collective as a kind of calls, by its number.
        pub static KINDS: [Kind; COLLECTIVES.len()] = [$(Kind {
            name: stringify!($name),
            trials: <$file::$name as Descriptor>::TRIALS,
            has_sizes: <$file::$name as Descriptor>::AMOUNT.is_known_to_all(),
        },)*];
    };
}
table!(kinds);

/// Looks at a call without its group; `quantizes` says whether sums on its communicator are quantized. `seen` gets what
/// is known of its message, also if the call is the real MPI's.
///
/// # Errors
/// It is the real MPI's.
pub fn admit(
    mpi: &impl Facts,
    config: &Config,
    quantizes: impl Fn() -> bool,
    form: Form,
    call: &Call,
    seen: &mut Message,
) -> Result<Admitted, Left> {
    let trials = call.collective.trials();
    let terms = Terms {
        is_measured: trials.is_some(),
        has_shards: trials.is_some_and(Trials::has_shards),
        may_be_quantized: call.collective.is_quantized(),
    };
    let mut candidate =
        Candidate::new((mpi, &config.shared, quantizes), (form, call), terms, seen)?;
    of_collective!(call.collective, admit(&mut candidate))
}

/// Judges the call's arguments; a reduction's elements have `shape`.
///
/// # Errors
/// They are wrong on this rank.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi), on a communicator of `ranks` ranks, of which this is `rank`.
#[inline]
#[allow(unsafe_code)]
pub unsafe fn judge(
    mpi: &impl Facts,
    call: &Call,
    shape: Option<Shape>,
    (rank, ranks): (usize, usize),
) -> Result<Ends, Refused> {
    // SAFETY: as demanded of this function.
    let bench = unsafe { Bench::new(mpi, call, shape, (rank, ranks)) };
    of_collective!(call.collective, judge(&bench))
}

/// Finds the form in which a call goes through the group.
///
/// # Errors
/// It is too much, or nothing: the same on all ranks.
#[inline]
pub fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
    let most = place.max_bytes;
    let fit = of_collective!(case.call.collective, fit(case, place))?;
    if fit.bytes() > most { Err(Reason::TooLarge) } else { Ok(fit) }
}

/// The plan of a call that fits. Panics if `fit` is another call's.
#[inline]
pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    of_collective!(case.call.collective, plan(case, fit))
}

impl Collective {
    /// The work of the group for it, for people (docs/using/coverage.md).
    pub fn how(self) -> &'static str {
        of_collective!(self, HOW)
    }

    /// The types and ops that it is folded for, for people.
    pub fn types(self) -> &'static str {
        of_collective!(self, TYPES)
    }

    /// Bytes of a message in all, as the limits count them. `bytes`: of one rank's part, where ranks have parts.
    #[inline]
    pub(crate) fn bytes_in_all(self, bytes: usize, ranks: usize) -> usize {
        match of_collective!(self, AMOUNT) {
            Amount::Nothing | Amount::Whole | Amount::Pairs => bytes,
            Amount::Part => bytes.saturating_mul(ranks),
            Amount::PartOfEach => bytes.saturating_mul(ranks).saturating_mul(ranks),
        }
    }

    /// Whether each pair of ranks has data of its own.
    pub fn is_of_pairs(self) -> bool {
        of_collective!(self, AMOUNT) == Amount::Pairs
    }

    fn arrays(self) -> Arrays {
        of_collective!(self, ARRAYS)
    }

    /// The ways that are compared; `None`: the limits alone choose.
    #[inline]
    pub(crate) fn trials(self) -> Option<Trials> {
        of_collective!(self, TRIALS)
    }

    /// The calls that no rank can complete before all have begun them.
    pub(crate) fn meets(self) -> Meets {
        of_collective!(self, MEETS)
    }

    /// Whether it is a reduction.
    pub(crate) fn is_reduction(self) -> bool {
        of_collective!(self, IS_REDUCTION)
    }

    /// Whether its sums may be quantized.
    #[inline]
    pub(crate) fn is_quantized(self) -> bool {
        of_collective!(self, MAY_BE_QUANTIZED)
    }

    /// The share of a reduction that this rank gets.
    pub(crate) fn share(self, ends: &Ends) -> Share {
        of_collective!(self, share(ends))
    }

    fn significant(self) -> (At, At) {
        of_collective!(self, SIGNIFICANT)
    }
}
