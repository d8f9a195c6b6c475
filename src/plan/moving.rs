//! The common part of collectives that move data: fan-out from a root, and deposits.

use std::ops::Range;

use super::{Finish, Piece, Plan, Sink, Source};
use crate::call::Elements;
use crate::engine::Pattern;
use crate::gate::Ends;
use crate::topology::Image;

/// The types that are moved, for people.
pub const TYPES: &str = "all";

/// A plan that folds nothing.
pub fn moves(pattern: Pattern, bytes: usize, source: Source, sink: Sink) -> Plan {
    Plan { pattern, bytes, source, sink }
}

/// This rank's contribution, unchanged.
pub fn source(ends: &Ends) -> Source {
    ends.brings.map_or(Source::Nothing, Source::Elements)
}

/// The root's buffer of `bytes` bytes goes to everyone; each takes `mine` of it.
pub fn broadcast(ends: &Ends, bytes: usize, mine: Range<usize>) -> Plan {
    let root = ends.root.unwrap_or(0);
    let sink = ends.gets.map_or(Sink::Nothing, |to| {
        let pieces = vec![Piece { bytes: mine, at: 0, count: to.count }];
        if root == ends.rank {
            Sink::Own(Finish::Deliver { pieces, to })
        } else {
            deliver(to, pieces, bytes)
        }
    });
    moves(Pattern::Broadcast(root), bytes, source(ends), sink)
}

/// Everyone's part is brought together; whoever gets them takes `bytes` of the image for each rank.
pub fn gather(
    pattern: Pattern,
    ends: &Ends,
    image: &Image,
    bytes: impl Fn(usize) -> Range<usize>,
) -> Plan {
    let sink = ends.gets.map_or(Sink::Nothing, |to| {
        let piece = |rank| {
            let (at, count) = ends.parts.of(rank);
            Piece { bytes: bytes(rank), at, count }
        };
        deliver(to, (0..ends.ranks).map(piece).collect(), image.bytes())
    });
    moves(pattern, image.part(ends.rank).len(), source(ends), sink)
}

/// The first target of bytes for elements: the elements, if they are one run and lie as they come, else memory of our
/// own.
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
