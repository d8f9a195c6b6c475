//! Finding the launcher of an MPI, and its version.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::Mpi;
use crate::places;

/// The launcher of an MPI that is installed.
#[derive(Debug)]
pub struct Launcher {
    /// The program.
    pub path: PathBuf,
    /// For example 4.1.4.
    pub version: String,
    /// The MPI's directory, if `make setup-mpis` installed it.
    pub prefix: Option<PathBuf>,
}

/// The maker of a launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Make {
    OpenMpi,
    Mpich,
    Intel,
}

/// How to find an MPI.
struct Wanted {
    make: Make,
    /// The beginning of its version.
    version: &'static str,
    /// Names that its launcher may have in a directory of `$PATH`.
    programs: &'static [&'static str],
    /// The advice if there is none.
    advice: &'static str,
}

const SETUP: &str = "run `make setup-mpis`";

fn wanted(mpi: Mpi) -> Wanted {
    const OPEN_MPI: &[&str] = &["mpirun.openmpi", "mpirun"];
    const HYDRA: &[&str] = &["mpiexec.hydra", "mpiexec.mpich", "mpiexec"];

    let (make, version, programs, advice) = match mpi {
        Mpi::OpenMpi4 => (Make::OpenMpi, "4.", OPEN_MPI, "install the package openmpi-bin"),
        Mpi::OpenMpi5 => (Make::OpenMpi, "5.", OPEN_MPI, SETUP),
        Mpi::Mpich4 => (Make::Mpich, "4.", HYDRA, "install the package mpich"),
        Mpi::Mpich5 | Mpi::Mpich5Abi => (Make::Mpich, "5.", HYDRA, SETUP),
        Mpi::Intel => (Make::Intel, "20", HYDRA, SETUP),
    };
    Wanted { make, version, programs, advice }
}

/// Finds the launcher: where `make setup-mpis` puts it, else in `$PATH`. A launcher of this name
/// may belong to another MPI or version, so it is asked.
pub fn find(mpi: Mpi) -> Result<Launcher> {
    let wanted = wanted(mpi);
    let installed = prefix(mpi).map(|prefix| (prefix.join("bin/mpiexec"), Some(prefix)));
    let in_path = wanted.programs.iter().filter_map(|name| places::in_path(name));
    for (path, prefix) in installed.into_iter().chain(in_path.map(|path| (path, None))) {
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        if let Some((make, version)) = identify(&said.unwrap_or_default())
            && make == wanted.make
            && version.starts_with(wanted.version)
        {
            return Ok(Launcher { path, version: version.to_owned(), prefix });
        }
    }
    bail!("{mpi} is not installed: {}, or choose another --mpi", wanted.advice)
}

/// `target/mpis/` lies beside `target/release/`.
fn prefix(mpi: Mpi) -> Option<PathBuf> {
    let own = places::own().ok()?;
    let prefix = own.parent()?.with_file_name("mpis").join(mpi.name());
    prefix.is_dir().then_some(prefix)
}

/// Maker and version, by what a launcher says to `--version`.
fn identify(said: &str) -> Option<(Make, &str)> {
    let (make, before) = if said.contains("(Open MPI) ") {
        (Make::OpenMpi, "(Open MPI) ")
    } else if said.contains("(OpenRTE) ") {
        // The same program, by another of its names.
        (Make::OpenMpi, "(OpenRTE) ")
    } else if said.contains("Intel(R) MPI Library") {
        (Make::Intel, "Version ")
    } else if said.contains("HYDRA") {
        (Make::Mpich, "Version:")
    } else {
        return None;
    };
    let (_, version) = said.split_once(before)?;
    Some((make, version.split_whitespace().next()?))
}

#[cfg(test)]
mod tests {
    use super::{Make, identify};

    #[test]
    fn launchers_are_known_by_what_they_say() {
        let open_mpi = "mpirun (Open MPI) 5.0.11\n\nReport bugs to ...\n";
        let mpich =
            "HYDRA build details:\n    Version:                 4.0.2\n    Release Date: ...\n";
        let intel =
            "Intel(R) MPI Library for Linux* OS, Version 2021.16 Build 20251030 (id: 46c9e2d)\n";
        assert_eq!(identify(open_mpi), Some((Make::OpenMpi, "5.0.11")));
        assert_eq!(identify("mpirun.openmpi (OpenRTE) 4.1.4\n"), Some((Make::OpenMpi, "4.1.4")));
        assert_eq!(identify(mpich), Some((Make::Mpich, "4.0.2")));
        assert_eq!(identify(intel), Some((Make::Intel, "2021.16")));
        assert_eq!(identify("slurm 22.05.8\n"), None);
        assert_eq!(identify(""), None);
    }
}
