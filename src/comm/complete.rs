//! Running collectives of a group to their end.
#![allow(unsafe_code)]

use crate::engine::{Job, Pattern};
use crate::group::Group;
use crate::leaf::arithmetic::{Arithmetic, Element, Operator};
use crate::mpi::Mpi;
use crate::setup::Context;
use crate::wait::Waiter;
use crate::wire::{Algorithm, Mismatch};

/// Runs a job to its end, and lets MPI make progress meanwhile. If there can be none, since the ranks are in
/// different collectives, ends the MPI job.
///
/// # Errors
/// In what the ranks differed.
///
/// # Safety
/// What [`Job`] says of its pointers.
pub unsafe fn complete(
    context: &Context<'_>,
    group: &mut Group,
    job: Job,
    by: Algorithm,
) -> Result<(), Mismatch> {
    if group.engine.has_scripts() {
        wait_for_turn(context, group);
    }
    // SAFETY: the job's pointers, until this function returns.
    let ticket = unsafe { group.engine.start(job, by, None) };
    let mut waiter = Waiter::new(context.mpi);
    loop {
        let moved = group.engine.poll(|| waiter.now());
        if group.engine.is_over(ticket) {
            return group.engine.outcome(ticket);
        }
        if group.engine.is_out_of_step() {
            out_of_step(context.mpi);
        }
        if moved {
            waiter.made_progress();
        }
        waiter.wait_a_turn();
    }
}

/// Waits until the scripts are over that the program started before.
#[cold]
fn wait_for_turn(context: &Context<'_>, group: &mut Group) {
    let mut waiter = Waiter::new(context.mpi);
    while group.engine.has_scripts() {
        if group.engine.poll(|| waiter.now()) {
            waiter.made_progress();
        }
        if group.engine.is_out_of_step() {
            out_of_step(context.mpi);
        }
        waiter.wait_a_turn();
    }
}

/// Ends the job, whose ranks are in different collectives.
#[cold]
pub fn out_of_step(mpi: &Mpi) -> ! {
    log::error!("{}; they would wait for ever", Mismatch::OutOfStep);
    mpi.abort(mpi.abi.comm_world)
}

/// Folds words of all ranks, for foldback itself. Collective.
pub fn fold_words(context: &Context<'_>, group: &mut Group, op: Operator, words: &mut [u64]) {
    let data = words.as_mut_ptr().cast::<u8>();
    let job = Job {
        pattern: Pattern::FoldToAll(Arithmetic { op, element: Element::U64 }),
        bytes: size_of_val(words),
        send: data,
        recv: data,
    };
    let by = group.engine.usual_fold(job.bytes);
    // SAFETY: the words stay until it is over.
    let outcome = unsafe { complete(context, group, job, by) };
    if outcome.is_err() {
        // These words are as many everywhere.
        out_of_step(context.mpi);
    }
}
