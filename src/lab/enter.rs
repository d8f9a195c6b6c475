//! Becoming a process of a host.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::sethostname;

use super::netns;
use super::registry::{self, Lab};
use crate::config::site::CONF;

const NONE: Option<&str> = None;

/// Turns the calling process into one of `host` and executes `command`. Returns only on failure.
pub fn exec(
    lab: &str,
    host: &str,
    die_with_parent: bool,
    command: &[OsString],
) -> Result<std::convert::Infallible> {
    // The waiting process has these signals blocked, to receive them by other means.
    SigSet::empty().thread_set_mask().context("cannot unblock signals")?;
    if die_with_parent {
        // So that a killed `lab run` does not leave a job running.
        prctl::set_pdeathsig(Signal::SIGTERM).context("cannot set the death signal")?;
    }
    let lab = registry::open(lab)?;
    ensure!(
        lab.host_names().any(|name| name == host),
        "the lab {} has no host {host}: its hosts are h0 to h{}",
        lab.name,
        lab.hosts - 1
    );
    netns::join(&lab.host_pin(host))?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)
        .context("cannot make a mount and a host name namespace")?;
    // Open MPI takes processes with equal host names for neighbours in shared memory.
    sethostname(host).context("cannot set the host name")?;
    // Slave: what is mounted here stays here, what is unmounted outside goes here as well.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)
        .context("cannot detach the mount table")?;
    mount_own_views(&lab, host)?;
    let mut program = prepare(command);
    program.env("FOLDBACK_AGENT_SOCKET", Lab::agent_socket(&lab.name, host));
    Err(program.exec())
        .with_context(|| format!("cannot execute {}", Path::new(&command[0]).display()))
}

/// Program and arguments as a command. The machine's file of settings is for its own network, so that a host of a lab
/// reads none, unless the environment names one.
pub fn prepare(command: &[OsString]) -> Command {
    let (program, args) = command.split_first().expect("the parser asks for a program");
    let mut command = Command::new(program);
    command.args(args);
    if std::env::var_os(CONF).is_none() {
        command.env(CONF, "");
    }
    command
}

/// Mounts what differs between hosts over what all share.
fn mount_own_views(lab: &Lab, host: &str) -> Result<()> {
    let dir = lab.host_dir(host);
    // /sys/class/net shows the network namespace of the process that mounted it.
    let sys = lab.dir().join("sys");
    mount(Some("sysfs"), &sys, Some("sysfs"), MsFlags::empty(), NONE)
        .context("cannot mount /sys")?;
    if Path::new("/sys/fs/cgroup").exists() {
        bind("/sys/fs/cgroup", sys.join("fs/cgroup"), MsFlags::MS_REC)?;
    }
    bind(dir.join("bpf"), sys.join("fs/bpf"), MsFlags::empty())?;
    mount(Some(&sys), "/sys", NONE, MsFlags::MS_MOVE, NONE).context("cannot mount /sys")?;
    bind(dir.join("shm"), "/dev/shm", MsFlags::empty())?;
    bind(lab.dir().join("hosts"), "/etc/hosts", MsFlags::empty())
}

fn bind(source: impl AsRef<OsStr>, target: impl AsRef<OsStr>, flags: MsFlags) -> Result<()> {
    let (source, target) = (Path::new(&source), Path::new(&target));
    mount(Some(source), target, NONE, MsFlags::MS_BIND | flags, NONE)
        .with_context(|| format!("cannot mount {} on {}", source.display(), target.display()))
}

/// The directory in which `enter` puts the new /sys together.
pub fn make_staging_dir(lab: &Lab) -> Result<()> {
    fs::create_dir(lab.dir().join("sys")).context("cannot create the staging directory")
}
