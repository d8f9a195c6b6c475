//! MPI_Allreduce: a fold to all, long ones by shards; or a deposit, and each folds all.

use super::{Case, Fit, Plan, reducing};
use crate::engine::Pattern;
use crate::gate::Reason;
use crate::topology::Place;

#[inline]
pub fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
    reducing::fit(case, reducing::reduction(case).bytes, true, place)
}

#[inline]
pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    match fit {
        Fit::Folded(bytes, kernel) => {
            reducing::fold_whole(Pattern::FoldToAll, case.ends, bytes, kernel)
        }
        parts => {
            let part = reducing::reduction(case).bytes;
            reducing::deposit(case, parts, 0..case.ends.ranks, 0..part)
        }
    }
}
