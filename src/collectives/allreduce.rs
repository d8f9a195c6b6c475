//! MPI_Allreduce: a fold to all, long ones by shards; or a deposit, and each folds all.

use super::descriptor::{Amount, At, Descriptor, Meets};
use crate::choice::Trials;
use crate::engine::Pattern;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Alone, Ends, Facts, Left, Reason, Refused};
use crate::plan::{Case, Fit, Plan, reducing};
use crate::topology::Place;

pub struct Allreduce;

impl Descriptor for Allreduce {
    const HOW: &'static str = "fold to all; long ones by shards; or deposit, and each folds all";
    const TYPES: &'static str = reducing::TYPES;
    const AMOUNT: Amount = Amount::Whole;
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

    #[inline]
    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        bench.reduction(None, Alone::Plain(|mpi| mpi.allreduce), |_| true)
    }

    #[inline]
    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        reducing::fit(case, reducing::reduction(case).bytes, true, place)
    }

    #[inline]
    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        match fit {
            Fit::Folded(bytes, kernel) => {
                let pattern = Pattern::FoldToAll(kernel.arithmetic);
                reducing::fold_whole(pattern, case.ends, bytes, kernel)
            }
            parts => reducing::deposit(case, parts, Self::share(case.ends)),
        }
    }
}
