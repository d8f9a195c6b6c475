//! MPI_Alltoall: a deposit of everything, and each takes its column; if it is long, parcels.

use std::sync::Arc;

use super::descriptor::{Amount, At, Descriptor, Meets};
use super::pairs;
use crate::call::Call;
use crate::choice::Trials;
use crate::engine::Pattern;
use crate::gate::admit::Candidate;
use crate::gate::judge::{Bench, Parts};
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused};
use crate::plan::{Case, Fit, Plan, fitting, moving};
use crate::topology::Place;

pub struct Alltoall;

impl Descriptor for Alltoall {
    const HOW: &'static str =
        "deposit of everything; each rank takes its column; long ones by a parcel for each pair";
    const TYPES: &'static str = moving::TYPES;
    const AMOUNT: Amount = Amount::PartOfEach;
    const TRIALS: Option<Trials> = Some(Trials::Columns);
    const SIGNIFICANT: (At, At) = (At::Everywhere, At::Everywhere);
    const MEETS: Meets = Meets::WithData;

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        candidate.admit_moved(&candidate.call.recv)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        let Call { send, recv, .. } = bench.call;
        bench.refuse_one_buffer()?;
        let gets = bench.elements(recv, 0, recv.count)?;
        let in_place = bench.is_in_place(send.data);
        let side = if in_place { recv } else { send };
        let brings = bench.elements(side, 0, bench.of_all(side.count))?;
        let parts = Parts::Even(gets.count);
        Ok(Ends { parts, gets: Some(gets), brings: Some(brings), in_place, ..bench.ends() })
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        let Case { admitted, ends, .. } = case;
        let row = fitting::all(admitted.bytes, ends.ranks, usize::MAX)?;
        // In a deposit, all ranks get all rows.
        let is_short = row <= place.chunk_bytes.into() && row * ends.ranks <= admitted.max_bytes;
        if !is_short && let Some(pairs) = pairs::fit_short(admitted.bytes, case, place) {
            return Ok(pairs);
        }
        // Before there is an image for it.
        fitting::all(row, ends.ranks, admitted.max_bytes)?;
        fitting::parts(place.even_image(row), admitted.max_bytes)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        let Case { admitted, ends, .. } = case;
        if let Fit::ShortPairs(bytes) = fit {
            return pairs::plan_all_to_all(ends, bytes);
        }
        let image = fit.parts();
        let column = |rank: usize| {
            let start = image.part(rank).start + ends.rank * admitted.bytes;
            start..start + admitted.bytes
        };
        moving::gather(Pattern::GatherToAll(Arc::clone(&image)), ends, &image, column)
    }
}
