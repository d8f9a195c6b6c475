//! Plans of reductions. What the kernel folds goes out as it is, or as keys; of all else every rank's part
//! is brought together, as in a gather, and folded afterwards.

use std::ops::Range;
use std::sync::Arc;

use super::admit::{Admitted, datatype_number};
use super::deposits::Deposits;
use super::eligibility::{By, Reduction, bounded, size, who};
use super::finish::{Finish, Piece};
use super::judge::{Elements, Ends};
use super::plan::{Fit, Kernel, Plan, Sink, Source, moves, small};
use super::{Call, Collective, Form};
use crate::group::{Group, Image, Pattern};
use crate::mpi::Mpi;
use crate::mpi::types::Class;
use crate::stats::{Message, Reason};

/// The reduction of `count` elements, if it is one that is folded.
///
/// By the MPI only in the program's own calls that block: no other thread may call it, and the program
/// may free its ops and types before other calls end.
pub(super) fn reduction(
    mpi: &Mpi,
    form: Form,
    call: &Call,
    count: i64,
    most: usize,
    seen: &mut Message,
) -> Result<Reduction, Reason> {
    if count == 0 {
        return Err(Reason::Empty);
    }
    let (handle, op) = (call.recv.datatype, mpi.abi.op(call.op));
    let datatype = mpi.abi.datatype(handle);
    seen.datatype = datatype_number(datatype);
    seen.op = op.map_or(Message::OWN, |op| op.number() as u8);
    let element = datatype.map_or(0, |datatype| datatype.size.into());
    seen.bytes = u64::try_from(count).unwrap_or(0).saturating_mul(element);
    let deposited = matches!(call.collective, Collective::Scan | Collective::Exscan);
    let by = who(datatype, op, deposited)?;
    if by == By::Mpi && form != Form::Blocking {
        return Err(if op.is_none() { Reason::Op } else { Reason::Datatype });
    }
    let shape = mpi.shape_of(datatype, handle)?;
    let bytes = size(count, by.bytes(shape))?;
    seen.bytes = bytes as u64;
    let bytes = bounded(bytes, most)?;
    // Every MPI takes all ops that the standard has for these.
    let integer =
        |class| matches!(class, Class::CInteger | Class::Integer | Class::Byte | Class::Pair);
    let certain = op.is_some() && datatype.is_some_and(|datatype| integer(datatype.class));
    if !certain && !mpi.accepts((handle, shape), call.op) {
        return Err(Reason::Op);
    }
    Ok(Reduction { by, bytes, shape })
}

/// What of a reduction goes through the group.
///
/// # Errors
/// As [`super::plan::fit`].
pub(super) fn fit(
    collective: Collective,
    fold: Reduction,
    most: usize,
    ends: &Ends,
    group: &mut Group,
) -> Result<Fit, Reason> {
    let bytes = match collective {
        Collective::Scan | Collective::Exscan => {
            return small(group.even_image(fold.bytes), most).map(Fit::Parts);
        }
        // How many elements there are is known only now.
        Collective::Reduce_scatter | Collective::Reduce_scatter_block => {
            let element = fold.by.bytes(fold.shape);
            let count = ends.brings.map_or(0, |brings| brings.count);
            bounded(count.checked_mul(element).ok_or(Reason::TooLarge)?, most)?
        }
        _ => fold.bytes,
    };
    match fold.by {
        By::Kernel { op, element, pair } => Ok(Fit::Folded(bytes, Kernel { op, element, pair })),
        // What is longer than can be deposited is folded by shards, in user space too.
        By::Own { op, element } if is_for_shards(collective, bytes, ends.ranks, group) => {
            Ok(Fit::Folded(bytes, Kernel { op, element, pair: None }))
        }
        By::Own { .. } | By::Mpi => one_chunk(bytes, most, ends.ranks, group).map(Fit::Parts),
    }
}

/// Whether a fold in user space is too long for one chunk, and can go by shards.
fn is_for_shards(collective: Collective, bytes: usize, ranks: usize, group: &Group) -> bool {
    let one = usize::from(group.place.chunk_bytes);
    let to_all = matches!(collective, Collective::Allreduce | Collective::Reduce_scatter_block);
    to_all && group.has_shards && bytes.saturating_mul(ranks) > one
}

/// Parts of `bytes` bytes of every rank, if all of them fit into one chunk.
fn one_chunk(
    bytes: usize,
    most: usize,
    ranks: usize,
    group: &mut Group,
) -> Result<Arc<Image>, Reason> {
    // Before there is an image for it.
    bounded(bytes.checked_mul(ranks).ok_or(Reason::TooLarge)?, most)?;
    let chunk = usize::from(group.place.chunk_bytes);
    small(group.even_image(bytes), most.min(chunk))
}

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
