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
    pub type Root = c_int;
    pub type Type = crate::mpi::pmpi::Handle;
    pub type Op = crate::mpi::pmpi::Handle;
    pub type Comm = crate::mpi::pmpi::Handle;
    pub type Info = crate::mpi::pmpi::Handle;
    pub const WIDE: bool = false;
}

/// Types of the forms with counts of type `MPI_Count`, displacements of `MPI_Aint`.
mod large {
    pub use super::plain::{Buf, Comm, Info, MutBuf, Op, Root, Type};
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
    Side::each(recv, crate::call::Counts { counts: counts.cast(), displs: displs.cast(), wide: WIDE }, recv_type),
    0, comm));

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
    Side::each(recv, crate::call::Counts { counts: counts.cast(), displs: std::ptr::null(), wide: WIDE }, datatype),
    op, 0, comm));

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
