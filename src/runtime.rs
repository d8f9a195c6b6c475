//! The state of foldback in this process: one MPI, one agent, a group for each communicator.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use crate::config::Config;
use crate::group::{Group, Member};
use crate::mpi::Mpi;
use crate::mpi::abi::Family;
use crate::mpi::pmpi::Handle;
use crate::setup::agent::AgentAccess;
use crate::setup::exchange::exchange_long;
use crate::setup::{Process, roll_call, set_up};
use crate::stats::{self, Calls, HostLine, RankReport, Reason};
use crate::wait::Waiter;

/// Everything, made at the first MPI call that we see.
pub struct Runtime {
    /// The real MPI.
    pub mpi: Mpi,
    /// The environment, or what is wrong with it.
    pub config: Result<Config, String>,
    /// What was called.
    pub calls: Calls,
    agent: AgentAccess,
    /// Set by [`Runtime::started`]: before it, nothing is folded.
    running: OnceLock<Running>,
    communicators: RwLock<Communicators>,
    retired: Mutex<Retired>,
}

struct Running {
    /// A communicator without messages, to drive progress on.
    nothing: Handle,
    /// Why COMM_WORLD has no group.
    no_group: Option<String>,
}

/// Groups of freed communicators, whose peers may still ask for something.
#[derive(Default)]
struct Retired {
    members: Vec<Member>,
    /// Counters of those that are gone altogether.
    report: Option<HostLine>,
}

/// By handle, with a hash that costs next to nothing: it is computed at every call.
type Communicators = HashMap<Handle, Arc<Communicator>, BuildHasherDefault<HandleHasher>>;

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

/// What is known of a communicator.
struct Communicator {
    /// Why it is left to MPI, for good.
    declined: OnceLock<Reason>,
    calls: AtomicU32,
    /// `None`: not set up (yet).
    group: Mutex<Option<Box<Group>>>,
}

impl Communicator {
    fn new(declined: Option<Reason>, group: Option<Group>) -> Self {
        Self {
            declined: declined.map_or_else(OnceLock::new, OnceLock::from),
            calls: AtomicU32::new(0),
            group: Mutex::new(group.map(Box::new)),
        }
    }

    fn group(&self) -> MutexGuard<'_, Option<Box<Group>>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// Foldback in this process; `None` if it leaves this process alone.
#[inline]
pub fn get() -> Option<&'static Runtime> {
    RUNTIME.get_or_init(Runtime::load).as_ref()
}

/// MPI frees a communicator, or ends.
fn ended(comm: Handle) {
    let Some(runtime) = get() else { return };
    let comm = runtime.mpi.abi.handle(comm);
    if comm == runtime.mpi.abi.comm_self { runtime.finishing() } else { runtime.forget(comm) }
}

impl Runtime {
    fn load() -> Option<Self> {
        // Not even a log line where it is off: the process may be anything.
        let config = Config::from_environment();
        if config.as_ref().is_ok_and(|config| !config.enabled) {
            return None;
        }
        let logger = env_logger::Env::new().filter_or("FOLDBACK_LOG", "warn");
        // The program may log by the same crate.
        let _ = env_logger::Builder::from_env(logger).try_init();
        match Mpi::load() {
            Ok(mpi) => Some(Self {
                mpi,
                config,
                calls: Calls::new(),
                agent: AgentAccess::default(),
                running: OnceLock::new(),
                communicators: RwLock::default(),
                retired: Mutex::default(),
            }),
            Err(reason) => {
                log::warn!("everything is passed through: {reason}");
                None
            }
        }
    }

    /// The environment, or defaults if it is unreadable (then there is no group either).
    fn setup_calls(&self) -> u32 {
        self.config.as_ref().map_or(u32::MAX, |config| config.shared.setup_calls)
    }

    /// Largest message of each collective that is folded.
    #[inline]
    pub fn max_bytes(&self, collective: crate::config::Collective) -> usize {
        self.config.as_ref().map_or(0, |config| config.shared.max_bytes[collective as usize])
    }

    /// The real MPI has just been initialised: sets COMM_WORLD's group up. Collective.
    pub fn started(&self) {
        if self.running.get().is_some() {
            return;
        }
        self.mpi.abi.learn_types(&self.mpi.pmpi);
        let world = self.mpi.abi.comm_world;
        let defaults = Config::default();
        let patience = self.config.as_ref().unwrap_or(&defaults).setup_timeout;
        if let Err(why) = roll_call(&self.mpi, world, patience) {
            log::warn!("everything is passed through: {why}");
            return;
        }
        let Some(nothing) = self.mpi.private_world() else {
            log::warn!("everything is passed through: MPI_COMM_WORLD cannot be duplicated");
            return;
        };
        let process = Process { mpi: &self.mpi, config: &self.config, agent: &self.agent, nothing };
        let (communicator, no_group) = match set_up(&process, world) {
            Ok(group) => {
                log::info!("rank {} folds", group.rank);
                (Communicator::new(None, Some(group)), None)
            }
            Err(why) => {
                if self.mpi.rank(world) == 0 {
                    log::warn!("MPI_COMM_WORLD is left to MPI: {why}");
                }
                (Communicator::new(Some(Reason::NoGroup), None), Some(why))
            }
        };
        self.write().insert(world, Arc::new(communicator));
        let _ = self.running.set(Running { nothing, no_group });
        if self.mpi.watch(self.mpi.abi.comm_self, ended).is_none() {
            log::warn!("the end of the job will go unnoticed: no attribute on MPI_COMM_SELF");
        }
    }

    /// Whether COMM_WORLD has a group that works.
    pub fn world_folds(&self) -> bool {
        let known = self.communicators.read().unwrap_or_else(PoisonError::into_inner);
        let Some(world) = known.get(&self.mpi.abi.comm_world) else { return false };
        world.group().is_some()
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Communicators> {
        self.communicators.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The communicator of a handle, looked at for the first time or known already.
    fn communicator(&self, comm: Handle) -> Option<Arc<Communicator>> {
        let known = self.communicators.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(communicator) = known.get(&comm) {
            return Some(Arc::clone(communicator));
        }
        drop(known);
        let declined = self.mpi.is_intercomm(comm).then_some(Reason::Intercommunicator);
        // Without news of its end, a new communicator of the same handle would be taken for it.
        if comm != self.mpi.abi.comm_world && comm != self.mpi.abi.comm_self {
            self.mpi.watch(comm, ended)?;
        }
        let communicator = Arc::new(Communicator::new(declined, None));
        self.write().insert(comm, Arc::clone(&communicator));
        Some(communicator)
    }

    /// Calls `with` on the group of `comm`, for a call that is eligible on all ranks alike; sets the
    /// group up if this is the call to do so.
    ///
    /// # Errors
    /// Why there is no group (yet); the same on all ranks.
    pub fn with_group<R>(
        &self,
        comm: Handle,
        with: impl FnOnce(&mut Group, &mut Waiter<'_>) -> R,
    ) -> Result<R, Reason> {
        let running = self.running.get().ok_or(Reason::Off)?;
        let communicator = self.communicator(comm).ok_or(Reason::NoGroup)?;
        if let Some(reason) = communicator.declined.get() {
            return Err(*reason);
        }
        let mut group = communicator.group();
        if group.is_none() {
            let calls = communicator.calls.fetch_add(1, Ordering::Relaxed) + 1;
            if calls < self.setup_calls() {
                return Err(Reason::NotYet);
            }
            *group = self.try_set_up(comm, running);
        }
        let Some(group) = group.as_mut() else {
            return Err(*communicator.declined.get_or_init(|| Reason::NoGroup));
        };
        let mut waiter = Waiter::new(&self.mpi, running.nothing);
        Ok(with(group, &mut waiter))
    }

    fn try_set_up(&self, comm: Handle, running: &Running) -> Option<Box<Group>> {
        self.reap(false);
        let process = Process {
            mpi: &self.mpi,
            config: &self.config,
            agent: &self.agent,
            nothing: running.nothing,
        };
        match set_up(&process, comm) {
            Ok(group) => Some(Box::new(group)),
            Err(why) => {
                if self.mpi.rank(comm) == 0 {
                    log::info!("a communicator is left to MPI: {why}");
                }
                None
            }
        }
    }

    /// A communicator is being freed.
    pub fn forget(&self, comm: Handle) {
        let Some(communicator) = self.write().remove(&comm) else { return };
        self.retire(&communicator);
        self.reap(false);
    }

    /// Takes the group from a communicator, for [`Runtime::reap`].
    fn retire(&self, communicator: &Communicator) {
        let group = communicator.group().take();
        self.retired().members.extend(group.and_then(|group| group.member));
    }

    fn retired(&self) -> std::sync::MutexGuard<'_, Retired> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Destroys groups of freed communicators that all members are done with; at the end, all.
    fn reap(&self, all: bool) {
        let mut retired = self.retired();
        let mut kept = Vec::new();
        for mut member in std::mem::take(&mut retired.members) {
            if all || member.wire.farewell(std::time::Instant::now) {
                let report = member.report();
                match &mut retired.report {
                    Some(sum) => sum.add(&report),
                    none => *none = Some(report),
                }
            } else {
                kept.push(member);
            }
        }
        retired.members = kept;
    }

    /// The real MPI is about to be finalised: reports, and leaves nothing behind. Collective.
    pub fn finishing(&self) {
        let Some(running) = self.running.get() else { return };
        let groups: Vec<_> = self.write().drain().map(|(_, communicator)| communicator).collect();
        // Nobody leaves before all are here: a peer may still have to ask us for something. While
        // we wait, the kernel answers.
        let mut report = RankReport {
            calls: self.calls.lines(),
            host: None,
            no_group: running.no_group.clone(),
        };
        let world = self.mpi.abi.comm_world;
        let mut parting = || self.reap(false);
        let here = exchange_long(&self.mpi, world, &(), &mut parting).is_ok();
        groups.iter().for_each(|communicator| self.retire(communicator));
        self.reap(true);
        report.host = self.retired().report.take();
        if here {
            match exchange_long(&self.mpi, world, &report, &mut || ()) {
                Ok(reports) if self.mpi.rank(world) == 0 => self.write_stats(&reports),
                Ok(_) => {}
                Err(failure) => log::warn!("no statistics: {failure:?}"),
            }
        }
        self.agent.close();
        if self.mpi.abi.family == Family::Mpich {
            // MPICH before 4.2 over UCX may hang in MPI_Finalize if one rank closes its connections
            // while another still lets MPI progress. All are past that when this is over.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn write_stats(&self, reports: &[RankReport]) {
        let Some(path) = self.config.as_ref().ok().and_then(|config| config.stats.as_ref()) else {
            return;
        };
        let mut text = format!("{:#}", stats::document(&self.mpi.abi.version, reports));
        text.push('\n');
        let written = if path == "-" {
            std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())
        } else {
            std::fs::write(path, text)
        };
        if let Err(error) = written {
            log::warn!("FOLDBACK_STATS={path}: {error}");
        }
    }
}
