//! A collective call as it came from the program, whichever the language and the form.

mod collective;
mod counts;
mod elements;
mod message;

use std::ffi::{c_int, c_void};

use serde::{Deserialize, Serialize};

use crate::mpi::pmpi::Handle;
pub use collective::{COLLECTIVES, Collective};
pub(crate) use collective::{MAX_BYTES, table};
pub(crate) use counts::{Counts, Types};
pub(crate) use elements::Elements;
pub(crate) use message::Message;

/// How a collective is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// `MPI_Allreduce`
    Blocking,
    /// `MPI_Iallreduce`
    Nonblocking,
    /// `MPI_Allreduce_init`; counted at every start.
    Persistent,
}

impl Form {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Blocking, Self::Nonblocking, Self::Persistent];
}

/// One side of a call: a buffer, and what is in it.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    /// The buffer, MPI_IN_PLACE, or nothing.
    pub data: *mut c_void,
    /// Elements; of one rank, if each has its own.
    pub count: i64,
    /// Elements by rank or by neighbour, where they differ.
    pub counts: Option<Counts>,
    /// Their type, unchanged from the call.
    pub datatype: Handle,
    /// Their types by rank or by neighbour, where they differ.
    pub types: Option<Types>,
}

impl Side {
    pub const NONE: Self =
        Self { data: std::ptr::null_mut(), count: 0, counts: None, datatype: 0, types: None };

    /// A buffer of `count` elements.
    pub fn new(data: *const c_void, count: impl Into<i64>, datatype: Handle) -> Self {
        let (counts, types) = (None, None);
        Self { data: data.cast_mut(), count: count.into(), counts, datatype, types }
    }

    /// A buffer with `counts` elements for each rank, or for each neighbour.
    pub fn each(data: *const c_void, counts: Counts, datatype: Handle) -> Self {
        Self { data: data.cast_mut(), counts: Some(counts), datatype, ..Self::NONE }
    }

    /// A buffer with `counts` elements for each, of its own type.
    pub fn typed(data: *const c_void, counts: Counts, types: impl Into<Types>) -> Self {
        let types = Some(types.into());
        Self { data: data.cast_mut(), counts: Some(counts), types, ..Self::NONE }
    }
}

/// A call of a collective, in any form.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub collective: Collective,
    /// The data that the rank brings. Of reductions only the buffer: the rest is as in `recv`.
    pub send: Side,
    /// The data that it gets; of Bcast and reductions the one description of the data.
    pub recv: Side,
    /// The op of a reduction.
    pub op: Handle,
    /// The root, if the collective has one.
    pub root: c_int,
    pub comm: Handle,
}
