//! Sums that go by a script, to its end: quantized ones, and exact ones of more than one chunk.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use super::Judged;
use super::ways::{Stopwatch, choose, record_time};
use crate::call::Collective;
use crate::choice::Way;
use crate::codec::{SUCCESS, report_mismatch};
use crate::comm::complete;
use crate::config::Policy;
use crate::engine::{Job, Script, Step, Ways};
use crate::script::{Numbers, Quantized};
use crate::setup::Context;
use crate::wire::Mismatch;

/// Quantizes a sum, to its end; `None`: it goes another way, on all ranks alike.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi).
#[cold]
pub(super) unsafe fn quantized(
    judged: &Judged<'_>,
    context: &Context<'_>,
    numbers: Numbers,
) -> Option<c_int> {
    let memory = judged.communicator.quantization().memory.clone();
    // SAFETY: as demanded of this function.
    unsafe { to_its_end(judged, context, &mut Quantized::new(numbers, None, memory)) }
}

/// Runs a script to its end. Returns what MPI does; `None`: the call goes another way, on all ranks alike.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi).
#[cold]
pub(super) unsafe fn to_its_end(
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
