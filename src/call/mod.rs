//! A collective call as it came from the program, whichever the language and the form.

mod counts;
mod elements;
mod message;

use std::ffi::{c_int, c_void};

use serde::{Deserialize, Serialize};

use crate::mpi::pmpi::Handle;
pub(crate) use counts::Counts;
pub(crate) use elements::Elements;
pub(crate) use message::Message;

macro_rules! collectives {
    ($($name:ident,)*) => {
        /// The collectives that foldback takes on. Not Gatherv and Scatterv: the root alone knows the
        /// counts, so the ranks cannot agree on a route without telling each other first.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Collective {
            $(#[doc = concat!("`MPI_", stringify!($name), "`")] $name,)*
        }

        impl Collective {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// MPI's name without `MPI_`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

collectives! {
    Allreduce, Reduce, Bcast, Barrier, Allgather, Allgatherv, Gather, Scatter, Reduce_scatter,
    Reduce_scatter_block, Scan, Exscan, Alltoall,
}

impl Collective {
    /// Whether its sums may be quantized.
    pub fn is_quantized(self) -> bool {
        matches!(
            self,
            Self::Allreduce | Self::Reduce | Self::Reduce_scatter | Self::Reduce_scatter_block
        )
    }

    /// The work of the group for it, for people (docs/using/coverage.md).
    pub fn how(self) -> &'static str {
        match self {
            Self::Barrier => "fold to all",
            Self::Allreduce => "fold to all; long ones by shards; or deposit, and each folds all",
            Self::Reduce => "fold to the root; or deposit there, and the root folds all",
            Self::Bcast => "fan-out; long ones by shards",
            Self::Scatter => "fan-out of the whole; each rank takes its own part",
            Self::Reduce_scatter | Self::Reduce_scatter_block => {
                "fold of the whole to all, and each takes its own; or deposit, and each folds its own"
            }
            Self::Allgather | Self::Allgatherv => "deposit; beyond one chunk, fan-out of each part",
            Self::Gather => "deposit at the root, of one chunk in all",
            Self::Scan | Self::Exscan => "deposit; each rank folds its own prefix",
            Self::Alltoall => "deposit of everything; each rank takes its column",
        }
    }

    /// The types and ops that it is folded for, for people.
    pub fn types(self) -> &'static str {
        match self {
            Self::Barrier => "–",
            Self::Bcast
            | Self::Allgather
            | Self::Allgatherv
            | Self::Gather
            | Self::Scatter
            | Self::Alltoall => "all",
            Self::Scan | Self::Exscan => "[all](#types-and-operations)",
            Self::Allreduce | Self::Reduce | Self::Reduce_scatter | Self::Reduce_scatter_block => {
                "[all](#types-and-operations); by deposit, of one chunk in all"
            }
        }
    }
}

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

pub(crate) const COLLECTIVES: usize = Collective::ALL.len();

/// One side of a call: a buffer, and what is in it.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    /// The buffer, MPI_IN_PLACE, or nothing.
    pub data: *mut c_void,
    /// Elements; of one rank, if each has its own.
    pub count: i64,
    /// Elements by rank, where they differ.
    pub counts: Option<Counts>,
    /// Their type, unchanged from the call.
    pub datatype: Handle,
}

impl Side {
    pub const NONE: Self = Self { data: std::ptr::null_mut(), count: 0, counts: None, datatype: 0 };

    /// A buffer of `count` elements.
    pub fn new(data: *const c_void, count: impl Into<i64>, datatype: Handle) -> Self {
        Self { data: data.cast_mut(), count: count.into(), counts: None, datatype }
    }

    /// A buffer with `counts` elements for each rank.
    pub fn each(data: *const c_void, counts: Counts, datatype: Handle) -> Self {
        Self { data: data.cast_mut(), count: 0, counts: Some(counts), datatype }
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

impl Call {
    /// Whether the datatypes of the two sides mean something on `rank`. They do not on the far side of
    /// the root in Gather and Scatter, nor for a side that is in place.
    pub fn significant(&self, rank: usize, in_place: usize) -> (bool, bool) {
        let here = usize::try_from(self.root) == Ok(rank);
        let (send, recv) = match self.collective {
            Collective::Barrier => (false, false),
            Collective::Gather => (true, here),
            Collective::Scatter => (here, true),
            Collective::Allgather | Collective::Allgatherv | Collective::Alltoall => (true, true),
            _ => (false, true),
        };
        let there = |side: &Side| side.data as usize != in_place;
        (send && there(&self.send), recv && there(&self.recv))
    }
}
