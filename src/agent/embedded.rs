//! The agent in a thread of this process: for a job on a host without an agent.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::{Pid, getpid, pipe2};

use crate::agent::address::SocketAddress;
use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::agent::options::Options;
use crate::agent::server::{Audience, Server};
use crate::agent::socket::Socket;
use crate::threads;

/// An agent that loads its programs, or runs; dropping it stops it and leaves nothing behind.
pub struct Embedded {
    address: SocketAddress,
    process: Pid,
    /// Closing it stops the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    loaded: Arc<Loaded>,
}

/// Whether the programs are loaded, once that is known.
#[derive(Default)]
struct Loaded {
    outcome: Mutex<Option<Result<()>>>,
    known: Condvar,
}

impl Loaded {
    fn lock(&self) -> MutexGuard<'_, Option<Result<()>>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, outcome: Result<()>) {
        *self.lock() = Some(outcome);
        self.known.notify_all();
    }
}

impl Embedded {
    /// Starts an agent and waits until it has loaded its programs.
    pub fn start(options: Options) -> Result<Self> {
        let embedded = Self::begin(options)?;
        embedded.wait()?;
        Ok(embedded)
    }

    /// Begins to load the programs, which takes some 300 ms, and to serve, in a thread that takes no signals. Serves
    /// processes of this user in this network namespace. Early connections wait for it.
    pub fn begin(options: Options) -> Result<Self> {
        let (listener, address) = Socket::listen_anywhere()
            .context(ErrorKind::Kernel, || "opening the embedded agent's socket".into())?;
        let (stopped, stop) =
            pipe2(OFlag::O_CLOEXEC).context(ErrorKind::Kernel, || "opening a pipe".into())?;
        let loaded = Arc::new(Loaded::default());
        let tell = Arc::clone(&loaded);
        let serve = move || match Server::new(listener, Audience::OwnUser, options) {
            Ok(mut server) => {
                tell.set(Ok(()));
                server.run(stopped.as_fd())
            }
            Err(error) => {
                tell.set(Err(error));
                Ok(())
            }
        };
        let tell = Arc::clone(&loaded);
        let thread = without_signals(|| {
            Builder::new().name("foldback-agent".into()).spawn(move || {
                // The server does not panic; but if it does, it must not take an MPI job along.
                let why = match catch_unwind(AssertUnwindSafe(serve)) {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => error,
                    Err(_) => Error::new(ErrorKind::Kernel, "a bug in it"),
                };
                log::error!("the embedded agent ends: {why}");
                tell.set(Err(why));
            })
        })?
        .context(ErrorKind::Kernel, || "starting the embedded agent's thread".into())?;
        Ok(Self { address, process: getpid(), stop: Some(stop), thread: Some(thread), loaded })
    }

    /// Whether it has loaded its programs, or failed to.
    pub fn is_known(&self) -> bool {
        self.loaded.lock().is_some()
    }

    /// Waits until it has loaded its programs.
    ///
    /// # Errors
    /// It could not.
    pub fn wait(&self) -> Result<()> {
        let outcome = self.loaded.lock();
        let known = self.loaded.known.wait_while(outcome, |outcome| outcome.is_none());
        let outcome = known.unwrap_or_else(PoisonError::into_inner);
        outcome.as_ref().map_or(Ok(()), Clone::clone)
    }

    /// Stops it and waits for nothing. The process waits at its end until nothing is left behind. While it loads its
    /// programs there is nothing that the kernel would not clear away.
    pub fn end(mut self) {
        let is_loading = !self.is_known();
        if getpid() == self.process
            && let Some(thread) = self.thread.take().filter(|_| !is_loading)
        {
            threads::join_at_exit(thread);
        }
    }

    /// Its address, for the other processes of the job on this host.
    pub fn address(&self) -> SocketAddress {
        self.address.clone()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let stop = self.stop.take();
        let thread = self.thread.take();
        if getpid() != self.process {
            // A forked child: the thread is not here, and the agent is not its own.
            return;
        }
        drop(stop);
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Blocks all signals while `start` makes a thread, which inherits that: the program's handlers
/// run in the program's threads.
fn without_signals<T>(start: impl FnOnce() -> T) -> Result<T> {
    let doing = || "blocking signals".to_string();
    let before =
        SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK).context(ErrorKind::Kernel, doing)?;
    let started = start();
    before.thread_set_mask().context(ErrorKind::Kernel, doing)?;
    Ok(started)
}
