//! Groups that outlive their communicators, to serve others of the same ranks in the same order.
//!
//! Libraries duplicate MPI_COMM_WORLD, or make rows and columns of it, for a few calls, and free that sooner than a
//! group is made. So the group of one that is freed serves the next one, from its first call. Freeing is local: a
//! rank may have freed what another still uses. Which groups are free on all ranks, they tell each other at the
//! first call on the new communicator, by the MPI: on any other the ranks' calls may come in another order.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Communicator, Communicators, Folding};
use crate::mpi::pmpi::Handle;
use crate::setup::Context;

/// Most groups of a family; each has a bit in what the ranks tell each other.
const MOST: usize = 32;
/// Most families, for a program may make ever new sets of ranks. Each rank has those that it is of.
const MOST_FAMILIES: usize = 64;
/// The bit of whether a group may be made here, for the family.
const MAY_BE_MADE: u64 = 1 << 63;

/// When a communicator without a group is looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At its first call: it gets what is there, or what will serve others too.
    First,
    /// It has had so many calls that it gets a group of its own, at least.
    Due,
    /// It had one, which has lost its programs, as those of its family have.
    Again,
}

/// All families of a process, by their ranks in MPI_COMM_WORLD.
#[derive(Default)]
pub(super) struct Families(Mutex<HashMap<Box<[c_int]>, Arc<Family>>>);

/// The groups of communicators that have the same ranks.
pub(super) struct Family {
    /// Of all of MPI_COMM_WORLD: what is made for one duplicate will soon serve another.
    is_of_all: bool,
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
    /// There has been such a communicator before.
    is_known: bool,
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

impl Families {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[c_int]>, Arc<Family>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The family of a communicator with these ranks, `all` of MPI_COMM_WORLD or not; `None`: there are too many.
    pub(super) fn of(&self, ranks: Vec<c_int>, all: usize) -> Option<Arc<Family>> {
        let mut families = self.lock();
        if let Some(family) = families.get(ranks.as_slice()) {
            return Some(Arc::clone(family));
        }
        if families.len() >= MOST_FAMILIES {
            return None;
        }
        let in_order = ranks.iter().enumerate().all(|(place, rank)| place as c_int == *rank);
        let is_of_all = in_order && ranks.len() == all;
        let (state, is_busy) = (Mutex::default(), AtomicBool::default());
        let family = Arc::new(Family { is_of_all, state, is_busy });
        families.insert(ranks.into(), Arc::clone(&family));
        Some(family)
    }

    /// The freed communicators of all, at the end.
    pub(super) fn drain(&self) -> Vec<Arc<Communicator>> {
        self.lock().drain().flat_map(|(_, family)| family.drain()).collect()
    }
}

impl Family {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One bit for each group that is free here, and [`MAY_BE_MADE`].
    fn offer(&self, when: When) -> u64 {
        let mut state = self.state();
        let is_worth_it = self.is_of_all || when == When::Due || state.is_known;
        state.is_known = true;
        let bit = |(index, kept): (usize, &Kept)| u64::from(kept.is_free()) << index;
        let free: u64 = state.groups.iter().enumerate().map(bit).sum();
        let may_be_made = is_worth_it && !state.is_complete && state.groups.len() < MOST;
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

    fn drain(&self) -> Vec<Arc<Communicator>> {
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
    /// A group for a communicator that has none: that of a freed relative, or a new one. Collective.
    pub fn group_for(
        &self,
        context: &Context<'_>,
        comm: Handle,
        communicator: &Arc<Communicator>,
        when: When,
    ) -> Option<Box<Folding>> {
        if when == When::Again {
            return self.set_up(context, comm);
        }
        let family = communicator.family.as_deref();
        let busy = family.and_then(Family::enter);
        let offer = busy.as_ref().map_or(0, |busy| busy.0.offer(when));
        // Whatever this rank thinks of it, all take part; and if the MPI fails, nobody can be told.
        let agreed = context.mpi.bits_of_all(comm, offer)?;
        let free = agreed & !MAY_BE_MADE;
        match busy.map(|busy| (busy.0, busy)) {
            Some((family, _busy)) if free != 0 => {
                family.take(free.trailing_zeros() as usize, communicator)
            }
            Some((family, _busy)) if agreed != 0 => {
                let made = self.set_up(context, comm);
                match made {
                    Some(_) => family.add(communicator),
                    None => family.state().is_complete = true,
                }
                made
            }
            _ if when == When::Due => self.set_up(context, comm),
            _ => None,
        }
    }
}
