//! MPI_Exscan: a deposit; each folds the prefix before its own contribution.

use super::descriptor::{Amount, At, Descriptor};
use super::scan::Scan;
use crate::choice::Trials;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Alone, Ends, Facts, Left, Reason, Refused, Share};
use crate::plan::{Case, Fit, Plan, reducing};
use crate::topology::Place;

pub struct Exscan;

impl Descriptor for Exscan {
    const HOW: &'static str = Scan::HOW;
    const TYPES: &'static str = Scan::TYPES;
    const AMOUNT: Amount = Amount::Part;
    const TRIALS: Option<Trials> = Some(Trials::Deposit);
    const SIGNIFICANT: (At, At) = (At::Nowhere, At::Everywhere);
    const IS_REDUCTION: bool = true;

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        candidate.admit_deposited(candidate.call.recv.count)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        // The first rank gets nothing, and may have no buffer for it.
        let gets = bench.rank > 0 || !bench.call.recv.data.is_null();
        bench.reduction(None, Alone::Plain(|mpi| mpi.exscan), |_| gets)
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        Scan::fit(case, place)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        reducing::deposit(case, fit, Self::share(case.ends))
    }

    fn share(ends: &Ends) -> Share {
        Share { ranks: ends.rank, ..Scan::share(ends) }
    }
}
