//! `foldback doctor`.

use std::process::ExitCode;

/// Say whether this host can run foldback, and what to do about each no.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
