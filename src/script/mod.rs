//! A call as a list of steps: jobs for the group, and local work before, between and after them.
//!
//! A script says what comes next, and never waits. A runner has each job done, and tells the script how that ended
//! ([`crate::dispatch`]). All ranks take the same steps, since a script decides by facts that all ranks share: the call,
//! the settings and the results of its own jobs.
#![allow(unsafe_code)]

mod quantized;

use std::ffi::c_int;

use crate::engine::Job;
use crate::mpi::Mpi;
use crate::wire::Mismatch;

pub use quantized::{Quantized, Request};

/// A call under way, between two jobs.
pub trait Script {
    /// Does the local work that is due, and says what comes next. `outcome` tells how the job before ended; the first time
    /// there was none.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi). The job of the step before is over.
    unsafe fn next(&mut self, mpi: &Mpi, outcome: Result<(), Mismatch>) -> Step;
}

/// The next step of a script.
pub enum Step {
    /// The group does a job, whose pointers stay until it is over.
    Job(Job, Ways),
    /// The call is over, and MPI returns this.
    Over(c_int),
    /// The call has changed nothing, and goes another way, on all ranks alike.
    Otherwise,
}

/// The ways that a job may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// The usual one.
    Usual,
    /// It sums integers of so many bytes each, in place: an Allreduce, whose ways are compared, the real MPI among them.
    Compared { width: usize },
}
