//! Groups of the communicators that have the ranks of MPI_COMM_WORLD, in its order: its duplicates, and theirs.
//!
//! Libraries duplicate it, make a few calls there, and free the duplicate, which is sooner than a group is made. So
//! the group of one that is freed serves the next one, from its first call. Freeing is local: a rank may have
//! freed what another still uses. Which groups are free on all ranks, they tell each other at the first call
//! on the new communicator, by the MPI: on any other the ranks' calls may come in another order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Communicator, Communicators, Folding};
use crate::mpi::Membership;
use crate::mpi::pmpi::Handle;
use crate::setup::Context;

/// Most groups of the family; each has a bit in what the ranks tell each other.
const MOST: usize = 32;
/// The bit of whether a group may be made here.
const MAY_BE_MADE: u64 = 1 << 63;

/// The groups of the family.
#[derive(Default)]
pub(super) struct Family {
    state: Mutex<State>,
    /// Some thread is at it. What is agreed upon one at a time comes in one order on all ranks: nothing is
    /// agreed before all ranks take part.
    is_busy: AtomicBool,
}

#[derive(Default)]
struct State {
    /// In the order in which they were made, which is alike on all ranks.
    groups: Vec<Kept>,
    /// No more can be had.
    is_complete: bool,
}

struct Kept {
    /// Whose group it is, or was.
    communicator: Arc<Communicator>,
    is_freed: bool,
}

impl Kept {
    fn is_free(&self) -> bool {
        self.is_freed
            && self.communicator.try_folding().is_some_and(|folding| {
                folding.as_ref().is_some_and(|folding| folding.group.engine.is_idle())
            })
    }
}

impl Family {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One bit for each group that is free here, and [`MAY_BE_MADE`].
    fn offer(&self) -> u64 {
        let state = self.state();
        let bit = |(index, kept): (usize, &Kept)| u64::from(kept.is_free()) << index;
        let free: u64 = state.groups.iter().enumerate().map(bit).sum();
        let may_be_made = !state.is_complete && state.groups.len() < MOST;
        free | if may_be_made { MAY_BE_MADE } else { 0 }
    }

    /// Gives a group that is free on all ranks to a new communicator.
    fn take(&self, index: usize, for_whom: &Arc<Communicator>) -> Option<Box<Folding>> {
        let mut state = self.state();
        let kept = state.groups.get_mut(index)?;
        kept.is_freed = false;
        let before = std::mem::replace(&mut kept.communicator, Arc::clone(for_whom));
        before.folding().take()
    }

    fn add(&self, communicator: &Arc<Communicator>) {
        let communicator = Arc::clone(communicator);
        self.state().groups.push(Kept { communicator, is_freed: false });
    }

    /// A communicator has a new group in place of one that has lost its programs, and so has the family.
    pub(super) fn replace(&self, old: &Arc<Communicator>, new: &Arc<Communicator>) {
        let mut state = self.state();
        let mut all = state.groups.iter_mut();
        if let Some(kept) = all.find(|kept| Arc::ptr_eq(&kept.communicator, old)) {
            kept.communicator = Arc::clone(new);
        }
    }

    /// A communicator is freed. Returns whether its group is the family's.
    pub(super) fn give_back(&self, communicator: &Arc<Communicator>) -> bool {
        let mut state = self.state();
        let mut all = state.groups.iter_mut();
        let same = all.find(|kept| Arc::ptr_eq(&kept.communicator, communicator));
        same.is_some_and(|kept| !std::mem::replace(&mut kept.is_freed, true))
    }

    /// Those that are freed, at the end.
    pub(super) fn drain(&self) -> Vec<Arc<Communicator>> {
        let mut state = self.state();
        state.is_complete = true;
        let all = std::mem::take(&mut state.groups).into_iter();
        all.filter(|kept| kept.is_freed).map(|kept| kept.communicator).collect()
    }

    /// Has one thread at a time at it: `None` for the others.
    fn enter(&self) -> Option<Busy<'_>> {
        (!self.is_busy.swap(true, Ordering::Acquire)).then_some(Busy(self))
    }
}

/// This thread is at it.
struct Busy<'a>(&'a Family);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}

impl Communicators {
    /// The group of a freed relative, for the first call on a new communicator; or one made now that will serve
    /// relatives, unless there are enough. Collective.
    pub fn adopt(
        &self,
        context: &Context<'_>,
        comm: Handle,
        communicator: &Arc<Communicator>,
    ) -> Option<Box<Folding>> {
        let world = self.get(context.mpi.abi.comm_world)?;
        if communicator.membership != Membership::All || world.accepted().is_err() {
            return None;
        }
        let busy = self.family.enter();
        let offer = if busy.is_some() { self.family.offer() } else { 0 };
        // Who cannot be told of, since the MPI fails, is not waited for.
        let agreed = context.mpi.bits_of_all(comm, offer)?;
        let free = agreed & !MAY_BE_MADE;
        if free != 0 {
            return self.family.take(free.trailing_zeros() as usize, communicator);
        }
        if agreed == 0 {
            return None;
        }
        let made = self.set_up(context, comm);
        match made {
            Some(_) => self.family.add(communicator),
            None => self.family.state().is_complete = true,
        }
        made
    }
}
