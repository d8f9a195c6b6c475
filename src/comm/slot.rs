//! The place of a group, which threads work in by turns.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Folding;

/// The place of one group: a communicator's, or a persistent collective's. It outlives both where peers may still ask
/// for something.
pub struct GroupSlot(Mutex<Option<Box<Folding>>>);

/// A group, held by one thread; `None`: not set up (yet).
pub type Held<'a> = MutexGuard<'a, Option<Box<Folding>>>;

impl GroupSlot {
    pub(super) fn new(folding: Option<Box<Folding>>) -> Self {
        Self(Mutex::new(folding))
    }

    /// The group, whatever else is known of it.
    #[inline]
    pub fn folding(&self) -> Held<'_> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group, unless somebody is at it.
    #[inline]
    pub fn try_folding(&self) -> Option<Held<'_>> {
        self.0.try_lock().ok()
    }
}
