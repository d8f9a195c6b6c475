//! Exact sums (`FOLDBACK_SUM=exact`) that are left to the MPI. If one blocks, the MPI only brings everyone's numbers
//! together, and each rank sums them. So a program has exact sums also before there is a group, and without one.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::{Call, Form};
use crate::codec::SUCCESS;
use crate::collectives::judge;
use crate::config::Sum;
use crate::engine::{Script, Step};
use crate::gate::Reason;
use crate::gate::eligibility::{FoldedBy, classify};
use crate::leaf::arithmetic::{Operator, Real};
use crate::mpi::types::{Op, Shape};
use crate::process::Process;
use crate::script::{Addends, Exact};
use crate::topology::Image;

/// Most bytes that a rank holds of everyone's numbers, of a sum that is left to the MPI.
const HELD: usize = 1 << 20;

/// Whether the program asks for exact sums, on all ranks.
#[inline]
pub(super) fn are_wanted(process: &Process) -> bool {
    process.config.as_ref().is_ok_and(|config| config.shared.sum == Sum::Exact)
        && process.is_running()
}

/// The numbers of a sum: their format, and how they lie in memory.
fn reals_summed(process: &Process, call: &Call) -> Option<(Real, Shape)> {
    let op = process.mpi.abi.op(call.op).filter(|op| *op == Op::Fold(Operator::Sum))?;
    let datatype = process.mpi.abi.datatype(call.recv.datatype)?;
    match classify(Some(datatype), Some(op), false, Sum::Exact) {
        Ok(FoldedBy::Exact { real, .. }) => Some((real, datatype.shape())),
        _ => None,
    }
}

/// Sums exactly what is left to the MPI for this reason, to its end, if the call blocks. Returns what MPI does. `None`:
/// the MPI makes the call, and whoever asks for exact sums is warned.
///
/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi), of a call that is left to the MPI on all ranks.
#[cold]
pub(super) unsafe fn left(
    process: &'static Process,
    form: Form,
    call: &Call,
    reason: Reason,
) -> Option<c_int> {
    let blocks = form == Form::Blocking;
    // SAFETY: as demanded of this function.
    let code = if blocks { unsafe { by_mpi(process, call, reason) } } else { None };
    if code.is_none() {
        warn_of(process, call, reason);
    }
    code
}

/// Says once that a sum was left to the MPI which is not exact now.
fn warn_of(process: &Process, call: &Call, reason: Reason) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let is_trivial = matches!(reason, Reason::OneRank | Reason::Empty);
    if is_trivial || reals_summed(process, call).is_none() || TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    let name = call.collective.name();
    let reason = reason.text();
    log::warn!(
        "FOLDBACK_SUM=exact: a sum is not exact, since it was left to MPI: {name}, {reason}"
    );
}

/// Whether a call that is not folded for this reason has a sum that can be made here, by all of its ranks. Ranks from
/// outside MPI_COMM_WORLD may ask for other sums: they answer another roll call.
fn may_be_left(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::Off
            | Reason::Empty
            | Reason::OneRank
            | Reason::Intercommunicator
            | Reason::Foreign
            | Reason::Revoked
    )
}

/// The same of a call that blocks. `None`: the call is no exact sum of right arguments, or its ranks may not be alike.
///
/// # Safety
/// As [`left`].
unsafe fn by_mpi(process: &'static Process, call: &Call, reason: Reason) -> Option<c_int> {
    let (real, shape) = reals_summed(process, call).filter(|_| may_be_left(reason))?;
    let mpi = &process.mpi;
    let comm = mpi.abi.handle(call.comm);
    let communicator = process.communicator(comm)?;
    let (rank, ranks) = (communicator.rank, communicator.size);
    // SAFETY: arguments of the program's.
    let ends = unsafe { judge(mpi, call, Some(shape), (rank, ranks)) }.ok()?;
    let step = (HELD / (real.bytes() * ranks)).max(1);
    let image = |bytes| Arc::new(Image::side_by_side(ranks, bytes));
    let addends = Addends::of(&ends, &call.collective.share(&ends), real.bytes());
    let exact = |addends| Exact::new(addends, real, step, image);
    let Some(mut script) = addends.and_then(exact) else { return Some(SUCCESS) };
    // SAFETY: buffers of the program's; the job before is over.
    while let Step::Job(job, _) = unsafe { script.next(Ok(())) } {
        // SAFETY: the job's pointers: its result has room for the bytes of all ranks.
        let code = unsafe {
            let all = slice::from_raw_parts_mut(job.recv, job.bytes * ranks);
            mpi.gather_at_all(comm, job.send.cast(), job.bytes, all)
        };
        // The MPI has told the program.
        if code != SUCCESS {
            return Some(code);
        }
    }
    Some(SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_ranks_may_not_sum_here_is_the_mpis() {
        assert!([Reason::NoGroup, Reason::Routed, Reason::TooLarge].into_iter().all(may_be_left));
        let apart = [Reason::Off, Reason::Foreign, Reason::Intercommunicator];
        assert!(!apart.into_iter().any(may_be_left));
    }
}
