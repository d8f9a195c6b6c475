//! What the real MPI refuses before it communicates: one buffer for both ends of a call.
//!
//! Such a call never happened, for any rank: a program may make up for it by a right one. So it is the
//! real MPI's before it is counted and before a route is taken.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use crate::call::{Call, Collective, Side};
use crate::mpi::Mpi;

/// Whether the real MPI refuses a call, on this rank, for its buffers.
///
/// # Safety
/// The call is the program's, and one that may be folded.
#[inline]
pub unsafe fn is_refused(mpi: &Mpi, call: &Call) -> bool {
    let Call { send, recv, .. } = call;
    let ends_apart = [send.data, recv.data]
        .iter()
        .any(|data| data.is_null() || *data as usize == mpi.abi.in_place);
    if ends_apart {
        return false;
    }
    match call.collective {
        Collective::Barrier | Collective::Bcast => false,
        Collective::Gather
        | Collective::Scatter
        | Collective::Allgather
        | Collective::Allgatherv
        | Collective::Alltoall => is_one_part(mpi, call) && mpi.refuses_aliases(),
        // SAFETY: the caller's promise.
        _ => send.data == recv.data && unsafe { refuses_reduction(mpi, call) },
    }
}

/// Whether what this rank brings is where its own part is to be put, and all else is alike too, as in a
/// call that should have been in place.
fn is_one_part(mpi: &Mpi, call: &Call) -> bool {
    let Call { send, recv, .. } = call;
    let alike = recv.counts.is_none()
        && send.count == recv.count
        && mpi.abi.handle(send.datatype) == mpi.abi.handle(recv.datatype);
    if !alike {
        return false;
    }
    let (one, other): (_, &Side) = match call.collective {
        Collective::Scatter => (recv.data, send),
        _ => (send.data, recv),
    };
    let Some(shape) = mpi.shape(other.datatype) else { return false };
    let part = other.count as isize * shape.extent;
    let distance = (one as isize).wrapping_sub(other.data as isize);
    if call.collective == Collective::Alltoall {
        return distance == 0;
    }
    // Most buffers are far apart: the rank need not be asked for.
    if part == 0 || distance % part != 0 {
        return false;
    }
    let rank = mpi.rank(mpi.abi.handle(call.comm));
    let rooted = matches!(call.collective, Collective::Gather | Collective::Scatter);
    let here = !rooted || usize::try_from(call.root) == Ok(rank);
    here && distance / part == rank as isize
}

/// Whether the MPI refuses a reduction whose send and receive buffers are one. Which do, of which
/// collectives and from how many elements on, depends on its version and on how it was built and
/// started, so it is asked, by the same collective of this process alone, which leaves the buffer as it is.
///
/// SAFETY of callers: as [`is_refused`].
unsafe fn refuses_reduction(mpi: &Mpi, call: &Call) -> bool {
    let Call { recv, op, .. } = call;
    if call.collective == Collective::Reduce
        && usize::try_from(call.root) != Ok(mpi.rank(mpi.abi.handle(call.comm)))
    {
        return false;
    }
    let count = c_int::try_from(recv.count.max(1)).unwrap_or(c_int::MAX);
    let (Some(comm), _alone) = (mpi.private_self(), mpi.alone()) else { return false };
    let (from, to): (*const c_void, _) = (recv.data, recv.data);
    let (datatype, op, mpi) = (recv.datatype, *op, &mpi.pmpi);
    // SAFETY: the program's buffer, type and op, on a communicator that returns errors.
    let code = unsafe {
        match call.collective {
            Collective::Reduce => (mpi.reduce)(from, to, count, datatype, op, 0, comm),
            Collective::Scan => (mpi.scan)(from, to, count, datatype, op, comm),
            Collective::Exscan => (mpi.exscan)(from, to, count, datatype, op, comm),
            Collective::Reduce_scatter => {
                (mpi.reduce_scatter)(from, to, &raw const count, datatype, op, comm)
            }
            Collective::Reduce_scatter_block => {
                (mpi.reduce_scatter_block)(from, to, count, datatype, op, comm)
            }
            _ => (mpi.allreduce)(from, to, count, datatype, op, comm),
        }
    };
    code != 0
}
