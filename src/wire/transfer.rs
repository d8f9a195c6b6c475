//! Transfers on the wire: each is one collective, or a part of one, in terms of members.

use super::{Algorithm, stripe};
use crate::bindings as b;

/// The effect of a transfer. `root` is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everyone contributes, everyone gets the result (Allreduce; with no data, Barrier).
    FoldToAll,
    /// Everyone contributes, the root gets the result (Reduce).
    FoldToRoot(u8),
    /// The root's data goes to everyone (Bcast).
    Broadcast(u8),
    /// Everyone has a part of one chunk, everyone gets the chunk (Allgather).
    GatherToAll(Part),
    /// Everyone has a part of one chunk, the root gets the chunk (Gather).
    GatherToRoot(u8, Part),
}

/// This member's part of a gathered chunk; its bytes are the transfer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its place, a multiple of 8.
    pub offset: u16,
    /// Bytes of the chunk.
    pub extent: u16,
}

impl Kind {
    /// Whether every member waits for the result, and learns from it.
    pub(super) fn is_to_all(self) -> bool {
        matches!(self, Self::FoldToAll | Self::GatherToAll(_))
    }

    /// The root of a broadcast.
    pub(super) fn root(self) -> Option<u8> {
        match self {
            Self::Broadcast(root) => Some(root),
            _ => None,
        }
    }

    pub(super) fn part(self) -> Option<Part> {
        match self {
            Self::GatherToAll(part) | Self::GatherToRoot(_, part) => Some(part),
            _ => None,
        }
    }
}

/// A transfer on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub(super) kind: Kind,
    pub(super) op: u8,
    pub(super) element: u8,
    pub(super) algorithm: Algorithm,
    /// Length of this member's contribution, or of the broadcast.
    pub(super) bytes: usize,
    /// Index of the first chunk in the message that this is a part of.
    pub(super) first: usize,
    /// The word about the whole message in its frames, see `struct fb_frame`.
    pub(super) message: u64,
}

impl Transfer {
    /// A transfer of `bytes`. `op` and `element` are of `enum fb_op` and `enum fb_type`; of gathers
    /// and broadcasts they do not matter.
    pub fn new(kind: Kind, op: u8, element: u8, bytes: usize) -> Self {
        Self::part(kind, op, element, bytes, 0)
    }

    /// A part of a message, from its chunk `first`. Parts of whole chunks, one after the other, put
    /// on the wire what the message in one piece would: members may divide it as they like.
    pub fn part(kind: Kind, op: u8, element: u8, bytes: usize, first: usize) -> Self {
        let (op, element) = match kind {
            Kind::FoldToAll | Kind::FoldToRoot(_) => (op, element),
            Kind::Broadcast(_) => (0, 0),
            Kind::GatherToAll(_) | Kind::GatherToRoot(..) => (b::FB_OP_PLACE as u8, 0),
        };
        let message = bytes as u64;
        Self { kind, op, element, algorithm: Algorithm::Star, bytes, first, message }
    }

    /// The whole message, if this is a part of it: its bytes, and `FB_MISMATCHED` if ranks of this host
    /// do not agree on them.
    pub fn of(self, message: u64) -> Self {
        Self { message, ..self }
    }

    /// How a fold to all goes, or, of shards, a broadcast; alike on all members.
    pub fn by(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    pub(super) fn is_by_shards(&self, members: u8, window: u64) -> bool {
        self.algorithm == Algorithm::Shards
            && matches!(self.kind, Kind::FoldToAll | Kind::Broadcast(_))
            && self.bytes > 0
            && stripe::serves(usize::from(members), window)
    }

    pub(super) fn chunks(&self, chunk_bytes: usize) -> usize {
        if self.kind.part().is_some() { 1 } else { self.bytes.div_ceil(chunk_bytes).max(1) }
    }
}
