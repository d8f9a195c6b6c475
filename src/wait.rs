//! Waiting without standing in anyone's way.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::mpi::Mpi;

/// Polls before the CPU is offered to others: at most, and where a process starts.
const MOST_SPINS: u32 = 256;
const FIRST_SPINS: u32 = 32;
/// Yields from one drive of the MPI's progress to the next, and from one look at the clock to the next. Driving it
/// costs 0.2 to 0.7 us, so it must not come with every short wait. The messages that it lets through (a rendezvous
/// send, say) can wait for the few microseconds of a short one.
const PROGRESS_EVERY: u32 = 64;
const CLOCK_EVERY: u32 = 8;
/// A yield may take a time slice where CPUs are short, so progress is driven by the clock too.
const PROGRESS_WITHIN: Duration = Duration::from_micros(500);
/// After so long without movement a wait sleeps between its looks. Some threads have a sibling that wakes every half
/// millisecond (the helper thread, the MPI's own). If they yield in a loop, they starve processes of other
/// sessions for seconds on Linux 6.18, and the rank that is waited for may be among them.
const RESTLESS: Duration = Duration::from_millis(5);
const NAP: Duration = Duration::from_micros(50);

/// How long this process spins now. Grows while waits end in the spin, shrinks while they do not:
/// where hosts have more ranks than CPUs, whoever is waited for needs this CPU.
static SPINS: AtomicU32 = AtomicU32::new(FIRST_SPINS);

/// One wait of one rank.
///
/// While a rank waits for frames, messages that the program posted before must still get through. Otherwise two ranks
/// may wait for each other: the peer may have to receive a rendezvous send before it comes to our collective. So every
/// wait drives the real MPI's progress.
pub struct Waiter<'a> {
    mpi: &'a Mpi,
    spins: u32,
    turns: u32,
    /// Read when first asked for: most waits end before.
    now: Option<Instant>,
    /// When something was last seen to move, and when progress was last driven, as far as `now` tells.
    moved: Option<Instant>,
    drove: Option<Instant>,
}

impl<'a> Waiter<'a> {
    /// A wait that begins now.
    pub fn new(mpi: &'a Mpi) -> Self {
        let spins = SPINS.load(Ordering::Relaxed);
        Self { mpi, spins, turns: 0, now: None, moved: None, drove: None }
    }

    /// To be called whenever there was nothing to do.
    #[inline]
    pub fn wait_a_turn(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns <= self.spins {
            std::hint::spin_loop();
        } else {
            self.offer();
        }
    }

    /// To be called whenever something moved, but not all that is waited for.
    #[inline]
    pub fn made_progress(&mut self) {
        self.moved = None;
        self.turns = self.turns.min(self.spins);
    }

    #[cold]
    fn offer(&mut self) {
        let yields = self.turns - self.spins;
        if !yields.is_multiple_of(CLOCK_EVERY) {
            return std::thread::yield_now();
        }
        let now = Instant::now();
        self.now = Some(now);
        let restless = now.duration_since(*self.moved.get_or_insert(now)) > RESTLESS;
        let drove = *self.drove.get_or_insert(now);
        if yields.is_multiple_of(PROGRESS_EVERY) || now.duration_since(drove) > PROGRESS_WITHIN {
            self.drove = Some(now);
            self.mpi.progress();
        }
        if restless {
            // The next turn looks at the clock again.
            self.turns = self.turns.wrapping_add(CLOCK_EVERY - 1);
            std::thread::sleep(NAP);
        } else {
            std::thread::yield_now();
        }
    }

    /// The time, some turns ago at most.
    pub fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(Instant::now)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let next = if self.turns <= self.spins {
            (self.spins + 1 + self.spins / 8).min(MOST_SPINS)
        } else {
            self.spins / 2
        };
        if next != self.spins {
            SPINS.store(next, Ordering::Relaxed);
        }
    }
}
