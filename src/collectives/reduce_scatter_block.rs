//! MPI_Reduce_scatter_block: a fold of the whole to all, long ones by shards, and each takes its own; or a deposit, and
//! each folds its own.

use super::descriptor::{Amount, At, Descriptor, Meets};
use super::reduce_scatter::{self, Reduce_scatter};
use crate::choice::Trials;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Alone, Ends, Facts, Left, Reason, Refused, Share};
use crate::plan::{Case, Fit, Plan, reducing};
use crate::topology::Place;

#[allow(non_camel_case_types)]
pub struct Reduce_scatter_block;

impl Descriptor for Reduce_scatter_block {
    const HOW: &'static str = Reduce_scatter::HOW;
    const TYPES: &'static str = reducing::TYPES;
    const AMOUNT: Amount = Amount::Part;
    const TRIALS: Option<Trials> = Some(Trials::FoldToAll);
    const SIGNIFICANT: (At, At) = (At::Nowhere, At::Everywhere);
    const MEETS: Meets = Meets::WithData;
    const IS_REDUCTION: bool = true;
    const MAY_BE_QUANTIZED: bool = true;

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        candidate.admit_folded(candidate.call.recv.count)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        bench.reduction_of_parts(Alone::Plain(|mpi| mpi.reduce_scatter_block), |_| true)
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        reduce_scatter::fit(case, true, place)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        Reduce_scatter::plan(case, fit)
    }

    fn share(ends: &Ends) -> Share {
        Reduce_scatter::share(ends)
    }
}
