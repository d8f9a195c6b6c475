//! Which way the calls of this process go, and what it takes to know: running folds to their end, timing
//! them and what the real MPI does in their stead.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::{Communicator, Running, Runtime};
use crate::bindings::{FB_OP_SUM, FB_TYPE_U64};
use crate::collective::Call;
use crate::collective::admit::Admitted;
use crate::config::Config;
use crate::group::{Group, Job, Pattern};
use crate::router::class::Step;
use crate::router::{self, ClassId, RouteLine, Way};
use crate::wait::Waiter;
use crate::wire::Algorithm;

thread_local! {
    /// Set while the real MPI does a blocking collective in our stead.
    pub(super) static PASSING: Cell<bool> = const { Cell::new(false) };
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

    /// It is over.
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
    if let Some(group) = communicator.group().as_mut()
        && let Some(class) = group.router.known(id)
    {
        class.took(way, nanoseconds);
    }
}

impl Runtime {
    /// Runs a job to its end.
    ///
    /// SAFETY of callers: the job's pointers are as its fields say.
    pub(super) unsafe fn complete(
        &self,
        running: &Running,
        group: &mut Group,
        job: Job,
        by: Algorithm,
    ) {
        // SAFETY: the caller's promise.
        let ticket = unsafe { group.start(job, by, None) };
        let mut waiter = Waiter::new(&self.mpi, running.nothing);
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

    /// Which way a call goes that fits and whose ways are compared; if it is time to, the ranks add up first what they
    /// have measured.
    pub(super) fn route(
        &self,
        running: &Running,
        call: &Call,
        admitted: &Admitted,
        config: &Config,
        group: &mut Group,
    ) -> (ClassId, Step) {
        let collective = call.collective;
        let bytes = router::bytes_in_all(collective, admitted.bytes, group.place.layout.ranks());
        let id = ClassId::new(collective, bytes);
        if let Some(mut sums) = group.router.known(id).and_then(|class| class.due()) {
            let words = sums.as_mut_ptr().cast::<u8>();
            let job = Job {
                pattern: Pattern::FoldToAll,
                op: FB_OP_SUM as u8,
                element: FB_TYPE_U64 as u8,
                bytes: size_of_val(&sums),
                send: words,
                recv: words,
            };
            let by = group.usual_fold(job.bytes);
            // SAFETY: the words stay until it is over.
            unsafe { self.complete(running, group, job, by) };
            if let Some(class) = group.router.known(id) {
                class.agreed(sums);
            }
        }
        let usual = if bytes > config.shared.max_bytes[collective as usize] {
            Way::Mpi
        } else {
            Way::Fold(group.usual_fold(bytes))
        };
        (id, group.router.class(id, usual).next())
    }

    /// What was chosen for COMM_WORLD; of rank 0, for all choose alike.
    pub(super) fn routes(&self) -> Vec<RouteLine> {
        let world = self.mpi.abi.comm_world;
        if self.mpi.rank(world) != 0 {
            return Vec::new();
        }
        let known = self.communicators.read().unwrap_or_else(PoisonError::into_inner);
        let group = known.get(&world).map(|world| world.group());
        group.and_then(|group| Some(group.as_ref()?.router.lines())).unwrap_or_default()
    }
}

/// How a job goes whose ways are not compared.
pub(super) fn usual_algorithm(config: &Config, group: &Group, job: &Job) -> Algorithm {
    let usual = group.usual_algorithm(job);
    if job.is_for_user_space() { usual } else { config.shared.algorithm.unwrap_or(usual) }
}
