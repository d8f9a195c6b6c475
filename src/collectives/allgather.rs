//! MPI_Allgather: a deposit; beyond one chunk, fan-out of each part.

use std::sync::Arc;

use super::descriptor::{Amount, At, Descriptor, Meets};
use crate::call::Call;
use crate::choice::Trials;
use crate::engine::Pattern;
use crate::gate::admit::Candidate;
use crate::gate::judge::{Bench, Parts};
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused};
use crate::plan::{Case, Fit, Plan, fitting, moving};
use crate::topology::Place;

pub struct Allgather;

impl Descriptor for Allgather {
    const HOW: &'static str = "deposit; beyond one chunk, fan-out of each part";
    const TYPES: &'static str = moving::TYPES;
    const AMOUNT: Amount = Amount::Part;
    const TRIALS: Option<Trials> = Some(Trials::Deposit);
    const SIGNIFICANT: (At, At) = (At::Everywhere, At::Everywhere);
    const MEETS: Meets = Meets::WithData;

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        candidate.admit_moved(&candidate.call.recv)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        let Call { send, recv, .. } = bench.call;
        bench.refuse_own_part(send, recv)?;
        bench.gathered_at_all(Parts::Even(usize::try_from(recv.count).map_err(|_| Refused)?))
    }

    fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
        fitting::parts(place.even_image(case.admitted.bytes), case.admitted.max_bytes)
    }

    fn plan(case: Case<'_>, fit: Fit) -> Plan {
        let image = fit.parts();
        let pattern = Pattern::GatherToAll(Arc::clone(&image));
        moving::gather(pattern, case.ends, &image, |rank| image.part(rank))
    }
}
