//! Calls whose ways are compared: choosing one, and timing it, folded or left to the real MPI.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use super::Judged;
use crate::call::{Call, Collective};
use crate::choice::{ClassId, Step, Way};
use crate::comm::{Communicator, Folding, fold_words};
use crate::leaf::arithmetic::Operator;

thread_local! {
    /// The blocking collective that the real MPI does in our stead.
    static PASSING: Cell<Option<Passing>> = const { Cell::new(None) };
}

/// A call, and where on the stack it is described.
#[derive(Clone, Copy)]
struct Passing {
    at: *const Call,
    what: (Collective, *const c_void, *const c_void),
}

impl Passing {
    fn new(call: &Call) -> Self {
        let what = (call.collective, call.send.data.cast_const(), call.recv.data.cast_const());
        Self { at: ptr::from_ref(call), what }
    }
}

/// Whether the real MPI makes a call, to do the same one in our stead. It does so further down the stack. A stopwatch
/// may have been left behind: an error handler of the program's may jump out of the MPI.
pub(super) fn is_running(call: &Call) -> bool {
    let Some(passing) = PASSING.get() else { return false };
    let call = Passing::new(call);
    let nested = call.at < passing.at && call.what == passing.what;
    if !nested {
        PASSING.set(None);
    }
    nested
}

/// Chooses the way of a collective of so many bytes that fits and whose ways are compared. If it is time to, the ranks
/// first add up what they have measured.
pub(super) fn choose(
    judged: &Judged<'_>,
    folding: &mut Folding,
    collective: Collective,
    bytes: usize,
) -> (ClassId, Step) {
    let Judged { process, config, communicator, .. } = judged;
    let Folding { group, router, .. } = folding;
    let id = ClassId::new(collective as usize, bytes);
    if let Some(mut sums) = router.known(id).and_then(|class| class.due()) {
        fold_words(&process.context(), group, Operator::Sum, &mut sums);
        if let Some(change) = router.take_agreed(id, sums)
            && communicator.rank == 0
        {
            log::debug!("{change}");
        }
    }
    let usual = if bytes > config.shared.max_bytes[collective as usize] {
        Way::Mpi
    } else {
        Way::Fold(group.engine.usual_fold(bytes))
    };
    (id, router.class(id, usual).next())
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
        call: &Call,
    ) -> Self {
        PASSING.set(Some(Passing::new(call)));
        Self { communicator, id, begin }
    }

    pub fn stop(self) {
        if let Some(begin) = self.begin {
            record_time(&self.communicator, self.id, Way::Mpi, begin);
        }
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        PASSING.set(None);
    }
}

/// Records the time of a call that has ended.
pub(super) fn record_time(communicator: &Communicator, id: ClassId, way: Way, begin: Instant) {
    let nanoseconds = begin.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
    if let Some(folding) = communicator.folding().as_mut()
        && let Some(class) = folding.router.known(id)
    {
        class.record_time(way, nanoseconds);
    }
}
