//! `foldback bench`, whose code is another executable: the one that serves as root's agent draws no charts.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::places;

/// Compare the same MPI program with and without foldback
///
/// Each round measures every number of hosts once with and once without, on each MPI, in changing
/// order, all in one lab made for it. A ratio compares two runs of one round. Tables, charts and
/// all samples go to --out.
///
/// Without --overlap, measures the latency of blocking collectives and their cost. With --overlap,
/// measures how much of non-blocking ones passes while the program computes.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// As `foldback-bench` has them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    words: Vec<OsString>,
}

/// Becomes `foldback-bench`; returns only if it cannot.
pub fn run(args: Args) -> Result<ExitCode> {
    let program = places::benchmarks()?;
    let error = Command::new(&program).args(args.words).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}
