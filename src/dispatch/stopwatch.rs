//! Timing calls, folded or left to the real MPI, whose ways are compared.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use crate::comm::Communicator;
use crate::route::{ClassId, Way};

thread_local! {
    /// Set while the real MPI does a blocking collective in our stead.
    static PASSING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the real MPI does a collective in our stead now, in this thread.
pub(super) fn is_running() -> bool {
    PASSING.get()
}

/// A collective that the real MPI does though it might have been folded.
pub struct Stopwatch {
    communicator: Arc<Communicator>,
    id: ClassId,
    /// When it began, if that matters.
    begin: Option<Instant>,
}

impl Stopwatch {
    pub(super) fn start(
        communicator: Arc<Communicator>,
        id: ClassId,
        begin: Option<Instant>,
    ) -> Self {
        PASSING.set(true);
        Self { communicator, id, begin }
    }

    pub fn stop(self) {
        PASSING.set(false);
        if let Some(begin) = self.begin {
            took(&self.communicator, self.id, Way::Mpi, begin);
        }
    }
}

/// A timed call has ended.
pub(super) fn took(communicator: &Communicator, id: ClassId, way: Way, begin: Instant) {
    let nanoseconds = begin.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
    if let Some(folding) = communicator.folding().as_mut()
        && let Some(class) = folding.router.known(id)
    {
        class.took(way, nanoseconds);
    }
}
