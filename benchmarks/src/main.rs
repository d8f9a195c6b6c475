//! `foldback-bench`, which `foldback bench` becomes: the same MPI program with and without foldback, in turns.

#![warn(clippy::print_stdout, clippy::print_stderr)]

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
mod generate;
mod glibc;
mod growth;
mod keys;
mod keys_report;
mod keys_samples;
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

use std::env::args_os;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, FromArgMatches, Subcommand};
use foldback::{cli, logging, output};

/// The options of `foldback bench`, described in `src/cli/bench.rs`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    compare: compare::Args,
}

#[derive(Subcommand)]
enum Command {
    Apps(apps::Args),
    Floor(floor::Args),
    Keys(keys::Args),
    Osu(osu::Args),
    Quantize(quantize::Args),
    Types(types::Args),
    Waiting(waiting::Args),
}

fn main() -> ExitCode {
    logging::init();
    let words: Vec<OsString> = args_os().skip(1).collect();
    if let [word, directory] = &words[..]
        && word == "generate"
    {
        return output::end(generate::run(directory.as_ref()));
    }
    let before = ["foldback", "bench"].map(OsString::from);
    let matches = command_line().get_matches_from(before.into_iter().chain(words));
    let (_, matches) = matches.subcommand().expect("the words have one");
    let options = Options::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    output::end(run(options))
}

/// The whole command line of `foldback`, with the options of `foldback bench`.
fn command_line() -> clap::Command {
    cli::command().mut_subcommands(|entry| {
        if entry.get_name() != "bench" {
            return entry;
        }
        Options::augment_args(clap::Command::new("bench"))
            .about(entry.get_about().cloned().unwrap_or_default())
            .long_about(entry.get_long_about().cloned().unwrap_or_default())
            .display_order(entry.get_display_order())
    })
}

fn run(options: Options) -> Result<ExitCode> {
    match options.command {
        None => compare::run(options.compare),
        Some(Command::Apps(args)) => apps::run(args),
        Some(Command::Floor(args)) => floor::run(args),
        Some(Command::Keys(args)) => keys::run(args),
        Some(Command::Osu(args)) => osu::run(args),
        Some(Command::Quantize(args)) => quantize::run(args),
        Some(Command::Types(args)) => types::run(args),
        Some(Command::Waiting(args)) => waiting::run(args),
    }
}
