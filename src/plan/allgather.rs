//! MPI_Allgather and MPI_Allgatherv: a deposit; beyond one chunk, fan-out of each part.

use std::sync::Arc;

use super::{Case, Fit, Plan, fitting, moving};
use crate::engine::Pattern;
use crate::gate::Reason;
use crate::topology::Place;

pub fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
    fitting::parts(place.even_image(case.admitted.bytes), case.admitted.most)
}

pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    let image = fit.parts();
    let pattern = Pattern::GatherToAll(Arc::clone(&image));
    moving::gather(pattern, case.ends, &image, |rank| image.part(rank))
}

/// MPI_Allgatherv.
pub mod each {
    use super::{Arc, Case, Fit, Place, Reason, fitting};
    use crate::topology::Image;

    pub use super::plan;

    pub fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        let Case { admitted, ends, .. } = case;
        let length = |rank| ends.parts.of(rank).1.saturating_mul(admitted.bytes);
        // Before there is an image for it.
        if (0..ends.ranks).any(|rank| length(rank) > admitted.most) {
            return Err(Reason::TooLarge);
        }
        fitting::parts(Arc::new(Image::new(&place.layout, length)), admitted.most)
    }
}
