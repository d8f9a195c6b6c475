//! Groups of persistent collectives, each of which has one to itself as long as it lives.
//!
//! Making a group takes milliseconds, and a program may make and free persistent collectives in a loop. So the group of
//! a freed one stays with its communicator for the next. Freeing is local: a rank may have freed what another still
//! has. So the ranks tell each other by a fold which groups are free on all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Communicator, Communicators, GroupSlot, fold_words};
use crate::gate::Reason;
use crate::leaf::arithmetic::Operator;
use crate::mpi::pmpi::Handle;
use crate::setup::Context;
use crate::setup::agent::Haste;
use crate::setup::exchange::exchange;

/// Most of one communicator.
const MAX_GROUPS: usize = 32;

struct Owned {
    group: Arc<GroupSlot>,
    taken: bool,
}

/// The groups of a communicator's persistent collectives, in the order in which they were made, which
/// is alike on all ranks; `None` once it is freed.
pub(super) struct Pool {
    owned: Mutex<Option<Vec<Owned>>>,
    max_groups: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new(MAX_GROUPS)
    }
}

impl Pool {
    /// One of `max_groups` groups, alike on all ranks; no more than there are bits in [`Pool::free`].
    pub(super) fn new(max_groups: usize) -> Self {
        assert!(max_groups <= u64::BITS as usize);
        Self { owned: Mutex::new(Some(Vec::new())), max_groups }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Owned>>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of groups; and one bit for each that is free here.
    fn free(&self) -> (usize, u64) {
        let pool = self.lock();
        let Some(owned) = pool.as_deref() else { return (0, 0) };
        let is_idle = |group: &GroupSlot| {
            let folding = group.try_folding();
            folding
                .is_some_and(|folding| folding.as_ref().is_some_and(|f| f.group.engine.is_idle()))
        };
        let bit = |(index, owned): (usize, &Owned)| {
            u64::from(!owned.taken && is_idle(&owned.group)) << index
        };
        (owned.len(), owned.iter().enumerate().map(bit).sum())
    }

    /// A group that nobody has on any rank, or one that `set_up` makes. `agree` returns the bits that all ranks have.
    /// Both are collective.
    pub(super) fn take_or(
        &self,
        agree: impl FnOnce(u64) -> Result<u64, Reason>,
        set_up: impl FnOnce() -> Option<Arc<GroupSlot>>,
    ) -> Result<Arc<GroupSlot>, Reason> {
        let (count, free) = self.free();
        if count > 0 {
            let free = agree(free)?;
            if free != 0 {
                return self.take(free.trailing_zeros() as usize).ok_or(Reason::NoGroup);
            }
        }
        if count >= self.max_groups {
            return Err(Reason::Persistent);
        }
        let group = set_up().ok_or(Reason::NoGroup)?;
        self.add(Arc::clone(&group));
        Ok(group)
    }

    fn take(&self, index: usize) -> Option<Arc<GroupSlot>> {
        let mut pool = self.lock();
        let owned = pool.as_mut()?.get_mut(index)?;
        owned.taken = true;
        Some(Arc::clone(&owned.group))
    }

    fn add(&self, group: Arc<GroupSlot>) {
        if let Some(pool) = self.lock().as_mut() {
            pool.push(Owned { group, taken: true });
        }
    }

    /// Takes a group back; false if the communicator is gone.
    pub(super) fn give_back(&self, group: &Arc<GroupSlot>) -> bool {
        let mut pool = self.lock();
        let Some(pool) = pool.as_mut() else { return false };
        let mut same = pool.iter_mut().filter(|owned| Arc::ptr_eq(&owned.group, group));
        same.next().is_some_and(|owned| std::mem::take(&mut owned.taken))
    }

    /// The communicator is freed: its groups that no persistent collective has.
    pub(super) fn close(&self) -> Vec<Arc<GroupSlot>> {
        let all = self.lock().take().unwrap_or_default();
        all.into_iter().filter(|owned| !owned.taken).map(|owned| owned.group).collect()
    }
}

impl Communicators {
    /// A group for a persistent collective of `comm` alone. Collective.
    ///
    /// # Errors
    /// There is none to be had, on all ranks alike.
    pub fn take_spare(
        &self,
        context: &Context<'_>,
        comm: Handle,
        communicator: &Communicator,
    ) -> Result<Arc<GroupSlot>, Reason> {
        let set_up = || {
            let folding = self.set_up(context, comm, Haste::Waits).ok()?;
            Some(Arc::new(GroupSlot::new(Some(folding))))
        };
        communicator.pool.take_or(|free| free_on_all(context, comm, communicator, free), set_up)
    }

    /// Takes back the group of a persistent collective of `home`.
    pub fn give_back(&self, home: &Communicator, group: Arc<GroupSlot>) {
        if !home.pool.give_back(&group) {
            self.retired.add(std::iter::once(group));
            self.retired.reap(false);
        }
    }
}

/// The groups in `communicator`'s pool that are free on all ranks, out of the groups `free` here. Collective.
fn free_on_all(
    context: &Context<'_>,
    comm: Handle,
    communicator: &Communicator,
    free: u64,
) -> Result<u64, Reason> {
    if let Some(folding) = communicator.folding().as_mut() {
        let mut free = [free];
        fold_words(context, &mut folding.group, Operator::Band, &mut free);
        return Ok(free[0]);
    }
    let all = exchange(context.mpi, comm, &free, None, &mut || ());
    Ok(all.map_err(|_| Reason::NoGroup)?.into_iter().fold(u64::MAX, |all, one| all & one))
}
