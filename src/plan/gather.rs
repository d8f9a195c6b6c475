//! MPI_Gather: a deposit at the root, of one chunk in all.

use std::sync::Arc;

use super::{Case, Fit, Plan, fitting, moving};
use crate::engine::Pattern;
use crate::gate::Reason;
use crate::topology::Place;

pub fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
    let most = case.admitted.most.min(place.chunk_bytes.into());
    fitting::parts(place.even_image(case.admitted.bytes), most)
}

pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    let image = fit.parts();
    let pattern = Pattern::GatherToRoot(case.ends.root.unwrap_or(0), Arc::clone(&image));
    moving::gather(pattern, case.ends, &image, |rank| image.part(rank))
}
