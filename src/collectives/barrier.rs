//! MPI_Barrier: a fold of nothing, to all.

use super::descriptor::{Amount, At, Descriptor, Meets};
use crate::choice::Trials;
use crate::engine::Pattern;
use crate::gate::admit::Candidate;
use crate::gate::judge::Bench;
use crate::gate::{Admitted, Ends, Facts, Left, Reason, Refused};
use crate::plan::moving::moves;
use crate::plan::{Case, Fit, Plan, Sink, Source};
use crate::topology::Place;

pub struct Barrier;

impl Descriptor for Barrier {
    const HOW: &'static str = "fold to all";
    const TYPES: &'static str = "–";
    const AMOUNT: Amount = Amount::Nothing;
    const TRIALS: Option<Trials> = Some(Trials::FoldToAll);
    const SIGNIFICANT: (At, At) = (At::Nowhere, At::Nowhere);
    const MEETS: Meets = Meets::Always;

    fn admit(
        candidate: &mut Candidate<'_, impl Facts, impl Fn() -> bool>,
    ) -> Result<Admitted, Left> {
        candidate.admit_empty()
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        Ok(bench.ends())
    }

    fn fit(_: Case<'_>, _: &mut Place) -> Result<Fit, Reason> {
        Ok(Fit::Whole(0))
    }

    fn plan(_: Case<'_>, fit: Fit) -> Plan {
        moves(Pattern::Barrier, fit.whole(), Source::Nothing, Sink::Nothing)
    }
}
