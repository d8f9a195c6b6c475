//! Non-blocking collectives: begun here, ended in waits and tests ([`crate::requests`]).
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Instant;

use super::{Judged, usual_algorithm};
use crate::codec::{SUCCESS, prepare};
use crate::comm::Communicator;
use crate::config::Config;
use crate::engine::Outcome;
use crate::group::Group;
use crate::plan::{Plan, fit, plan};
use crate::process::Process;
use crate::requests::Open;
use crate::route::Reason;

/// Starts a call whose arguments have been judged.
///
/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi).
pub(super) unsafe fn start(judged: Judged<'_>, request: *mut c_void) -> Result<c_int, Reason> {
    let Judged { process, config, communicator, .. } = &judged;
    judged.unless_revoked()?;
    let mut guard = communicator.folding_now()?;
    let group = &mut guard.as_mut().ok_or(Reason::NotYet)?.group;
    let case = judged.case();
    let fit = fit(case, &mut group.engine.place)?;
    let plan = plan(case, fit);
    let open = || process.requests.open(&process.mpi, request);
    // SAFETY: buffers of the program's.
    unsafe { begin(process, config, plan, communicator, group, open) };
    Ok(SUCCESS)
}

/// Begins a plan in `communicator`'s group; `open` makes its request.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi): the plan's buffers.
pub(super) unsafe fn begin(
    process: &'static Process,
    config: &Config,
    plan: Plan,
    communicator: &Arc<Communicator>,
    group: &mut Group,
    open: impl FnOnce() -> Open,
) {
    // SAFETY: buffers of the program's, until the request is complete.
    unsafe {
        let (job, mut prepared) = prepare(&process.mpi, plan);
        prepared.keep_type(&process.mpi);
        let request = open();
        let over = Outcome::default();
        let algorithm = usual_algorithm(config, group, &job);
        group.engine.start(job, algorithm, Some(Arc::clone(&over)));
        group.engine.poll(Instant::now);
        process.requests.add(&process.mpi, Arc::clone(communicator), over, prepared, request);
    }
}
