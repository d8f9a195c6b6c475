//! The command lines of the MPI launchers.

mod hydra;
pub mod launcher;
pub(crate) mod linked;
pub(crate) mod one_session;
mod openmpi;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::registry::Lab;
use crate::places;
use launcher::Launcher;

/// The MPI whose launcher starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mpi {
    /// Open MPI 4, as Debian 12 has it (or: openmpi)
    #[value(name = "openmpi4", alias = "openmpi")]
    OpenMpi4,
    /// Open MPI 5
    #[value(name = "openmpi5")]
    OpenMpi5,
    /// MPICH 4, as Debian 12 has it (or: mpich)
    #[value(name = "mpich4", alias = "mpich")]
    Mpich4,
    /// MPICH 5, for programs built with MPICH's own ABI
    #[value(name = "mpich5")]
    Mpich5,
    /// MPICH 5, for programs built with MPI's standard ABI
    #[value(name = "mpich5-abi")]
    Mpich5Abi,
    /// Intel MPI, which runs programs built with MPICH's ABI
    #[value(name = "intel")]
    Intel,
}

/// A program to launch, and its hosts.
pub(crate) struct MpiJob<'a> {
    pub lab: &'a Lab,
    /// The first so many hosts of the lab.
    pub hosts: usize,
    pub ranks_per_host: usize,
    /// The ranks run as another user.
    pub other_user: bool,
    /// The directory for the launcher's temporary files, so that none outlive the run.
    pub tmp: &'a Path,
    /// The command of each rank.
    pub command: Vec<OsString>,
}

/// A launcher's command line, and environment variables that it and the ranks need.
pub(crate) struct Launch {
    pub command: Vec<OsString>,
    pub env: Vec<(&'static str, OsString)>,
}

impl Mpi {
    /// The name that options and directories have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi4 => "openmpi4",
            Self::OpenMpi5 => "openmpi5",
            Self::Mpich4 => "mpich4",
            Self::Mpich5 => "mpich5",
            Self::Mpich5Abi => "mpich5-abi",
            Self::Intel => "intel",
        }
    }

    /// How to start a job.
    pub(crate) fn launch(self, job: &MpiJob<'_>) -> Result<Launch> {
        let launcher = launcher::find(self)?;
        let mut launch = match self {
            Self::OpenMpi4 | Self::OpenMpi5 => openmpi::launch(self, job, &launcher)?,
            Self::Mpich4 | Self::Mpich5 | Self::Mpich5Abi | Self::Intel => {
                hydra::launch(self, job, &launcher)
            }
        };
        launch.env.extend(library_path(&launcher));
        Ok(launch)
    }

    /// Whether its launcher sometimes does not end after the last rank. `prterun` did not in 8 of 80
    /// runs of a program that does not use MPI.
    pub fn may_outlive_its_ranks(self) -> bool {
        self == Self::OpenMpi5
    }

    /// Writes a library that ranks of this MPI need preloaded, also without foldback, if any.
    pub fn write_remedy(self, dir: &Path) -> Result<Option<PathBuf>> {
        match self {
            Self::Mpich4 => hydra::write_remedy(dir).map(Some),
            _ => Ok(None),
        }
    }
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The path to the libraries of an MPI in a prefix of its own. Programs that were not linked for
/// that prefix need it, and programs that were linked for another MPI of the same ABI.
fn library_path(launcher: &Launcher) -> Option<(&'static str, OsString)> {
    const NAME: &str = "LD_LIBRARY_PATH";

    let mut path = launcher.prefix.as_ref()?.join("lib").into_os_string();
    if let Some(others) = std::env::var_os(NAME).filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    Some((NAME, path))
}

/// The script that launchers use in place of ssh. Arguments: options of ssh, which do not matter
/// here, then the host, then words for the shell there.
pub fn wrapper(lab: &Lab) -> PathBuf {
    lab.dir().join("ssh")
}

/// Writes the script by which a launcher starts a rank on its host.
pub fn write_wrapper(lab: &Lab) -> Result<()> {
    let path = wrapper(lab);
    let own = places::command()?;
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
