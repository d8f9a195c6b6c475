//! Processes on a [stand-in](crate::mpi::stand_in) for the MPI, for tests.

use std::sync::atomic::Ordering;

use super::{PROCESS, Process};
use crate::config::Config;
use crate::mpi::Mpi;

/// A process in which MPI has started, with these settings. It stays.
pub(crate) fn started(mpi: Mpi, config: Result<Config, String>) -> &'static Process {
    let process: &'static Process = Box::leak(Box::new(Process::new(mpi, config)));
    process.is_running.store(true, Ordering::Relaxed);
    process
}

/// Has the exported functions find a process that folds nothing, on this MPI or the stand-in of another test.
pub(crate) fn set(mpi: Mpi) {
    let process = PROCESS.get_or_init(|| Some(Process::new(mpi, Ok(Config::default()))));
    assert!(process.is_some(), "a test has looked for the real MPI");
}
