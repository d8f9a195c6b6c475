//! `foldback lab`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use crate::lab::launch::Mpi;
use crate::lab::processes::Identity;
use crate::lab::registry;
use crate::lab::run::{self, Request};
use crate::lab::settings::{Delay, Faults, MAX_HOSTS, Rate, Settings};
use crate::lab::{enter, fabric, rank, status};
use crate::output::print;

/// Name of the lab that commands mean if they name none.
const DEFAULT_NAME: &str = "lab";

/// A small cluster on this machine: hosts are network namespaces, joined by a bridge.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(Up),
    Run(Run),
    Exec(Exec),
    Rate(SetRate),
    Delay(SetDelay),
    Faults(SetFaults),
    Status(Status),
    Down(Down),
    /// Execute a rank's program; for the launchers
    #[command(hide = true)]
    Rank(Rank),
}

/// Make a lab, which stays until `lab down`
#[derive(Parser)]
struct Up {
    /// Hosts, named h0, h1, ...
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=MAX_HOSTS))]
    hosts: u64,

    /// Name of the lab
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,

    /// Process that the lab lives with: once it has ended, the next lab that is made removes this one
    #[arg(long, value_name = "PID")]
    lives_with: Option<i32>,

    #[command(flatten)]
    settings: Settings,
}

/// Run an MPI program in a lab, with libfoldback.so preloaded into its ranks
///
/// Runs in the lab named by --name. Without --name it takes the lab named "lab", if that is up and
/// no option describes the network. Otherwise it makes a lab of its own, and removes it at the end.
/// Output and exit status are the program's (124 after --timeout, 128 + N after signal N; Intel
/// MPI's launcher tells no more than that a program failed).
///
/// MPIs that Debian does not have are taken from the directory of `make setup-mpis`, else from
/// $PATH.
#[derive(Parser)]
struct Run {
    /// MPI whose launcher starts the ranks
    #[arg(long, value_enum, default_value = "openmpi4")]
    mpi: Mpi,

    /// Hosts to use [default: all of the lab, 2 in a lab of its own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_HOSTS))]
    hosts: Option<u64>,

    /// Ranks on each host
    #[arg(long, value_name = "R", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    ranks_per_host: u64,

    /// The same launch without libfoldback.so, and with FOLDBACK=off for programs linked with it
    #[arg(long)]
    off: bool,

    /// User that the ranks run as, without groups or capabilities
    #[arg(long, value_name = "UID")]
    as_user: Option<u32>,

    /// Environment variable for the ranks (all of FOLDBACK_* is passed on anyway)
    #[arg(short = 'x', value_name = "VAR[=VALUE]")]
    env: Vec<String>,

    /// End the job after so many seconds, show where its ranks are, exit with status 124
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

    /// Run in this lab, which is up
    #[arg(long, conflicts_with = "private")]
    name: Option<String>,

    /// Run in a lab of its own, even if one is up
    #[arg(long)]
    private: bool,

    /// File for the seconds from the launcher's start to its end; for the benchmarks
    #[arg(long, value_name = "FILE", hide = true)]
    seconds: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,

    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Run a command inside one host
#[derive(Parser)]
struct Exec {
    /// Name of the lab
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,

    /// Terminate the command when the calling process ends
    #[arg(long, hide = true)]
    die_with_parent: bool,

    /// Host, such as h0
    host: String,

    /// Command and arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Change the speed of all links of a lab, whatever runs in it
#[derive(Parser)]
struct SetRate {
    /// Name of the lab
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,

    /// Such as 100mbit, in each direction; off: as fast as it goes
    #[arg(value_name = "RATE|off", value_parser = rate)]
    rate: SpeedLimit,
}

/// Change the time that frames take between the hosts of a lab, whatever runs in it
///
/// Frames that are under way are lost.
#[derive(Parser)]
struct SetDelay {
    /// Name of the lab
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,

    /// Such as 25us, one way; off: none
    #[arg(value_name = "TIME|off", value_parser = delay)]
    delay: Latency,
}

/// Change the faults of a lab's frames, whatever runs in it
///
/// Faults that no option names end: without options there is no fault.
#[derive(Parser)]
struct SetFaults {
    /// Name of the lab
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,

    /// Only frames to this host, such as h0; may be given several times
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,

    #[command(flatten)]
    faults: Faults,
}

/// A speed of links; none: no limit.
#[derive(Clone, Debug)]
struct SpeedLimit(Option<Rate>);

/// A time between hosts; none: no delay.
#[derive(Clone, Debug)]
struct Latency(Option<Delay>);

/// Show labs: hosts, addresses, settings, faults so far
#[derive(Parser)]
struct Status {
    /// Name of the lab [default: all labs]
    #[arg(long)]
    name: Option<String>,

    /// As JSON, one document for each lab and line
    #[arg(long)]
    json: bool,
}

/// Remove a lab and end what runs in it
#[derive(Parser)]
struct Down {
    /// Name of the lab
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
}

#[derive(Parser)]
struct Rank {
    #[command(flatten)]
    options: rank::Options,

    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Up(up) => make(&up)?,
        Command::Run(run) => return launch(run),
        Command::Exec(exec) => {
            match enter::exec(&exec.name, &exec.host, exec.die_with_parent, &exec.command)? {}
        }
        Command::Rate(set) => fabric::set_rate(&set.name, set.rate.0)?,
        Command::Delay(set) => fabric::set_delay(&set.name, set.delay.0)?,
        Command::Faults(set) => fabric::set_faults(&set.name, &set.hosts, &set.faults)?,
        Command::Status(status) => show(&status)?,
        Command::Down(down) => take_down(&down)?,
        Command::Rank(rank) => return Ok(rank::run(&rank.options, &rank.command)?.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn make(up: &Up) -> Result<()> {
    let process = |pid| Identity::of(pid).with_context(|| format!("there is no process {pid}"));
    let lives_with = up.lives_with.map(process).transpose()?;
    let mut lab = fabric::build(&up.name, up.hosts as usize, &up.settings)?;
    // From here on the lab outlives this process.
    lab.owner = None;
    lab.lives_with = lives_with;
    lab.save()
}

fn launch(run: Run) -> Result<ExitCode> {
    let custom = run.settings != Settings::default();
    if run.name.is_some() && custom {
        bail!("a lab that is up has its network: leave out --name, or the network's options");
    }
    let is_up =
        |name: &str| Ok::<_, anyhow::Error>(registry::find(name)?.is_some_and(|lab| lab.is_up()));
    let lab = match run.name {
        Some(name) => Some(name),
        None if run.private || custom || !is_up(DEFAULT_NAME)? => None,
        None => Some(DEFAULT_NAME.to_owned()),
    };
    let code = run::run(&Request {
        lab,
        settings: run.settings,
        mpi: run.mpi,
        hosts: run.hosts.map(|hosts| hosts as usize),
        ranks_per_host: run.ranks_per_host as usize,
        off: run.off,
        uid: run.as_user,
        env: run.env,
        timeout: run.timeout,
        seconds: run.seconds,
        command: run.command,
    })?;
    Ok(ExitCode::from(code))
}

fn show(wanted: &Status) -> Result<()> {
    let labs = match &wanted.name {
        Some(name) => vec![registry::open(name)?],
        None => registry::all()?,
    };
    if labs.is_empty() && !wanted.json {
        print("no lab is up\n")?;
    }
    for lab in labs {
        let status = status::of(lab)?;
        if wanted.json {
            print(format_args!("{}\n", serde_json::to_string(&status)?))?;
        } else {
            print(status.to_text())?;
        }
    }
    Ok(())
}

fn take_down(down: &Down) -> Result<()> {
    // Its owner removes it at its end, and would not expect it to be gone.
    if let Some(owner) = registry::find(&down.name)?.and_then(|lab| lab.owner)
        && owner.alive()
    {
        bail!("the lab {} belongs to process {}, which still runs", down.name, owner.pid);
    }
    registry::sweep()?;
    registry::remove(&down.name)
}

fn rate(text: &str) -> Result<SpeedLimit, String> {
    if text == "off" { Ok(SpeedLimit(None)) } else { text.parse().map(|r| SpeedLimit(Some(r))) }
}

fn delay(text: &str) -> Result<Latency, String> {
    if text == "off" { Ok(Latency(None)) } else { text.parse().map(|time| Latency(Some(time))) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("write a number of seconds above 0".into()),
    }
}
