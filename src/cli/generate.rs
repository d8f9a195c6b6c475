//! `foldback generate`, for packagers and `make install`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;

/// Write the manual pages and the completions of shells into a directory
#[derive(clap::Args)]
pub struct Args {
    /// The directory, which must exist
    directory: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let directory = &args.directory;
    let context = || format!("cannot write into {}", directory.display());
    clap_mangen::generate_to(Cli::command(), directory).with_context(context)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut Cli::command(), "foldback", directory)
            .with_context(context)?;
    }
    Ok(ExitCode::SUCCESS)
}
