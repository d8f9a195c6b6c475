//! The collectives, in every form: blocking, non-blocking (`MPI_I…`), and with large counts (`…_c`).
//!
//! MPI-4.1 chapter 6. One line of the table at the end makes all forms of a collective.
#![allow(unsafe_code)]

#[macro_use]
mod narrow;
#[macro_use]
mod fortran;
#[macro_use]
mod forms;

use narrow::{Narrow, does_not_fit, keep_until_over, made};

use super::fortran::{Binding, Fortran, no_function, return_code, store};
use super::symbol;
use crate::mpi::pmpi::Optional;

/// Argument types of the forms with counts of type `int`.
mod plain {
    use std::ffi::{c_int, c_void};
    pub type Buf = *const c_void;
    pub type MutBuf = *mut c_void;
    pub type Count = c_int;
    pub type Counts = *const c_int;
    pub type Displs = *const c_int;
    /// Displacements of type `MPI_Aint` in any form.
    pub type Aints = *const c_void;
    /// Of datatypes.
    pub type Types = *const c_void;
    pub type Root = c_int;
    pub type Type = crate::mpi::pmpi::Handle;
    pub type Op = crate::mpi::pmpi::Handle;
    pub type Comm = crate::mpi::pmpi::Handle;
    pub type Info = crate::mpi::pmpi::Handle;
    pub const WIDE: bool = false;
}

/// Types of the forms with counts of type `MPI_Count`, displacements of `MPI_Aint`.
mod large {
    pub use super::plain::{Aints, Buf, Comm, Info, MutBuf, Op, Root, Type, Types};
    pub type Count = i64;
    pub type Counts = *const i64;
    pub type Displs = *const isize;
    pub const WIDE: bool = true;
}

/// The functions of a reduction, whose buffers share one description.
macro_rules! reduction {
    ($name:ident, $send:expr, $recv:expr, $op:expr, $root:expr, $comm:expr) => {
        Call {
            collective: Collective::$name,
            send: Side::new($send, 0, 0),
            recv: $recv,
            op: $op,
            root: $root,
            comm: $comm,
        }
    };
}

/// Arrays of counts and displacements.
macro_rules! counts {
    ($counts:expr, $displs:expr) => {
        counts!($counts, $displs, WIDE)
    };
    ($counts:expr, $displs:expr, $wide_displs:expr) => {
        crate::call::Counts {
            counts: $counts.cast(),
            displs: $displs.cast(),
            wide: WIDE,
            wide_displs: $wide_displs,
        }
    };
}

/// A collective that moves.
macro_rules! movement {
    ($name:ident, $send:expr, $recv:expr, $root:expr, $comm:expr) => {
        Call {
            collective: Collective::$name,
            send: $send,
            recv: $recv,
            op: 0,
            root: $root,
            comm: $comm,
        }
    };
}

collective!(allreduce = Allreduce(
    send: Buf, recv: MutBuf, count: Count, datatype: Type, op: Op, comm: Comm
), [count],
reduction!(Allreduce, send, Side::new(recv, count, datatype), op, 0, comm));

collective!(reduce = Reduce(
    send: Buf, recv: MutBuf, count: Count, datatype: Type, op: Op, root: Root, comm: Comm
), [count],
reduction!(Reduce, send, Side::new(recv, count, datatype), op, root, comm));

collective!(bcast = Bcast(
    data: MutBuf, count: Count, datatype: Type, root: Root, comm: Comm
), [count],
movement!(Bcast, Side::NONE, Side::new(data, count, datatype), root, comm));

collective!(barrier = Barrier(comm: Comm), [],
movement!(Barrier, Side::NONE, Side::NONE, 0, comm));

collective!(allgather = Allgather(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, comm: Comm
), [count],
movement!(Allgather, Side::new(send, send_count, send_type),
    Side::new(recv, recv_count, recv_type), 0, comm));

collective!(allgatherv = Allgatherv(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, counts: Counts, displs: Displs, recv_type: Type, comm: Comm
), [count],
movement!(Allgatherv, Side::new(send, send_count, send_type),
    Side::each(recv, counts!(counts, displs), recv_type), 0, comm));

collective!(gather = Gather(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, root: Root, comm: Comm
), [count],
movement!(Gather, Side::new(send, send_count, send_type),
    Side::new(recv, recv_count, recv_type), root, comm));

collective!(scatter = Scatter(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, root: Root, comm: Comm
), [count],
movement!(Scatter, Side::new(send, send_count, send_type),
    Side::new(recv, recv_count, recv_type), root, comm));

collective!(reduce_scatter = Reduce_scatter(
    send: Buf, recv: MutBuf, counts: Counts, datatype: Type, op: Op, comm: Comm
), [count],
reduction!(Reduce_scatter, send,
    Side::each(recv, counts!(counts, std::ptr::null::<c_int>()), datatype), op, 0, comm));

collective!(reduce_scatter_block = Reduce_scatter_block(
    send: Buf, recv: MutBuf, count: Count, datatype: Type, op: Op, comm: Comm
), [count],
reduction!(Reduce_scatter_block, send, Side::new(recv, count, datatype), op, 0, comm));

collective!(scan = Scan(
    send: Buf, recv: MutBuf, count: Count, datatype: Type, op: Op, comm: Comm
), [count],
reduction!(Scan, send, Side::new(recv, count, datatype), op, 0, comm));

collective!(exscan = Exscan(
    send: Buf, recv: MutBuf, count: Count, datatype: Type, op: Op, comm: Comm
), [count],
reduction!(Exscan, send, Side::new(recv, count, datatype), op, 0, comm));

collective!(alltoall = Alltoall(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, comm: Comm
), [count],
movement!(Alltoall, Side::new(send, send_count, send_type),
    Side::new(recv, recv_count, recv_type), 0, comm));

collective!(gatherv = Gatherv(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, counts: Counts, displs: Displs, recv_type: Type, root: Root, comm: Comm
), [count],
movement!(Gatherv, Side::new(send, send_count, send_type),
    Side::each(recv, counts!(counts, displs), recv_type), root, comm));

collective!(scatterv = Scatterv(
    send: Buf, counts: Counts, displs: Displs, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, root: Root, comm: Comm
), [count],
movement!(Scatterv, Side::each(send, counts!(counts, displs), send_type),
    Side::new(recv, recv_count, recv_type), root, comm));

collective!(alltoallv = Alltoallv(
    send: Buf, send_counts: Counts, send_displs: Displs, send_type: Type,
    recv: MutBuf, recv_counts: Counts, recv_displs: Displs, recv_type: Type, comm: Comm
), [count],
movement!(Alltoallv, Side::each(send, counts!(send_counts, send_displs), send_type),
    Side::each(recv, counts!(recv_counts, recv_displs), recv_type), 0, comm));

collective!(alltoallw = Alltoallw(
    send: Buf, send_counts: Counts, send_displs: Displs, send_types: Types,
    recv: MutBuf, recv_counts: Counts, recv_displs: Displs, recv_types: Types, comm: Comm
), [count],
movement!(Alltoallw, Side::typed(send, counts!(send_counts, send_displs), send_types),
    Side::typed(recv, counts!(recv_counts, recv_displs), recv_types), 0, comm));

collective!(neighbor_allgather = Neighbor_allgather(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, comm: Comm
), [count],
movement!(Neighbor_allgather, Side::new(send, send_count, send_type),
    Side::new(recv, recv_count, recv_type), 0, comm));

collective!(neighbor_allgatherv = Neighbor_allgatherv(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, counts: Counts, displs: Displs, recv_type: Type, comm: Comm
), [count],
movement!(Neighbor_allgatherv, Side::new(send, send_count, send_type),
    Side::each(recv, counts!(counts, displs), recv_type), 0, comm));

collective!(neighbor_alltoall = Neighbor_alltoall(
    send: Buf, send_count: Count, send_type: Type,
    recv: MutBuf, recv_count: Count, recv_type: Type, comm: Comm
), [count],
movement!(Neighbor_alltoall, Side::new(send, send_count, send_type),
    Side::new(recv, recv_count, recv_type), 0, comm));

collective!(neighbor_alltoallv = Neighbor_alltoallv(
    send: Buf, send_counts: Counts, send_displs: Displs, send_type: Type,
    recv: MutBuf, recv_counts: Counts, recv_displs: Displs, recv_type: Type, comm: Comm
), [count],
movement!(Neighbor_alltoallv, Side::each(send, counts!(send_counts, send_displs), send_type),
    Side::each(recv, counts!(recv_counts, recv_displs), recv_type), 0, comm));

collective!(neighbor_alltoallw = Neighbor_alltoallw(
    send: Buf, send_counts: Counts, send_displs: Aints, send_types: Types,
    recv: MutBuf, recv_counts: Counts, recv_displs: Aints, recv_types: Types, comm: Comm
), [count],
movement!(Neighbor_alltoallw, Side::typed(send, counts!(send_counts, send_displs, true), send_types),
    Side::typed(recv, counts!(recv_counts, recv_displs, true), recv_types), 0, comm));

pub use allgather::plain::blocking as allgather;
pub use allgatherv::plain::blocking as allgatherv;
pub use allreduce::plain::blocking as allreduce;
pub use alltoall::plain::blocking as alltoall;
pub use alltoallv::plain::blocking as alltoallv;
pub use gatherv::plain::blocking as gatherv;
pub use neighbor_allgather::plain::{
    blocking as neighbor_allgather, nonblocking as ineighbor_allgather,
};
pub use neighbor_allgatherv::plain::{
    blocking as neighbor_allgatherv, nonblocking as ineighbor_allgatherv,
};
