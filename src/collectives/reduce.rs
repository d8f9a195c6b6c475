//! MPI_Reduce: a fold to the root; or a deposit there, and the root folds all.

use super::descriptor::{Amount, At, Descriptor};
use crate::choice::Trials;
use crate::engine::Pattern;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Alone, Ends, Facts, Left, Reason, Refused};
use crate::plan::{Case, Fit, Plan, reducing};
use crate::topology::Place;

pub struct Reduce;

impl Descriptor for Reduce {
    const HOW: &'static str = "fold to the root; or deposit there, and the root folds all";
    const TYPES: &'static str = reducing::TYPES;
    const AMOUNT: Amount = Amount::Whole;
    const TRIALS: Option<Trials> = Some(Trials::Star);
    const SIGNIFICANT: (At, At) = (At::Nowhere, At::Everywhere);
    const IS_REDUCTION: bool = true;
    const MAY_BE_QUANTIZED: bool = true;

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        candidate.admit_folded(candidate.call.recv.count)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        let root = bench.root()?;
        let alone = Alone::Rooted(|mpi| mpi.reduce);
        bench.reduction(Some(root), alone, |_| root == bench.rank)
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        reducing::fit(case, reducing::reduction(case).bytes, false, place)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        match fit {
            Fit::Folded(bytes, kernel) => {
                let pattern = Pattern::FoldToRoot(case.ends.root.unwrap_or(0), kernel.arithmetic);
                reducing::fold_whole(pattern, case.ends, bytes, kernel)
            }
            parts => reducing::deposit(case, parts, Self::share(case.ends)),
        }
    }
}
