//! Memory that the ranks of one host share, in a group: made by the leader, passed as a descriptor.
//!
//! ```text
//!   line 0: folded   line 1: done   (of the leader)
//!   line 2+2i: arrived   line 3+2i: read   (of local rank i)
//!   behind done and arrived, in their lines: of what message the last two rounds are
//!   slots: one block for each local rank      results: two blocks
//! ```
//!
//! A line is 64 bytes, so that a rank polls a cache line that only its owner writes.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that one round moves at most.
pub const BLOCK: usize = 64 << 10;
const LINE: usize = 64;

/// The shared memory of a group on one host.
pub struct Segment {
    map: memmap2::MmapMut,
    ranks: usize,
}

/// A counter of the segment.
#[derive(Clone, Copy, Debug)]
pub enum Counter {
    /// Leader: the contributions of rounds up to this have been read.
    Folded,
    /// Leader: the results of rounds up to this are there.
    Done,
    /// Local rank: its contributions up to this round are there.
    Arrived(usize),
    /// Local rank: it has read the results of rounds up to this.
    Read(usize),
}

impl Segment {
    fn bytes(ranks: usize) -> usize {
        Self::slots_at(ranks) + (ranks + 2) * BLOCK
    }

    fn slots_at(ranks: usize) -> usize {
        (LINE * (2 + 2 * ranks)).next_multiple_of(4096)
    }

    /// Makes the memory, for `ranks` ranks. The descriptor is for the others.
    ///
    /// # Errors
    /// A system error.
    pub fn create(ranks: usize) -> io::Result<(Self, OwnedFd)> {
        use nix::fcntl::{FcntlArg, SealFlag, fcntl};
        use nix::sys::memfd::{MFdFlags, memfd_create};
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(c"foldback-leaf", flags)?;
        nix::unistd::ftruncate(&file, Self::bytes(ranks) as i64)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(file.as_fd(), FcntlArg::F_ADD_SEALS(seals))?;
        Ok((Self::open(&file, ranks)?, file))
    }

    /// Maps the memory that the leader made.
    ///
    /// # Errors
    /// A system error; or the memory is not of the size that `ranks` ranks need.
    pub fn open(file: &OwnedFd, ranks: usize) -> io::Result<Self> {
        let bytes = Self::bytes(ranks);
        if nix::sys::stat::fstat(file)?.st_size != bytes as i64 {
            return Err(io::Error::other("the shared segment has a wrong size"));
        }
        // SAFETY: the file is sealed against shrinking; what others write to it is read through
        // atomics or, by the rounds' rules, while they do not write.
        let map = unsafe { memmap2::MmapOptions::new().len(bytes).map_mut(file)? };
        Ok(Self { map, ranks })
    }

    fn counter(&self, counter: Counter) -> &AtomicU64 {
        let line = match counter {
            Counter::Folded => 0,
            Counter::Done => 1,
            Counter::Arrived(rank) => 2 + 2 * rank,
            Counter::Read(rank) => 3 + 2 * rank,
        };
        assert!(line < 2 + 2 * self.ranks);
        // SAFETY: inside the map, aligned to a line, and only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(self.map.as_ptr().add(line * LINE).cast_mut().cast()) }
    }

    /// Value of a counter; what was written before it was set is visible then.
    #[inline]
    pub fn get(&self, counter: Counter) -> u64 {
        self.counter(counter).load(Ordering::Acquire)
    }

    /// Sets a counter, after what was written before.
    #[inline]
    pub fn set(&self, counter: Counter, round: u64) {
        self.counter(counter).store(round, Ordering::Release);
    }

    /// Behind a counter: the message of a round, see `struct fb_frame`. Two rounds are kept: a rank may
    /// read the first when the leader has set the second.
    fn message(&self, counter: Counter, round: u64) -> &AtomicU64 {
        // SAFETY: in the counter's line.
        unsafe { AtomicU64::from_ptr(self.counter(counter).as_ptr().add(1 + (round & 1) as usize)) }
    }

    /// Sets the message of the round that a counter is about to be set to.
    pub fn set_message(&self, counter: Counter, round: u64, message: u64) {
        self.message(counter, round).store(message, Ordering::Relaxed);
    }

    /// The message of a round, for a rank that has seen the counter set to it.
    pub fn get_message(&self, counter: Counter, round: u64) -> u64 {
        self.message(counter, round).load(Ordering::Relaxed)
    }

    /// Block of local rank `rank`'s contributions.
    pub fn slot(&self, rank: usize) -> *mut u8 {
        assert!(rank < self.ranks);
        // SAFETY: inside the map.
        unsafe { self.map.as_ptr().cast_mut().add(Self::slots_at(self.ranks) + rank * BLOCK) }
    }

    /// Block of the result of `round`.
    pub fn result(&self, round: u64) -> *mut u8 {
        let block = self.ranks + (round & 1) as usize;
        // SAFETY: inside the map.
        unsafe { self.map.as_ptr().cast_mut().add(Self::slots_at(self.ranks) + block * BLOCK) }
    }
}
