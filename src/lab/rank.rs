//! The last step before a rank's program: it sets what applies to the ranks and not to the
//! launcher.
//!
//! Every launcher has options for the environment of ranks, but they differ, and none can give a rank
//! another user. This step serves all. It keeps the preloaded library out of `orted`, `prted`,
//! `hydra_pmi_proxy` and the shells between them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::lchown;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::prctl;
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Gid, Uid, User, gethostname, setgroups, setresgid, setresuid};

use super::enter;
use super::launch::one_session::{self, LD_PRELOAD};
use super::registry::Lab;
use super::supervise::Outcome;

/// Settings of the ranks.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Options {
    /// The lab
    #[arg(long)]
    pub lab: String,
    /// Libraries to preload, in this order
    #[arg(long)]
    pub preload: Vec<PathBuf>,
    /// User to run as
    #[arg(long)]
    pub uid: Option<u32>,
    /// Directory below which the user shall own everything
    #[arg(long)]
    pub session_dirs: Option<PathBuf>,
    /// Directory for a file with the exit status, as one byte, of each rank that has ended
    #[arg(long)]
    pub statuses: PathBuf,
    /// VARIABLE=VALUE, to be set
    #[arg(long = "env")]
    pub env: Vec<String>,
}

impl Options {
    /// The same as arguments.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![
            "--lab".into(),
            self.lab.clone().into(),
            "--statuses".into(),
            self.statuses.clone().into(),
        ];
        for preload in &self.preload {
            args.extend(["--preload".into(), preload.into()]);
        }
        if let Some(uid) = self.uid {
            args.extend(["--uid".into(), uid.to_string().into()]);
        }
        if let Some(dir) = &self.session_dirs {
            args.extend(["--session-dirs".into(), dir.into()]);
        }
        for pair in &self.env {
            args.extend(["--env".into(), pair.into()]);
        }
        args
    }
}

/// Executes a rank's program and waits for it. Its exit status is returned, and left for `lab run`.
pub fn run(options: &Options, command: &[OsString]) -> Result<u8> {
    if let Some(uid) = options.uid {
        if let Some(dir) = &options.session_dirs {
            give_away(dir, uid);
        }
        become_user(uid)?;
    }
    for library in &options.preload {
        // The dynamic linker would only print a warning, and the job would run without it.
        File::open(library)
            .with_context(|| format!("the rank cannot read {}", library.display()))?;
    }
    let host = gethostname().context("cannot read the host name")?;
    let mut program = enter::prepare(command);
    for pair in &options.env {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        program.env(name, value);
    }
    // hydra hands the first host's environment to all ranks, so this one is set again.
    program.env("FOLDBACK_AGENT_SOCKET", Lab::agent_socket(&options.lab, &host.to_string_lossy()));
    let given = options.env.iter().rev().find_map(|pair| pair.strip_prefix("LD_PRELOAD="));
    let inherited = std::env::var(LD_PRELOAD).map(|all| one_session::without(&all)).ok();
    let others = given.or(inherited.as_deref()).map(OsStr::new);
    let preload = one_session::joined(&options.preload, others);
    match preload.is_empty() {
        true => program.env_remove(LD_PRELOAD),
        false => program.env(LD_PRELOAD, preload),
    };
    let status = program
        .status()
        .with_context(|| format!("cannot execute {}", Path::new(&command[0]).display()))?;
    let code = Outcome::Exited(status).code();
    fs::write(options.statuses.join(std::process::id().to_string()), [code])
        .context("cannot leave the exit status")?;
    if let Some(signal) = status.signal().and_then(|signal| Signal::try_from(signal).ok()) {
        // The launchers end the other ranks of one that a signal ended, not of one that exits.
        die_of(signal)?;
    }
    Ok(code)
}

/// Ends this process as a signal ended its child, but without a second core. Returns if the signal is one
/// that we ignore, for example SIGPIPE.
fn die_of(signal: Signal) -> Result<()> {
    prctl::set_dumpable(false).context("cannot do without a core")?;
    // The runtime has handlers of SIGSEGV and SIGBUS, which make way at the first one.
    for _ in 0..2 {
        raise(signal).with_context(|| format!("cannot end by {signal}"))?;
    }
    Ok(())
}

/// The exit status of a job of so many ranks that have all left theirs: the first that is not 0.
pub fn status_of_all(statuses: &Path, ranks: usize) -> Option<u8> {
    let codes = left(statuses);
    (codes.len() == ranks).then(|| codes.into_iter().find(|&code| code != 0).unwrap_or(0))
}

/// The least exit status, not 0, with which a rank ended that no signal ended.
pub fn failure(statuses: &Path) -> Option<u8> {
    left(statuses).into_iter().filter(|code| (1..128).contains(code)).min()
}

/// The exit statuses that the ended ranks left.
fn left(statuses: &Path) -> Vec<u8> {
    // A file that is empty is still being written.
    let code = |entry: fs::DirEntry| fs::read(entry.path()).ok()?.first().copied();
    fs::read_dir(statuses).into_iter().flatten().flatten().filter_map(code).collect()
}

/// Gives everything below a directory to a user. The other ranks and the daemon make and remove
/// files there meanwhile, so missing ones are passed over.
fn give_away(dir: &Path, uid: u32) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let _ = lchown(entry.path(), Some(uid), None);
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            give_away(&entry.path(), uid);
        }
    }
}

/// Gives up root for good: no groups, no capabilities, none to be had from set-user-id programs.
fn become_user(uid: u32) -> Result<()> {
    let user = Uid::from_raw(uid);
    let group = match User::from_uid(user) {
        Ok(Some(entry)) => entry.gid,
        _ => Gid::from_raw(uid),
    };
    setgroups(&[])
        .and_then(|()| setresgid(group, group, group))
        .and_then(|()| setresuid(user, user, user))
        .and_then(|()| prctl::set_no_new_privs())
        .with_context(|| format!("cannot become user {uid}"))
}
