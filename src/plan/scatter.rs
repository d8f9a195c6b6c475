//! MPI_Scatter: fan-out of the whole; each takes its own.

use super::{Case, Fit, Plan, fitting, moving};
use crate::gate::Reason;
use crate::topology::Place;

pub fn fit(case: Case<'_>, _: &mut Place) -> Result<Fit, Reason> {
    let Case { admitted, ends, .. } = case;
    fitting::all(admitted.bytes, ends.ranks, admitted.most).map(Fit::Whole)
}

pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    let (ends, bytes) = (case.ends, fit.whole());
    let part = bytes / ends.ranks;
    moving::broadcast(ends, bytes, ends.rank * part..(ends.rank + 1) * part)
}
