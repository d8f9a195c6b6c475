//! The form in which a call goes through the group, and the group's work for it: pure, and the same on all ranks but
//! for whose buffers they are. [Collectives](crate::collectives) are put together of these.

mod finish;
pub mod fitting;
pub mod moving;
pub mod reducing;

use std::ffi::c_void;
use std::sync::Arc;

use crate::call::{Call, Elements};
use crate::engine::Pattern;
use crate::gate::eligibility::Keys;
use crate::gate::exchange::Edges;
use crate::gate::{Admitted, Ends};

pub use finish::{Deposits, Finish, Piece};
pub use fitting::{Fit, MOST_IMAGE};
pub use reducing::instead_of_shards;

/// A call whose arguments are right.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub call: &'a Call,
    /// The facts that all ranks know of it.
    pub admitted: &'a Admitted,
    /// The data that this rank brings and gets.
    pub ends: &'a Ends,
}

/// The group's work for a call.
pub struct Plan {
    /// The ranks that bring data, and the ranks that get some.
    pub pattern: Pattern,
    /// Bytes of the message; of a gather, of this rank's part; of an exchange, most bytes of a parcel.
    pub bytes: usize,
    /// The source of these bytes.
    pub source: Source,
    /// The target of the result.
    pub sink: Sink,
}

/// The source of a contribution.
pub enum Source {
    Nothing,
    /// Elements, as they are sent.
    Elements(Elements),
    /// Elements, as keys.
    Keys(*const c_void, Keys),
    /// The data that this rank has for each other rank, and gets from it. The targets are in it, too.
    Edges(Arc<Edges>, usize),
}

/// The target of a result.
pub enum Sink {
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
