//! Calls that the real MPI refuses before it communicates: they have one buffer for both ends.
//!
//! A refused call never happened, for any rank: a program may make up for it by a right one. So it is the real MPI's
//! before it is counted and before a route is taken.

use super::Facts;
use crate::call::{Call, Collective, Side};

/// Whether the real MPI refuses a call that may be folded, on `rank`, for its buffers.
#[inline]
pub fn is_refused(mpi: &impl Facts, call: &Call, rank: usize) -> bool {
    let Call { send, recv, .. } = call;
    let ends_apart = [send.data, recv.data]
        .iter()
        .any(|data| data.is_null() || *data as usize == mpi.in_place());
    if ends_apart {
        return false;
    }
    match call.collective {
        Collective::Barrier | Collective::Bcast => false,
        Collective::Gather
        | Collective::Scatter
        | Collective::Allgather
        | Collective::Allgatherv
        | Collective::Alltoall => is_one_part(mpi, call, rank) && mpi.refuses_aliases(),
        _ if send.data != recv.data => false,
        // Its one buffer is that of a rank which gets nothing.
        Collective::Reduce if usize::try_from(call.root) != Ok(rank) => false,
        _ => mpi.refuses_alias(call),
    }
}

/// Whether what this rank brings is where its own part is to be put, and all else is alike too, as in a
/// call that should have been in place.
fn is_one_part(mpi: &impl Facts, call: &Call, rank: usize) -> bool {
    let Call { send, recv, .. } = call;
    let alike = recv.counts.is_none()
        && send.count == recv.count
        && mpi.are_same(send.datatype, recv.datatype);
    if !alike {
        return false;
    }
    let (one, other): (_, &Side) = match call.collective {
        Collective::Scatter => (recv.data, send),
        _ => (send.data, recv),
    };
    let Some(shape) = mpi.shape(other.datatype) else { return false };
    let part = (other.count as isize).wrapping_mul(shape.extent);
    let distance = (one as isize).wrapping_sub(other.data as isize);
    if call.collective == Collective::Alltoall {
        return distance == 0;
    }
    if part == 0 || distance % part != 0 {
        return false;
    }
    let rooted = matches!(call.collective, Collective::Gather | Collective::Scatter);
    let here = !rooted || usize::try_from(call.root) == Ok(rank);
    here && distance / part == rank as isize
}
