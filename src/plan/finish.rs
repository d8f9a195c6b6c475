//! The end of a plan, when a group has brought its bytes.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use crate::call::Elements;
use crate::gate::eligibility::{Keys, Reduction};
use crate::mpi::pmpi::Handle;
use crate::topology::Image;

/// The work that is left when the group is done.
pub enum Finish {
    /// Nothing: the result is where it belongs.
    Done,
    /// Bytes to elements of the program's.
    Deliver {
        pieces: Vec<Piece>,
        /// The first element of the buffer; the count is of one piece, and not looked at.
        to: Elements,
    },
    /// Keys back to elements.
    Unkey {
        /// The first byte of the keys in the bytes that came.
        at: usize,
        to: *mut u8,
        bytes: usize,
        /// How they are keys.
        keys: Keys,
    },
    /// Everyone's parts to their fold.
    Fold(Deposits),
}

/// A run of bytes that become elements.
pub struct Piece {
    /// Its place in the bytes that came.
    pub bytes: Range<usize>,
    /// Its first element in the buffer.
    pub at: isize,
    pub count: usize,
}

/// Everyone's contribution, and how it is folded here.
pub struct Deposits {
    /// The places of the parts.
    pub image: Arc<Image>,
    /// Ranks whose contributions are folded.
    pub ranks: Range<usize>,
    /// The bytes of each that are folded.
    pub piece: Range<usize>,
    pub to: *mut c_void,
    pub fold: Reduction,
    /// Op and type of elements, as they were passed.
    pub handles: (Handle, Handle),
}
