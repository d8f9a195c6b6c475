//! MPI_Reduce: a fold to the root; or a deposit there, and the root folds all.

use super::{Case, Fit, Plan, reducing};
use crate::engine::Pattern;
use crate::gate::Reason;
use crate::topology::Place;

pub fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
    reducing::fit(case, reducing::reduction(case).bytes, false, place)
}

pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    match fit {
        Fit::Folded(bytes, kernel) => {
            let pattern = Pattern::FoldToRoot(case.ends.root.unwrap_or(0));
            reducing::fold_whole(pattern, case.ends, bytes, kernel)
        }
        parts => {
            let part = reducing::reduction(case).bytes;
            reducing::deposit(case, parts, 0..case.ends.ranks, 0..part)
        }
    }
}
