//! MPI_Allgatherv: a deposit; beyond one chunk, fan-out of each part.

use std::sync::Arc;

use super::allgather::Allgather;
use super::descriptor::{Amount, At, Descriptor};
use crate::choice::Trials;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused};
use crate::plan::{Case, Fit, Plan, fitting};
use crate::topology::{Image, Place};

pub struct Allgatherv;

impl Descriptor for Allgatherv {
    const HOW: &'static str = Allgather::HOW;
    const TYPES: &'static str = Allgather::TYPES;
    const AMOUNT: Amount = Amount::Whole;
    /// Each rank has its own count.
    const TRIALS: Option<Trials> = None;
    const SIGNIFICANT: (At, At) = (At::Everywhere, At::Everywhere);

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        candidate.admit_element(&candidate.call.recv)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        let counts = bench.call.recv.counts.ok_or(Refused)?;
        if counts.displs.is_null() {
            return Err(Refused);
        }
        bench.gathered_at_all(bench.parts_of_arrays()?)
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        let Case { admitted, ends, .. } = case;
        let length = |rank| ends.parts.of(rank).1.saturating_mul(admitted.bytes);
        // Before there is an image for it.
        if (0..ends.ranks).any(|rank| length(rank) > admitted.max_bytes) {
            return Err(Reason::TooLarge);
        }
        fitting::parts(Arc::new(Image::new(&place.layout, length)), admitted.max_bytes)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        Allgather::plan(case, fit)
    }
}
