//! MPI_Gather: a deposit at the root, of one chunk in all; more of it by parcels.

use std::sync::Arc;

use super::descriptor::{Amount, At, Descriptor};
use super::pairs;
use crate::call::Call;
use crate::choice::Trials;
use crate::engine::Pattern;
use crate::gate::admit::Candidate;
use crate::gate::judge::{Bench, Parts};
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused};
use crate::plan::{Case, Fit, Plan, fitting, moving};
use crate::topology::Place;

pub struct Gather;

impl Descriptor for Gather {
    const HOW: &'static str =
        "deposit at the root, of one chunk in all; beyond, a parcel of each rank";
    const TYPES: &'static str = moving::TYPES;
    const AMOUNT: Amount = Amount::Part;
    const TRIALS: Option<Trials> = Some(Trials::ToRoot);
    const SIGNIFICANT: (At, At) = (At::Everywhere, At::Root);

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        let Call { send, recv, .. } = candidate.call;
        // The receiver's side is significant at the root alone; the sender's not there, if it is in place.
        candidate.admit_moved_or_at_root(send, recv)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        let (root, Call { send, recv, .. }) = (bench.root()?, bench.call);
        let mut ends = Ends { root: Some(root), ..bench.ends() };
        if root == bench.rank {
            bench.refuse_own_part(send, recv)?;
            let gets = bench.elements(recv, 0, recv.count)?;
            ends.parts = Parts::Even(gets.count);
            ends.gets = Some(gets);
        }
        ends.in_place = root == bench.rank && bench.is_in_place(send.data);
        ends.brings = Some(if ends.in_place {
            let (at, _) = ends.parts.of(bench.rank);
            bench.elements(recv, at, recv.count)?
        } else {
            bench.elements(send, 0, send.count)?
        });
        Ok(ends)
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        let Case { admitted, ends, .. } = case;
        let chunk = usize::from(place.chunk_bytes);
        if admitted.measured
            && admitted.bytes.saturating_mul(ends.ranks) > chunk
            && let Some(pairs) = pairs::fit_short(admitted.bytes, case, place)
        {
            return Ok(pairs);
        }
        let most = admitted.max_bytes.min(chunk);
        fitting::parts(place.even_image(case.admitted.bytes), most)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        if let Fit::ShortPairs(bytes) = fit {
            return pairs::plan_to_root(case.ends, bytes);
        }
        let image = fit.parts();
        let pattern = Pattern::GatherToRoot(case.ends.root.unwrap_or(0), Arc::clone(&image));
        moving::gather(pattern, case.ends, &image, |rank| image.part(rank))
    }
}
