//! Non-blocking collectives: begun here, ended in waits and tests ([`crate::requests`]).
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use super::{Judged, NotFinite, Numbers, Quantized};
use crate::codec::{Prepared, prepare};
use crate::collectives::{fit, plan};
use crate::comm::GroupSlot;
use crate::config::Config;
use crate::engine::Outcome;
use crate::gate::Reason;
use crate::group::Group;
use crate::leaf::arithmetic::Real;
use crate::leaf::quantize::Lender;
use crate::plan::Plan;
use crate::process::Process;
use crate::requests::Open;
use crate::stats::Way;

/// Starts a call whose arguments have been judged. Returns its way.
///
/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi).
pub(super) unsafe fn start(judged: Judged<'_>, request: *mut c_void) -> Result<Way, Reason> {
    let Judged { process, config, communicator, .. } = &judged;
    judged.unless_revoked()?;
    let mut guard = communicator.folding_now()?;
    let group = &mut guard.as_mut().ok_or(Reason::NotYet)?.group;
    let begin = Begin { process, config, slot: communicator.slot(), group };
    // SAFETY: an argument of the program's.
    let open = || unsafe { process.requests.open(&process.mpi, request) };
    if let Some(sum) = judged.numbers_within(begin.group) {
        let memory = communicator.quantization().memory.clone();
        // SAFETY: buffers of the program's.
        unsafe { begin.quantized(sum, memory, open) };
        return Ok(Way::Quantized);
    }
    judged.unless_too_large()?;
    let case = judged.case();
    let fit = fit(case, &mut begin.group.engine.place)?;
    let plan = plan(case, fit);
    // SAFETY: buffers of the program's.
    unsafe { begin.planned(plan, open) };
    Ok(Way::Folded)
}

/// The place where a call begins: a slot's group.
pub(super) struct Begin<'a> {
    pub process: &'static Process,
    pub config: &'a Config,
    pub slot: &'a Arc<GroupSlot>,
    pub group: &'a mut Group,
}

impl Begin<'_> {
    /// Begins a plan; `open` makes its request.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi), until the request is complete.
    pub(super) unsafe fn planned(self, plan: Plan, open: impl FnOnce() -> Open) {
        // SAFETY: as demanded of this function.
        unsafe {
            let (job, mut prepared) = prepare(&self.process.mpi, plan);
            prepared.keep_type(&self.process.mpi);
            let request = open();
            let over = Outcome::default();
            let engine = &mut self.group.engine;
            let algorithm = engine.algorithm(&job, self.config.shared.algorithm);
            engine.start_in_turn(job, algorithm, Arc::clone(&over));
            self.add(over, prepared, request);
        }
    }

    /// Begins a sum that is quantized, with a lender's memory; `open` makes its request.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi), until the request is complete.
    pub(super) unsafe fn quantized(
        self,
        (numbers, real): (Numbers, Real),
        memory: Lender,
        open: impl FnOnce() -> Open,
    ) {
        let request = open();
        let over = Outcome::default();
        let script = Box::new(Quantized::new(numbers, NotFinite::AsItIs(real), memory));
        // SAFETY: as demanded of this function.
        unsafe {
            self.group.engine.run(script, self.config.shared.algorithm, Arc::clone(&over));
        }
        self.add(over, Prepared::script(), request);
    }

    fn add(self, over: Outcome, prepared: Prepared, request: Open) {
        let Self { process, slot, group, .. } = self;
        group.engine.poll(Instant::now);
        process.requests.add(&process.mpi, Arc::clone(slot), over, prepared, request);
    }
}
