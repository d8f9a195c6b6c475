//! `lab run`: a job, from the network to the exit status.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::launch::one_session::{self, LD_PRELOAD};
use super::launch::{Mpi, MpiJob, linked};
use super::processes::{self, Identity, MARK};
use super::registry::{self, Lab};
use super::settings::Settings;
use super::supervise::{Outcome, Supervisor};
use super::{fabric, rank, trace};
use crate::config::settings;
use crate::config::site::CONF;
use crate::output::tell;
use crate::places;

/// Hosts of a lab that is made for the run alone.
const DEFAULT_HOSTS: usize = 2;

/// The program to run, and its lab.
pub struct Request {
    /// A lab that is up. None: the run makes one.
    pub lab: Option<String>,
    pub settings: Settings,
    pub mpi: Mpi,
    pub hosts: Option<usize>,
    pub ranks_per_host: usize,
    pub off: bool,
    pub uid: Option<u32>,
    pub env: Vec<String>,
    pub timeout: Option<Duration>,
    /// The file that gets the time that the launcher took.
    pub seconds: Option<PathBuf>,
    pub command: Vec<OsString>,
}

/// Runs the job. Returns the exit status.
pub fn run(request: &Request) -> Result<u8> {
    let supervisor = Supervisor::new()?;
    registry::sweep()?;
    let (lab, _private) = match &request.lab {
        Some(name) => (registry::open(name)?, None),
        None => {
            let name = format!("run-{}", std::process::id());
            let hosts = request.hosts.unwrap_or(DEFAULT_HOSTS);
            let lab = fabric::build(&name, hosts, &request.settings)?;
            (lab, Some(Removal(name)))
        }
    };
    if let Some(signal) = supervisor.pending()? {
        return Ok(Outcome::Interrupted(signal).code());
    }
    in_lab(&supervisor, &lab, request)
}

/// Removes the lab of this run, however the run ends.
struct Removal(String);

impl Drop for Removal {
    fn drop(&mut self) {
        if let Err(error) = registry::remove(&self.0) {
            log::warn!("cannot remove the lab {}: {error:#}", self.0);
        }
    }
}

/// Removes the directory with the launcher's files.
struct TemporaryDir<'a>(&'a Path);

impl Drop for TemporaryDir<'_> {
    fn drop(&mut self) {
        // It may be gone already, together with the lab.
        let _ = fs::remove_dir_all(self.0);
    }
}

fn in_lab(supervisor: &Supervisor, lab: &Lab, request: &Request) -> Result<u8> {
    let hosts = request.hosts.unwrap_or(lab.hosts);
    ensure!(
        hosts <= lab.hosts,
        "the lab {} has {} hosts, not {hosts}: ask for fewer, or use --private",
        lab.name,
        lab.hosts
    );
    let own = places::command()?;
    let identity = Identity::own()?;
    let mark = format!("{}.{}", identity.pid, identity.start);
    let tmp = lab.dir().join("tmp").join(&mark);
    registry::make_public_dir(&tmp)?;
    let _tmp = TemporaryDir(&tmp);
    let mut preload = if request.off { vec![] } else { vec![places::library()?] };
    preload.extend(request.mpi.write_remedy(&tmp)?);
    let statuses = tmp.join("statuses");
    fs::create_dir(&statuses).context("cannot create the directory of statuses")?;
    let options = rank::Options {
        lab: lab.name.clone(),
        preload,
        uid: request.uid,
        statuses: statuses.clone(),
        session_dirs: request.uid.map(|_| tmp.clone()),
        env: with_defaults(resolve(&request.env), request.off),
    };
    let mut command: Vec<OsString> = vec![own.clone().into(), "lab".into(), "rank".into()];
    command.extend(options.to_args());
    command.push("--".into());
    command.extend(request.command.iter().cloned());
    let job = MpiJob {
        lab,
        hosts,
        ranks_per_host: request.ranks_per_host,
        other_user: request.uid.is_some(),
        tmp: &tmp,
        command,
    };
    let launch = request.mpi.launch(&job)?;
    linked::check(request.mpi, &request.command[0], &launch)?;

    let inherited = std::env::var_os(LD_PRELOAD);
    // Every process that the job starts inherits the mark, also if it leaves the group.
    let mut command = Command::new(own);
    command
        .args(["lab", "exec", "--name", &lab.name, "--die-with-parent"])
        .args([&Lab::host(0), "--"])
        .args(&launch.command)
        .envs(launch.env)
        .env(LD_PRELOAD, one_session::joined(&[one_session::write(&tmp)?], inherited.as_deref()))
        .env(MARK, &mark);
    log::info!("{:?}", launch.command);

    let ranks = hosts * request.ranks_per_host;
    let ended =
        || rank::status_of_all(&statuses, ranks).filter(|_| request.mpi.may_outlive_its_ranks());
    let start = Instant::now();
    let outcome = supervisor.run(&mut command, request.timeout, &ended, || {
        tell(format_args!("foldback: the job takes longer than its --timeout\n"));
        trace::print_stacks(&mark);
    });
    if let Some(path) = &request.seconds {
        fs::write(path, format!("{}\n", start.elapsed().as_secs_f64()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    processes::kill_marked(&mark)?;
    let outcome = outcome?;
    // hydra's mpiexec tells all its proxies that a rank has failed. If a proxy has just gone, since its own
    // ranks ended at the same time, SIGPIPE ends mpiexec before it can pass the status on.
    let failure = outcome.is_by(Signal::SIGPIPE).then(|| rank::failure(&statuses)).flatten();
    Ok(failure.unwrap_or(outcome.code()))
}

/// Asks for a line at the end of the job that says what was folded; or turns foldback off, also in
/// programs that are linked with it. Variables that the user gives stay.
fn with_defaults(mut env: Vec<String>, off: bool) -> Vec<String> {
    const REPORT: &str = "FOLDBACK_REPORT";
    let is_given = |name| env.iter().any(|pair| pair.starts_with(&format!("{name}=")));
    // Ranks of a lab read only a file that the environment names.
    let is_named = match std::env::var_os(CONF) {
        Some(_) => settings::is_named(REPORT),
        None => std::env::var_os(REPORT).is_some(),
    };
    if off && !is_given("FOLDBACK") {
        env.push("FOLDBACK=off".into());
    } else if !off && !is_given(REPORT) && !is_named {
        env.push(format!("{REPORT}=line"));
    }
    env
}

/// Gives variables without a value the value they have here; drops those without one.
fn resolve(wanted: &[String]) -> Vec<String> {
    wanted
        .iter()
        .filter_map(|entry| match entry.contains('=') {
            true => Some(entry.clone()),
            false => std::env::var(entry).ok().map(|value| format!("{entry}={value}")),
        })
        .collect()
}
