//! Plans of reductions. What the kernel folds goes out as it is, or as keys; of all else every rank's part
//! is brought together, as in a gather, and folded afterwards.

use std::ops::Range;
use std::sync::Arc;

use super::{Deposits, Finish, Piece, Plan, Sink, Source, moves};
use crate::call::{Call, Collective, Elements};
use crate::group::Pattern;
use crate::route::eligibility::Reduction;
use crate::route::fit::Kernel;
use crate::route::{Admitted, Ends, Fit};
use crate::topology::Image;

/// The plan of a reduction that fits. Panics if `fit` is of no reduction.
pub(super) fn plan(call: &Call, admitted: &Admitted, ends: &Ends, fit: Fit) -> Plan {
    match (fit, ends.brings, admitted.fold) {
        (Fit::Folded(bytes, kernel), Some(brings), Some(fold)) => match call.collective {
            Collective::Reduce_scatter | Collective::Reduce_scatter_block => {
                fold_and_scatter(ends, brings, bytes, kernel, fold.by.bytes(fold.shape))
            }
            _ => fold_whole(ends, brings, bytes, kernel),
        },
        (Fit::Parts(image), Some(brings), Some(fold)) => deposit(call, fold, ends, brings, image),
        _ => unreachable!("a fit of no reduction"),
    }
}

/// Allreduce and Reduce of what the kernel folds.
fn fold_whole(ends: &Ends, brings: Elements, bytes: usize, kernel: Kernel) -> Plan {
    let pattern = ends.root.map_or(Pattern::FoldToAll, Pattern::FoldToRoot);
    let Kernel { op, element, pair } = kernel;
    let (source, sink) = match (pair, ends.gets) {
        (None, None) => (Source::Elements(brings), Sink::Nothing),
        (None, Some(gets)) => (Source::Elements(brings), Sink::Straight(gets.data)),
        (Some(pair), gets) => {
            let finish = gets.map_or(Finish::Done, |gets| Finish::Pairs {
                at: 0,
                to: gets.data.cast(),
                bytes,
                pair,
            });
            (Source::Keys(brings.data, pair), Sink::OverKeys(finish))
        }
    };
    Plan { pattern, op, element, bytes, source, sink }
}

/// Which bytes of all parts are ours, of elements of `element` bytes.
fn mine(ends: &Ends, element: usize) -> Range<usize> {
    let count = |rank| ends.parts.of(rank).1 * element;
    let before = (0..ends.rank).map(count).sum();
    before..before + count(ends.rank)
}

/// Both kinds of Reduce_scatter: everything goes to everyone, folded, and each takes its own.
fn fold_and_scatter(
    ends: &Ends,
    brings: Elements,
    bytes: usize,
    kernel: Kernel,
    element: usize,
) -> Plan {
    let Kernel { op, pair, .. } = kernel;
    let mine = mine(ends, element);
    let finish = match (pair, ends.gets) {
        (_, None) => Finish::Done,
        (Some(pair), Some(to)) => {
            Finish::Pairs { at: mine.start, to: to.data.cast(), bytes: mine.len(), pair }
        }
        (None, Some(to)) => {
            let pieces = vec![Piece { bytes: mine, at: 0, count: to.count }];
            Finish::Deliver { pieces, to }
        }
    };
    let source = match pair {
        Some(pair) => Source::Keys(brings.data, pair),
        None => Source::Elements(brings),
    };
    let (pattern, sink) = (Pattern::FoldToAll, Sink::Staged(bytes, finish));
    Plan { pattern, op, element: kernel.element, bytes, source, sink }
}

/// Brings everyone's part together, at the root if there is one, and has folded there what each gets.
fn deposit(call: &Call, fold: Reduction, ends: &Ends, brings: Elements, image: Arc<Image>) -> Plan {
    let pattern = match ends.root {
        Some(root) => Pattern::GatherToRoot(root, Arc::clone(&image)),
        None => Pattern::GatherToAll(Arc::clone(&image)),
    };
    let bytes = image.part(ends.rank).len();
    let source = Source::Elements(brings);
    let Some(gets) = ends.gets else {
        // Everyone's part comes all the same where there is no root.
        let sink = match ends.root {
            Some(_) => Sink::Nothing,
            None => Sink::Staged(image.bytes(), Finish::Done),
        };
        return moves(pattern, bytes, source, sink);
    };
    let ranks = match call.collective {
        Collective::Scan => 0..ends.rank + 1,
        Collective::Exscan => 0..ends.rank,
        _ => 0..ends.ranks,
    };
    let piece = match call.collective {
        Collective::Reduce_scatter | Collective::Reduce_scatter_block => {
            mine(ends, fold.shape.size)
        }
        _ => 0..bytes,
    };
    let (all, fold) = (image.bytes(), Reduction { bytes, ..fold });
    let (to, handles) = (gets.data, (call.op, gets.datatype));
    let deposits = Deposits { image, ranks, piece, to, fold, handles };
    moves(pattern, bytes, source, Sink::Staged(all, Finish::Fold(deposits)))
}
