//! The locks in memory that programs and processes share.

use std::sync::atomic::{AtomicU32, Ordering};

/// A taken lock.
pub(super) struct Locked<'a>(&'a AtomicU32);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Takes a lock, which keeps the programs out. They hold it for microseconds, and never wait with it taken.
pub(super) fn lock(word: &AtomicU32) -> Locked<'_> {
    while word.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::hint::spin_loop();
    }
    Locked(word)
}
