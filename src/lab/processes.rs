//! Finding and ending processes, by where they run or by a mark in their environment, never by
//! name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use serde::{Deserialize, Serialize};

/// Environment variable that marks all processes of one `lab run`.
pub const MARK: &str = "FOLDBACK_LAB_RUN";

/// How long a killed process may take to be gone.
const DEATH: Duration = Duration::from_secs(10);

/// A process, told apart from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: i32,
    /// Field 22 of /proc/PID/stat, in clock ticks since boot.
    pub start: u64,
}

impl Identity {
    pub fn own() -> Result<Self> {
        let pid = getpid().as_raw();
        Ok(Self { pid, start: stat(pid).context("cannot read /proc/self/stat")?.start })
    }

    /// The process of that number, if there is one.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = stat(pid).filter(|stat| !stat.dead)?;
        Some(Self { pid, start: stat.start })
    }

    /// Whether the process still runs.
    pub fn alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.start == self.start && !stat.dead)
    }
}

struct Stat {
    start: u64,
    dead: bool,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command's name in parentheses, which may contain anything.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    Some(Stat { start: fields.get(19)?.parse().ok()?, dead: matches!(fields[0], "Z" | "X") })
}

fn all() -> Result<Vec<i32>> {
    let entries = fs::read_dir("/proc").context("cannot read /proc")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Processes in any of these network namespaces, the caller excepted.
pub fn in_namespaces(namespaces: &[(u64, u64)]) -> Result<Vec<i32>> {
    let own = getpid().as_raw();
    let inside = |pid: &i32| {
        fs::metadata(format!("/proc/{pid}/ns/net"))
            .is_ok_and(|data| namespaces.contains(&(data.dev(), data.ino())))
    };
    Ok(all()?.into_iter().filter(|&pid| pid != own).filter(inside).collect())
}

/// Processes that carry this mark, with their environment.
pub fn marked(mark: &str) -> Result<Vec<(i32, Vec<u8>)>> {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let environment = |pid: i32| {
        let text = fs::read(format!("/proc/{pid}/environ")).ok()?;
        text.split(|&byte| byte == 0).any(|entry| entry == wanted).then_some((pid, text))
    };
    Ok(all()?.into_iter().filter_map(environment).collect())
}

/// Kills everything that runs in these network namespaces, and waits until it is gone.
pub fn kill_in_namespaces(namespaces: &[(u64, u64)]) -> Result<()> {
    kill_all(|| in_namespaces(namespaces))
}

/// Kills everything that carries this mark, and waits until it is gone.
pub fn kill_marked(mark: &str) -> Result<()> {
    kill_all(|| Ok(marked(mark)?.into_iter().map(|(pid, _)| pid).collect()))
}

/// Asks for the processes again and again, since dying ones may just have started others.
fn kill_all(find: impl Fn() -> Result<Vec<i32>>) -> Result<()> {
    let deadline = Instant::now() + DEATH;
    loop {
        let mut pids = find()?;
        pids.retain(|&pid| stat(pid).is_some_and(|stat| !stat.dead));
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("processes {pids:?} do not die");
        }
        for pid in pids {
            // It may have died meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        sleep(Duration::from_millis(2));
    }
}
