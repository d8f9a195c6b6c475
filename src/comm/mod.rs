//! Communicators as foldback knows them: found by their handle, given a group once they have had enough
//! calls, and let go when the program frees them.

mod complete;
mod family;
mod freeing;
mod pool;
mod retired;
mod slot;
mod table;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::choice::Setting;
use crate::choice::{Ground, Profile, Router};
use crate::collectives::KINDS;
use crate::config::{Quantize, Shared};
use crate::gate::Reason;
use crate::group::Group;
use crate::leaf::arithmetic::Operator;
use crate::leaf::quantize::Lender;
use crate::mpi::messages::PrivateComm;
use crate::setup::Context;
use crate::setup::agent::Haste;

pub use complete::{complete, fold_words, out_of_step};
use family::Family;
pub use family::When;
pub use freeing::freeing;
use pool::Pool;
pub use slot::{GroupSlot, Held};
pub use table::Communicators;

/// The group of a communicator, and which ways its calls go.
pub struct Folding {
    pub group: Group,
    /// The ways of blocking collectives, as far as they are measured.
    pub router: Router,
    /// The kind of group, by which measurements are kept.
    ground: Ground,
    /// For messages beside the group's, once a call has needed one.
    pub private: Option<PrivateComm>,
    /// A call that does not block has needed one: the next one that blocks makes it.
    pub wants_private: bool,
    /// Blocking calls since all ranks looked whether the group's programs are there; and from one look to the next.
    calls: u32,
    look_every: u32,
}

/// Blocking calls from one such look to the next.
const LOOK_EVERY: u32 = 1024;
/// Calls until a rank that may be its own agent loads programs, as a multiple of the calls that make a group where an
/// agent is. Loading takes some 10 to 30 times as long.
const LOAD_AFTER: u32 = 32;
/// Eligible calls until ranks look again whether agents have answered.
const AGAIN_SOON: u32 = 64;
/// Eligible calls until ranks try again to make a group in place of one that has lost its programs, where there is none
/// to be had. A trial in vain doubles them, up to a limit: it takes seconds where frames are filtered.
const AGAIN_AFTER: u32 = 10_000;
const AGAIN_AFTER_MOST: u32 = 1 << 30;

impl Folding {
    /// A group in which nothing has been measured.
    pub fn new(group: Group, shared: &Shared, mpi: &str, programs: bool) -> Self {
        let place = &group.engine.place;
        let (hosts, ranks) = (place.layout.hosts.len(), place.layout.ranks());
        let ground = Ground { mpi: mpi.into(), hosts, ranks, programs };
        let setting = Setting {
            members: hosts,
            ranks,
            has_shards: place.has_shards,
            has_pairs: place.parcel_bytes(false).is_some(),
            chunk_bytes: place.chunk_bytes.into(),
            algorithm: shared.algorithm,
        };
        let router = Router::new(setting, &KINDS);
        let (private, wants_private) = (None, false);
        let (calls, look_every) = (0, LOOK_EVERY);
        Self { group, router, ground, private, wants_private, calls, look_every }
    }

    /// Takes over what was measured before on groups of this kind.
    fn learn(&mut self, profile: &Profile) {
        self.router.learn(profile.routes(&self.ground));
    }

    /// To be asked at each blocking call: whether the group has lost its programs on some host. Now and then a
    /// fold, by which all ranks know.
    #[inline]
    pub fn is_lost(&mut self, context: &Context<'_>) -> bool {
        self.is_lost_by(|group, lost| fold_words(context, group, Operator::Bor, lost))
    }

    /// The same by a given fold, which leaves the bits that any rank has.
    #[inline]
    fn is_lost_by(&mut self, fold: impl FnOnce(&mut Group, &mut [u64; 1])) -> bool {
        self.calls += 1;
        self.calls >= self.look_every && self.fold_lost(fold)
    }

    /// The MPI makes the call: nobody needs the programs for it, and ranks may run ahead of each other.
    #[inline]
    pub fn is_left_to_mpi(&mut self) {
        self.calls = self.calls.saturating_sub(1);
        self.group.is_left_to_mpi();
    }

    #[cold]
    fn fold_lost(&mut self, fold: impl FnOnce(&mut Group, &mut [u64; 1])) -> bool {
        self.calls = 0;
        let mut lost = [u64::from(self.group.has_lost_programs())];
        fold(&mut self.group, &mut lost);
        lost[0] != 0
    }
}

/// How a communicator lacks a group, on all ranks alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// There is one as soon as agents have answered.
    Soon,
    /// There may be one after more calls.
    Yet,
    /// There is none to be had.
    Now,
}

impl Lack {
    /// Eligible calls until it is tried again, at least.
    fn again_after(self) -> u32 {
        match self {
            Self::Soon => AGAIN_SOON,
            Self::Yet | Self::Now => AGAIN_AFTER,
        }
    }
}

/// Facts that ranks have told each other, so that they choose alike: the ranks of one communicator, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike {
    /// Whether folded requests can be completed, on all of them.
    pub completes: bool,
    /// Each calls MPI by one thread, so all come to their communicators' blocking calls in one order, or wait for each
    /// other for ever (MPI-4.1 section 6.14). Then what is known of all holds for each communicator of theirs.
    pub ordered: bool,
}

/// The program's choice for the sums of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantizeChoice {
    /// As the environment says.
    #[default]
    Usual,
    /// In a way of their own, or not at all.
    Own(Option<Quantize>),
}

impl QuantizeChoice {
    /// How sums are quantized, where that is `usual` for others.
    pub fn or(self, usual: Option<Quantize>) -> Option<Quantize> {
        match self {
            Self::Usual => usual,
            Self::Own(own) => own,
        }
    }
}

/// How a communicator's sums are quantized, whichever group it has.
#[derive(Default)]
pub struct Quantization {
    /// The kind that this rank has been asked for, before its ranks met.
    pub asked: Option<String>,
    /// On all ranks alike.
    pub choice: QuantizeChoice,
    /// Memory for the sums that block or have no request of their own, and the errors that are carried from one to the
    /// next.
    pub memory: Lender,
}

/// The state of a communicator.
pub struct Communicator {
    pub rank: usize,
    /// Number of its ranks.
    pub size: usize,
    /// Communicators with the same ranks.
    family: Option<Arc<Family>>,
    /// Why it is left to MPI, for good.
    declined: OnceLock<Reason>,
    /// Eligible calls so far, until it has a group.
    calls: AtomicU32,
    /// So many there must be, though it was due before: programs were being loaded.
    due_after: AtomicU32,
    /// It was looked after: when its ranks met or, if all ranks have met before, at its first call that blocks.
    is_met: AtomicBool,
    /// Its ranks have met, and are alike.
    alike: OnceLock<Alike>,
    /// Eligible calls before the next trial, if it has had a group before; else there is one trial only.
    again: Option<AtomicU32>,
    /// Groups of its persistent collectives.
    pool: Pool,
    quantization: Mutex<Quantization>,
    slot: Arc<GroupSlot>,
}

impl Communicator {
    /// One of which `rank` and `size` are known, and that has a group, or may get one unless it is
    /// declined.
    pub fn new(
        (rank, size): (usize, usize),
        declined: Option<Reason>,
        folding: Option<Box<Folding>>,
    ) -> Self {
        Self {
            rank,
            size,
            family: None,
            declined: declined.map_or_else(OnceLock::new, OnceLock::from),
            calls: AtomicU32::new(0),
            due_after: AtomicU32::new(0),
            is_met: AtomicBool::new(false),
            alike: OnceLock::new(),
            again: None,
            pool: Pool::default(),
            quantization: Mutex::default(),
            slot: Arc::new(GroupSlot::new(folding)),
        }
    }

    /// The place of its group.
    pub fn slot(&self) -> &Arc<GroupSlot> {
        &self.slot
    }

    /// Its group, whatever else is known of it.
    #[inline]
    pub fn folding(&self) -> Held<'_> {
        self.slot.folding()
    }

    /// Of sums that are quantized.
    pub fn quantization(&self) -> MutexGuard<'_, Quantization> {
        self.quantization.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves it to MPI for good, unless that was done before. Returns why.
    pub fn decline(&self, reason: Reason) -> Reason {
        *self.declined.get_or_init(|| reason)
    }

    /// Whether it may be folded on.
    ///
    /// # Errors
    /// Why it is left to MPI, for good.
    #[inline]
    pub fn unless_declined(&self) -> Result<(), Reason> {
        self.declined.get().map_or(Ok(()), |reason| Err(*reason))
    }

    /// Whether its ranks have met, or it was looked after without that.
    #[inline]
    pub fn is_met(&self) -> bool {
        self.is_met.load(Ordering::Relaxed)
    }

    /// Notes that it is looked after. Returns whether that is the first time.
    pub fn meets(&self) -> bool {
        !self.is_met.swap(true, Ordering::Relaxed)
    }

    /// Facts that its ranks have in common, if they have met and are alike.
    #[inline]
    pub fn alike(&self) -> Option<Alike> {
        self.alike.get().copied().or_else(|| self.family.as_ref()?.alike())
    }

    /// Its ranks have met, and are alike.
    pub fn set_alike(&self, alike: Alike) {
        let _ = self.alike.set(alike);
        if let (true, Some(family)) = (alike.ordered, &self.family) {
            family.set_alike(alike);
        }
    }

    /// Counts an eligible call that finds no group. Returns the number of calls before it.
    pub fn count(&self) -> u32 {
        if let Some(family) = &self.family {
            family.count();
        }
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// The haste of a rank that may be its own agent. A rank that wants a group at once waits for it.
    fn haste(&self, setup_calls: u32) -> Haste {
        let family = self.family.as_ref().map_or(0, |family| family.calls());
        let calls = self.calls.load(Ordering::Relaxed).max(family);
        match setup_calls {
            0 => Haste::Waits,
            _ if calls >= setup_calls.saturating_mul(LOAD_AFTER) => Haste::Loads,
            _ => Haste::None,
        }
    }

    /// Its group, for an eligible call that must not wait for the other ranks.
    ///
    /// # Errors
    /// There is none, now.
    pub fn folding_now(&self) -> Result<Held<'_>, Reason> {
        let folding = self.folding();
        if folding.is_none() {
            self.count();
            return Err(Reason::NotYet);
        }
        Ok(folding)
    }

    /// Its group, for a call that is eligible on all ranks alike, of a communicator that is accepted. Without one,
    /// `get` is asked at its first call, and after `setup_calls` calls.
    ///
    /// # Errors
    /// There is none, now or for good.
    #[inline]
    pub fn folding_or(
        &self,
        setup_calls: u32,
        get: impl FnOnce(When) -> Result<Box<Folding>, Lack>,
    ) -> Result<Held<'_>, Reason> {
        let mut folding = self.folding();
        if folding.is_none() {
            let calls = self.count() + 1;
            let again = self.again.as_ref().map(|again| (again, again.load(Ordering::Relaxed)));
            let when = match again {
                Some((_, after)) if calls < after => return Err(Reason::NotYet),
                Some(_) => When::Again,
                None if calls >= setup_calls.max(self.due_after.load(Ordering::Relaxed)) => {
                    When::Due
                }
                None if self.meets() => When::First,
                None => return Err(Reason::NotYet),
            };
            match (get(when), when, again) {
                (Ok(group), ..) => *folding = Some(group),
                (Err(_), When::First, _) => return Err(Reason::NotYet),
                (Err(lack @ (Lack::Soon | Lack::Yet)), When::Due, _) => {
                    let more = if lack == Lack::Soon { AGAIN_SOON } else { calls };
                    self.due_after.store(calls.saturating_add(more), Ordering::Relaxed);
                    return Err(Reason::NotYet);
                }
                (Err(lack), _, Some((again, after))) => {
                    let after = (2 * after).clamp(lack.again_after(), AGAIN_AFTER_MOST);
                    again.store(after, Ordering::Relaxed);
                    self.calls.store(0, Ordering::Relaxed);
                    return Err(Reason::NotYet);
                }
                (Err(_), _, None) => return Err(self.decline(Reason::NoGroup)),
            }
        }
        Ok(folding)
    }

    /// The same communicator with a new group in place of one that has lost its programs. Without a new one, another is
    /// tried after some calls. The rests of quantized sums go along.
    fn renewed(&self, folding: Result<Box<Folding>, Lack>) -> Self {
        let after = folding.as_ref().err().map_or(AGAIN_AFTER, |lack| lack.again_after());
        let mut new = Self::new((self.rank, self.size), None, folding.ok());
        new.again = Some(AtomicU32::new(after));
        new.family = self.family.clone();
        new.is_met = AtomicBool::new(self.is_met());
        new.alike.clone_from(&self.alike);
        new.quantization = Mutex::new(std::mem::take(&mut *self.quantization()));
        new
    }

    /// Its groups, when it is freed: its own, and the unused ones of persistent collectives.
    fn close(&self) -> impl Iterator<Item = Arc<GroupSlot>> + use<> {
        std::iter::once(Arc::clone(&self.slot)).chain(self.close_pool())
    }

    /// The unused groups of persistent collectives alone.
    fn close_pool(&self) -> impl Iterator<Item = Arc<GroupSlot>> + use<> {
        self.pool.close().into_iter()
    }
}
