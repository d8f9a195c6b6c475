//! MPI_Scan: a deposit; each folds its own prefix.

use super::descriptor::{Amount, At, Descriptor};
use crate::choice::Trials;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Alone, Ends, Facts, Left, Reason, Refused, Share};
use crate::plan::{Case, Fit, Plan, fitting, reducing};
use crate::topology::Place;

pub struct Scan;

impl Descriptor for Scan {
    const HOW: &'static str = "deposit; each rank folds its own prefix";
    const TYPES: &'static str = "[all](#types-and-operations)";
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
        bench.reduction(None, Alone::Plain(|mpi| mpi.scan), |_| true)
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        fitting::parts(place.even_image(reducing::reduction(case).bytes), case.admitted.max_bytes)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        reducing::deposit(case, fit, Self::share(case.ends))
    }

    fn share(ends: &Ends) -> Share {
        let elements = 0..ends.brings.map_or(0, |brings| brings.count);
        Share { elements, ranks: ends.rank + 1 }
    }
}
