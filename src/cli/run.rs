//! `foldback run`.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::library;

/// Run an MPI launcher with foldback preloaded on every host
///
/// Sets LD_PRELOAD, and passes it and all FOLDBACK_* variables on to the ranks of all hosts, in the
/// way of the launcher: mpirun, mpiexec or prterun of Open MPI, mpiexec of MPICH (hydra), mpirun of
/// Intel MPI, srun of Slurm, flux run. The library must have the same path on all hosts. Output and exit status are the launcher's; at the end one line more says
/// what was folded, unless FOLDBACK_REPORT says otherwise.
#[derive(clap::Args)]
#[command(after_long_help = foldback::config::settings::help())]
pub struct Args {
    /// Launcher and its arguments, as in: foldback run -- mpirun -n 4 ./program
    #[arg(required = true, trailing_var_arg = true, value_name = "LAUNCHER")]
    command: Vec<OsString>,
}

const PRELOAD: &str = "LD_PRELOAD";

/// Launchers differ in how a variable gets to the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launcher {
    /// `mpirun`, and PRRTE's `prterun`.
    OpenMpi,
    /// MPICH's and Intel MPI's.
    Hydra,
    /// Slurm's `srun`.
    Srun,
    /// `flux run`, `flux submit`, …
    Flux,
}

impl Launcher {
    /// By what a launcher says to `--version`.
    fn recognise(version: &str) -> Option<Self> {
        let open_mpi = ["(Open MPI)", "OpenRTE", "PRRTE"];
        if open_mpi.iter().any(|name| version.contains(name)) {
            Some(Self::OpenMpi)
        } else if version.contains("HYDRA") || version.contains("Intel(R) MPI Library") {
            Some(Self::Hydra)
        } else if version.starts_with("slurm") {
            Some(Self::Srun)
        } else if version.contains("libflux-core") || version.contains("flux-core") {
            Some(Self::Flux)
        } else {
            None
        }
    }

    /// The arguments that set variables on all ranks, before those of the user.
    ///
    /// Open MPI's `-x` counts for one program of several that `:` separates, so it is said for each;
    /// hydra's `-genv` counts for all. srun and flux hand their own environment on, but would load what is
    /// preloaded themselves, so that this alone is said; with srun a list of variables cannot have commas
    /// in its values.
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
                Self::Srun | Self::Flux if name != PRELOAD => vec![],
                Self::Srun | Self::Flux => {
                    let option = if self == Self::Srun { "--export=ALL," } else { "--env=" };
                    let mut option = OsString::from(option);
                    option.push(name);
                    option.push("=");
                    option.push(value);
                    vec![option]
                }
            })
            .collect();
        // `flux` has subcommands, whose options these are.
        if self == Self::Flux {
            let (subcommand, rest) = user.split_at(user.len().min(1));
            return [subcommand, &set, rest].concat();
        }
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
    let library = library::find()?;
    let launcher = detect(program, &library)?;
    let variables = variables(&library);
    let arguments = launcher.arguments(&variables, user);
    log::info!("{launcher:?}: {} {arguments:?}", program.display());
    let inherited = variables.into_iter().filter(|(name, _)| name != PRELOAD);
    let error = Command::new(program).args(arguments).envs(inherited).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

fn detect(program: &OsStr, library: &Path) -> Result<Launcher> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    // Open MPI's own PRRTE does not find what to say outside of its prefix.
    let is_prterun = Path::new(program).file_name() == Some(OsStr::new("prterun"));
    match Launcher::recognise(&text).or(is_prterun.then_some(Launcher::OpenMpi)) {
        Some(launcher) => Ok(launcher),
        None => bail!(
            "{} is none of the launchers that foldback knows (see --help): set LD_PRELOAD={} in the \
             ranks' environment yourself",
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
    let mut variables = vec![(PRELOAD.into(), preload)];
    if std::env::var_os("FOLDBACK_REPORT").is_none() {
        variables.push(("FOLDBACK_REPORT".into(), "line".into()));
    }
    variables.extend(std::env::vars_os().filter(|(name, _)| {
        name.to_string_lossy().starts_with("FOLDBACK") && name != "FOLDBACK_LIB"
    }));
    variables
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
        let prrte = "prterun (PRRTE) 3.0.13\n\nReport bugs to ...";
        assert_eq!(Launcher::recognise(prrte), Some(Launcher::OpenMpi));
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.16 Build 20251030";
        assert_eq!(Launcher::recognise(intel), Some(Launcher::Hydra));
        assert_eq!(Launcher::recognise("slurm 22.05.8"), Some(Launcher::Srun));
        let flux = "commands:    \t\t0.49.0\nlibflux-core:\t\t0.49.0\n";
        assert_eq!(Launcher::recognise(flux), Some(Launcher::Flux));
        assert_eq!(Launcher::recognise("GNU bash, version 5.2"), None);
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

    #[test]
    fn srun_and_flux_are_told_what_to_preload_alone() {
        let variables = [(PRELOAD.into(), "/a:/b".into()), ("FOLDBACK_NET".into(), "x,y".into())];
        let all = Launcher::Srun.arguments(&variables, &words("-n 2 a"));
        assert_eq!(all, words("--export=ALL,LD_PRELOAD=/a:/b -n 2 a"));
        let all = Launcher::Flux.arguments(&variables, &words("run -n 2 a"));
        assert_eq!(all, words("run --env=LD_PRELOAD=/a:/b -n 2 a"));
    }
}
