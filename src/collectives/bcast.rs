//! MPI_Bcast: fan-out from the root, long ones by shards.

use super::descriptor::{Amount, At, Descriptor};
use crate::choice::Trials;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused};
use crate::plan::{Case, Fit, Plan, moving};
use crate::topology::Place;

pub struct Bcast;

impl Descriptor for Bcast {
    const HOW: &'static str = "fan-out; long ones by shards";
    const TYPES: &'static str = moving::TYPES;
    const AMOUNT: Amount = Amount::Whole;
    const TRIALS: Option<Trials> = Some(Trials::FanOut);
    const SIGNIFICANT: (At, At) = (At::Nowhere, At::Everywhere);

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        candidate.admit_moved(&candidate.call.recv)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        let (root, side) = (bench.root()?, &bench.call.recv);
        let elements = Some(bench.elements(side, 0, side.count)?);
        let ends = Ends { root: Some(root), ..bench.ends() };
        Ok(if root == bench.rank {
            Ends { brings: elements, ..ends }
        } else {
            Ends { gets: elements, ..ends }
        })
    }

    fn fit(case: Case<'_>, _: &mut Place) -> Result<Fit, Reason> {
        Ok(Fit::Whole(case.admitted.bytes))
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        let bytes = fit.whole();
        moving::broadcast(case.ends, bytes, 0..bytes)
    }
}
