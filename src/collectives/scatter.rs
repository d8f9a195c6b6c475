//! MPI_Scatter: fan-out of the whole; each takes its own.

use super::descriptor::{Amount, At, Descriptor};
use crate::call::Call;
use crate::choice::Trials;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused};
use crate::plan::{Case, Fit, Plan, fitting, moving};
use crate::topology::Place;

pub struct Scatter;

impl Descriptor for Scatter {
    const HOW: &'static str = "fan-out of the whole; each rank takes its own part";
    const TYPES: &'static str = moving::TYPES;
    const AMOUNT: Amount = Amount::Part;
    const TRIALS: Option<Trials> = Some(Trials::Star);
    const SIGNIFICANT: (At, At) = (At::Root, At::Everywhere);

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        let Call { send, recv, .. } = candidate.call;
        // The sender's side is significant at the root alone; the receiver's not there, if it is in place.
        candidate.admit_moved_or_at_root(recv, send)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        let (root, Call { send, recv, .. }) = (bench.root()?, bench.call);
        let mut ends = Ends { root: Some(root), ..bench.ends() };
        if root == bench.rank {
            bench.refuse_own_part(recv, send)?;
            ends.brings = Some(bench.elements(send, 0, bench.of_all(send.count))?);
        }
        if root != bench.rank || !bench.is_in_place(recv.data) {
            ends.gets = Some(bench.elements(recv, 0, recv.count)?);
        }
        Ok(ends)
    }

    fn fit(case: Case<'_>, _: &mut Place) -> Result<Fit, Reason> {
        let Case { admitted, ends, .. } = case;
        fitting::all(admitted.bytes, ends.ranks, admitted.max_bytes).map(Fit::Whole)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        let (ends, bytes) = (case.ends, fit.whole());
        let part = bytes / ends.ranks;
        moving::broadcast(ends, bytes, ends.rank * part..(ends.rank + 1) * part)
    }
}
