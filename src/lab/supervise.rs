//! Waiting for a launcher: passing signals on, ending it when time is up.

use std::io::{IsTerminal, stdin};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// How long a launcher that was told to end may take to clean up.
const GRACE: Duration = Duration::from_secs(5);

/// Signals that end a job.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// How a job ended.
pub enum Outcome {
    /// By itself.
    Exited(ExitStatus),
    /// Because of a signal to us.
    Interrupted(Signal),
    /// Because its time was up.
    TimedOut,
}

impl Outcome {
    /// The exit status that a shell would show.
    pub fn code(&self) -> u8 {
        let code = match self {
            Self::Exited(status) => {
                status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
            }
            Self::Interrupted(signal) => 128 + *signal as i32,
            Self::TimedOut => 124,
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

/// Receives signals from here on, so that none of them leaves a lab behind.
pub struct Supervisor {
    signals: SignalFd,
}

impl Supervisor {
    /// Blocks the signals for the calling thread and those it starts later.
    pub fn new() -> Result<Self> {
        let mut set: SigSet = ENDING.into_iter().collect();
        set.add(Signal::SIGCHLD);
        // Or giving the terminal to the launcher, and taking it back, would stop us.
        set.add(Signal::SIGTTOU);
        set.thread_block().context("cannot block signals")?;
        set.remove(Signal::SIGTTOU);
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .context("cannot receive signals")?;
        Ok(Self { signals })
    }

    /// Runs a launcher to its end. `on_timeout` is called before a job is ended for its time.
    pub fn run(
        &self,
        command: &mut Command,
        timeout: Option<Duration>,
        on_timeout: impl FnOnce(),
    ) -> Result<Outcome> {
        // A group of its own, so that a signal reaches it once, and all of it.
        let mut child = command.process_group(0).spawn().context("cannot start the launcher")?;
        let group = Pid::from_raw(i32::try_from(child.id())?);
        let _terminal = Terminal::lend(group);
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let result = match self.wait(&mut child, deadline)? {
            Event::Exited(status) => return Ok(Outcome::Exited(status)),
            Event::Signal(signal) => {
                let _ = killpg(group, signal);
                Outcome::Interrupted(signal)
            }
            Event::Deadline => {
                on_timeout();
                let _ = killpg(group, Signal::SIGTERM);
                Outcome::TimedOut
            }
        };
        // A second signal, or too long a wait, and it goes without cleaning up.
        if !matches!(self.wait(&mut child, Some(Instant::now() + GRACE))?, Event::Exited(_)) {
            let _ = killpg(group, Signal::SIGKILL);
            child.wait().context("cannot wait for the launcher")?;
        }
        Ok(result)
    }

    /// A signal that came while there was nothing to pass it on to.
    pub fn pending(&self) -> Result<Option<Signal>> {
        while let Some(info) = self.signals.read_signal().context("cannot read signals")? {
            let signal = Signal::try_from(info.ssi_signo as i32)?;
            if signal != Signal::SIGCHLD {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }

    fn wait(&self, child: &mut Child, deadline: Option<Instant>) -> Result<Event> {
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for the launcher")? {
                return Ok(Event::Exited(status));
            }
            if let Some(signal) = self.pending()? {
                return Ok(Event::Signal(signal));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Event::Deadline);
            }
            let timeout = left.map_or(PollTimeout::NONE, |left| {
                // Up to the next millisecond, so as not to spin through the last one.
                let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
                PollTimeout::from(millis)
            });
            let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot wait for signals"),
            }
        }
    }
}

enum Event {
    Exited(ExitStatus),
    Signal(Signal),
    Deadline,
}

/// The terminal, lent to the launcher so that Ctrl-C reaches it and it may read.
struct Terminal;

impl Terminal {
    fn lend(group: Pid) -> Option<Self> {
        let ours = stdin().is_terminal() && tcgetpgrp(stdin()) == Ok(getpgrp());
        (ours && tcsetpgrp(stdin(), group).is_ok()).then_some(Self)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetpgrp(stdin(), getpgrp());
    }
}
