//! The questions to the MPI about a program's arguments. Tests answer them without an MPI.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use crate::call::Call;
use crate::mpi::Mpi;
use crate::mpi::pmpi::{Handle, Pmpi};
use crate::mpi::topology::{Neighbors, Order};
use crate::mpi::types::{Op, Shape, TypeInfo};

type Buf = *const c_void;
type MutBuf = *mut c_void;
type ToAll = unsafe extern "C-unwind" fn(Buf, MutBuf, c_int, Handle, Handle, Handle) -> c_int;
type ToRoot =
    unsafe extern "C-unwind" fn(Buf, MutBuf, c_int, Handle, Handle, c_int, Handle) -> c_int;
type ToEach =
    unsafe extern "C-unwind" fn(Buf, MutBuf, *const c_int, Handle, Handle, Handle) -> c_int;

/// The MPI's function for a reduction, by which a process asks it alone.
#[derive(Clone, Copy)]
pub enum Alone {
    Plain(fn(&Pmpi) -> ToAll),
    Rooted(fn(&Pmpi) -> ToRoot),
    /// With a count for each rank.
    Counted(fn(&Pmpi) -> ToEach),
}

/// An MPI's answers. Nothing here communicates.
pub trait Facts {
    /// MPI_IN_PLACE, as an address.
    fn in_place(&self) -> usize;

    /// This process's rank in a communicator, by the handle that was passed.
    fn rank(&self, comm: Handle) -> usize;

    /// This process's neighbours in a communicator; `None`: it has no topology.
    fn neighbors(&self, comm: Handle) -> Option<Neighbors>;

    /// The order in which the MPI places several blocks of one neighbour; `even`: with one
    /// count for all blocks. `None`: it is
    /// not known for grids that wrap.
    fn order_of_blocks(&self, even: bool) -> Option<Order>;

    /// Element `index` of an array of handles, as C has it.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi): the array has that element.
    unsafe fn handle_at(&self, array: *const c_void, index: usize) -> Handle;

    /// Whether a message may have so many elements.
    fn takes_count(&self, count: usize) -> bool;

    /// The properties of a predefined datatype; `None` of others.
    fn datatype(&self, datatype: Handle) -> Option<TypeInfo>;

    /// The meaning of a predefined op; `None` of others.
    fn op(&self, op: Handle) -> Option<Op>;

    /// How elements of one of the program's own datatypes lie in memory; `None`: it is none, or not
    /// committed.
    fn shape_of_derived(&self, datatype: Handle) -> Option<Shape>;

    /// Whether two handles, as they were passed, are of one datatype.
    fn are_same(&self, one: Handle, other: Handle) -> bool;

    /// Whether the MPI takes an op on a datatype, of that shape.
    fn accepts(&self, datatype: (Handle, Shape), op: Handle) -> bool;

    /// Whether it refuses collectives other than reductions whose two buffers are one.
    fn refuses_aliases(&self) -> bool;

    /// Whether it refuses this reduction, whose two buffers are one.
    fn refuses_alias(&self, call: &Call, alone: Alone) -> bool;

    /// How elements of a datatype lie in memory, by the handle that was passed; `None`: it is none.
    #[inline]
    fn shape(&self, datatype: Handle) -> Option<Shape> {
        self.shape_of(self.datatype(datatype), datatype)
    }

    /// The same of one that was looked up before.
    #[inline]
    fn shape_of(&self, known: Option<TypeInfo>, datatype: Handle) -> Option<Shape> {
        match known {
            Some(known) => Some(known.shape()),
            None => self.shape_of_derived(datatype),
        }
    }
}

impl Facts for Mpi {
    #[inline]
    fn in_place(&self) -> usize {
        self.abi.in_place
    }

    fn rank(&self, comm: Handle) -> usize {
        Self::rank(self, self.abi.handle(comm))
    }

    fn neighbors(&self, comm: Handle) -> Option<Neighbors> {
        self.pmpi.neighbors(self.abi.family, self.abi.handle(comm))
    }

    fn order_of_blocks(&self, even: bool) -> Option<Order> {
        Order::of(self.abi.family, &self.abi.version, even)
    }

    unsafe fn handle_at(&self, array: *const c_void, index: usize) -> Handle {
        // SAFETY: as demanded of this function; handles are as wide as requests.
        unsafe { self.abi.request_at(array, index) as Handle }
    }

    fn takes_count(&self, count: usize) -> bool {
        Self::takes_count(self, count)
    }

    #[inline]
    fn datatype(&self, datatype: Handle) -> Option<TypeInfo> {
        self.abi.datatype(datatype)
    }

    #[inline]
    fn op(&self, op: Handle) -> Option<Op> {
        self.abi.op(op)
    }

    fn shape_of_derived(&self, datatype: Handle) -> Option<Shape> {
        Self::shape_of_derived(self, self.abi.handle(datatype))
    }

    fn are_same(&self, one: Handle, other: Handle) -> bool {
        self.abi.handle(one) == self.abi.handle(other)
    }

    fn accepts(&self, datatype: (Handle, Shape), op: Handle) -> bool {
        Self::accepts(self, datatype, op)
    }

    fn refuses_aliases(&self) -> bool {
        Self::refuses_aliases(self)
    }

    /// The answer depends on the collective, the number of elements, the MPI's version, and how it was built and
    /// started. So the MPI is asked, by the same collective of this process alone, which leaves the buffer unchanged.
    fn refuses_alias(&self, call: &Call, alone: Alone) -> bool {
        if !self.is_asked() {
            return false;
        }
        let Call { recv, op, .. } = call;
        let count = c_int::try_from(recv.count.max(1)).unwrap_or(c_int::MAX);
        let (Some(comm), _alone) = (self.private_self(), self.alone()) else { return false };
        let (from, to): (*const c_void, _) = (recv.data, recv.data);
        let (datatype, op, mpi) = (recv.datatype, *op, &self.pmpi);
        // SAFETY: the program's buffer, type and op, on a communicator that returns errors.
        let code = unsafe {
            match alone {
                Alone::Plain(of) => of(mpi)(from, to, count, datatype, op, comm),
                Alone::Rooted(of) => of(mpi)(from, to, count, datatype, op, 0, comm),
                Alone::Counted(of) => of(mpi)(from, to, &raw const count, datatype, op, comm),
            }
        };
        code != 0
    }
}
