//! Running collectives of a group to their end.
#![allow(unsafe_code)]

use crate::bindings::FB_TYPE_U64;
use crate::group::{Group, Job, Pattern};
use crate::setup::Context;
use crate::wait::Waiter;
use crate::wire::Algorithm;

/// Runs a job to its end, and lets MPI make progress meanwhile.
///
/// # Safety
/// The job's pointers are as its fields say.
pub unsafe fn complete(context: &Context<'_>, group: &mut Group, job: Job, by: Algorithm) {
    // SAFETY: the caller's promise.
    let ticket = unsafe { group.start(job, by, None) };
    let mut waiter = Waiter::new(context.mpi, context.nothing);
    loop {
        let moved = group.poll(|| waiter.now());
        if group.is_over(ticket) {
            return;
        }
        if moved {
            waiter.moved();
        }
        waiter.turn();
    }
}

/// Folds words of all ranks, for foldback itself; `op` is of `enum fb_op`. Collective.
pub fn fold_words(context: &Context<'_>, group: &mut Group, op: u32, words: &mut [u64]) {
    let data = words.as_mut_ptr().cast::<u8>();
    let job = Job {
        pattern: Pattern::FoldToAll,
        op: op as u8,
        element: FB_TYPE_U64 as u8,
        bytes: size_of_val(words),
        send: data,
        recv: data,
    };
    let by = group.usual_fold(job.bytes);
    // SAFETY: the words stay until it is over.
    unsafe { complete(context, group, job, by) };
}
