//! MPI_Barrier: a fold of nothing, to all.

use super::moving::moves;
use super::{Case, Fit, Plan, Sink, Source};
use crate::engine::Pattern;
use crate::gate::Reason;
use crate::topology::Place;

pub fn fit(_: Case<'_>, _: &mut Place) -> Result<Fit, Reason> {
    Ok(Fit::Whole(0))
}

pub fn plan(_: Case<'_>, fit: Fit) -> Plan {
    moves(Pattern::FoldToAll, fit.whole(), Source::Nothing, Sink::Nothing)
}
