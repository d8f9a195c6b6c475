//! MPI_Alltoall: a deposit of everything; each takes its column.

use std::sync::Arc;

use super::{Case, Fit, Plan, fitting, moving};
use crate::engine::Pattern;
use crate::gate::Reason;
use crate::topology::Place;

pub fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
    let Case { admitted, ends, .. } = case;
    let row = fitting::all(admitted.bytes, ends.ranks, admitted.most)?;
    fitting::parts(place.even_image(row), admitted.most)
}

pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    let Case { admitted, ends, .. } = case;
    let image = fit.parts();
    let column = |rank: usize| {
        let start = image.part(rank).start + ends.rank * admitted.bytes;
        start..start + admitted.bytes
    };
    moving::gather(Pattern::GatherToAll(Arc::clone(&image)), ends, &image, column)
}
