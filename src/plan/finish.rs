//! What is to be done with what a group brought.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use crate::call::Elements;
use crate::mpi::pmpi::Handle;
use crate::route::eligibility::{Keys, Reduction};
use crate::topology::Image;

/// What is left to do when the group is done, with what came.
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
        /// Where the keys begin in what came.
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
    /// Where, in what came.
    pub bytes: Range<usize>,
    /// At which element of the buffer.
    pub at: isize,
    pub count: usize,
}

/// Everyone's contribution, and what is to become of it here.
pub struct Deposits {
    /// Where the parts are.
    pub image: Arc<Image>,
    /// Ranks whose contributions are folded.
    pub ranks: Range<usize>,
    /// Which bytes of each.
    pub piece: Range<usize>,
    pub to: *mut c_void,
    pub fold: Reduction,
    /// Op and type of elements, as they were passed.
    pub handles: (Handle, Handle),
}
