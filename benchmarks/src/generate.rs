//! `foldback-bench generate DIRECTORY`, for packagers and `make install`: no other executable knows all options.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_complete::Shell;

use super::command_line;

/// Writes the manual pages and the completions of shells into a directory, which must exist.
pub fn run(directory: &Path) -> Result<ExitCode> {
    let context = || format!("cannot write into {}", directory.display());
    clap_mangen::generate_to(command_line(), directory).with_context(context)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command_line(), "foldback", directory)
            .with_context(context)?;
    }
    Ok(ExitCode::SUCCESS)
}
