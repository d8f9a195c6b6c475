//! MPI_Neighbor_alltoallv: each rank has a part for each of its neighbours, of its own size.

use super::descriptor::{Amount, Arrays, At, Descriptor, Trials};
use super::pairs::{self, Blocks};
use crate::call::Call;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused};
use crate::plan::{Case, Fit, Plan};
use crate::topology::Place;

#[allow(non_camel_case_types)]
pub struct Neighbor_alltoallv;

impl Descriptor for Neighbor_alltoallv {
    const HOW: &'static str = pairs::HOW;
    const TYPES: &'static str = pairs::TYPES;
    const AMOUNT: Amount = Amount::Pairs;
    const TRIALS: Option<Trials> = Some(Trials::Pairs);
    const SIGNIFICANT: (At, At) = (At::Everywhere, At::Everywhere);
    const ARRAYS: Arrays = Arrays::Neighbors;

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        let Call { send, recv, .. } = candidate.call;
        candidate.admit_pairs(send, recv)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        pairs::neighbors(bench, Blocks::Each)
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        pairs::fit(case, place)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        pairs::plan(case, fit)
    }
}
