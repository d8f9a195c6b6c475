//! The subcommands, one module each.

mod agent;
mod bench;
mod doctor;
mod generate;
mod lab;
mod run;
mod stats;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::tell;

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
    Bench(Box<bench::Args>),
    Doctor(doctor::Args),
    #[command(hide = true)]
    Generate(generate::Args),
    Lab(lab::Args),
    Run(run::Args),
    Stats(stats::Args),
    Status(status::Args),
    #[command(hide = true)]
    Watch(run::watch::Args),
}

/// Parses the command line and runs the subcommand. Errors end in one line and exit status 1
/// (clap's own: 2).
pub fn main() -> ExitCode {
    crate::logging::init();
    let result = match Cli::parse().command {
        Command::Agent(args) => agent::run(args),
        Command::Bench(args) => bench::run(*args),
        Command::Doctor(args) => doctor::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Run(args) => run::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Status(args) => status::run(args),
        Command::Watch(args) => run::watch::run(args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            tell(format_args!("foldback: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}
