//! Transfers on the wire: each is one collective, or a part of one, in terms of members.

use super::pairs::Parties;
use super::pattern::Pattern;
use super::{Algorithm, stripe};
use crate::bindings as b;
use crate::leaf::arithmetic::Arithmetic;

/// The effect of a transfer. Roots are members, and a gather is of one chunk.
pub type Kind = Pattern<u8, Part, Parties<u8>>;

/// This member's part of a gathered chunk; its bytes are the transfer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its place, a multiple of 8.
    pub offset: u16,
    /// Bytes of the chunk.
    pub extent: u16,
}

/// A transfer on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub(super) kind: Kind,
    pub(super) algorithm: Algorithm,
    /// Length of this member's contribution, or of the broadcast; of an exchange, most bytes of a parcel.
    pub(super) bytes: usize,
    /// Index of the first chunk in the message that this is a part of.
    pub(super) first: usize,
    /// The word about the whole message in its frames, see `struct fb_frame`.
    pub(super) message: u64,
}

impl Transfer {
    /// A transfer of `bytes`; of an exchange, of parcels of so many bytes at most, on all members alike.
    pub fn new(kind: Kind, bytes: usize) -> Self {
        Self::part_of_message(kind, bytes, 0)
    }

    /// A part of a message, from its chunk `first`. Parts of whole chunks, one after the other, put
    /// on the wire what the message in one piece would: members may divide it as they like.
    pub fn part_of_message(kind: Kind, bytes: usize, first: usize) -> Self {
        Self { kind, algorithm: Algorithm::Star, bytes, first, message: bytes as u64 }
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
            && matches!(self.kind, Kind::FoldToAll(_) | Kind::Broadcast(_))
            && self.bytes > 0
            && stripe::serves(usize::from(members), window)
    }

    /// Op and type of its frames, `enum fb_op` and `enum fb_type`.
    pub(super) fn codes(&self) -> (u8, u8) {
        match (self.kind.arithmetic(), self.kind.parts()) {
            (Some(Arithmetic { op, element }), _) => (op as u8, element as u8),
            (None, Some(_)) => (b::FB_OP_PLACE as u8, 0),
            (None, None) => (b::FB_OP_NONE as u8, 0),
        }
    }

    pub(super) fn chunks(&self, chunk_bytes: usize) -> usize {
        if self.kind.parts().is_some() { 1 } else { self.bytes.div_ceil(chunk_bytes).max(1) }
    }
}
