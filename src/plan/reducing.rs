//! The common part of reductions. The kernel folds elements or keys, and processes fold shards. In all other reductions
//! every rank's part is brought together, as in a gather, and folded afterwards.

use std::sync::Arc;

use super::fitting::{Kernel, MOST_IMAGE, all, parts};
use super::moving::{moves, source};
use super::{Case, Deposits, Finish, Fit, Plan, Sink, Source};
use crate::engine::{Pattern, SHARDS_FROM};
use crate::gate::eligibility::{FoldedBy, Keys, Reduction};
use crate::gate::{Ends, Reason, Share};
use crate::leaf::arithmetic::{Arithmetic, Operator};
use crate::topology::Place;

/// The types and ops that are folded, for people.
pub const TYPES: &str = "[all](#types-and-operations); by deposit, of one chunk in all";

/// The fold of a call. Panics if there is none.
pub fn reduction(case: Case<'_>) -> Reduction {
    let Some(fold) = case.admitted.fold else { unreachable!("a reduction folds") };
    fold
}

/// Bytes of all ranks up to which it pays to deposit what could go by shards. Two ranks send each other as much
/// either way, and the deposit takes half as long.
fn paying(ranks: usize, chunk: usize) -> usize {
    if ranks == 2 { MOST_IMAGE } else { chunk }
}

/// Finds the form of a reduction of `bytes` bytes, which may be folded `by_shards` where it is too long to be
/// deposited.
///
/// # Errors
/// It is too much.
#[inline]
pub fn fit(
    case: Case<'_>,
    bytes: usize,
    by_shards: bool,
    place: &mut Place,
) -> Result<Fit, Reason> {
    let (max_bytes, ranks) = (case.admitted.max_bytes, case.ends.ranks);
    let chunk = usize::from(place.chunk_bytes);
    // Whether it can go by shards, which are folded in user space, too; and how much is deposited.
    let (shards, deposited) = match reduction(case).by {
        // Of two ranks, too, contributions are deposited: either folds them to the same bits.
        FoldedBy::Kernel { keys: Some(Keys::Reals { .. }), .. }
            if by_shards && bytes > chunk && 2 * bytes <= max_bytes.min(paying(ranks, chunk)) =>
        {
            (None, MOST_IMAGE)
        }
        FoldedBy::Kernel { arithmetic, keys } => {
            let fit = Fit::Folded(bytes, Kernel { arithmetic, keys });
            let shards = by_shards && bytes > SHARDS_FROM && !case.admitted.measured;
            let swapped = if shards { instead_of_shards(&fit, place) } else { None };
            return Ok(swapped.unwrap_or(fit));
        }
        FoldedBy::Own(arithmetic) => (Some(arithmetic), paying(ranks, chunk)),
        FoldedBy::Exact { real, always: false } => {
            (Some(Arithmetic { op: Operator::Sum, element: real.into() }), paying(ranks, chunk))
        }
        FoldedBy::Exact { always: true, .. } => (None, MOST_IMAGE),
        FoldedBy::Quantized(_) => return Err(Reason::Datatype),
        FoldedBy::Mpi => (None, chunk),
    };
    let max_bytes = max_bytes.min(deposited);
    if let Some(arithmetic) = shards
        && by_shards
        && place.has_shards
        && bytes.saturating_mul(ranks) > max_bytes
    {
        return Ok(Fit::Folded(bytes, Kernel { arithmetic, keys: None }));
    }
    // Before there is an image for it.
    all(bytes, ranks, max_bytes)?;
    Ok(match parts(place.even_image(bytes), max_bytes)? {
        Fit::Parts(image) if image.bytes() > chunk => Fit::LongParts(image),
        fit => fit,
    })
}

/// Longest contribution of two ranks, in bytes, that they swap: at 16 KiB that was no faster than shards.
const MOST_SWAPPED: usize = 8 << 10;

/// The form that takes the place of a fold by shards. Two ranks swap their contributions, and each folds both: as many
/// bytes, and one way over the wire in place of two. `None`: no swap.
#[inline]
pub fn instead_of_shards(fit: &Fit, place: &mut Place) -> Option<Fit> {
    let Fit::Folded(bytes, Kernel { keys: None, .. }) = *fit else { return None };
    if !place.swaps || bytes > MOST_SWAPPED {
        return None;
    }
    Some(Fit::LongParts(place.even_image(bytes)))
}

/// A fold by the kernel, of `bytes` bytes; whoever gets the result gets all of it.
#[inline]
pub fn fold_whole(pattern: Pattern, ends: &Ends, bytes: usize, kernel: Kernel) -> Plan {
    let sink = match (kernel.keys, ends.gets) {
        (None, None) => Sink::Nothing,
        (None, Some(gets)) => Sink::Straight(gets.data),
        (Some(_), None) => Sink::OverKeys(Finish::Done),
        (Some(keys), Some(gets)) => {
            Sink::OverKeys(Finish::Unkey { at: 0, to: gets.data.cast(), bytes, keys })
        }
    };
    fold(pattern, ends, bytes, kernel, sink)
}

/// A fold by the kernel, of `bytes` bytes, to any sink.
#[inline]
pub fn fold(pattern: Pattern, ends: &Ends, bytes: usize, kernel: Kernel, sink: Sink) -> Plan {
    let source = match (kernel.keys, ends.brings) {
        (Some(keys), Some(brings)) => Source::Keys(brings.data, keys),
        _ => source(ends),
    };
    Plan { pattern, bytes, source, sink }
}

/// Brings everyone's part together, at the root if there is one and can be; a rank that gets something folds its
/// share of the parts.
pub fn deposit(case: Case<'_>, fit: Fit, share: Share) -> Plan {
    let Case { call, ends, .. } = case;
    let root = ends.root.filter(|_| matches!(fit, Fit::Parts(_)));
    let image = fit.parts();
    let pattern = match root {
        Some(root) => Pattern::GatherToRoot(root, Arc::clone(&image)),
        None => Pattern::GatherToAll(Arc::clone(&image)),
    };
    let (bytes, all) = (image.part(ends.rank).len(), image.bytes());
    let sink = match (ends.gets, root) {
        (Some(gets), _) => {
            let fold = Reduction { bytes, ..reduction(case) };
            let (ranks, piece) = (0..share.ranks, share.bytes(fold.shape.size));
            let (to, handles) = (gets.data, (call.op, gets.datatype));
            Sink::Staged(all, Finish::Fold(Deposits { image, ranks, piece, to, fold, handles }))
        }
        // Everyone's part comes all the same where there is no root.
        (None, None) => Sink::Staged(all, Finish::Done),
        (None, Some(_)) => Sink::Nothing,
    };
    moves(pattern, bytes, source(ends), sink)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::arithmetic::{Element, Real};
    use crate::topology::Layout;

    #[test]
    fn two_ranks_swap_what_is_short() {
        let place = |hosts: &[&str]| {
            Place::new(Layout::new(hosts.iter().copied()), 0, 1408, true).expect("a rank")
        };
        let fold = |bytes, keys| {
            let arithmetic = Arithmetic { op: Operator::Sum, element: Element::I32 };
            Fit::Folded(bytes, Kernel { arithmetic, keys })
        };
        let two = &mut place(&["a", "b"]);
        let swapped = instead_of_shards(&fold(8192, None), two).expect("a swap").parts();
        assert_eq!([swapped.part(0), swapped.part(1)], [0..8192, 8192..16384]);
        assert_eq!(instead_of_shards(&fold(8200, None), two), None);
        let keys = Some(Keys::Reals { format: Real::F32, max: false });
        assert_eq!(instead_of_shards(&fold(8192, keys), two), None);
        assert_eq!(instead_of_shards(&Fit::Whole(8192), two), None);
        assert_eq!(instead_of_shards(&fold(8192, None), &mut place(&["a", "b", "c"])), None);
        assert_eq!(instead_of_shards(&fold(8192, None), &mut place(&["a", "b", "b"])), None);
    }
}
