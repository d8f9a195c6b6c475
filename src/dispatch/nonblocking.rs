//! Non-blocking collectives: begun here, ended in waits and tests ([`crate::requests`]).
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use super::Judged;
use crate::codec::{Prepared, prepare};
use crate::collectives::plan;
use crate::comm::{Folding, GroupSlot};
use crate::config::Config;
use crate::engine::Outcome;
use crate::gate::Reason;
use crate::group::Group;
use crate::leaf::quantize::Lender;
use crate::mpi::pmpi::Handle;
use crate::plan::{Case, Plan};
use crate::process::Process;
use crate::requests::Open;
use crate::requests::work::Work;
use crate::stats::CallOutcome;

/// Starts a call whose arguments have been judged. Returns its outcome for the statistics.
///
/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi).
pub(super) unsafe fn start(
    judged: Judged<'_>,
    request: *mut c_void,
) -> Result<CallOutcome, Reason> {
    let Judged { process, config, comm, communicator, .. } = &judged;
    let mut guard = communicator.folding_now()?;
    let Folding { group, private, wants_private, .. } =
        &mut **guard.as_mut().ok_or(Reason::NotYet)?;
    let work = judged.work(group)?;
    if work.is_exchange() && private.is_none() {
        // On all ranks alike. The next call that blocks makes one, if it may.
        *wants_private = !process.communicators.is_held(*comm);
        return Err(Reason::NotYet);
    }
    let outcome = work.outcome();
    let private = private.as_ref().map(|private| private.comm);
    let begin = Begin { process, config, slot: communicator.slot(), group, private };
    let memory = || communicator.quantization().memory.clone();
    // SAFETY: an argument of the program's.
    let open = || unsafe { process.requests.open(&process.mpi, request) };
    // SAFETY: buffers of the program's.
    unsafe { begin.work(work, judged.case(), memory, open) };
    Ok(outcome)
}

/// The place where a call begins: a slot's group.
pub(super) struct Begin<'a> {
    pub process: &'static Process,
    pub config: &'a Config,
    pub slot: &'a Arc<GroupSlot>,
    pub group: &'a mut Group,
    /// A communicator for messages beside the group's.
    pub private: Option<Handle>,
}

impl Begin<'_> {
    /// Begins a call's work. `memory` is for a sum that is quantized; `open` makes the call's request.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi), until the request is complete.
    pub(super) unsafe fn work(
        self,
        work: Work,
        case: Case<'_>,
        memory: impl FnOnce() -> Lender,
        open: impl FnOnce() -> Open,
    ) {
        let script = match work.script(memory) {
            Ok(script) => script,
            // SAFETY: as demanded of this function.
            Err(fit) => return unsafe { self.plan(plan(case, fit), open) },
        };
        let request = open();
        let over = Outcome::default();
        // SAFETY: as demanded of this function.
        unsafe {
            self.group.engine.run(script, self.config.shared.algorithm, Arc::clone(&over));
        }
        self.add(over, Prepared::script(), request);
    }

    /// # Safety
    /// As [`Begin::work`].
    unsafe fn plan(self, plan: Plan, open: impl FnOnce() -> Open) {
        // SAFETY: as demanded of this function.
        unsafe {
            let (job, mut prepared) = prepare(&self.process.mpi, plan);
            prepared.keep_type(&self.process.mpi);
            if let Some(private) = self.private {
                prepared.begin_messages(&self.process.mpi, private);
            }
            let request = open();
            let over = Outcome::default();
            let engine = &mut self.group.engine;
            let algorithm = engine.algorithm(&job, self.config.shared.algorithm);
            engine.start_in_turn(job, algorithm, Arc::clone(&over));
            self.add(over, prepared, request);
        }
    }

    fn add(self, over: Outcome, prepared: Prepared, request: Open) {
        let Self { process, slot, group, .. } = self;
        group.engine.poll(Instant::now);
        process.requests.add(&process.mpi, Arc::clone(slot), over, prepared, request);
    }
}
