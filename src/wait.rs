//! Waiting without standing in anyone's way.

use std::time::Instant;

use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;

/// Polls before the CPU is offered to others.
const SPIN: u32 = 32;
/// Turns from one drive of the MPI's progress to the next, and from one look at the clock to the
/// next. A probe costs 0.2 to 0.7 us, a yield with nobody else to run about as much.
const PROGRESS_EVERY: u32 = 32;
const CLOCK_EVERY: u32 = 8;

/// One wait of one rank.
///
/// While a rank waits for frames, messages that the program posted before must still get through,
/// or two ranks may wait for each other (a rendezvous send, say, that the peer must receive before
/// it comes to our collective). So every wait drives the real MPI's progress.
pub struct Waiter<'a> {
    mpi: &'a Mpi,
    /// A communicator on which there are never messages.
    nothing: Handle,
    turns: u32,
    now: Instant,
}

impl<'a> Waiter<'a> {
    /// A wait that begins now.
    pub fn new(mpi: &'a Mpi, nothing: Handle) -> Self {
        Self { mpi, nothing, turns: 0, now: Instant::now() }
    }

    /// To be called whenever there was nothing to do.
    pub fn turn(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns < SPIN {
            std::hint::spin_loop();
            return;
        }
        if self.turns.is_multiple_of(PROGRESS_EVERY) {
            self.mpi.progress(self.nothing);
        }
        if self.turns.is_multiple_of(CLOCK_EVERY) {
            self.now = Instant::now();
        }
        std::thread::yield_now();
    }

    /// The time, some turns ago at most.
    pub fn now(&self) -> Instant {
        self.now
    }
}
