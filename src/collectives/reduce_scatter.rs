//! MPI_Reduce_scatter: a fold of the whole to all, and each takes its own; or a deposit, and each folds its own.

use super::descriptor::{Amount, At, Descriptor};
use crate::choice::Trials;
use crate::engine::Pattern;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Alone, Ends, Facts, Left, Reason, Refused, Share};
use crate::plan::{Case, Finish, Fit, Piece, Plan, Sink, fitting, reducing};
use crate::topology::Place;

#[allow(non_camel_case_types)]
pub struct Reduce_scatter;

impl Descriptor for Reduce_scatter {
    const HOW: &'static str =
        "fold of the whole to all, and each takes its own; or deposit, and each folds its own";
    const TYPES: &'static str = reducing::TYPES;
    const AMOUNT: Amount = Amount::Whole;
    /// Each rank has its own count.
    const TRIALS: Option<Trials> = None;
    const SIGNIFICANT: (At, At) = (At::Nowhere, At::Everywhere);
    const IS_REDUCTION: bool = true;
    const MAY_BE_QUANTIZED: bool = true;

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        // How many elements there are takes the group's size to say; one will do.
        candidate.admit_folded(1)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        // A rank that gets nothing may have no buffer for it.
        bench.reduction_of_parts(Alone::Counted(|mpi| mpi.reduce_scatter), |own| own > 0)
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        fit(case, false, place)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        let (ends, fold) = (case.ends, reducing::reduction(case));
        let share = Self::share(ends);
        let (bytes, kernel) = match fit {
            Fit::Folded(bytes, kernel) => (bytes, kernel),
            parts => return reducing::deposit(case, parts, share),
        };
        let own = share.bytes(fold.by.bytes(fold.shape));
        let finish = match (kernel.keys, ends.gets) {
            (_, None) => Finish::Done,
            (Some(keys), Some(to)) => {
                Finish::Unkey { at: own.start, to: to.data.cast(), bytes: own.len(), keys }
            }
            (None, Some(to)) => {
                let pieces = vec![Piece { bytes: own, at: 0, count: to.count }];
                Finish::Deliver { pieces, to }
            }
        };
        reducing::fold(
            Pattern::FoldToAll(kernel.arithmetic),
            ends,
            bytes,
            kernel,
            Sink::Staged(bytes, finish),
        )
    }

    /// This rank's part of all parts.
    fn share(ends: &Ends) -> Share {
        let count = |rank| ends.parts.of(rank).1;
        let before = (0..ends.rank).map(count).sum();
        Share { elements: before..before + count(ends.rank), ranks: ends.ranks }
    }
}

/// The form of a fold of all parts.
pub fn fit(case: Case<'_>, by_shards: bool, place: &mut Place) -> Result<Fit, Reason> {
    // How many elements there are is known only now.
    let fold = reducing::reduction(case);
    let count = case.ends.brings.map_or(0, |brings| brings.count);
    let bytes = fitting::all(fold.by.bytes(fold.shape), count, case.admitted.max_bytes)?;
    reducing::fit(case, bytes, by_shards, place)
}
