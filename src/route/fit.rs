//! What goes through the group for a call, and the last reasons for which a call is the real MPI's: pure, and
//! alike on all ranks.

use std::sync::Arc;

use super::Reason;
use super::admit::Admitted;
use super::eligibility::{By, Pair, Reduction, bounded};
use super::judge::Ends;
use crate::call::{Call, Collective};
use crate::leaf::segment;
use crate::topology::{Image, Place};

/// Most bytes of an image: on hosts with several ranks it has to fit into a block of theirs.
const MOST_IMAGE: usize = segment::BLOCK - 4096;

/// Who folds, of reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// `enum fb_op`.
    pub op: u8,
    /// `enum fb_type`, or, by shards, any that the leaf folds.
    pub element: u8,
    /// The elements are pairs, folded as keys.
    pub pair: Option<Pair>,
}

/// What goes through the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// One message of so many bytes.
    Whole(usize),
    /// One, folded.
    Folded(usize, Kernel),
    /// Every rank's part.
    Parts(Arc<Image>),
}

/// What goes through the group for the call.
///
/// # Errors
/// It is too much, or nothing: the same on all ranks.
pub fn fit(
    call: &Call,
    admitted: &Admitted,
    ends: &Ends,
    place: &mut Place,
) -> Result<Fit, Reason> {
    let (most, bytes) = (admitted.most, admitted.bytes);
    if let Some(fold) = admitted.fold {
        return reduction(call.collective, fold, most, ends, place);
    }
    let whole = || bounded(bytes.checked_mul(ends.ranks).ok_or(Reason::TooLarge)?, most);
    let image = match call.collective {
        Collective::Scatter => return Ok(Fit::Whole(whole()?)),
        Collective::Allgather => place.even_image(bytes),
        Collective::Gather => {
            let chunk = usize::from(place.chunk_bytes);
            return small(place.even_image(bytes), most.min(chunk)).map(Fit::Parts);
        }
        Collective::Alltoall => place.even_image(whole()?),
        Collective::Allgatherv => {
            let length = |rank| ends.parts.of(rank).1.saturating_mul(bytes);
            if (0..ends.ranks).any(|rank| length(rank) > most) {
                return Err(Reason::TooLarge);
            }
            Arc::new(Image::new(&place.layout, length))
        }
        _ => return Ok(Fit::Whole(bytes)),
    };
    small(image, most).map(Fit::Parts)
}

fn small(image: Arc<Image>, most: usize) -> Result<Arc<Image>, Reason> {
    bounded(image.bytes(), most.min(MOST_IMAGE))?;
    Ok(image)
}

/// What of a reduction goes through the place.
///
/// # Errors
/// As [`fit`].
fn reduction(
    collective: Collective,
    fold: Reduction,
    most: usize,
    ends: &Ends,
    place: &mut Place,
) -> Result<Fit, Reason> {
    let bytes = match collective {
        Collective::Scan | Collective::Exscan => {
            return small(place.even_image(fold.bytes), most).map(Fit::Parts);
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
        By::Own { op, element } if is_for_shards(collective, bytes, ends.ranks, place) => {
            Ok(Fit::Folded(bytes, Kernel { op, element, pair: None }))
        }
        By::Own { .. } | By::Mpi => one_chunk(bytes, most, ends.ranks, place).map(Fit::Parts),
    }
}

/// Whether a fold in user space is too long for one chunk, and can go by shards.
fn is_for_shards(collective: Collective, bytes: usize, ranks: usize, place: &Place) -> bool {
    let one = usize::from(place.chunk_bytes);
    let to_all = matches!(collective, Collective::Allreduce | Collective::Reduce_scatter_block);
    to_all && place.has_shards && bytes.saturating_mul(ranks) > one
}

/// Parts of `bytes` bytes of every rank, if all of them fit into one chunk.
fn one_chunk(
    bytes: usize,
    most: usize,
    ranks: usize,
    place: &mut Place,
) -> Result<Arc<Image>, Reason> {
    // Before there is an image for it.
    bounded(bytes.checked_mul(ranks).ok_or(Reason::TooLarge)?, most)?;
    let chunk = usize::from(place.chunk_bytes);
    small(place.even_image(bytes), most.min(chunk))
}
