//! The place of the library that the command preloads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const NAME: &str = "libfoldback.so";
/// From the command's directory: in a build, and where `make install` and distributions install it.
const DIRECTORIES: [&str; 4] = [".", "../lib", "../lib64", "../lib/x86_64-linux-gnu"];

/// `FOLDBACK_LIB`, or the library that was built or installed with this executable.
///
/// # Errors
/// There is none.
pub fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("FOLDBACK_LIB") {
        let path = std::path::absolute(path).context("FOLDBACK_LIB is no path")?;
        ensure!(path.is_file(), "FOLDBACK_LIB names no file: {}", path.display());
        return Ok(path);
    }
    let own = std::env::current_exe().context("cannot find this executable")?;
    let own = own.parent().context("this executable is in no directory")?;
    DIRECTORIES.iter().find_map(|directory| file(own, directory)).with_context(|| {
        format!(
            "no {NAME} in {} or ../lib: build or install it, or name it in FOLDBACK_LIB",
            own.display()
        )
    })
}

/// Without "..": the same path is given to the ranks of all hosts.
fn file(own: &Path, directory: &str) -> Option<PathBuf> {
    let directory = own.join(directory).canonicalize().ok()?;
    Some(directory.join(NAME)).filter(|path| path.is_file())
}
