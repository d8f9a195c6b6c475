//! What the group is to do for a call, and with what: pure, and the same on all ranks but for whose
//! buffers they are.

#[cfg(test)]
mod agreement;
mod finish;
mod reductions;

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use crate::call::{Call, Collective, Elements};
use crate::group::Pattern;
use crate::route::eligibility::Pair;
use crate::route::{Admitted, Ends, Fit};
use crate::topology::Image;

pub use finish::{Deposits, Finish, Piece};

/// What a call is for its group.
pub struct Plan {
    /// What the group does.
    pub pattern: Pattern,
    /// Of folds.
    pub op: u8,
    /// See `op`.
    pub element: u8,
    /// Bytes of the message; of a gather, of this rank's part.
    pub bytes: usize,
    /// Where they come from.
    pub source: Source,
    /// Where the result goes.
    pub sink: Sink,
}

/// Where a contribution comes from.
pub enum Source {
    /// There is none.
    Nothing,
    /// Elements, as they are sent.
    Elements(Elements),
    /// Pairs, as keys.
    Keys(*const c_void, Pair),
}

/// Where a result goes.
pub enum Sink {
    /// There is none.
    Nothing,
    /// To the program's buffer.
    Straight(*mut c_void),
    /// Over the keys that were sent, and from there on.
    OverKeys(Finish),
    /// Nothing comes: what was sent goes on from where it is.
    Own(Finish),
    /// To so many bytes of memory of our own, and from there on.
    Staged(usize, Finish),
}

/// The plan of a call that fits. Panics if `fit` is another call's.
pub fn plan(call: &Call, admitted: &Admitted, ends: &Ends, fit: Fit) -> Plan {
    match (call.collective, fit) {
        (_, fit) if admitted.fold.is_some() => reductions::plan(call, admitted, ends, fit),
        (Collective::Barrier, Fit::Whole(_)) => {
            moves(Pattern::FoldToAll, 0, Source::Nothing, Sink::Nothing)
        }
        (Collective::Bcast, Fit::Whole(bytes)) => broadcast(ends, bytes, 0..bytes),
        (Collective::Scatter, Fit::Whole(bytes)) => {
            let part = bytes / ends.ranks;
            broadcast(ends, bytes, ends.rank * part..(ends.rank + 1) * part)
        }
        (Collective::Alltoall, Fit::Parts(image)) => {
            let part = admitted.bytes;
            let column = |rank: usize| {
                let start = image.part(rank).start + ends.rank * part;
                start..start + part
            };
            let sink = sink_of_parts(ends, &image, column);
            gather(Pattern::GatherToAll(Arc::clone(&image)), &image, ends, sink)
        }
        (Collective::Allgather | Collective::Allgatherv, Fit::Parts(image)) => {
            let sink = sink_of_parts(ends, &image, |rank| image.part(rank));
            gather(Pattern::GatherToAll(Arc::clone(&image)), &image, ends, sink)
        }
        (Collective::Gather, Fit::Parts(image)) => {
            let sink = sink_of_parts(ends, &image, |rank| image.part(rank));
            let root = ends.root.unwrap_or(0);
            gather(Pattern::GatherToRoot(root, Arc::clone(&image)), &image, ends, sink)
        }
        (collective, _) => unreachable!("a fit of another call than {}", collective.name()),
    }
}

/// A plan that folds nothing.
fn moves(pattern: Pattern, bytes: usize, source: Source, sink: Sink) -> Plan {
    Plan { pattern, op: 0, element: 0, bytes, source, sink }
}

/// The root's buffer goes to everyone; each takes `mine` of it.
fn broadcast(ends: &Ends, bytes: usize, mine: Range<usize>) -> Plan {
    let root = ends.root.unwrap_or(0);
    let source = ends.brings.map_or(Source::Nothing, Source::Elements);
    let sink = ends.gets.map_or(Sink::Nothing, |to| {
        let pieces = vec![Piece { bytes: mine, at: 0, count: to.count }];
        if root == ends.rank {
            Sink::Own(Finish::Deliver { pieces, to })
        } else {
            deliver(to, pieces, bytes)
        }
    });
    moves(Pattern::Broadcast(root), bytes, source, sink)
}

fn gather(pattern: Pattern, image: &Image, ends: &Ends, sink: Sink) -> Plan {
    let source = ends.brings.map_or(Source::Nothing, Source::Elements);
    moves(pattern, image.part(ends.rank).len(), source, sink)
}

fn sink_of_parts(ends: &Ends, image: &Image, bytes: impl Fn(usize) -> Range<usize>) -> Sink {
    let Some(to) = ends.gets else { return Sink::Nothing };
    let piece = |rank| {
        let (at, count) = ends.parts.of(rank);
        Piece { bytes: bytes(rank), at, count }
    };
    deliver(to, (0..ends.ranks).map(piece).collect(), image.bytes())
}

/// Where bytes for elements go first: to the elements, if they are one run and lie as they come, else to
/// memory of our own.
fn deliver(to: Elements, pieces: Vec<Piece>, bytes: usize) -> Sink {
    let shape = to.shape;
    let lies_so = |piece: &Piece| {
        piece.bytes.start as isize == piece.at * shape.extent
            && piece.bytes.len() == piece.count * shape.size
    };
    let run: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    if shape.contiguous && run == bytes && pieces.iter().all(lies_so) {
        return Sink::Straight(to.data);
    }
    Sink::Staged(bytes, Finish::Deliver { pieces, to })
}
