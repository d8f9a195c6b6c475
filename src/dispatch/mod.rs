//! A collective, from the call to its end, or to the reason for which it is the real MPI's.
#![allow(unsafe_code)]

mod blocking;
mod exact;
mod meeting;
mod nonblocking;
mod persistent;
mod stopwatch;
#[cfg(test)]
mod tests;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::call::{Call, Form, Message};
use crate::codec::SUCCESS;
use crate::collectives::{admit, fit, judge};
use crate::comm::Communicator;
use crate::config::{Config, Quantize, Sum};
use crate::gate::{Admitted, Ends, Left, Reason};
use crate::group::Group;
use crate::leaf::arithmetic::Real;
use crate::plan::Case;
use crate::process::Process;
use crate::requests::work::{Unquantized, Work};
use crate::script::{Addends, ByShards, Numbers, Request};
use crate::stats;
use crate::topology::Place;

use meeting::Meeting;
pub use persistent::{free_persistent, start_persistent};
use stopwatch::Stopwatch;

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

/// How sums on a call's communicator are quantized.
fn quantize(process: &Process, call: &Call) -> Option<Quantize> {
    let usual = process.config.as_ref().ok()?.shared.quantize;
    process.communicators.quantize(process.mpi.abi.handle(call.comm), usual)
}

fn quantizes(process: &Process, call: &Call) -> bool {
    quantize(process, call).is_some()
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
    let admitted = admit(&process.mpi, config, || quantizes(process, call), form, call, seen);
    let admitted = admitted.as_ref().map_err(|left| *left)?;
    // The real MPI may go from one of its exported functions to another: from Fortran to C, say.
    if admitted.measured && stopwatch::is_running(call) {
        return Err(NotFolded::Nested);
    }
    let comm = process.mpi.abi.handle(call.comm);
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
        let judged = Judged { process, config, call, admitted, ends, communicator };
        match form {
            Form::Blocking => blocking::run(judged),
            Form::Nonblocking => Ok((SUCCESS, nonblocking::start(judged, request)?)),
            Form::Persistent => Ok((SUCCESS, persistent::initialise(judged, *seen, request)?)),
        }
    }
}

impl Judged<'_> {
    #[inline]
    fn case(&self) -> Case<'_> {
        Case { call: self.call, admitted: self.admitted, ends: self.ends }
    }

    /// The numbers of a sum that is to be quantized within the group. `None`: the sum is exact, or is not folded. The answer is
    /// the same on all ranks.
    fn numbers(&self, group: &Group) -> Option<Numbers> {
        let Self { process, config, call, admitted, ends, .. } = self;
        Numbers::of(&Request {
            ends,
            share: call.collective.share(ends),
            element: admitted.quantized?,
            quantize: quantize(process, call)?,
            max_bytes_asked: config.shared.max_bytes_asked(call.collective),
            max_bytes: group.engine.place.max_bytes,
        })
    }

    /// The work for a call that does not block, in its group.
    ///
    /// # Errors
    /// The call is the real MPI's, on all ranks alike.
    fn work(&self, group: &mut Group) -> Result<Work, Reason> {
        if let Some(numbers) = self.numbers(group)
            && let Some(sum) = self.unquantized(&mut group.engine.place)
        {
            return Ok(Work::Quantized(numbers, sum));
        }
        self.unless_too_large()?;
        let place = &mut group.engine.place;
        match fit(self.case(), place) {
            Ok(fit) => Ok(Work::Planned(fit)),
            Err(reason) => self.exact(place).map(Work::Exact).ok_or(reason),
        }
    }

    /// The sum of numbers that are asked to be quantized, where some are not finite, within the group.
    fn unquantized(&self, place: &mut Place) -> Option<Unquantized> {
        if let Some(exact) = self.exact(place) {
            return Some(Unquantized::Exact(exact));
        }
        let real = self.admitted.quantized?.real().filter(|_| place.has_shards)?;
        let is_exact = self.config.shared.sum == Sum::Exact;
        let addends = self.addends(real).filter(|_| !is_exact)?;
        Some(Unquantized::ByShards(ByShards::new(addends, real)))
    }

    /// The numbers of a sum, of a format.
    fn addends(&self, real: Real) -> Option<Addends> {
        let Self { call, ends, .. } = self;
        Addends::of(ends, &call.collective.share(ends), real.bytes())
    }

    /// Refuses a call that was admitted to be quantized alone, and is not.
    fn unless_too_large(&self) -> Result<(), Reason> {
        let is_too_large =
            self.admitted.quantized.is_some() && self.admitted.bytes > self.admitted.max_bytes;
        if is_too_large { Err(Reason::TooLarge) } else { Ok(()) }
    }

    /// Refuses to make a communicator of the ranks of one that is [held](crate::comm::Communicators::hold), now.
    #[cold]
    #[inline(never)]
    fn unless_held(&self) -> Result<(), Reason> {
        let process = self.process;
        let is_held = process.communicators.is_held(process.mpi.abi.handle(self.call.comm));
        if is_held { Err(Reason::NotYet) } else { Ok(()) }
    }

    /// Refuses a communicator that is revoked (ULFM), for good. Those who wait on it already are not
    /// told: nor are they by Open MPI, but in jobs that may lose ranks, which foldback leaves alone. Starts
    /// of persistent collectives do not ask: the program may have freed the communicator.
    #[inline]
    fn unless_revoked(&self) -> Result<(), Reason> {
        if !self.process.mpi.is_revoked(self.call.comm) {
            return Ok(());
        }
        Err(self.communicator.decline(Reason::Revoked))
    }
}
