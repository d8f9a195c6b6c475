//! The places of foldback's executables, which start each other, and of the library that they preload.

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};

use crate::config::settings;

/// The name of the command.
const COMMAND: &str = "foldback";
/// The name of the command's other half, for `foldback bench`.
const BENCHMARKS: &str = "foldback-bench";
const LIBRARY: &str = "libfoldback.so";
/// From the command's directory: in a build, and where `make install` and distributions install it.
const DIRECTORIES: [&str; 4] = [".", "../lib", "../lib64", "../lib/x86_64-linux-gnu"];

/// The executable of `foldback`, which is this one unless this one is `foldback-bench`.
///
/// # Errors
/// There is none.
pub fn command() -> Result<PathBuf> {
    let own = own()?;
    if own.file_name().is_some_and(|name| name == BENCHMARKS) {
        beside(&own, COMMAND)
    } else {
        Ok(own)
    }
}

/// The executable of `foldback-bench`.
///
/// # Errors
/// There is none.
pub fn benchmarks() -> Result<PathBuf> {
    beside(&own()?, BENCHMARKS)
}

/// `FOLDBACK_LIB`, or the library that was built or installed with this executable.
///
/// # Errors
/// There is none.
pub fn library() -> Result<PathBuf> {
    if let Some(value) = settings::get("FOLDBACK_LIB").map_err(Error::msg)? {
        let path = std::path::absolute(&value.text).context("FOLDBACK_LIB is no path")?;
        ensure!(path.is_file(), "FOLDBACK_LIB names no file: {value}");
        return Ok(path);
    }
    let own = own()?;
    let own = own.parent().context("this executable is in no directory")?;
    DIRECTORIES.iter().find_map(|directory| file(own, directory)).with_context(|| {
        format!(
            "no {LIBRARY} in {} or ../lib: build or install it, or name it in FOLDBACK_LIB",
            own.display()
        )
    })
}

/// This executable.
///
/// # Errors
/// The system does not tell.
pub fn own() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this executable")
}

/// Finds a program in `$PATH`.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// A command in the directory of another, or else in `$PATH`. No link: the system shows a process by this path.
fn beside(other: &Path, name: &str) -> Result<PathBuf> {
    let path = Some(other.with_file_name(name)).filter(|path| path.is_file());
    let path = path.or_else(|| in_path(name)).with_context(|| {
        format!("no {name} beside {} or in $PATH: build or install it", other.display())
    })?;
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}

/// Without "..": the same path is given to the ranks of all hosts.
fn file(own: &Path, directory: &str) -> Option<PathBuf> {
    let directory = own.join(directory).canonicalize().ok()?;
    Some(directory.join(LIBRARY)).filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_beside_another_before_the_path() {
        let folder = std::env::temp_dir().join(format!("foldback-places-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (one, other) = (folder.join("one"), folder.join("sh"));
        let in_path = beside(&one, "sh").unwrap();
        std::fs::write(&other, "").unwrap();
        let near = beside(&one, "sh").unwrap();
        let error = beside(&one, "no-such-command").unwrap_err().to_string();
        let folder = folder.canonicalize().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!in_path.starts_with(&folder), "{}", in_path.display());
        assert_eq!(near, folder.join("sh"));
        assert!(error.contains("no no-such-command beside "), "{error}");
    }
}
