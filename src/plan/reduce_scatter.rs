//! MPI_Reduce_scatter and MPI_Reduce_scatter_block: a fold of the whole to all, and each takes its own; or a
//! deposit, and each folds its own.

use std::ops::Range;

use super::{Case, Finish, Fit, Piece, Plan, Sink, fitting, reducing};
use crate::call::Collective;
use crate::engine::Pattern;
use crate::gate::{Ends, Reason};
use crate::topology::Place;

pub fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
    // How many elements there are is known only now.
    let fold = reducing::reduction(case);
    let count = case.ends.brings.map_or(0, |brings| brings.count);
    let bytes = fitting::all(fold.by.bytes(fold.shape), count, case.admitted.most)?;
    let by_shards = case.call.collective == Collective::Reduce_scatter_block;
    reducing::fit(case, bytes, by_shards, place)
}

pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    let (ends, fold) = (case.ends, reducing::reduction(case));
    let (bytes, kernel) = match fit {
        Fit::Folded(bytes, kernel) => (bytes, kernel),
        parts => {
            let mine = mine(ends, fold.shape.size);
            return reducing::deposit(case, parts, 0..ends.ranks, mine);
        }
    };
    let mine = mine(ends, fold.by.bytes(fold.shape));
    let finish = match (kernel.keys, ends.gets) {
        (_, None) => Finish::Done,
        (Some(keys), Some(to)) => {
            Finish::Unkey { at: mine.start, to: to.data.cast(), bytes: mine.len(), keys }
        }
        (None, Some(to)) => {
            let pieces = vec![Piece { bytes: mine, at: 0, count: to.count }];
            Finish::Deliver { pieces, to }
        }
    };
    reducing::fold(Pattern::FoldToAll, ends, bytes, kernel, Sink::Staged(bytes, finish))
}

/// This rank's bytes of all parts, of elements of `element` bytes.
pub fn mine(ends: &Ends, element: usize) -> Range<usize> {
    let count = |rank| ends.parts.of(rank).1 * element;
    let before = (0..ends.rank).map(count).sum();
    before..before + count(ends.rank)
}
