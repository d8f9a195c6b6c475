//! `foldback agent`.

use std::process::ExitCode;

/// Serve the MPI ranks of this host: load the BPF programs, own their maps, admit groups.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
