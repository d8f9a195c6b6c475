//! The state of foldback in this process, from MPI_Init to MPI_Finalize.

mod before;
mod begin;
mod end;
mod hints;
mod meet;
mod profile;
#[cfg(test)]
pub(crate) mod stand_in;
mod topologies;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use before::Before;

use crate::comm::{Communicator, Communicators};
use crate::config::{Config, fault_tolerance};
use crate::logging;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::requests::Requests;
use crate::setup::{Context, Facilities};
use crate::stats::{Cached, Calls, PairsCounts};
use crate::wait::Waiter;

/// Everything, made at the first MPI call that we see.
pub struct Process {
    /// The real MPI.
    pub mpi: Mpi,
    /// The settings, or what is wrong with them.
    pub config: Result<Config, String>,
    pub calls: Calls,
    pub cached: Cached,
    pub pairs: PairsCounts,
    /// Non-blocking collectives under way.
    pub requests: Requests,
    /// The communicators on which collectives are called.
    pub communicators: Communicators,
    facilities: Facilities,
    is_started: AtomicBool,
    /// It is known here why everything is left to the real MPI.
    is_left: AtomicBool,
    before: OnceLock<Before>,
    /// Set when MPI has started, unless ranks are known then not to be alike: without it, nothing is folded.
    is_running: AtomicBool,
}

static PROCESS: OnceLock<Option<Process>> = OnceLock::new();

/// Foldback in this process; `None` if it leaves this process alone.
#[inline]
pub fn get() -> Option<&'static Process> {
    PROCESS.get_or_init(Process::load).as_ref()
}

/// MPI frees a communicator, or ends.
fn communicator_freed(comm: Handle) {
    let Some(process) = get() else { return };
    let comm = process.mpi.abi.handle(comm);
    if comm == process.mpi.abi.comm_self {
        process.before_finalize();
    } else {
        process.communicators.forget(comm);
    }
}

impl Process {
    fn load() -> Option<Self> {
        // Not even a log line where it is off: the process may be anything.
        let config = Config::of_process();
        if config.as_ref().is_ok_and(|config| !config.enabled) {
            return None;
        }
        logging::init();
        if let Some(name) = fault_tolerance(|name| std::env::var(name).ok()) {
            log::warn!("everything is passed through: this job may lose ranks ({name})");
            return None;
        }
        match Mpi::load() {
            Ok(mpi) => Some(Self::new(mpi, config)),
            Err(reason) => {
                log::warn!("everything is passed through: {reason}");
                None
            }
        }
    }

    /// Foldback before MPI has started.
    fn new(mpi: Mpi, config: Result<Config, String>) -> Self {
        Self {
            mpi,
            config,
            calls: Calls::default(),
            cached: Cached::default(),
            pairs: PairsCounts::default(),
            requests: Requests::default(),
            communicators: Communicators::default(),
            facilities: Facilities::default(),
            is_started: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            before: OnceLock::new(),
            is_running: AtomicBool::new(false),
        }
    }

    /// The libraries before foldback in this process.
    fn before(&self) -> &Before {
        self.before.get_or_init(Before::find)
    }

    /// Whether MPI has started, and not everything is passed through.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    /// The parts of this process that a group needs.
    #[inline]
    pub fn context(&self) -> Context<'_> {
        let Self { mpi, config, facilities, .. } = self;
        Context { mpi, config, facilities }
    }

    /// The communicator of a handle; `None`: it cannot be followed.
    #[inline]
    pub fn communicator(&self, comm: Handle) -> Option<Arc<Communicator>> {
        self.communicators.find(&self.mpi, comm, communicator_freed)
    }

    /// Whether COMM_WORLD has a group that works.
    pub fn world_folds(&self) -> bool {
        let world = self.communicators.get(self.mpi.abi.comm_world);
        world.is_some_and(|world| world.folding().is_some())
    }

    /// A wait that begins now; `None` where nothing [runs](Self::is_running).
    pub fn waiter(&self) -> Option<Waiter<'_>> {
        self.is_running().then(|| Waiter::new(&self.mpi))
    }
}
