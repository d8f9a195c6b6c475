//! `foldback run`.

use std::process::ExitCode;

/// Run an MPI launcher with foldback preloaded on every host.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
