//! Groups that outlive their communicators, to serve others of the same ranks in the same order.
//!
//! Libraries duplicate MPI_COMM_WORLD, or make rows and columns of it, for a few calls, and free that sooner than a
//! group is made. So the group of a freed one serves the next one, from its first call. Freeing is local: a rank may
//! have freed what another still uses. So the ranks tell each other which groups are free on all, by the MPI, at the
//! first call on the new communicator. On any other the ranks' calls may come in another order.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::{Alike, Communicator, Communicators, Folding, GroupSlot, Lack};
use crate::config::Config;
use crate::mpi::pmpi::Handle;
use crate::setup::Context;

/// How much there may be, alike on all ranks.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Groups of a family; each has a bit in what the ranks tell each other.
    pub(super) per_family: usize,
    /// Families, for a program may make ever new sets of ranks. Each rank has the families that it is part of.
    pub(super) families: usize,
    /// Groups of all families together: each takes a slot of the agent's and up to 3 MB, which others may
    /// need.
    pub(super) in_all: usize,
}

const LIMITS: Limits = Limits { per_family: 32, families: 64, in_all: 64 };
/// The bits behind the groups': no answer of an agent is awaited; a new group is worth it; a new place may be had for
/// it.
const IS_READY: u64 = 1 << 61;
const IS_WORTH_IT: u64 = 1 << 62;
const HAS_ROOM: u64 = 1 << 63;
const PLACES: u64 = IS_READY - 1;

/// When a communicator without a group is looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At its first call: it gets what is there, or what will serve others too.
    First,
    /// It has had so many calls that it gets a group of its own, at least.
    Due,
    /// It had a group, which has lost its programs, as its family's groups have.
    Again,
}

/// All families of a process.
pub(super) struct Families {
    by_ranks: Mutex<ByRanks>,
    /// Groups of all.
    groups: AtomicUsize,
    limits: Limits,
}

impl Default for Families {
    fn default() -> Self {
        Self::new(LIMITS)
    }
}

/// By their ranks in MPI_COMM_WORLD.
type ByRanks = HashMap<Box<[c_int]>, Arc<Family>>;

/// The groups of communicators that have the same ranks.
pub(super) struct Family {
    /// Eligible calls on those without a group.
    calls: AtomicU32,
    /// Facts that its ranks have in common, if they met on one of its communicators, and these hold for all of them.
    alike: OnceLock<Alike>,
    /// Most groups.
    max_groups: usize,
    state: Mutex<State>,
    /// Some thread is at it. One agreement at a time keeps one order on all ranks: nothing is agreed before all ranks
    /// take part.
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
    /// The group of its owner, now or before. It may be lost, without another in its place: on all ranks alike.
    slot: Arc<GroupSlot>,
    is_freed: bool,
}

impl Kept {
    fn is_free(&self) -> bool {
        self.is_freed
            && self.slot.try_folding().is_some_and(|folding| {
                folding.as_ref().is_none_or(|folding| folding.group.engine.is_idle())
            })
    }
}

/// The group of a new communicator.
enum Source {
    Taken(Box<Folding>),
    /// To be made, for a place that has none or for a new place.
    Made(Option<usize>),
    /// Not to be had.
    None,
}

impl Families {
    pub(super) fn new(limits: Limits) -> Self {
        assert!(limits.per_family <= PLACES.count_ones() as usize);
        Self { by_ranks: Mutex::default(), groups: AtomicUsize::new(0), limits }
    }

    fn lock(&self) -> MutexGuard<'_, ByRanks> {
        self.by_ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The family of a communicator with these ranks; `None`: there are too many.
    pub(super) fn of(&self, ranks: Vec<c_int>) -> Option<Arc<Family>> {
        let mut families = self.lock();
        if let Some(family) = families.get(ranks.as_slice()) {
            return Some(Arc::clone(family));
        }
        if families.len() >= self.limits.families {
            return None;
        }
        let family = Arc::new(Family {
            calls: AtomicU32::default(),
            alike: OnceLock::new(),
            max_groups: self.limits.per_family,
            state: Mutex::default(),
            is_busy: AtomicBool::default(),
        });
        families.insert(ranks.into(), Arc::clone(&family));
        Some(family)
    }

    /// A group for a communicator that has none: a freed relative's, or one that `set_up` makes. `set_up` makes one
    /// after `setup_calls` calls on it or on its relatives. No rank may await an answer of its agent then (`is_ready`).
    /// `agree` returns the bits that all ranks have. Both are collective.
    pub(super) fn group_for(
        &self,
        communicator: &Communicator,
        when: When,
        setup_calls: u32,
        is_ready: bool,
        agree: impl FnOnce(u64) -> Option<u64>,
        set_up: impl FnOnce() -> Result<Box<Folding>, Lack>,
    ) -> Result<Box<Folding>, Lack> {
        if when == When::Again {
            return set_up();
        }
        let family = communicator.family.as_deref();
        let busy = family.and_then(Family::enter);
        let has_room = self.groups.load(Ordering::Relaxed) < self.limits.in_all;
        let is_due = |family: &Family| family.calls() >= setup_calls;
        let is_worth_it = when == When::Due || family.is_some_and(is_due);
        let offer = busy.as_ref().map_or(0, |busy| busy.0.offer(is_worth_it, has_room));
        // All take part, even if it is not worth it to this rank. If the MPI fails, nobody can be told.
        let ready = if is_ready { IS_READY } else { 0 };
        let agreed = agree(offer | ready).ok_or(Lack::Now)?;
        let set_up = || if agreed & IS_READY != 0 { set_up() } else { Err(Lack::Soon) };
        let source =
            busy.as_ref().map_or(Source::None, |busy| busy.0.take(agreed, communicator.slot()));
        match (source, busy) {
            (Source::Taken(folding), _) => Ok(folding),
            (Source::Made(place), Some(Busy(family))) => {
                let made = set_up();
                match (&made, place) {
                    (Err(Lack::Soon | Lack::Yet), _) => {}
                    (Err(Lack::Now), _) => family.state().is_complete = true,
                    (Ok(_), Some(place)) => family.put(place, communicator.slot()),
                    (Ok(_), None) => {
                        family.add(communicator.slot());
                        self.groups.fetch_add(1, Ordering::Relaxed);
                    }
                }
                made
            }
            _ if when == When::Due => set_up(),
            _ => Err(Lack::Now),
        }
    }

    /// The groups of freed communicators, at the end.
    pub(super) fn drain(&self) -> Vec<Arc<GroupSlot>> {
        self.lock().drain().flat_map(|(_, family)| family.drain()).collect()
    }
}

impl Family {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn alike(&self) -> Option<Alike> {
        self.alike.get().copied()
    }

    pub(super) fn set_alike(&self, alike: Alike) {
        let _ = self.alike.set(alike);
    }

    /// A call that finds no group.
    pub(super) fn count(&self) {
        let more = |calls: u32| calls.checked_add(1);
        let _ = self.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Calls that found no group.
    pub(super) fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// One bit for each place that is free here, with a group or without; [`IS_WORTH_IT`]; and [`HAS_ROOM`], if all
    /// families together have room for another group.
    fn offer(&self, is_worth_it: bool, has_room: bool) -> u64 {
        let state = self.state();
        let bit = |(index, kept): (usize, &Kept)| u64::from(kept.is_free()) << index;
        let free: u64 = state.groups.iter().enumerate().map(bit).sum();
        let has_room = has_room && state.groups.len() < self.max_groups;
        let also = |bit, is_so| if is_so { bit } else { 0 };
        free | also(IS_WORTH_IT, is_worth_it && !state.is_complete) | also(HAS_ROOM, has_room)
    }

    /// Gives a group that is free on all ranks to a new communicator, or says for which place one may be made. `agreed`
    /// has the bits that all ranks offer, so all do the same.
    fn take(&self, agreed: u64, for_whom: &Arc<GroupSlot>) -> Source {
        let mut state = self.state();
        let mut without = None;
        for (place, kept) in state.groups.iter_mut().enumerate() {
            if agreed & PLACES & 1 << place == 0 {
                continue;
            }
            let folding = kept.slot.folding().take();
            match folding {
                Some(folding) => {
                    *kept = Kept { slot: Arc::clone(for_whom), is_freed: false };
                    return Source::Taken(folding);
                }
                None => without = without.or(Some(place)),
            }
        }
        let may_be_made =
            agreed & IS_WORTH_IT != 0 && (without.is_some() || agreed & HAS_ROOM != 0);
        if may_be_made { Source::Made(without) } else { Source::None }
    }

    fn put(&self, place: usize, slot: &Arc<GroupSlot>) {
        let kept = Kept { slot: Arc::clone(slot), is_freed: false };
        self.state().groups[place] = kept;
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.state().groups.len()
    }

    fn add(&self, slot: &Arc<GroupSlot>) {
        self.state().groups.push(Kept { slot: Arc::clone(slot), is_freed: false });
    }

    /// A communicator has a new group in place of one that has lost its programs, and so has the family.
    pub(super) fn replace(&self, old: &Arc<GroupSlot>, new: &Arc<GroupSlot>) {
        let mut state = self.state();
        let mut all = state.groups.iter_mut();
        if let Some(kept) = all.find(|kept| Arc::ptr_eq(&kept.slot, old)) {
            kept.slot = Arc::clone(new);
        }
    }

    /// A communicator is freed. Returns whether its group is the family's.
    pub(super) fn give_back(&self, slot: &Arc<GroupSlot>) -> bool {
        let mut state = self.state();
        let mut all = state.groups.iter_mut();
        let same = all.find(|kept| Arc::ptr_eq(&kept.slot, slot));
        same.is_some_and(|kept| !std::mem::replace(&mut kept.is_freed, true))
    }

    fn drain(&self) -> Vec<Arc<GroupSlot>> {
        let mut state = self.state();
        state.is_complete = true;
        let all = std::mem::take(&mut state.groups).into_iter();
        all.filter(|kept| kept.is_freed).map(|kept| kept.slot).collect()
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
    /// A group for a communicator that has none: a freed relative's, or a new one. Collective.
    pub fn group_for(
        &self,
        context: &Context<'_>,
        comm: Handle,
        communicator: &Communicator,
        when: When,
    ) -> Result<Box<Folding>, Lack> {
        let agree = |offer| context.mpi.bits_of_all(comm, offer);
        self.group_by(context, comm, communicator, when, agree)
    }

    /// The same for one whose ranks meet, if there is a group already, or calls on relatives have made one worth it.
    /// `agree` is how they meet. Collective.
    pub fn first_group_for(
        &self,
        context: &Context<'_>,
        comm: Handle,
        communicator: &Communicator,
        agree: impl FnOnce(u64) -> Option<u64>,
    ) {
        let group = self.group_by(context, comm, communicator, When::First, agree);
        *communicator.folding() = group.ok();
    }

    fn group_by(
        &self,
        context: &Context<'_>,
        comm: Handle,
        communicator: &Communicator,
        when: When,
        agree: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<Box<Folding>, Lack> {
        let setup_calls = Config::or_default(context.config).shared.setup_calls;
        let set_up = || self.set_up(context, comm, communicator.haste(setup_calls));
        let is_ready = context.facilities.agent.has_answer();
        self.families.group_for(communicator, when, setup_calls, is_ready, agree, set_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_ranks_are_one_family_and_there_are_not_too_many() {
        let families = Families::default();
        let of = |ranks: &[c_int]| families.of(ranks.to_vec());
        let rows = of(&[0, 1]).unwrap();
        assert!(Arc::ptr_eq(&rows, &of(&[0, 1]).unwrap()));
        assert!(!Arc::ptr_eq(&rows, &of(&[1, 0]).unwrap()));
        let more = (2..).take_while(|first| of(&[*first, 0]).is_some()).count();
        assert_eq!(more, LIMITS.families - 2);
        assert!(of(&[0, 1]).is_some(), "those that there are stay");
    }

    #[test]
    fn a_group_is_worth_it_after_so_many_calls_on_whichever_of_the_family() {
        let families = Families::default();
        let communicator = || {
            let mut new = Communicator::new((0, 2), None, None);
            new.family = families.of(vec![0, 1]);
            Arc::new(new)
        };
        let offered = |communicator: &Communicator, when| {
            let mut offered = 0;
            let agree = |offer| {
                offered = offer;
                None
            };
            assert!(
                families.group_for(communicator, when, 5, false, agree, || Err(Lack::Now)).is_err()
            );
            offered
        };
        let (one, other) = (communicator(), communicator());
        for _ in 0..2 {
            assert!(one.folding_now().is_err() && other.folding_now().is_err());
            assert_eq!(offered(&communicator(), When::First), HAS_ROOM);
        }
        assert_eq!(offered(&one, When::Due), IS_WORTH_IT | HAS_ROOM);
        assert!(one.folding_now().is_err());
        assert_eq!(offered(&communicator(), When::First), IS_WORTH_IT | HAS_ROOM);
    }

    #[test]
    fn a_group_is_made_for_whom_none_is_free_but_not_without_end() {
        let families = Families::default();
        let family = families.of(vec![0, 1]).unwrap();
        let slot = || Arc::new(GroupSlot::new(None));
        let all: Vec<_> = (0..LIMITS.per_family).map(|_| slot()).collect();
        for one in &all {
            assert_eq!(family.offer(true, true), IS_WORTH_IT | HAS_ROOM);
            assert_eq!(family.offer(true, false), IS_WORTH_IT);
            family.add(one);
        }
        assert_eq!(family.offer(true, true), IS_WORTH_IT);
        assert!(family.give_back(&all[3]));
        assert!(!family.give_back(&all[3]), "once");
        assert!(!family.give_back(&slot()), "a stranger");
        assert_eq!(families.drain().len(), 1);
    }

    #[test]
    fn threads_take_turns_without_waiting() {
        let families = Families::default();
        let family = families.of(vec![0, 1]).unwrap();
        let busy = family.enter().unwrap();
        assert!(family.enter().is_none());
        assert!(family.enter().is_none(), "who is not let in lets nobody in");
        drop(busy);
        assert!(family.enter().is_some());
    }
}
