//! Non-blocking collectives: what is under way, and the MPI requests that stand for it.
//!
//! A request is a receive from this process itself, on a communicator of its own, that a message of no
//! bytes completes when the collective is over. So it is a real request in every MPI, good for every
//! wait and test, beside others of any kind.
//!
//! The kernels of all hosts do the work while the program computes. User space takes results in, sends what did not fit
//! into the window, and asks for what was lost. It does so when the program waits or tests, and now and then by a
//! thread. So no peer hangs because this process computes, or sits in a receive. The thread calls no MPI: it needs no
//! MPI_THREAD_MULTIPLE. Unpacking and completing is left to the threads of the program.
#![allow(unsafe_code)]

pub mod persistent;
mod tags;
#[cfg(test)]
mod tests;
pub mod work;

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::codec::{Prepared, SUCCESS};
use crate::comm::{GroupSlot, out_of_step};
use crate::engine::Outcome;
use crate::mpi::Mpi;
use crate::threads;
use tags::{Tag, Tags};

/// Pause of the thread between two looks: short beside a computation that is worth overlapping, and
/// long beside the 10 us that a look takes. While nothing moves it doubles, up to the longest: see
/// `RESTLESS` in `wait.rs`.
const PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(4);
/// Time for which it goes on looking when nothing is under way. Waking it takes a system call of the program and a
/// CPU's change of threads, each time a collective is started.
const LINGER: Duration = Duration::from_millis(10);

/// A collective under way.
struct Pending {
    group: Arc<GroupSlot>,
    over: Outcome,
    prepared: Prepared,
    request: Open,
}

/// The ranks are in different collectives.
struct OutOfStep;

/// A request that is not complete.
#[derive(Clone, Copy)]
pub struct Open {
    /// The message that completes it.
    tag: Tag,
    /// The request itself, as C has it.
    handle: u64,
    /// It is persistent, and keeps its tag.
    persistent: bool,
}

/// Handles and tags that requests have.
pub struct OpenOnes {
    /// Of folded collectives that are under way.
    pub handles: HashSet<u64>,
    tags: Tags,
}

/// All that is under way in this process.
pub struct Requests {
    pending: Mutex<Vec<Pending>>,
    /// Length of `pending`.
    outstanding: AtomicUsize,
    open: Mutex<OpenOnes>,
    helper: OnceLock<Option<thread::JoinHandle<()>>>,
    /// Persistent collectives, under way or not.
    pub persistent: persistent::Table,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            pending: Mutex::default(),
            outstanding: AtomicUsize::default(),
            open: Mutex::new(OpenOnes { handles: HashSet::new(), tags: Tags::new(tags::OF_ONE) }),
            helper: OnceLock::new(),
            persistent: persistent::Table::default(),
        }
    }
}

fn no_request(mpi: &Mpi) -> ! {
    log::error!("MPI could not make a request for a collective");
    mpi.abort(mpi.abi.comm_world)
}

impl Requests {
    /// Whether anything is under way.
    #[inline]
    pub fn any(&self) -> bool {
        self.outstanding.load(Ordering::Acquire) > 0
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tag that no other request has, with its communicator. Without one the program could not go on: ends
    /// the job.
    fn take_tag(&self, mpi: &Mpi) -> Tag {
        let make = |first| if first { mpi.private_self() } else { mpi.another_private_self() };
        self.open_ones().tags.take(make).unwrap_or_else(|| no_request(mpi))
    }

    /// Makes a request that is open until the message of the tag that is returned completes it. `request` is
    /// where the program wants it. Without one the program could not go on: ends the job.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi): there is room for a request.
    pub unsafe fn open(&self, mpi: &Mpi, request: *mut c_void) -> Open {
        let tag = self.take_tag(mpi);
        let (nothing, byte) = (std::ptr::null_mut(), mpi.abi.byte);
        // SAFETY: nothing is received; the program's request, of the width of this MPI's handles.
        let made = unsafe {
            (mpi.pmpi.irecv)(nothing, 0, byte, 0, tag.tag, tag.comm, request.cast()) == 0
        };
        if !made {
            no_request(mpi);
        }
        // SAFETY: just written.
        let handle = unsafe { mpi.abi.request_at(request, 0) };
        Open { tag, handle, persistent: false }
    }

    /// Handles and tags of requests.
    pub fn open_ones(&self) -> MutexGuard<'_, OpenOnes> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a collective that has been started.
    pub fn add(
        &'static self,
        mpi: &Mpi,
        group: Arc<GroupSlot>,
        over: Outcome,
        prepared: Prepared,
        request: Open,
    ) {
        self.open_ones().handles.insert(request.handle);
        let mut pending = self.lock();
        pending.push(Pending { group, over, prepared, request });
        self.outstanding.store(pending.len(), Ordering::Release);
        drop(pending);
        // An operation that needed nobody else may be over already.
        self.progress(mpi);
        if !self.any() {
            return;
        }
        match self.helper.get_or_init(|| threads::start("foldback", || self.help()).ok()) {
            Some(helper) => helper.thread().unpark(),
            None => log::warn!("no helper thread: non-blocking collectives need MPI_Test to go on"),
        }
    }

    fn help(&self) {
        let (mut used, mut pause) = (Instant::now(), PAUSE);
        loop {
            pause = (pause * 2).min(LONGEST_PAUSE);
            if self.any() {
                used = Instant::now();
                // A thread that waits sees that ranks are out of step.
                if self.pending.try_lock().is_ok_and(|pending| poll(&pending).unwrap_or(false)) {
                    pause = PAUSE;
                }
            } else if used.elapsed() > LINGER {
                thread::park();
                (used, pause) = (Instant::now(), PAUSE);
            }
            thread::sleep(pause);
        }
    }

    /// Does what can be done for all that is under way, and completes what is over. Returns the number of operations
    /// that ended, and whether anything moved.
    pub fn progress(&self, mpi: &Mpi) -> (usize, bool) {
        // Somebody else is at it, perhaps this very thread, further up.
        let Ok(mut pending) = self.pending.try_lock() else { return (0, false) };
        let moved = match poll(&pending) {
            Ok(moved) => moved,
            Err(OutOfStep) => out_of_step(mpi),
        };
        let is_over = |pending: &mut Pending| {
            pending.over.get().is_some() && pending.prepared.are_messages_over(mpi)
        };
        let over: Vec<_> = pending.extract_if(.., is_over).collect();
        self.outstanding.store(pending.len(), Ordering::Release);
        drop(pending);
        let ended = over.len();
        for Pending { prepared, request, over, .. } in over {
            let outcome = over.get().copied().unwrap_or(Ok(()));
            // SAFETY: it is over; the program keeps its buffers until the request is.
            let code = unsafe { prepared.end(mpi, outcome) };
            if code != SUCCESS {
                // Its own communicator may have been freed.
                mpi.handle_error(mpi.abi.comm_world, code);
            }
            let Open { tag, handle, persistent } = request;
            // First, since from then on the MPI may give the handle to another request. One that takes the tag
            // at once is behind this one among the receives, so each still gets a message of its own or of an
            // earlier one.
            let mut open = self.open_ones();
            open.handles.remove(&handle);
            if !persistent {
                open.tags.give_back(tag);
            }
            drop(open);
            // SAFETY: a message of no bytes to this process, which has its receive posted.
            unsafe { (mpi.pmpi.send)(std::ptr::null(), 0, mpi.abi.byte, 0, tag.tag, tag.comm) };
        }
        (ended, moved)
    }
}

/// Polls the group of everything that is under way; says whether anything moved.
fn poll(pending: &[Pending]) -> Result<bool, OutOfStep> {
    let mut moved = false;
    let mut last: Option<&Arc<GroupSlot>> = None;
    for pending in pending {
        // Most programs use one communicator at a time.
        if last.is_some_and(|last| Arc::ptr_eq(last, &pending.group)) {
            continue;
        }
        last = Some(&pending.group);
        // A thread that holds the group polls it, too.
        if let Some(mut folding) = pending.group.try_folding()
            && let Some(folding) = folding.as_mut()
        {
            moved |= folding.group.engine.poll(Instant::now);
            if folding.group.engine.is_out_of_step() {
                return Err(OutOfStep);
            }
        }
    }
    Ok(moved)
}
