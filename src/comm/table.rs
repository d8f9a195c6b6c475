//! All communicators of a process, by their handle.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockWriteGuard};

use log::Level;

use super::family::Families;
use super::retired::Retired;
use super::{Communicator, Folding};
use crate::config::{Config, Quantize, Transport};
use crate::mpi::Mpi;
use crate::mpi::lifetime::Ended;
use crate::mpi::pmpi::Handle;
use crate::route::{Profile, Reason};
use crate::setup::{Context, NoGroup, set_up};

/// All of a process.
#[derive(Default)]
pub struct Communicators {
    known: RwLock<ByHandle>,
    /// Groups of those that were freed.
    pub retired: Retired,
    pub(super) families: Families,
    /// What jobs before this have measured.
    profile: OnceLock<Profile>,
    /// Some communicator's sums are quantized in a way of their own.
    quantize: AtomicBool,
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
        let all = mpi.size(mpi.abi.comm_world);
        let family = ranks.and_then(|ranks| self.families.of(ranks, all));
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
        let own = || self.get(comm)?.quantizing().own;
        let any = self.quantize.load(Ordering::Relaxed);
        any.then(own).flatten().unwrap_or(usual)
    }

    /// Has sums on a communicator quantized in a way of their own, or not; with nothing carried from those before.
    /// On all ranks alike.
    pub fn set_quantize(&self, communicator: &Communicator, own: Option<Option<Quantize>>) {
        self.quantize.store(true, Ordering::Relaxed);
        let mut quantizing = communicator.quantizing();
        quantizing.own = own;
        quantizing.scratch.forget();
    }

    /// One is being freed.
    pub fn forget(&self, comm: Handle) {
        let Some(communicator) = self.write().remove(&comm) else { return };
        let kept = communicator.family.as_ref().is_some_and(|f| f.give_back(&communicator));
        match kept {
            true => self.retired.add(communicator.close_pool()),
            false => self.retired.add(communicator.close()),
        }
        self.retired.reap(false);
    }

    /// Takes all out, with their groups, at the end.
    pub fn drain(&self) -> Vec<Arc<Communicator>> {
        let all: Vec<_> = self.write().drain().map(|(_, communicator)| communicator).collect();
        let freed = self.families.drain();
        all.into_iter().flat_map(Communicator::close).chain(freed).collect()
    }

    /// Sees `comm` as a new communicator, whose group has lost its programs: with a new group, or, if that
    /// cannot be made now, none for a while. Whatever is under way in the old one goes on there. Collective.
    pub fn renew(
        &self,
        context: &Context<'_>,
        comm: Handle,
        old: &Communicator,
    ) -> Arc<Communicator> {
        log::info!("a group anew, since some host has lost its programs");
        // Not by sockets alone, yet: agents that are restarted will be back, and nobody would see them.
        let folding = self.set_up_by(context, comm, Transport::Programs);
        self.replace(comm, old, folding)
    }

    /// Sees `comm` as a new communicator, with this group or none for a while.
    pub(super) fn replace(
        &self,
        comm: Handle,
        old: &Communicator,
        folding: Option<Box<Folding>>,
    ) -> Arc<Communicator> {
        let new = Arc::new(old.renewed(folding));
        let old = self.write().insert(comm, Arc::clone(&new));
        if let (Some(old), Some(family)) = (&old, &new.family) {
            family.replace(old, &new);
        }
        self.retired.add(old.into_iter().flat_map(Communicator::close));
        new
    }

    /// A new group of `comm`, if it can have one. Collective.
    pub fn set_up(&self, context: &Context<'_>, comm: Handle) -> Option<Box<Folding>> {
        self.set_up_by(context, comm, context.transport())
    }

    fn set_up_by(
        &self,
        context: &Context<'_>,
        comm: Handle,
        transport: Transport,
    ) -> Option<Box<Folding>> {
        self.retired.reap(false);
        match self.fold_on(context, comm, transport) {
            Ok(folding) => Some(folding),
            Err(why) => {
                if context.mpi.rank(comm) == 0 {
                    log::log!(
                        self.level_of(context.mpi, &why),
                        "a communicator is left to MPI: {why}"
                    );
                }
                None
            }
        }
    }

    /// How loud to say why a communicator has no group: once, if MPI_COMM_WORLD has one, for nobody has heard why then.
    /// Ranks of one host need none.
    fn level_of(&self, mpi: &Mpi, why: &NoGroup) -> Level {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let world = self.get(mpi.abi.comm_world);
        let is_news = !why.is_usual() && world.is_some_and(|w| w.accepted().is_ok());
        if is_news && !TOLD.swap(true, Ordering::Relaxed) { Level::Warn } else { Level::Info }
    }

    /// Sets a group up, whose frames are carried by `transport`. Collective.
    ///
    /// # Errors
    /// Why there is none, the same on all ranks.
    pub fn fold_on(
        &self,
        context: &Context<'_>,
        comm: Handle,
        transport: Transport,
    ) -> Result<Box<Folding>, NoGroup> {
        let group = set_up(context, comm, transport)?;
        let config = Config::or_default(context.config);
        let programs = transport != Transport::Sockets && group.no_programs.is_none();
        let version = &context.mpi.abi.version;
        let mut folding = Folding::new(group, &config.shared, version, programs);
        if let Some(profile) = self.profile.get() {
            folding.learn(profile);
        }
        Ok(Box::new(folding))
    }

    /// What jobs before this have measured is for `world`, and for all that get a group later.
    pub fn learn(&self, profile: Profile, world: &mut Folding) {
        world.learn(self.profile.get_or_init(|| profile));
    }
}
