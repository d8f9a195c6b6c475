//! The MPI that a program is linked with. Under the launcher of another family each rank would be a job of
//! its own, and the run would seem to succeed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::{Launch, Mpi};
use crate::places;

/// Refuses a program that the launcher does not start as one job. Scripts and the like are not looked into.
///
/// # Errors
/// It needs another `--mpi`.
pub fn check(mpi: Mpi, program: &OsStr, launch: &Launch) -> Result<()> {
    let Some(path) = locate(program) else { return Ok(()) };
    // `ldd` shows the work of the dynamic linker for the ranks. It fails for a program that is not
    // dynamic.
    let listed = Command::new("ldd")
        .arg(&path)
        .envs(launch.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output();
    let Ok(listed) = listed else { return Ok(()) };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let Some((library, wanted)) = listed.lines().find_map(needed) else { return Ok(()) };
    if wanted.contains(&mpi) {
        return Ok(());
    }
    let names: Vec<&str> = wanted.iter().map(|mpi| mpi.name()).collect();
    bail!(
        "{} is linked with {library}, which the launcher of {mpi} does not start: try --mpi {}",
        path.display(),
        names.join(" or ")
    )
}

/// As execvp(3) finds it.
fn locate(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        Some(path.to_owned())
    } else {
        places::in_path(path.to_str()?)
    }
}

/// The MPI's library in a line of ldd's, and the MPIs whose launchers start its programs. Launchers of one
/// family start each other's.
fn needed(line: &str) -> Option<(&str, &'static [Mpi])> {
    const HYDRA: &[Mpi] = &[Mpi::Mpich4, Mpi::Mpich5, Mpi::Mpich5Abi, Mpi::Intel];
    const STANDARD: &[Mpi] = &[Mpi::Mpich5Abi, Mpi::Mpich5, Mpi::Mpich4];
    const OPEN_MPI: &[Mpi] = &[Mpi::OpenMpi4, Mpi::OpenMpi5];
    let library = line.split_whitespace().next()?;
    let wanted = if library.starts_with("libmpich.so") || library == "libmpi.so.12" {
        HYDRA
    } else if library.starts_with("libmpi_abi.so") {
        STANDARD
    } else if library.starts_with("libmpi.so") {
        OPEN_MPI
    } else {
        return None;
    };
    Some((library, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_the_library_they_need() {
        let launcher = |line| needed(line).map(|(library, wanted)| (library, wanted[0]));
        let open_mpi = "\tlibmpi.so.40 => /lib/x86_64-linux-gnu/libmpi.so.40 (0x00007f4382299000)";
        assert_eq!(launcher(open_mpi), Some(("libmpi.so.40", Mpi::OpenMpi4)));
        assert_eq!(
            launcher("\tlibmpich.so.12 => not found"),
            Some(("libmpich.so.12", Mpi::Mpich4))
        );
        assert_eq!(launcher("\tlibmpi.so.12 => /x"), Some(("libmpi.so.12", Mpi::Mpich4)));
        assert_eq!(launcher("\tlibmpi_abi.so.1 => /x"), Some(("libmpi_abi.so.1", Mpi::Mpich5Abi)));
        assert_eq!(launcher("\tlibmpi_mpifh.so.40 => /x"), None);
        assert_eq!(launcher("\tnot a dynamic executable"), None);
    }
}
