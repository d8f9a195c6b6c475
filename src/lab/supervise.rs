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

use crate::output::tell;

/// How long a launcher that was told to end may take to clean up.
const GRACE: Duration = Duration::from_secs(5);

/// How long a launcher may take to end, and to pass output on, after the last rank.
const LINGER: Duration = Duration::from_secs(15);

/// How often to look whether there are ranks.
const LOOK: Duration = Duration::from_secs(1);

/// Signals that end a job.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// How a job ended.
pub enum Outcome {
    /// By itself.
    Exited(ExitStatus),
    /// All ranks did, with this exit status, but the launcher did not.
    Outlived(u8),
    /// Because of a signal to us.
    Interrupted(Signal),
    /// Because its time was up.
    TimedOut,
}

impl Outcome {
    /// The exit status that a shell would show.
    pub fn code(&self) -> u8 {
        let code = match self {
            Self::Outlived(code) => i32::from(*code),
            Self::Exited(status) => {
                status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
            }
            Self::Interrupted(signal) => 128 + *signal as i32,
            Self::TimedOut => 124,
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }

    /// Whether this signal ended the launcher.
    pub fn is_by(&self, signal: Signal) -> bool {
        matches!(self, Self::Exited(status) if status.signal() == Some(signal as i32))
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

    /// Runs a launcher to its end. `ended` gives the exit status of the job once all ranks have ended.
    /// The launcher then has LINGER to end too. `on_timeout` is called before a job is ended for its
    /// time.
    pub fn run(
        &self,
        command: &mut Command,
        timeout: Option<Duration>,
        ended: &dyn Fn() -> Option<u8>,
        on_timeout: impl FnOnce(),
    ) -> Result<Outcome> {
        // A group of its own, so that a signal reaches it once, and all of it.
        let mut child = command.process_group(0).spawn().context("cannot start the launcher")?;
        let group = Pid::from_raw(i32::try_from(child.id())?);
        let _terminal = Terminal::lend(group);
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let result = match self.wait(&mut child, deadline, ended)? {
            Event::Exited(status) => return Ok(Outcome::Exited(status)),
            Event::Signal(signal) => {
                let _ = killpg(group, signal);
                Outcome::Interrupted(signal)
            }
            Event::Outlived(code) => {
                tell(format_args!(
                    "foldback: all ranks have ended, but the launcher has not: ending it\n"
                ));
                let _ = killpg(group, Signal::SIGTERM);
                Outcome::Outlived(code)
            }
            Event::Deadline => {
                on_timeout();
                let _ = killpg(group, Signal::SIGTERM);
                Outcome::TimedOut
            }
        };
        // After a second signal, or too long a wait, it is killed without cleaning up.
        let end = Some(Instant::now() + GRACE);
        if !matches!(self.wait(&mut child, end, &|| None)?, Event::Exited(_)) {
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

    fn wait(
        &self,
        child: &mut Child,
        deadline: Option<Instant>,
        ended: &dyn Fn() -> Option<u8>,
    ) -> Result<Event> {
        let mut since: Option<Instant> = None;
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
            if let Some(code) = ended()
                && since.get_or_insert_with(Instant::now).elapsed() > LINGER
            {
                return Ok(Event::Outlived(code));
            }
            // Up to the next millisecond, so as not to spin through the last one.
            let millis = left.map_or(LOOK, |left| left.min(LOOK)).as_millis() + 1;
            let timeout = PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX));
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
    Outlived(u8),
    Signal(Signal),
    Deadline,
}

/// The terminal, lent to the launcher so that Ctrl-C reaches it and it may read.
struct Terminal;

impl Terminal {
    fn lend(group: Pid) -> Option<Self> {
        let ours = stdin().is_terminal() && tcgetpgrp(stdin()) == Ok(getpgrp());
        // Made only if it is lent: dropping it takes it back.
        (ours && tcsetpgrp(stdin(), group).is_ok()).then(|| Self)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetpgrp(stdin(), getpgrp());
    }
}
