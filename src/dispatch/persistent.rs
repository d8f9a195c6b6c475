//! Persistent collectives: made, started, freed.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::Judged;
use super::nonblocking::Begin;
use crate::call::{Form, Message};
use crate::codec::SUCCESS;
use crate::comm::{GroupSlot, Held};
use crate::gate::Reason;
use crate::mpi::pmpi::Handle;
use crate::process::Process;
use crate::stats::CallOutcome;

/// `MPI_..._init`: makes the request; `seen` is what the statistics are to tell of each start. Returns the outcome of
/// starts for the statistics.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi), and *buffers* at every start.
pub(super) unsafe fn initialise(
    judged: Judged<'_>,
    seen: Message,
    request: *mut c_void,
) -> Result<CallOutcome, Reason> {
    let Judged { process, call, comm, .. } = judged;
    let (mpi, communicators) = (&process.mpi, &process.communicators);
    let own = communicators.take_spare(&process.context(), comm, &judged.communicator)?;
    let work = match own.folding().as_mut() {
        Some(folding) => judged.work(&mut folding.group),
        None => Err(Reason::NoGroup),
    };
    let work = work.and_then(|work| {
        if work.is_exchange() {
            ensure_private(process, (comm, judged.communicator.rank), &own)?;
        }
        Ok(work)
    });
    let work = match work {
        Ok(work) => work,
        Err(reason) => {
            communicators.give_back(&judged.communicator, own);
            return Err(reason);
        }
    };
    let outcome = work.outcome();
    // SAFETY: arguments of the program's.
    unsafe {
        let elements = call.elements_of_all(mpi).unwrap_or(1);
        let message = Message { bytes: seen.bytes * elements, ..seen };
        let Judged { admitted, communicator, .. } = judged;
        let call = (*call, (communicator.rank, communicator.size));
        let about = (*admitted, work, message);
        process.requests.add_persistent(mpi, call, about, (own, communicator), request);
    }
    Ok(outcome)
}

/// Has a group that is nobody's yet have a communicator for messages beside it. Collective.
///
/// # Errors
/// `comm` is [held](crate::comm::Communicators::hold), or the MPI makes none.
fn ensure_private(
    process: &Process,
    (comm, rank): (Handle, usize),
    group: &GroupSlot,
) -> Result<(), Reason> {
    let has_one = |held: &mut Held<'_>| held.as_ref().is_some_and(|held| held.private.is_some());
    if has_one(&mut group.folding()) {
        return Ok(());
    }
    process.communicators.with_private(&process.mpi, (comm, rank), group).map(drop)
}

/// `MPI_Start` of a request that may be a persistent collective's; `None`: it is the real MPI's.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi).
pub unsafe fn start_persistent(process: &'static Process, request: *mut c_void) -> Option<c_int> {
    if !process.requests.persistent.any() {
        return None;
    }
    // SAFETY: an argument of the program's: one request.
    let handle = unsafe { process.mpi.abi.request_at(request, 0) };
    let persistent = process.requests.persistent.get(handle)?;
    let config = process.config.as_ref().ok()?;
    // SAFETY: an inactive request; if it is not, the MPI says so.
    let code = unsafe { (process.mpi.pmpi.start)(request.cast()) };
    if code != SUCCESS {
        return Some(code);
    }
    let call = &persistent.call;
    let mut guard = persistent.group.folding();
    let Some(folding) = guard.as_mut() else {
        log::error!("a persistent {} has lost its group", call.collective.name());
        process.mpi.abort(process.mpi.abi.comm_world)
    };
    let open = || persistent.open(handle);
    let private = folding.private.as_ref().map(|private| private.comm);
    let (slot, group) = (&persistent.group, &mut folding.group);
    let begin = Begin { process, config, slot, group, private };
    let (work, memory) = (persistent.work.clone(), || persistent.memory.clone());
    // SAFETY: buffers of the program's, promised at MPI_..._init for every start.
    unsafe { begin.work(work, persistent.case(), memory, open) };
    let outcome = persistent.work.outcome();
    process.calls.count(Form::Persistent, call.collective, outcome, persistent.message);
    Some(SUCCESS)
}

/// `MPI_Request_free` of a request that may be a persistent collective's.
///
/// # Safety
/// *Arguments* of the [program](crate::mpi).
pub unsafe fn free_persistent(process: &Process, request: *mut c_void) {
    if process.requests.persistent.any() {
        // SAFETY: an argument of the program's: one request.
        let handle = unsafe { process.mpi.abi.request_at(request, 0) };
        if let Some((group, home)) = process.requests.free_persistent(&process.mpi, handle) {
            process.communicators.give_back(&home, group);
        }
    }
}
