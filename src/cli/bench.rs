//! `foldback bench`.

use std::process::ExitCode;

/// Compare the same MPI program with and without foldback.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
