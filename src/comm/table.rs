//! All communicators of a process, by their handle.

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_int;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockWriteGuard};

use log::Level;

use super::family::Families;
use super::freeing::is_freed;
use super::retired::Retired;
use super::{Alike, Communicator, Folding, GroupSlot, Held, Lack, QuantizeChoice, fold_words};
use crate::choice::Profile;
use crate::config::{Config, Quantize, TransportChoice};
use crate::gate::Reason;
use crate::leaf::arithmetic::Operator;
use crate::mpi::Mpi;
use crate::mpi::lifetime::Ended;
use crate::mpi::pmpi::Handle;
use crate::setup::agent::{Haste, Later};
use crate::setup::{Context, NoGroup, set_up};

/// All of a process.
#[derive(Default)]
pub struct Communicators {
    known: RwLock<ByHandle>,
    /// Groups of freed communicators.
    pub retired: Retired,
    pub(super) families: Families,
    /// Measurements of earlier jobs: as rank 0 has read them, and as all ranks know them.
    kept: OnceLock<Profile>,
    profile: OnceLock<Profile>,
    /// Why a communicator of all ranks has no group, the first one that asked for it; `None`: it has one.
    no_group: OnceLock<Option<String>>,
    /// Some communicator's sums are quantized in a way of their own.
    quantize: AtomicBool,
    /// All ranks of MPI_COMM_WORLD have met: all have foldback.
    all_are_here: AtomicBool,
    /// Facts that they have in common, if these hold for all communicators.
    alike: OnceLock<Alike>,
    /// Communicators of which the MPI may be making duplicates, see [`Communicators::hold`].
    held: RwLock<BTreeSet<Handle>>,
}

/// By handle, with a hash that costs next to nothing: it is computed at every call.
type ByHandle = HashMap<Handle, Arc<Communicator>, BuildHasherDefault<HandleHasher>>;

/// Fibonacci hashing, Knuth vol. 3, 6.4: handles are addresses or small numbers, and distinct.
#[derive(Default)]
struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn write_usize(&mut self, handle: usize) {
        self.0 = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("handles are usize");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Communicators {
    fn write(&self) -> RwLockWriteGuard<'_, ByHandle> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one of a handle, if it is known.
    #[inline]
    pub fn get(&self, comm: Handle) -> Option<Arc<Communicator>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&comm).map(Arc::clone)
    }

    /// The one of a handle, known or looked at for the first time; `ended` is called when it is freed.
    #[inline]
    pub fn find(&self, mpi: &Mpi, comm: Handle, ended: Ended) -> Option<Arc<Communicator>> {
        self.get(comm).or_else(|| self.meet(mpi, comm, ended))
    }

    #[cold]
    fn meet(&self, mpi: &Mpi, comm: Handle, ended: Ended) -> Option<Arc<Communicator>> {
        if is_freed(comm) {
            return None;
        }
        let size = mpi.size(comm);
        let (declined, ranks) = if mpi.is_intercomm(comm) {
            (Some(Reason::Intercommunicator), None)
        } else {
            match mpi.ranks_of_world(comm) {
                None => (Some(Reason::Foreign), None),
                Some(_) if size == 1 => (Some(Reason::OneRank), None),
                ranks => (None, ranks),
            }
        };
        // Without news of its end, a new communicator of the same handle would be taken for it.
        if comm != mpi.abi.comm_world && comm != mpi.abi.comm_self {
            mpi.watch(comm, ended)?;
        }
        let family = ranks.and_then(|ranks| self.families.of(ranks));
        let mut communicator = Communicator::new((mpi.rank(comm), size), declined, None);
        communicator.family = family;
        Some(self.add(comm, communicator))
    }

    pub fn add(&self, comm: Handle, communicator: Communicator) -> Arc<Communicator> {
        let communicator = Arc::new(communicator);
        self.write().insert(comm, Arc::clone(&communicator));
        communicator
    }

    /// How sums on `comm` are quantized, where that is `usual`.
    #[inline]
    pub fn quantize(&self, comm: Handle, usual: Option<Quantize>) -> Option<Quantize> {
        if !self.quantize.load(Ordering::Relaxed) {
            return usual;
        }
        self.get(comm).map_or(usual, |communicator| communicator.quantization().choice.or(usual))
    }

    /// Has sums on a communicator quantized as a choice says, with nothing carried from those before. On all ranks
    /// alike.
    pub fn set_quantize(&self, communicator: &Communicator, choice: QuantizeChoice) {
        self.quantize.store(true, Ordering::Relaxed);
        let mut quantization = communicator.quantization();
        quantization.choice = choice;
        quantization.memory.forget();
    }

    /// The program has the MPI duplicate `comm` without blocking. Open MPI does it by non-blocking collectives on
    /// `comm`, which begin whenever it gets to them. The collectives of a set-up would cross them, in another order on
    /// each rank. So `comm` gets no group from here on, on all ranks alike. Nobody can know when the last rank is done.
    pub fn hold(&self, comm: Handle) {
        self.held.write().unwrap_or_else(PoisonError::into_inner).insert(comm);
    }

    /// Whether neither a group nor a communicator may be made on `comm`.
    pub fn is_held(&self, comm: Handle) -> bool {
        self.held.read().unwrap_or_else(PoisonError::into_inner).contains(&comm)
    }

    /// One is being freed.
    pub fn forget(&self, comm: Handle) {
        self.held.write().unwrap_or_else(PoisonError::into_inner).remove(&comm);
        let Some(communicator) = self.write().remove(&comm) else { return };
        let kept = communicator.family.as_ref().is_some_and(|f| f.give_back(communicator.slot()));
        match kept {
            true => self.retired.add(communicator.close_pool()),
            false => self.retired.add(communicator.close()),
        }
        self.retired.reap(false);
    }

    /// Takes all out, with their groups, at the end.
    pub fn drain(&self) -> Vec<Arc<GroupSlot>> {
        let all: Vec<_> = self.write().drain().map(|(_, communicator)| communicator).collect();
        let freed = self.families.drain();
        all.iter().flat_map(|communicator| communicator.close()).chain(freed).collect()
    }

    /// Sees `comm`, whose group has lost its programs, as a new communicator. It has a new group or, if none can be
    /// made now, none for a while. Operations under way in the old group go on there. Collective.
    pub fn renew(
        &self,
        context: &Context<'_>,
        comm: Handle,
        old: &Communicator,
    ) -> Arc<Communicator> {
        log::info!("a group anew, since some host has lost its programs");
        // Not by sockets alone, yet: agents that are restarted will be back, and nobody would see them.
        let folding = self.set_up_by(context, comm, TransportChoice::Programs, Haste::Loads);
        self.replace(comm, old, folding)
    }

    /// Sees `comm` as a new communicator, with this group or none for a while.
    pub(super) fn replace(
        &self,
        comm: Handle,
        old: &Communicator,
        folding: Result<Box<Folding>, Lack>,
    ) -> Arc<Communicator> {
        let new = Arc::new(old.renewed(folding));
        let old = self.write().insert(comm, Arc::clone(&new));
        if let (Some(old), Some(family)) = (&old, &new.family) {
            family.replace(old.slot(), new.slot());
        }
        self.retired.add(old.iter().flat_map(|old| old.close()));
        new
    }

    /// A new group of `comm`, if it can have one. Collective.
    ///
    /// # Errors
    /// There is none, now.
    pub fn set_up(
        &self,
        context: &Context<'_>,
        comm: Handle,
        haste: Haste,
    ) -> Result<Box<Folding>, Lack> {
        self.set_up_by(context, comm, context.transport(), haste)
    }

    fn set_up_by(
        &self,
        context: &Context<'_>,
        comm: Handle,
        transport: TransportChoice,
        haste: Haste,
    ) -> Result<Box<Folding>, Lack> {
        if self.is_held(comm) {
            return Err(Lack::Yet);
        }
        self.retired.reap(false);
        let mpi = context.mpi;
        match self.fold_on(context, comm, transport, haste) {
            Ok(mut folding) => {
                log::info!("{} has a group of {} ranks", name(mpi, comm), mpi.size(comm));
                let no_programs = folding.group.no_programs.as_ref();
                if let Some(why) = no_programs.filter(|_| mpi.rank(comm) == 0) {
                    static TOLD: AtomicBool = AtomicBool::new(false);
                    let so = "folding by ordinary sockets alone, which is slower";
                    log::log!(level(&TOLD), "{so}: {why}");
                }
                if is_of_all(mpi, comm) {
                    self.no_group.get_or_init(|| None);
                    if Config::or_default(context.config).shared.profile {
                        self.tell_profile(context, &mut folding);
                    }
                }
                Ok(folding)
            }
            Err(NoGroup::Later(Later::Answered)) => Err(Lack::Soon),
            Err(NoGroup::Later(Later::WorthIt)) => Err(Lack::Yet),
            Err(why) => {
                self.tell_no_group(mpi, comm, &why);
                Err(Lack::Now)
            }
        }
    }

    /// The group in `slot`, with a communicator for messages beside it. Collective of `comm`. Nothing of the group is
    /// held meanwhile: other ranks may wait for steps of calls that do not block, which the helper thread takes.
    ///
    /// # Errors
    /// `comm` is [held](Self::hold), or the MPI makes none.
    #[cold]
    pub fn with_private<'a>(
        &self,
        mpi: &Mpi,
        (comm, rank): (Handle, usize),
        slot: &'a GroupSlot,
    ) -> Result<Held<'a>, Reason> {
        let private = match self.is_held(comm) {
            true => Err(Reason::NotYet),
            false => mpi.private_of(comm, rank).ok_or(Reason::NoGroup),
        };
        let mut held = slot.folding();
        let folding = held.as_mut().ok_or(Reason::NoGroup)?;
        folding.wants_private = false;
        folding.private = Some(private?);
        Ok(held)
    }

    /// Whether all ranks of MPI_COMM_WORLD are known to have foldback: on all ranks alike when MPI ends.
    pub fn all_are_here(&self) -> bool {
        self.all_are_here.load(Ordering::Relaxed)
    }

    /// All ranks of MPI_COMM_WORLD have met, in some order.
    pub fn set_all_are_here(&self) {
        self.all_are_here.store(true, Ordering::Relaxed);
    }

    /// Facts that the ranks of every communicator have in common, if all have met.
    #[inline]
    pub fn alike(&self) -> Option<Alike> {
        self.alike.get().copied()
    }

    /// All ranks are alike, as they have found: when MPI started or, if they are [ordered](Alike::ordered), when they
    /// met.
    pub fn set_alike(&self, alike: Alike) {
        let _ = self.alike.set(alike);
    }

    /// `comm` has no group.
    pub fn tell_no_group(&self, mpi: &Mpi, comm: Handle, why: &NoGroup) {
        if is_of_all(mpi, comm) {
            self.set_no_group(why);
        }
        if mpi.rank(comm) == 0 {
            static TOLD: AtomicBool = AtomicBool::new(false);
            // Ranks of one host need none.
            let level = if why.is_usual() { Level::Info } else { level(&TOLD) };
            log::log!(level, "{} is left to MPI: {why}", name(mpi, comm));
        }
    }

    /// Why the ranks of MPI_COMM_WORLD have no group, if they wanted one in vain.
    pub fn no_group(&self) -> Option<String> {
        self.no_group.get().cloned().flatten()
    }

    /// The ranks of MPI_COMM_WORLD have no group.
    pub fn set_no_group(&self, why: &NoGroup) {
        self.no_group.get_or_init(|| Some(why.to_string()));
    }

    /// Sets a group up, whose frames are carried by `transport`. Collective.
    ///
    /// # Errors
    /// Why there is none, the same on all ranks.
    fn fold_on(
        &self,
        context: &Context<'_>,
        comm: Handle,
        transport: TransportChoice,
        haste: Haste,
    ) -> Result<Box<Folding>, NoGroup> {
        let group = set_up(context, comm, transport, haste)?;
        let config = Config::or_default(context.config);
        let programs = transport != TransportChoice::Sockets && group.no_programs.is_none();
        let version = &context.mpi.abi.version;
        let mut folding = Folding::new(group, &config.shared, version, programs);
        if let Some(profile) = self.profile.get() {
            folding.learn(profile);
        }
        Ok(Box::new(folding))
    }

    /// Rank 0 has read what jobs before this have measured.
    pub fn set_kept(&self, profile: Profile) {
        let _ = self.kept.set(profile);
    }

    /// Has all ranks know what jobs before this have measured: they choose by it, so it must be alike on all. For the
    /// first group of all ranks, and for the groups after it. Collective.
    fn tell_profile(&self, context: &Context<'_>, folding: &mut Folding) {
        if self.profile.get().is_some() {
            return;
        }
        let kept = self.kept.get().filter(|kept| !kept.is_empty());
        let text = kept.map(|kept| kept.clone().text()).unwrap_or_default();
        // One rank brings it and the others leave it out. After the fold it is the same on all.
        let mut length = [text.len() as u64];
        fold_words(context, &mut folding.group, Operator::Bor, &mut length);
        let mut words = vec![0; (length[0] as usize).div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
            let mut whole = [b' '; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        if !words.is_empty() {
            fold_words(context, &mut folding.group, Operator::Bor, &mut words);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // The same bytes everywhere, so the same conclusion.
        let profile = Profile::parse(&String::from_utf8_lossy(&bytes)).unwrap_or_default();
        folding.learn(self.profile.get_or_init(|| profile));
    }
}

/// Whether a communicator has all ranks of MPI_COMM_WORLD, in their order.
fn is_of_all(mpi: &Mpi, comm: Handle) -> bool {
    let all = mpi.size(mpi.abi.comm_world);
    mpi.ranks_of_world(comm).is_some_and(|ranks| ranks.into_iter().eq(0..all as c_int))
}

fn name(mpi: &Mpi, comm: Handle) -> &'static str {
    if comm == mpi.abi.comm_world { "MPI_COMM_WORLD" } else { "a communicator" }
}

/// How loud to say what is news only once.
fn level(told: &AtomicBool) -> Level {
    if told.swap(true, Ordering::Relaxed) { Level::Info } else { Level::Warn }
}
