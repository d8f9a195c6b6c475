//! Blocking collectives: which way they go, and to their end.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Instant;

use super::scripted::{quantized, to_its_end};
use super::ways::{Stopwatch, choose, record_time};
use super::{After, Judged, NotFolded};
use crate::choice::Way;
use crate::codec::{SUCCESS, prepare};
use crate::collectives::{fit, plan};
use crate::comm::{Held, complete};
use crate::gate::Reason;
use crate::plan::{Fit, instead_of_shards};
use crate::stats;
use crate::wire::Algorithm;

/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi).
pub(super) unsafe fn run(judged: Judged<'_>) -> Result<(c_int, stats::CallOutcome), NotFolded> {
    let Judged { process, config, call, admitted, communicator, .. } = &judged;
    let (mpi, context, comm) = (&process.mpi, process.context(), judged.comm);
    let get = |when| process.communicators.group_for(&context, comm, communicator, when);
    let mut guard = communicator.folding_or(config.shared.setup_calls, get)?;
    let folding = guard.as_mut().ok_or(Reason::NoGroup)?;
    if folding.is_lost(&context) {
        drop(guard);
        let communicator = process.communicators.renew(&context, comm, communicator);
        // SAFETY: as demanded of this function.
        return unsafe { run(Judged { communicator, ..judged }) };
    }
    if folding.wants_private {
        drop(guard);
        guard = with_private(&judged)?;
    }
    let folding = guard.as_mut().ok_or(Reason::NoGroup)?;
    if admitted.quantized.is_some() {
        let numbers = judged.numbers(&folding.group);
        drop(guard);
        // SAFETY: buffers of the program's.
        let quantized = |numbers| unsafe { quantized(&judged, &context, numbers) };
        if let Some(code) = numbers.and_then(quantized) {
            return Ok((code, stats::CallOutcome::Quantized));
        }
        judged.unless_too_large()?;
        guard = communicator.folding();
    }
    let folding = guard.as_mut().ok_or(Reason::NoGroup)?;
    let case = judged.case();
    let place = &mut folding.group.engine.place;
    let mut fit = match fit(case, place) {
        Ok(fit) => fit,
        Err(reason) => {
            let mut exact = judged.exact(place).ok_or(reason)?;
            drop(guard);
            // SAFETY: buffers of the program's.
            let code = unsafe { to_its_end(&judged, &context, &mut exact) };
            return Ok((code.ok_or(reason)?, stats::CallOutcome::Folded));
        }
    };
    if matches!(fit, Fit::Pairs(_)) && folding.private.is_none() {
        drop(guard);
        guard = with_private(&judged)?;
    }
    let folding = guard.as_mut().ok_or(Reason::NoGroup)?;
    let (mut route, mut algorithm) = (None, None);
    if admitted.measured {
        let bytes = call.collective.bytes_in_all(admitted.bytes, communicator.size);
        let (id, step) = choose(&judged, folding, call.collective, bytes);
        let begin = step.timed.then(Instant::now);
        match step.way {
            Way::Mpi => {
                folding.is_left_to_mpi();
                let stopwatch = Stopwatch::start(Arc::clone(communicator), id, begin, call);
                return Err(NotFolded::Timed(Box::new(After::Stop(stopwatch))));
            }
            Way::Fold(chosen) => (route, algorithm) = (Some((id, chosen, begin)), Some(chosen)),
        }
    }
    if algorithm == Some(Algorithm::Shards)
        && let Some(swapped) = instead_of_shards(&fit, &mut folding.group.engine.place)
    {
        (fit, algorithm) = (swapped, None);
    }
    let plan = plan(case, fit);
    // SAFETY: the program's buffers stay until this returns.
    let code = unsafe {
        let (job, mut prepared) = prepare(mpi, plan);
        if let Some(private) = &folding.private {
            prepared.begin_messages(mpi, private.comm);
        }
        let group = &mut folding.group;
        let algorithm =
            algorithm.unwrap_or_else(|| group.engine.algorithm(&job, config.shared.algorithm));
        let outcome = complete(&context, group, job, algorithm);
        // An op of the program's may be called, and what that calls is its own affair.
        drop(guard);
        prepared.end(mpi, outcome)
    };
    if let Some((id, chosen, Some(begin))) = route {
        record_time(communicator, id, Way::Fold(chosen), begin);
    }
    if code != SUCCESS {
        mpi.handle_error(comm, code);
    }
    Ok((code, stats::CallOutcome::Folded))
}

/// The group, with a communicator for messages beside it. Collective.
fn with_private<'a>(judged: &'a Judged<'_>) -> Result<Held<'a>, Reason> {
    let Judged { process, comm, communicator, .. } = judged;
    let on = (*comm, communicator.rank);
    process.communicators.with_private(&process.mpi, on, communicator.slot())
}
