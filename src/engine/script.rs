//! A call as a list of steps: jobs for the group, and local work before, between and after them.
//!
//! A script says what comes next, and never waits. A runner has each job done, and tells the script how that ended. The
//! engine runs scripts of calls that do not block ([`super::Engine::run`]). A call that blocks runs its script itself,
//! since the real MPI may do a job of it.
//!
//! All ranks take the same steps. For a script decides by facts that all ranks share: the call, the settings and the
//! results of its own jobs.
#![allow(unsafe_code)]

use super::Job;
use crate::wire::Mismatch;

/// A call under way, between two jobs. It calls no MPI, so any thread may take its steps.
pub trait Script: Send {
    /// Does the local work that is due, and says what comes next. `outcome` tells how the job before ended; the first
    /// time there was none.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi). The job of the step before is over.
    unsafe fn next(&mut self, outcome: Result<(), Mismatch>) -> Step;
}

/// The next step of a script.
pub enum Step {
    /// The group does a job, whose pointers stay until it is over.
    Job(Job, Ways),
    /// The call is over, or ranks differ in it.
    Over(Result<(), Mismatch>),
    /// The call has changed nothing, and goes another way, on all ranks alike. Only scripts of calls that block say so.
    Otherwise,
}

/// The ways that a job may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// The usual one.
    Usual,
    /// It is an Allreduce in place, a sum of integers, whose ways are compared, the real MPI among them.
    Compared {
        /// Bytes of an integer.
        width: usize,
    },
}
