//! MPI_Bcast: fan-out from the root.

use super::{Case, Fit, Plan, moving};
use crate::gate::Reason;
use crate::topology::Place;

pub fn fit(case: Case<'_>, _: &mut Place) -> Result<Fit, Reason> {
    Ok(Fit::Whole(case.admitted.bytes))
}

pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    let bytes = fit.whole();
    moving::broadcast(case.ends, bytes, 0..bytes)
}
