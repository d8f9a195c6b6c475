//! `foldback run`.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Run an MPI launcher with foldback preloaded on every host
///
/// Sets LD_PRELOAD, and passes it and all FOLDBACK_* variables on to the ranks of all hosts, in the
/// way of the launcher: Open MPI's mpirun or MPICH's mpiexec (hydra). The library must have the
/// same path on all hosts. Output and exit status are the launcher's; at the end one line more says
/// what was folded, unless FOLDBACK_REPORT says otherwise.
#[derive(clap::Args)]
pub struct Args {
    /// Launcher and its arguments, as in: foldback run -- mpirun -n 4 ./program
    #[arg(required = true, trailing_var_arg = true, value_name = "LAUNCHER")]
    command: Vec<OsString>,
}

/// Launchers differ in how a variable gets to the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launcher {
    OpenMpi,
    Hydra,
}

impl Launcher {
    /// By what a launcher says to `--version`.
    fn recognise(version: &str) -> Option<Self> {
        if version.contains("(Open MPI)") || version.contains("OpenRTE") {
            Some(Self::OpenMpi)
        } else if version.contains("HYDRA") || version.contains("Intel(R) MPI Library") {
            Some(Self::Hydra)
        } else {
            None
        }
    }

    /// The arguments that set variables on all ranks, before those of the user.
    ///
    /// Open MPI's `-x` counts for one program of several that `:` separates, so it is said for each;
    /// hydra's `-genv` counts for all.
    fn arguments(self, variables: &[(OsString, OsString)], user: &[OsString]) -> Vec<OsString> {
        let set: Vec<OsString> = variables
            .iter()
            .flat_map(|(name, value)| match self {
                Self::OpenMpi => {
                    let mut pair = name.clone();
                    pair.push("=");
                    pair.push(value);
                    vec!["-x".into(), pair]
                }
                Self::Hydra => vec!["-genv".into(), name.clone(), value.clone()],
            })
            .collect();
        let mut all = set.clone();
        for argument in user {
            all.push(argument.clone());
            if self == Self::OpenMpi && argument == ":" {
                all.extend_from_slice(&set);
            }
        }
        all
    }
}

/// Becomes the launcher; returns only if it cannot.
pub fn run(args: Args) -> Result<ExitCode> {
    let (program, user) = args.command.split_first().context("no launcher given")?;
    let library = library()?;
    let launcher = detect(program, &library)?;
    let arguments = launcher.arguments(&variables(&library), user);
    log::info!("{launcher:?}: {} {arguments:?}", program.display());
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

fn detect(program: &OsStr, library: &Path) -> Result<Launcher> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    match Launcher::recognise(&text) {
        Some(launcher) => Ok(launcher),
        None => bail!(
            "{} is neither Open MPI's mpirun nor MPICH's mpiexec: set LD_PRELOAD={} in the ranks' \
             environment yourself",
            program.display(),
            library.display()
        ),
    }
}

/// What the ranks need: the library before any other preloaded one, and foldback's settings.
fn variables(library: &Path) -> Vec<(OsString, OsString)> {
    let mut preload = OsString::from(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut variables = vec![("LD_PRELOAD".into(), preload)];
    if std::env::var_os("FOLDBACK_REPORT").is_none() {
        variables.push(("FOLDBACK_REPORT".into(), "line".into()));
    }
    variables.extend(std::env::vars_os().filter(|(name, _)| {
        name.to_string_lossy().starts_with("FOLDBACK") && name != "FOLDBACK_LIB"
    }));
    variables
}

/// `FOLDBACK_LIB`, or the library that was built or installed with this executable.
fn library() -> Result<PathBuf> {
    const NAME: &str = "libfoldback.so";

    if let Some(path) = std::env::var_os("FOLDBACK_LIB") {
        let path = std::path::absolute(path).context("FOLDBACK_LIB is no path")?;
        ensure!(path.is_file(), "FOLDBACK_LIB names no file: {}", path.display());
        return Ok(path);
    }
    let own = std::env::current_exe().context("cannot find this executable")?;
    let directory = own.parent().context("this executable is in no directory")?;
    [directory.join(NAME), directory.with_file_name("lib").join(NAME)]
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| {
            format!(
                "no {NAME} in {} or ../lib: build or install it, or name it in FOLDBACK_LIB",
                directory.display()
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn two_variables() -> [(OsString, OsString); 2] {
        [("A".into(), "1".into()), ("B".into(), "x=y z".into())]
    }

    #[test]
    fn launchers_are_known_by_what_they_say() {
        let open_mpi = "mpirun.openmpi (Open MPI) 4.1.4\n\nReport bugs to ...";
        let hydra = "HYDRA build details:\n    Version:          4.0.2\n";
        assert_eq!(Launcher::recognise(open_mpi), Some(Launcher::OpenMpi));
        assert_eq!(Launcher::recognise(hydra), Some(Launcher::Hydra));
        assert_eq!(Launcher::recognise("slurm 22.05.8"), None);
    }

    #[test]
    fn open_mpi_is_told_for_each_of_several_programs() {
        let user = words("-n 1 a : -n 2 b");
        let all = Launcher::OpenMpi.arguments(&two_variables(), &user);
        let mut expected = words("-x A=1 -x");
        expected.push("B=x=y z".into());
        let set = expected.clone();
        expected.extend(words("-n 1 a :"));
        expected.extend(set);
        expected.extend(words("-n 2 b"));
        assert_eq!(all, expected);
    }

    #[test]
    fn hydra_is_told_once() {
        let user = words("-n 1 a : -n 2 b");
        let all = Launcher::Hydra.arguments(&two_variables(), &user);
        let mut expected = words("-genv A 1 -genv B");
        expected.push("x=y z".into());
        expected.extend(user);
        assert_eq!(all, expected);
    }
}
