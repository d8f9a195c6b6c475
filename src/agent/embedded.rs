//! The agent in a thread of this process: for a job on a host without an agent.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::{Pid, getpid, pipe2};

use crate::agent::address::SocketAddress;
use crate::agent::error::{Context, ErrorKind, Result};
use crate::agent::options::Options;
use crate::agent::server::{Audience, Server};
use crate::agent::socket::Socket;

/// A running agent; dropping it stops it and leaves nothing behind.
pub struct Embedded {
    address: SocketAddress,
    process: Pid,
    /// Closing it stops the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Loads the programs, in this thread, and starts to serve, in another one that takes no
    /// signals. Serves processes of this user in this network namespace.
    pub fn start(options: Options) -> Result<Self> {
        let (listener, address) = Socket::listen_anywhere()
            .context(ErrorKind::Kernel, || "opening the embedded agent's socket".into())?;
        let mut server = Server::new(listener, Audience::OwnUser, options)?;
        let (stopped, stop) =
            pipe2(OFlag::O_CLOEXEC).context(ErrorKind::Kernel, || "opening a pipe".into())?;
        let thread = without_signals(|| {
            Builder::new().name("foldback-agent".into()).spawn(move || {
                // The server does not panic; but if it does, it must not take an MPI job along.
                let result = catch_unwind(AssertUnwindSafe(|| server.run(stopped.as_fd())));
                match result {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => log::error!("the embedded agent ends: {error}"),
                    Err(_) => log::error!("the embedded agent ends: a bug in it"),
                }
            })
        })?
        .context(ErrorKind::Kernel, || "starting the embedded agent's thread".into())?;
        Ok(Self { address, process: getpid(), stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens; for the other processes of the job on this host.
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
