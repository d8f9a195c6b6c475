//! The subcommands, one module each.

mod agent;
mod bench;
mod doctor;
mod lab;
mod metrics;
mod run;
mod snapshot;
mod stats;
mod status;
mod top;

use std::env::args_os;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::output;

/// Fold MPI collectives in the Linux kernel, fall back to MPI.
#[derive(Parser)]
#[command(name = "foldback", version, after_long_help = crate::config::settings::help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Agent(agent::Args),
    Bench(bench::Args),
    Doctor(doctor::Args),
    Lab(lab::Args),
    Run(run::Args),
    Stats(stats::Args),
    Status(status::Args),
    Top(top::Args),
    #[command(hide = true)]
    Watch(run::watch::Args),
}

/// Parses the command line and runs the subcommand. An error of the command line ends it with exit status 2.
pub fn main() -> ExitCode {
    crate::logging::init();
    output::end(match Cli::parse_from(words()).command {
        Command::Agent(args) => agent::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Run(args) => run::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Status(args) => status::run(args),
        Command::Top(args) => top::run(args),
        Command::Watch(args) => run::watch::run(args),
    })
}

/// The whole command line, but for the options of `foldback bench`.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The command line of this process. `help bench` is `bench help`, which `foldback-bench` answers.
fn words() -> Vec<OsString> {
    let mut words: Vec<_> = args_os().collect();
    if words.len() > 2 && words[1] == "help" && words[2] == "bench" {
        words.swap(1, 2);
    }
    words
}
