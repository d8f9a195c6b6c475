//! A collective, from the call to its end, or to the reason for which it is the real MPI's.
#![allow(unsafe_code)]

mod blocking;
mod exact;
mod meeting;
mod nonblocking;
mod persistent;
mod scripted;
#[cfg(test)]
mod tests;
mod ways;
mod work;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::call::{Call, Form, Message};
use crate::codec::SUCCESS;
use crate::collectives::{admit, judge};
use crate::comm::Communicator;
use crate::config::Config;
use crate::gate::{Admitted, Ends, Left, Reason};
use crate::mpi::pmpi::Handle;
use crate::process::Process;
use crate::stats;

use meeting::Meeting;
pub use persistent::{free_persistent, start_persistent};
use ways::{Stopwatch, is_running};

/// The work that is left when the real MPI has done a call.
pub enum After {
    Stop(Stopwatch),
    Meet(Meeting),
}

impl After {
    /// The call has returned `code`.
    pub fn finish(self, code: c_int) {
        match self {
            Self::Stop(stopwatch) => stopwatch.stop(),
            Self::Meet(meeting) => meeting.begin(code),
        }
    }
}

/// A collective, to its end if it blocks. `request` is where a non-blocking one wants its request.
///
/// # Errors
/// The call is the real MPI's; and what is to be done when that has done it.
///
/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi).
pub unsafe fn collective(
    process: &'static Process,
    form: Form,
    call: &Call,
    request: *mut c_void,
) -> Result<c_int, Option<Box<After>>> {
    let mut seen = Message::default();
    // SAFETY: as demanded of this function.
    let ended = unsafe { attempt(process, form, call, request, &mut seen) };
    let (result, way) = match ended {
        Ok((code, way)) => (Ok(code), way),
        Err(NotFolded::Left(Left::All(reason))) => {
            // SAFETY: as demanded of this function; all ranks leave the call to the MPI.
            let exactly = || unsafe { exact::left(process, form, call, reason) };
            let code = if exact::are_wanted(process) { exactly() } else { None };
            (code.ok_or(None), stats::CallOutcome::Left(reason))
        }
        Err(NotFolded::Left(Left::RefusedHere(_))) => {
            log::debug!("{} is for MPI to refuse", call.collective.name());
            (Err(None), stats::CallOutcome::Refused)
        }
        Err(NotFolded::Timed(watch)) => {
            (Err(Some(watch)), stats::CallOutcome::Left(Reason::Faster))
        }
        Err(NotFolded::Nested) => return Err(None),
    };
    // A persistent collective is counted when it is started.
    if form != Form::Persistent || result.is_err() {
        if way != stats::CallOutcome::Refused
            && call.recv.counts.is_some()
            // SAFETY: arguments of the program's.
            && let Some(elements) = unsafe { call.elements_of_all(&process.mpi) }
        {
            seen.bytes *= elements;
        }
        process.calls.count(form, call.collective, way, seen);
    }
    process.communicators.retired.reap_now_and_then();
    match result {
        Err(None) if form == Form::Blocking && process.communicators.alike().is_none() => {
            Err(meeting::expected(process, call))
        }
        result => result,
    }
}

/// A call that is the real MPI's.
enum NotFolded {
    /// To MPI, for a reason that all ranks share.
    Left(Left),
    /// It may be the faster one; to be timed.
    Timed(Box<After>),
    /// The real MPI itself makes the call, to do one that was left to it and counted.
    Nested,
}

impl<L: Into<Left>> From<L> for NotFolded {
    fn from(left: L) -> Self {
        Self::Left(left.into())
    }
}

/// A call whose arguments are right, on the communicator that it was made on.
struct Judged<'a> {
    process: &'static Process,
    config: &'static Config,
    call: &'a Call,
    admitted: &'a Admitted,
    ends: &'a Ends,
    comm: Handle,
    communicator: Arc<Communicator>,
}

/// # Safety
/// As [`collective`].
#[inline(always)]
unsafe fn attempt(
    process: &'static Process,
    form: Form,
    call: &Call,
    request: *mut c_void,
    seen: &mut Message,
) -> Result<(c_int, stats::CallOutcome), NotFolded> {
    if !process.is_running() {
        return Err(Reason::Off.into());
    }
    let config = process.config.as_ref().map_err(|_| Reason::Off)?;
    let comm = process.mpi.abi.handle(call.comm);
    let quantizes = || process.quantize(comm).is_some();
    let admitted = admit(&process.mpi, config, quantizes, form, call, seen);
    let admitted = admitted.as_ref().map_err(|left| *left)?;
    let communicator = process.communicator(comm).ok_or(Reason::NoGroup)?;
    communicator.unless_declined()?;
    let place = (communicator.rank, communicator.size);
    // SAFETY: arguments and buffers of the program's.
    unsafe {
        let ends = judge(&process.mpi, call, admitted.shape(), place);
        let ends = ends.as_ref().map_err(|refused| *refused)?;
        if let Some(edges) = &ends.edges {
            seen.bytes = edges.bytes_sent();
        }
        let Some(alike) = process.alike(&communicator) else {
            // Ranks that are not alike count different calls, which has no consequences then.
            if form != Form::Persistent {
                communicator.count();
            }
            return Err(Reason::NotYet.into());
        };
        if form != Form::Blocking && !alike.completes {
            return Err(Reason::Waits.into());
        }
        // The real MPI may go from one of its exported functions to another: from Fortran to C, say.
        if admitted.measured && is_running(call) {
            return Err(NotFolded::Nested);
        }
        // Those who wait on it already are not told: nor are they by Open MPI, but in jobs that may lose ranks, which
        // foldback leaves alone. Starts of persistent collectives do not ask: it may have been freed.
        if process.mpi.is_revoked(call.comm) {
            return Err(communicator.decline(Reason::Revoked).into());
        }
        let judged = Judged { process, config, call, admitted, ends, comm, communicator };
        match form {
            Form::Blocking => blocking::run(judged),
            Form::Nonblocking => Ok((SUCCESS, nonblocking::start(judged, request)?)),
            Form::Persistent => Ok((SUCCESS, persistent::initialise(judged, *seen, request)?)),
        }
    }
}
