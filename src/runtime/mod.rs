//! The state of foldback in this process: one MPI, one agent, a group for each communicator.
#![allow(unsafe_code)]

mod pool;
mod routing;

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::hash::{BuildHasherDefault, Hasher};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use log::Level;

use crate::collective::admit::{Admitted, admit};
use crate::collective::finish::SUCCESS;
use crate::collective::judge::{Ends, judge};
use crate::collective::plan::{Plan, fit, plan};
use crate::collective::staging::prepare;
use crate::collective::{Call, Form};
use crate::config::{Config, Report, fault_tolerance};
use crate::group::Group;
use crate::logging;
use crate::mpi::Mpi;
use crate::mpi::abi::Family;
use crate::mpi::pmpi::Handle;
use crate::requests::{Open, Requests};
use crate::router::Way;
use crate::settings;
use crate::setup::agent::AgentAccess;
use crate::setup::exchange::exchange;
use crate::setup::{ONE_HOST, Process, roll_call, set_up};
use crate::stats::{Calls, HostLine, Job, Message, RankReport, Reason};
use crate::wait::Waiter;
use crate::wire::socket::SocketPool;

use pool::Pool;
pub use routing::Stopwatch;
use routing::{PASSING, took, usual_algorithm};

/// Calls from one look at the groups of freed communicators to the next, as long as there are any.
const REAP_CALLS: u32 = 64;

/// Everything, made at the first MPI call that we see.
pub struct Runtime {
    /// The real MPI.
    pub mpi: Mpi,
    /// The environment, or what is wrong with it.
    pub config: Result<Config, String>,
    /// What was called.
    pub calls: Calls,
    /// Non-blocking collectives under way.
    pub requests: Requests,
    agent: AgentAccess,
    sockets: SocketPool,
    is_started: AtomicBool,
    /// Set by [`Runtime::started`]: before it, nothing is folded.
    running: OnceLock<Running>,
    communicators: RwLock<Communicators>,
    retired: Mutex<Retired>,
    /// Whether any group is among the retired, and calls since it is.
    retiring: AtomicBool,
    since_reaped: AtomicU32,
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
    communicators: Vec<Arc<Communicator>>,
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
pub struct Communicator {
    /// Our rank, and of how many.
    rank: usize,
    size: usize,
    /// Why it is left to MPI, for good.
    declined: OnceLock<Reason>,
    calls: AtomicU32,
    /// Groups of its persistent collectives.
    pool: Pool,
    /// `None`: not set up (yet).
    group: Mutex<Option<Box<Group>>>,
}

impl Communicator {
    fn new(
        (rank, size): (usize, usize),
        declined: Option<Reason>,
        group: Option<Box<Group>>,
    ) -> Self {
        Self {
            rank,
            size,
            declined: declined.map_or_else(OnceLock::new, OnceLock::from),
            calls: AtomicU32::new(0),
            pool: Pool::default(),
            group: Mutex::new(group),
        }
    }

    fn group(&self) -> MutexGuard<'_, Option<Box<Group>>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group, for a call that must not wait for other ranks and so cannot set one up.
    fn existing_group(&self) -> Result<MutexGuard<'_, Option<Box<Group>>>, Reason> {
        match self.declined.get() {
            Some(reason) => Err(*reason),
            None => Ok(self.group()),
        }
    }

    /// The group, unless somebody is at it.
    pub fn try_group(&self) -> Option<MutexGuard<'_, Option<Box<Group>>>> {
        self.group.try_lock().ok()
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
        logging::init();
        if let Some(name) = fault_tolerance(|name| std::env::var(name).ok()) {
            log::warn!("everything is passed through: this job may lose ranks ({name})");
            return None;
        }
        match Mpi::load() {
            Ok(mpi) => Some(Self {
                mpi,
                config,
                calls: Calls::default(),
                requests: Requests::default(),
                agent: AgentAccess::default(),
                sockets: SocketPool::default(),
                is_started: AtomicBool::new(false),
                running: OnceLock::new(),
                communicators: RwLock::default(),
                retired: Mutex::default(),
                retiring: AtomicBool::new(false),
                since_reaped: AtomicU32::new(0),
            }),
            Err(reason) => {
                log::warn!("everything is passed through: {reason}");
                None
            }
        }
    }

    /// The real MPI has just been initialised: sets COMM_WORLD's group up. Collective.
    pub fn started(&self) {
        // A function of Fortran may have called that of C.
        if self.is_started.swap(true, Ordering::Relaxed) {
            return;
        }
        self.mpi.abi.learn_types(&self.mpi.pmpi);
        let world = self.mpi.abi.comm_world;
        let rank = self.mpi.rank(world);
        logging::set_rank(rank);
        if rank == 0 {
            let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
            settings::unknown(names).iter().for_each(|line| log::warn!("{line}"));
        }
        let defaults = Config::default();
        let patience = self.config.as_ref().unwrap_or(&defaults).setup_timeout;
        if let Err(why) = roll_call(&self.mpi, world, patience) {
            log::warn!("everything is passed through: {why}");
            return;
        }
        let (Some(nothing), Some(_)) = (self.mpi.private_world(), self.mpi.private_self()) else {
            log::warn!("everything is passed through: no communicators of our own");
            return;
        };
        let place = (rank, self.mpi.size(world));
        let (communicator, no_group) = match set_up(&self.process(nothing), world) {
            Ok(group) => {
                log::info!("MPI_COMM_WORLD has a group of {} ranks", group.place.layout.ranks());
                (Communicator::new(place, None, Some(Box::new(group))), None)
            }
            Err(why) => {
                if rank == 0 {
                    // Nothing is wrong with a job on one host.
                    let level = if why == ONE_HOST { Level::Info } else { Level::Warn };
                    log::log!(level, "MPI_COMM_WORLD is left to MPI: {why}");
                }
                (Communicator::new(place, Some(Reason::NoGroup), None), Some(why))
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
        let declined = if self.mpi.is_intercomm(comm) {
            Some(Reason::Intercommunicator)
        } else {
            (!self.mpi.is_of_world(comm)).then_some(Reason::Foreign)
        };
        // Without news of its end, a new communicator of the same handle would be taken for it.
        if comm != self.mpi.abi.comm_world && comm != self.mpi.abi.comm_self {
            self.mpi.watch(comm, ended)?;
        }
        let place = (self.mpi.rank(comm), self.mpi.size(comm));
        let communicator = Arc::new(Communicator::new(place, declined, None));
        self.write().insert(comm, Arc::clone(&communicator));
        Some(communicator)
    }

    /// A wait that begins now; `None` before MPI_Init.
    pub fn waiter(&self) -> Option<Waiter<'_>> {
        self.running.get().map(|running| Waiter::new(&self.mpi, running.nothing))
    }

    /// A collective, to its end if it blocks. `request` is where a non-blocking one wants its request.
    ///
    /// # Errors
    /// Why the call is the real MPI's.
    ///
    /// # Safety
    /// The arguments are the program's.
    pub unsafe fn collective(
        &'static self,
        form: Form,
        call: &Call,
        request: *mut c_void,
    ) -> Result<c_int, Option<Box<Stopwatch>>> {
        let config = self.config.as_ref().map_err(|_| Reason::NoGroup);
        let (mut seen, mut stopwatch, mut nested) = (Message::default(), None, false);
        let result = config.and_then(|config| {
            let running = self.running.get().ok_or(Reason::Off)?;
            let admitted = admit(&self.mpi, config, form, call, &mut seen)?;
            // The real MPI may go from one of its exported functions to another: from Fortran to C, say.
            if admitted.measured && PASSING.get() {
                nested = true;
                return Err(Reason::Faster);
            }
            let comm = self.mpi.abi.handle(call.comm);
            let communicator = self.communicator(comm).ok_or(Reason::NoGroup)?;
            communicator.declined.get().map_or(Ok(()), |reason| Err(*reason))?;
            let place = (communicator.rank, communicator.size);
            // SAFETY: the program's arguments.
            unsafe {
                let shape = admitted.shape();
                let ends = judge(&self.mpi, call, shape, place)?;
                match form {
                    Form::Blocking => {
                        let passed = &mut stopwatch;
                        let call = (call, &admitted, &ends);
                        self.run(running, config, call, &communicator, passed)
                    }
                    Form::Nonblocking => {
                        self.unless_revoked(call, &communicator)?;
                        let mut guard = communicator.existing_group()?;
                        let group = guard.as_mut().ok_or(Reason::NotYet)?;
                        let fit = fit(call, &admitted, &ends, group)?;
                        let plan = plan(call, &admitted, &ends, fit);
                        let open = || self.requests.open(&self.mpi, request);
                        self.start(config, plan, &communicator, group, open);
                        Ok(SUCCESS)
                    }
                    Form::Persistent => {
                        let own = self.group_of_its_own(running, comm, &communicator)?;
                        let fit = match own.group().as_mut() {
                            Some(group) => fit(call, &admitted, &ends, group),
                            None => Err(Reason::NoGroup),
                        };
                        let fit = match fit {
                            Ok(fit) => fit,
                            Err(reason) => {
                                self.give_back(&communicator, own);
                                return Err(reason);
                            }
                        };
                        let elements = call.elements_of_all(&self.mpi).unwrap_or(1);
                        let message = Message { bytes: seen.bytes * elements, ..seen };
                        let about = (admitted, fit, message);
                        self.requests.add_persistent(
                            &self.mpi,
                            (*call, place),
                            about,
                            (own, communicator),
                            request,
                        );
                        Ok(SUCCESS)
                    }
                }
            }
        });
        if nested {
            return Err(None);
        }
        if let Err(Reason::Argument) = result {
            log::debug!("{} is for MPI to judge", call.collective.name());
        }
        // A persistent collective is counted when it is started.
        if form != Form::Persistent || result.is_err() {
            let way = result.map(|_| ());
            if way != Err(Reason::Argument) && call.recv.counts.is_some() {
                // SAFETY: the program's arguments.
                seen.bytes *= unsafe { call.elements_of_all(&self.mpi) }.unwrap_or(0);
            }
            self.calls.count(form, call.collective, way, seen);
        }
        if self.retiring.load(Ordering::Relaxed) {
            self.reap_now_and_then();
        }
        result.map_err(|_| stopwatch)
    }

    /// SAFETY of callers: the arguments are the program's.
    unsafe fn run(
        &self,
        running: &Running,
        config: &Config,
        (call, admitted, ends): (&Call, &Admitted, &Ends),
        communicator: &Arc<Communicator>,
        passed: &mut Option<Box<Stopwatch>>,
    ) -> Result<c_int, Reason> {
        let comm = self.mpi.abi.handle(call.comm);
        let setup_calls = config.shared.setup_calls;
        let set_up = || self.try_set_up(comm, running);
        self.unless_revoked(call, communicator)?;
        let mut guard = Self::group_for(communicator, setup_calls, set_up)?;
        let group = guard.as_mut().ok_or(Reason::NoGroup)?;
        let fit = fit(call, admitted, ends, group)?;
        let mut route = None;
        if admitted.measured {
            let (id, step) = self.route(running, call, admitted, config, group);
            let begin = step.timed.then(Instant::now);
            match step.way {
                Way::Mpi => {
                    let communicator = Arc::clone(communicator);
                    *passed = Some(Box::new(Stopwatch::start(communicator, id, begin)));
                    return Err(Reason::Faster);
                }
                Way::Fold(algorithm) => route = Some((id, algorithm, begin)),
            }
        }
        let plan = plan(call, admitted, ends, fit);
        // SAFETY: the program's buffers stay until this returns.
        let code = unsafe {
            let (job, prepared) = prepare(&self.mpi, plan);
            let algorithm = match route {
                Some((_, algorithm, _)) => algorithm,
                None => usual_algorithm(config, group, &job),
            };
            self.complete(running, group, job, algorithm);
            // An op of the program's may be called, and what that calls is its own affair.
            drop(guard);
            prepared.finish(&self.mpi)
        };
        if let Some((id, algorithm, Some(begin))) = route {
            took(communicator, id, Way::Fold(algorithm), begin);
        }
        if code != SUCCESS {
            self.mpi.handle_error(comm, code);
        }
        Ok(code)
    }

    /// Refuses a communicator that is revoked (ULFM), for good. Those who wait on it already are not
    /// told: nor are they by Open MPI, but in jobs that may lose ranks, which foldback leaves alone. Starts
    /// of persistent collectives do not ask: the program may have freed the communicator.
    #[inline]
    fn unless_revoked(&self, call: &Call, communicator: &Communicator) -> Result<(), Reason> {
        if !self.mpi.is_revoked(call.comm) {
            return Ok(());
        }
        Err(*communicator.declined.get_or_init(|| Reason::Revoked))
    }

    /// SAFETY of callers: the plan's buffers are the program's, who leaves them alone until the request is
    /// complete.
    unsafe fn start(
        &'static self,
        config: &Config,
        plan: Plan,
        communicator: &Arc<Communicator>,
        group: &mut Group,
        open: impl FnOnce() -> Open,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let (job, mut prepared) = prepare(&self.mpi, plan);
            prepared.keep_type(&self.mpi);
            let request = open();
            let over = Arc::new(AtomicBool::new(false));
            let algorithm = usual_algorithm(config, group, &job);
            group.start(job, algorithm, Some(Arc::clone(&over)));
            group.poll(Instant::now);
            self.requests.add(&self.mpi, Arc::clone(communicator), over, prepared, request);
        }
    }

    /// `MPI_Start` of a request that may be a persistent collective's; `None`: it is the real MPI's.
    ///
    /// # Safety
    /// `request` is the program's.
    pub unsafe fn start_persistent(&'static self, request: *mut c_void) -> Option<c_int> {
        if !self.requests.persistent.any() {
            return None;
        }
        // SAFETY: the caller's promise.
        let handle = unsafe { self.mpi.abi.request_at(request, 0) };
        let persistent = self.requests.persistent.get(handle)?;
        let config = self.config.as_ref().ok()?;
        // SAFETY: an inactive request; if it is not, the MPI says so.
        let code = unsafe { (self.mpi.pmpi.start)(request.cast()) };
        if code != SUCCESS {
            return Some(code);
        }
        let call = &persistent.call;
        let mut guard = persistent.group.group();
        let Some(group) = guard.as_mut() else {
            log::error!("a persistent {} has lost its group", call.collective.name());
            self.mpi.abort(self.mpi.abi.comm_world)
        };
        let fit = persistent.fit.clone();
        let plan = plan(call, &persistent.admitted, &persistent.ends, fit);
        let open = || persistent.open(handle);
        // SAFETY: the program's arguments, at MPI_..._init.
        unsafe { self.start(config, plan, &persistent.group, group, open) };
        self.calls.count(Form::Persistent, call.collective, Ok(()), persistent.message);
        Some(SUCCESS)
    }

    /// `MPI_Request_free` of a request that may be a persistent collective's.
    ///
    /// # Safety
    /// `request` is the program's.
    pub unsafe fn free_persistent(&self, request: *mut c_void) {
        if self.requests.persistent.any() {
            // SAFETY: the caller's promise.
            let handle = unsafe { self.mpi.abi.request_at(request, 0) };
            if let Some((group, home)) = self.requests.free_persistent(&self.mpi, handle) {
                self.give_back(&home, group);
            }
        }
    }

    /// Leaves a group to be destroyed when its members are done with it.
    fn drop_group(&self, group: Arc<Communicator>) {
        self.retired().communicators.push(group);
        self.reap(false);
    }

    /// The group of a communicator, for a call that is eligible on all ranks alike; set up if this is
    /// the call to do so.
    fn group_for<'a>(
        communicator: &'a Communicator,
        setup_calls: u32,
        set_up: impl FnOnce() -> Option<Box<Group>>,
    ) -> Result<MutexGuard<'a, Option<Box<Group>>>, Reason> {
        if let Some(reason) = communicator.declined.get() {
            return Err(*reason);
        }
        let mut group = communicator.group();
        if group.is_none() {
            let calls = communicator.calls.fetch_add(1, Ordering::Relaxed) + 1;
            if calls < setup_calls {
                return Err(Reason::NotYet);
            }
            *group = set_up();
            if group.is_none() {
                return Err(*communicator.declined.get_or_init(|| Reason::NoGroup));
            }
        }
        Ok(group)
    }

    fn process(&self, nothing: Handle) -> Process<'_> {
        Process {
            mpi: &self.mpi,
            config: &self.config,
            agent: &self.agent,
            sockets: &self.sockets,
            nothing,
        }
    }

    fn try_set_up(&self, comm: Handle, running: &Running) -> Option<Box<Group>> {
        self.reap(false);
        match set_up(&self.process(running.nothing), comm) {
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
        self.retired().communicators.extend(communicator.pool.close());
        self.drop_group(communicator);
    }

    fn retired(&self) -> MutexGuard<'_, Retired> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Destroys groups of freed communicators that all members are done with; at the end, all.
    fn reap(&self, all: bool) {
        let mut retired = self.retired();
        let Retired { communicators, report } = &mut *retired;
        communicators.retain(|communicator| {
            // Somebody is at it: a wait for what was started before the communicator was freed.
            let Some(mut group) = communicator.try_group() else { return true };
            let gone = match group.as_mut() {
                None => return false,
                Some(_) if all => true,
                Some(group) if !group.is_idle() => {
                    group.poll(Instant::now);
                    false
                }
                Some(group) => group.farewell(),
            };
            if gone && let Some(line) = group.take().and_then(|group| group.report()) {
                match report.as_mut() {
                    Some(sum) => sum.add(&line),
                    None => *report = Some(line),
                }
            }
            !gone
        });
        self.retiring.store(!communicators.is_empty(), Ordering::Relaxed);
    }

    /// Taking leave of a group takes several looks: without these the last ones that a program frees would
    /// keep their slots in the agents until it ends.
    #[cold]
    fn reap_now_and_then(&self) {
        if self.since_reaped.fetch_add(1, Ordering::Relaxed) % REAP_CALLS == REAP_CALLS - 1 {
            self.reap(false);
        }
    }

    /// The real MPI is about to be finalised: reports, and leaves nothing behind. Collective.
    pub fn finishing(&self) {
        let Some(running) = self.running.get() else { return };
        let routes = self.routes();
        let groups: Vec<_> = self.write().drain().map(|(_, communicator)| communicator).collect();
        // Nobody leaves before all are here: a peer may still have to ask us for something. While
        // we wait, the kernel answers.
        let mut report = RankReport {
            calls: self.calls.lines(),
            routes,
            host: None,
            no_group: running.no_group.clone(),
        };
        let world = self.mpi.abi.comm_world;
        let mut parting = || self.reap(false);
        let here = exchange(&self.mpi, world, &(), None, &mut parting).is_ok();
        let spare: Vec<_> = groups.iter().flat_map(|group| group.pool.close()).collect();
        self.retired()
            .communicators
            .extend(groups.into_iter().chain(spare).chain(self.requests.persistent.drain()));
        self.reap(true);
        report.host = self.retired().report.take();
        if here {
            match exchange(&self.mpi, world, &report, None, &mut || ()) {
                Ok(reports) if self.mpi.rank(world) == 0 => self.write_stats(&reports),
                Ok(_) => {}
                Err(failure) => log::warn!("no statistics: {failure:?}"),
            }
        }
        self.agent.close();
        if self.mpi.abi.family != Family::OpenMpi {
            // MPICH before 4.2 over UCX may hang in MPI_Finalize if one rank closes its connections
            // while another still lets MPI progress. All are past that when this is over.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn write_stats(&self, reports: &[RankReport]) {
        let Ok(config) = &self.config else { return };
        if config.stats.is_none() && config.report == Report::Off {
            return;
        }
        let job = Job::new(&self.mpi.abi.version, reports);
        if let Some(path) = &config.stats {
            let written = match serde_json::to_string_pretty(&job) {
                Ok(text) if path == "-" => writeln!(std::io::stdout(), "{text}"),
                Ok(text) => std::fs::write(path, text + "\n"),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = written {
                log::warn!("FOLDBACK_STATS={path}: {error}");
            }
        }
        // Nobody may be there to read it.
        let _ = match config.report {
            Report::Off => Ok(()),
            Report::Line => writeln!(std::io::stderr(), "{}", job.line()),
            Report::Full => write!(std::io::stderr(), "{}", job.tables()),
        };
    }
}
