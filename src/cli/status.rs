//! `foldback status`.

use std::process::ExitCode;

/// Show the agent of this host and its groups.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
