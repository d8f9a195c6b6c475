//! The command lines of the MPI launchers.

pub mod mpich;
pub mod openmpi;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::registry::Lab;
use super::tool;

/// The MPI whose launcher starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Mpi {
    #[value(name = "openmpi")]
    OpenMpi,
    #[value(name = "mpich")]
    Mpich,
}

/// What to launch, on which hosts.
pub struct Job<'a> {
    pub lab: &'a Lab,
    /// The first so many hosts of the lab.
    pub hosts: usize,
    pub ranks_per_host: usize,
    /// The ranks run as another user.
    pub other_user: bool,
    /// Where the launcher keeps its temporary files, so that none outlive the run.
    pub tmp: &'a Path,
    /// What each rank executes.
    pub command: Vec<OsString>,
}

/// A launcher's command line, and environment variables that it and the ranks need.
pub struct Launch {
    pub command: Vec<OsString>,
    pub env: Vec<(&'static str, OsString)>,
}

impl Mpi {
    /// How to start a job.
    pub fn launch(self, job: &Job<'_>) -> Result<Launch> {
        match self {
            Self::OpenMpi => openmpi::launch(job),
            Self::Mpich => mpich::launch(job),
        }
    }

    /// Writes a library that ranks of this MPI need preloaded, also without foldback, if any.
    pub fn write_remedy(self, dir: &Path) -> Result<Option<PathBuf>> {
        match self {
            Self::OpenMpi => Ok(None),
            Self::Mpich => mpich::write_remedy(dir).map(Some),
        }
    }
}

/// Finds the launcher: by the name that Debian gives it, else by the common one, provided that it
/// is what it is taken for.
fn find_launcher(own: &str, common: &str, says: &str, install: &str) -> Result<PathBuf> {
    if let Some(path) = tool::find(own) {
        return Ok(path);
    }
    if let Some(path) = tool::find(common) {
        let output = Command::new(&path).arg("--version").output();
        if output.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(says)) {
            return Ok(path);
        }
    }
    bail!("{own} not found: {install}")
}

/// The script that launchers use in place of ssh. Arguments: options of ssh, which do not matter
/// here, then the host, then words for the shell there.
pub fn wrapper(lab: &Lab) -> PathBuf {
    lab.dir().join("ssh")
}

/// Writes the script.
pub fn write_wrapper(lab: &Lab) -> Result<()> {
    let path = wrapper(lab);
    let own = std::env::current_exe().context("cannot find this executable")?;
    let script = format!(
        "#!/bin/sh\n\
         while [ \"${{1#-}}\" != \"$1\" ]; do shift; done\n\
         host=$1; shift\n\
         exec '{}' lab exec --name '{}' \"$host\" -- /bin/sh -c \"$*\"\n",
        own.display(),
        lab.name
    );
    fs::write(&path, script)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("cannot write {}", path.display()))
}
