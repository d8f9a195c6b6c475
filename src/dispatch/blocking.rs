//! Blocking collectives: which way they go, and to their end.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use super::stopwatch::{Stopwatch, record_time};
use super::{After, Judged, NotFolded};
use crate::call::Collective;
use crate::choice::{self, ClassId, Way};
use crate::codec::{SUCCESS, prepare, report_mismatch};
use crate::collectives::{fit, plan};
use crate::comm::{Folding, Held, complete, fold_words};
use crate::config::Policy;
use crate::engine::{Job, Script, Step, Ways};
use crate::gate::Reason;
use crate::leaf::arithmetic::Operator;
use crate::plan::{Fit, instead_of_shards};
use crate::script::{Numbers, Quantized};
use crate::setup::Context;
use crate::stats;
use crate::wire::{Algorithm, Mismatch};

/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi).
pub(super) unsafe fn run(judged: Judged<'_>) -> Result<(c_int, stats::CallOutcome), NotFolded> {
    let Judged { process, config, call, admitted, communicator, .. } = &judged;
    let (mpi, context) = (&process.mpi, process.context());
    let comm = mpi.abi.handle(call.comm);
    judged.unless_revoked()?;
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
        judged.unless_held()?;
    }
    let (mut route, mut algorithm) = (None, None);
    if admitted.measured {
        let bytes = call.collective.bytes_in_all(admitted.bytes, communicator.size);
        let (id, step) = choose(&judged, folding, call.collective, bytes);
        let begin = step.timed.then(Instant::now);
        match step.way {
            Way::Mpi => {
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
    if matches!(fit, Fit::Pairs(_)) && folding.private.is_none() {
        drop(guard);
        guard = with_private(&judged)?;
    }
    let folding = guard.as_mut().ok_or(Reason::NoGroup)?;
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

/// The group, with a communicator for messages beside it unless its own is held. Collective. Nothing of the group is
/// held meanwhile: other ranks may wait for steps of calls that do not block, which the helper thread takes.
#[cold]
fn with_private<'a>(judged: &'a Judged<'_>) -> Result<Held<'a>, Reason> {
    let Judged { process, call, communicator, .. } = judged;
    let mpi = &process.mpi;
    let is_wanted = judged.unless_held().is_ok();
    let private = is_wanted.then(|| mpi.private_of(mpi.abi.handle(call.comm), communicator.rank));
    let mut held = communicator.folding();
    let folding = held.as_mut().ok_or(Reason::NoGroup)?;
    folding.wants_private = false;
    if let Some(private) = private {
        folding.private = Some(private.ok_or(Reason::NoGroup)?);
    }
    Ok(held)
}

/// Quantizes a sum, to its end; `None`: it goes another way, on all ranks alike.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi).
#[cold]
unsafe fn quantized(judged: &Judged<'_>, context: &Context<'_>, numbers: Numbers) -> Option<c_int> {
    let memory = judged.communicator.quantization().memory.clone();
    // SAFETY: as demanded of this function.
    unsafe { to_its_end(judged, context, &mut Quantized::new(numbers, None, memory)) }
}

/// Runs a script to its end. Returns what MPI does; `None`: the call goes another way, on all ranks alike.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi).
#[cold]
unsafe fn to_its_end(
    judged: &Judged<'_>,
    context: &Context<'_>,
    script: &mut impl Script,
) -> Option<c_int> {
    let mpi = &judged.process.mpi;
    let mut outcome = Ok(());
    loop {
        // SAFETY: the job before is over; the program's buffers.
        match unsafe { script.next(outcome) } {
            Step::Job(job, ways) => {
                // SAFETY: memory of the script's, that stays.
                match unsafe { run_job(judged, context, job, ways) } {
                    Ran::ByGroup(ended) => outcome = ended,
                    Ran::ByMpi(SUCCESS) => outcome = Ok(()),
                    // The MPI has told the program.
                    Ran::ByMpi(code) => return Some(code),
                }
            }
            Step::Over(outcome) => {
                let code = report_mismatch(mpi, outcome);
                if code != SUCCESS {
                    mpi.handle_error(mpi.abi.handle(judged.call.comm), code);
                }
                return Some(code);
            }
            Step::Otherwise => return None,
        }
    }
}

/// The outcome of a job of a script, by the one who did it.
enum Ran {
    ByGroup(Result<(), Mismatch>),
    ByMpi(c_int),
}

/// Does a job of a script.
///
/// # Safety
/// What [`Job`] says of its pointers.
unsafe fn run_job(judged: &Judged<'_>, context: &Context<'_>, job: Job, ways: Ways) -> Ran {
    let Judged { process, config, call, communicator, .. } = judged;
    let mut held = communicator.folding();
    let Some(folding) = held.as_mut() else { return Ran::ByMpi(process.mpi.truncated()) };
    let width = match ways {
        Ways::Compared { width } if config.shared.policy == Policy::Auto => width,
        Ways::Compared { .. } | Ways::Usual => {
            let by = folding.group.engine.algorithm(&job, config.shared.algorithm);
            // SAFETY: the job's pointers.
            return Ran::ByGroup(unsafe { complete(context, &mut folding.group, job, by) });
        }
    };
    let (id, step) = choose(judged, folding, Collective::Allreduce, job.bytes);
    let begin = step.timed.then(Instant::now);
    match step.way {
        Way::Mpi => {
            drop(held);
            let stopwatch = Stopwatch::start(Arc::clone(communicator), id, begin, call);
            // SAFETY: the job's result, which is its contribution, too.
            let integers = unsafe { slice::from_raw_parts_mut(job.recv, job.bytes) };
            let code = process.mpi.add_up(process.mpi.abi.handle(call.comm), width, integers);
            stopwatch.stop();
            Ran::ByMpi(code)
        }
        Way::Fold(by) => {
            // SAFETY: the job's pointers.
            let outcome = unsafe { complete(context, &mut folding.group, job, by) };
            drop(held);
            if let Some(begin) = begin {
                record_time(communicator, id, step.way, begin);
            }
            Ran::ByGroup(outcome)
        }
    }
}

/// Chooses the way of a collective of so many bytes that fits and whose ways are compared. If it is time to, the ranks
/// first add up what they have measured.
fn choose(
    judged: &Judged<'_>,
    folding: &mut Folding,
    collective: Collective,
    bytes: usize,
) -> (ClassId, choice::Step) {
    let Judged { process, config, communicator, .. } = judged;
    let Folding { group, router, .. } = folding;
    let id = ClassId::new(collective as usize, bytes);
    if let Some(mut sums) = router.known(id).and_then(|class| class.due()) {
        fold_words(&process.context(), group, Operator::Sum, &mut sums);
        if let Some(change) = router.take_agreed(id, sums)
            && communicator.rank == 0
        {
            log::debug!("{change}");
        }
    }
    let usual = if bytes > config.shared.max_bytes[collective as usize] {
        Way::Mpi
    } else {
        Way::Fold(group.engine.usual_fold(bytes))
    };
    (id, router.class(id, usual).next())
}
