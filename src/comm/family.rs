//! Groups that outlive their communicators, to serve others of the same ranks in the same order.
//!
//! Libraries duplicate MPI_COMM_WORLD, or make rows and columns of it, for a few calls, and free that sooner than a
//! group is made. So the group of one that is freed serves the next one, from its first call. Freeing is local: a
//! rank may have freed what another still uses. Which groups are free on all ranks, they tell each other at the
//! first call on the new communicator, by the MPI: on any other the ranks' calls may come in another order.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Communicator, Communicators, Folding};
use crate::mpi::pmpi::Handle;
use crate::setup::Context;

/// Most groups of a family; each has a bit in what the ranks tell each other.
const MOST: usize = 32;
/// Most families, for a program may make ever new sets of ranks. Each rank has those that it is of.
const MOST_FAMILIES: usize = 64;
/// Most groups of all families together: each takes a slot of the agent's and 1.5 MB, which others may need.
const MOST_IN_ALL: usize = 64;
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

/// All families of a process.
#[derive(Default)]
pub(super) struct Families {
    by_ranks: Mutex<ByRanks>,
    /// Groups of all.
    groups: AtomicUsize,
}

/// By their ranks in MPI_COMM_WORLD.
type ByRanks = HashMap<Box<[c_int]>, Arc<Family>>;

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
    fn lock(&self) -> MutexGuard<'_, ByRanks> {
        self.by_ranks.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn offer(&self, when: When, in_all: usize) -> u64 {
        let mut state = self.state();
        let is_worth_it = self.is_of_all || when == When::Due || state.is_known;
        state.is_known = true;
        let bit = |(index, kept): (usize, &Kept)| u64::from(kept.is_free()) << index;
        let free: u64 = state.groups.iter().enumerate().map(bit).sum();
        let is_room = state.groups.len() < MOST && in_all < MOST_IN_ALL;
        let may_be_made = is_worth_it && is_room && !state.is_complete;
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
        // Made only by who is let in: it lets the next one in where it is dropped.
        (!self.is_busy.swap(true, Ordering::Acquire)).then(|| Busy(self))
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
        let in_all = self.families.groups.load(Ordering::Relaxed);
        let offer = busy.as_ref().map_or(0, |busy| busy.0.offer(when, in_all));
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
                    Some(_) => {
                        family.add(communicator);
                        self.families.groups.fetch_add(1, Ordering::Relaxed);
                    }
                    None => family.state().is_complete = true,
                }
                made
            }
            _ if when == When::Due => self.set_up(context, comm),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_be_made(family: &Family, when: When, in_all: usize) -> bool {
        family.offer(when, in_all) & MAY_BE_MADE != 0
    }

    #[test]
    fn the_same_ranks_are_one_family_and_there_are_not_too_many() {
        let families = Families::default();
        let of = |ranks: &[c_int]| families.of(ranks.to_vec(), 4);
        let rows = of(&[0, 1]).unwrap();
        assert!(Arc::ptr_eq(&rows, &of(&[0, 1]).unwrap()));
        assert!(!Arc::ptr_eq(&rows, &of(&[1, 0]).unwrap()));
        let more = (2..).take_while(|first| of(&[*first, 0]).is_some()).count();
        assert_eq!(more, MOST_FAMILIES - 2);
        assert!(of(&[0, 1]).is_some(), "those that there are stay");
    }

    #[test]
    fn duplicates_of_all_have_a_group_made_at_once_and_others_from_the_second_on() {
        let families = Families::default();
        let all = families.of(vec![0, 1, 2], 3).unwrap();
        assert!(may_be_made(&all, When::First, 0));
        for ranks in [vec![0, 2, 1], vec![0, 1]] {
            let family = families.of(ranks, 3).unwrap();
            assert!(!may_be_made(&family, When::First, 0));
            assert!(may_be_made(&family, When::First, 0));
        }
        let late = families.of(vec![2, 1], 3).unwrap();
        assert!(may_be_made(&late, When::Due, MOST_IN_ALL - 1));
        assert!(!may_be_made(&late, When::Due, MOST_IN_ALL));
    }

    #[test]
    fn a_group_is_made_for_whom_none_is_free_but_not_without_end() {
        let families = Families::default();
        let family = families.of(vec![0, 1], 2).unwrap();
        let communicator = || Arc::new(Communicator::new((0, 2), None, None));
        let all: Vec<_> = (0..MOST).map(|_| communicator()).collect();
        for one in &all {
            assert!(may_be_made(&family, When::First, 0));
            family.add(one);
        }
        assert_eq!(family.offer(When::Due, 0), 0);
        assert!(family.give_back(&all[3]));
        assert!(!family.give_back(&all[3]), "once");
        assert!(!family.give_back(&communicator()), "a stranger");
        // Without a group there is nothing to take.
        assert_eq!(family.offer(When::Due, 0), 0);
        assert_eq!(families.drain().len(), 1);
    }

    #[test]
    fn threads_take_turns_without_waiting() {
        let families = Families::default();
        let family = families.of(vec![0, 1], 2).unwrap();
        let busy = family.enter().unwrap();
        assert!(family.enter().is_none());
        assert!(family.enter().is_none(), "who is not let in lets nobody in");
        drop(busy);
        assert!(family.enter().is_some());
    }
}
