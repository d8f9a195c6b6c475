//! `foldback bench`: the same MPI program with and without foldback, in turns.

mod agents;
mod apps;
mod apps_programs;
mod apps_report;
mod apps_run;
mod apps_timer;
mod arena;
mod chart;
mod charts;
mod compare;
mod floor;
mod growth;
mod latency;
mod limits;
mod machine;
mod measure;
mod mode;
mod osu;
mod osu_report;
mod osu_table;
mod overlap;
mod pingpong;
mod quantize;
mod quantize_report;
mod report;
mod samples;
mod setting;
mod types;
mod waiting;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Compare the same MPI program with and without foldback
///
/// Each round measures every number of hosts once with and once without, on each MPI, in changing
/// order, all in one lab made for it. A ratio compares two runs of one round. Tables, charts and
/// all samples go to --out.
///
/// Without --overlap, measures the latency of blocking collectives and their cost. With --overlap,
/// measures how much of non-blocking ones passes while the program computes.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    compare: compare::Args,
}

#[derive(Subcommand)]
enum Command {
    Apps(apps::Args),
    Floor(floor::Args),
    Osu(osu::Args),
    Quantize(quantize::Args),
    Types(types::Args),
    Waiting(waiting::Args),
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        None => compare::run(args.compare),
        Some(Command::Apps(args)) => apps::run(args),
        Some(Command::Floor(args)) => floor::run(args),
        Some(Command::Osu(args)) => osu::run(args),
        Some(Command::Quantize(args)) => quantize::run(args),
        Some(Command::Types(args)) => types::run(args),
        Some(Command::Waiting(args)) => waiting::run(args),
    }
}
