//! `foldback run`.

mod reach;
pub mod watch;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::config::settings;
use crate::places;

/// Run an MPI launcher with foldback preloaded on every host
///
/// Sets LD_PRELOAD, and passes it and all FOLDBACK_* variables on to the ranks of all hosts, in the launcher's way. It
/// knows mpirun, mpiexec and prterun of Open MPI, mpiexec of MPICH (hydra), mpirun of Intel MPI, srun of Slurm, and
/// flux run. The library must have the same path on all hosts. Output and exit status are the launcher's; at the end
/// one line more says what was folded, unless FOLDBACK_REPORT says otherwise. A warning names a program that cannot
/// load the library, or tells of ranks on this host that run without it.
#[derive(clap::Args)]
#[command(after_long_help = settings::help())]
pub struct Args {
    /// Launcher and its arguments, as in: foldback run -- mpirun -n 4 ./program
    #[arg(required = true, trailing_var_arg = true, value_name = "LAUNCHER")]
    command: Vec<OsString>,
}

const PRELOAD: &str = "LD_PRELOAD";
const ASAN_OPTIONS: &str = "ASAN_OPTIONS";

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

    /// The user's arguments, with arguments that set these variables on all ranks. The library is added to the user's
    /// own preload options, which would replace ours.
    ///
    /// Open MPI's `-x` counts for one program of several that `:` separates. So it is said for each, unless the user
    /// sets the variable. Hydra's `-genv` counts for all. srun hands its own environment on, but would load the library
    /// itself: its `--export` names the library alone. A value in that list cannot have commas. flux has
    /// subcommands, whose options these are, and goes by the last one.
    fn arguments(
        self,
        variables: &[(OsString, OsString)],
        user: &[OsString],
        is_program: impl Fn(&OsStr) -> bool,
    ) -> Vec<OsString> {
        let has_parts = matches!(self, Self::OpenMpi | Self::Hydra);
        let separates = |argument: &OsString| has_parts && argument == ":";
        let mut all = Vec::new();
        for (at, part) in user.split(separates).enumerate() {
            // A program's own arguments are left alone, if it can be told where they begin.
            let program = part.iter().position(|argument| is_program(argument));
            let (options, rest) = part.split_at(program.unwrap_or(part.len()));
            let mut options = options.to_vec();
            let is_merged = self.merge(variables, &mut options);
            let later =
                options.split_off(if self == Self::Flux { behind_rules(&options) } else { 0 });
            let is_said = |name: &OsString| match self {
                Self::OpenMpi => {
                    later.windows(2).any(|two| two[0] == "-x" && name_of(&two[1]) == name)
                }
                Self::Hydra => at > 0,
                Self::Srun => is_merged || name != PRELOAD,
                Self::Flux => is_merged && name == PRELOAD,
            };
            all.extend((at > 0).then(|| OsString::from(":")));
            all.extend(options);
            for (name, value) in variables.iter().filter(|(name, _)| !is_said(name)) {
                match self {
                    Self::OpenMpi => all.extend(["-x".into(), pair("", name, value)]),
                    Self::Hydra => all.extend(["-genv".into(), name.clone(), value.clone()]),
                    Self::Srun => {
                        let usual = std::env::var("SLURM_EXPORT_ENV").unwrap_or("ALL".into());
                        let list = exported(variables, &usual);
                        all.push([OsStr::new("--export="), &list].into_iter().collect());
                    }
                    Self::Flux => all.push(pair("--env=", name, value)),
                }
            }
            all.extend(later);
            all.extend_from_slice(rest);
        }
        all
    }

    /// Puts the library into the user's own preload options. Returns whether there are any.
    fn merge(self, variables: &[(OsString, OsString)], options: &mut [OsString]) -> bool {
        let mut is_merged = false;
        for at in 0..options.len() {
            let Some(text) = options[at].to_str().map(str::to_owned) else { continue };
            let before = at.checked_sub(1).and_then(|before| options[before].to_str());
            let before = before.unwrap_or_default().trim_start_matches('-').to_owned();
            let (option, set) = match text.strip_prefix("--").and_then(|text| text.split_once('='))
            {
                Some((option, set)) => (option, set),
                None => (before.as_str(), text.as_str()),
            };
            let (head, value) = match (self, option) {
                (Self::Srun, "export") => {
                    (&text[..text.len() - set.len()], exported(variables, set))
                }
                (Self::OpenMpi, "x") | (Self::Hydra, "genv" | "env") | (Self::Flux, "env") => {
                    let (name, value) = match set.split_once('=') {
                        Some((name, value)) => (name, Some(value)),
                        None => (set, None),
                    };
                    if name != PRELOAD {
                        continue;
                    }
                    if self == Self::Hydra && value.is_none() {
                        if let Some(value) = options.get_mut(at + 1) {
                            *value = preloading(variables, Some(value));
                        }
                        continue;
                    }
                    let value = preloading(variables, value.map(OsStr::new));
                    (&text[..text.len() - set.len()], pair("", name.as_ref(), &value))
                }
                _ => continue,
            };
            options[at] = [OsStr::new(head), &value].into_iter().collect();
            is_merged = true;
        }
        is_merged
    }
}

/// The number of flux' arguments that come before ours: its subcommand, and the user's rules, which may unset anything.
fn behind_rules(options: &[OsString]) -> usize {
    let is_rule = |option: &OsString| option.as_bytes().starts_with(b"--env");
    let last = options.iter().rposition(is_rule);
    let behind = |at: usize| at + 1 + usize::from(!options[at].as_bytes().contains(&b'='));
    last.map_or(1, behind).min(options.len())
}

/// "A" of "A=1", or of "A".
fn name_of(set: &OsStr) -> &OsStr {
    OsStr::from_bytes(set.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default())
}

fn pair(before: &str, name: &OsStr, value: &OsStr) -> OsString {
    [OsStr::new(before), name, OsStr::new("="), value].into_iter().collect()
}

/// The libraries to preload: ours, and the user's behind them.
fn preloading(variables: &[(OsString, OsString)], users: Option<&OsStr>) -> OsString {
    let ours = variables.iter().find(|(name, _)| name == PRELOAD);
    let mut all = ours.map(|(_, value)| value.clone()).unwrap_or_default();
    if let Some(users) = users.filter(|users| !users.is_empty()) {
        all.push(":");
        all.push(users);
    }
    all
}

/// A list of srun's, such as "ALL,A=1", with the library and foldback's settings.
fn exported(variables: &[(OsString, OsString)], list: &str) -> OsString {
    let (preloads, mut others): (Vec<&str>, Vec<&str>) = list
        .split(',')
        .filter(|set| !["", "NONE", "NIL"].contains(set))
        .partition(|set| name_of(set.as_ref()) == PRELOAD);
    let users = preloads.first().and_then(|set| set.split_once('=')).map(|(_, value)| value);
    let preload = pair("", PRELOAD.as_ref(), &preloading(variables, users.map(OsStr::new)));
    if !others.contains(&"ALL") {
        let names = variables.iter().filter_map(|(name, _)| name.to_str());
        let unsaid = |name: &&str| !others.iter().any(|set| name_of(set.as_ref()) == *name);
        // Without values, which srun has in its environment, commas and all.
        others.extend(names.filter(|name| *name != PRELOAD).filter(unsaid).collect::<Vec<_>>());
    }
    let others: Vec<&OsStr> = others.into_iter().map(OsStr::new).chain([&*preload]).collect();
    others.join(OsStr::new(","))
}

/// Becomes the launcher; returns only if it cannot.
pub fn run(args: Args) -> Result<ExitCode> {
    let (program, user) = args.command.split_first().context("no launcher given")?;
    let library = places::library()?;
    let launcher = detect(program, &library)?;
    let mut variables = variables(&library);
    variables.extend(sanitizer(user));
    let arguments = launcher.arguments(&variables, user, |argument| program_of(argument).is_some());
    warn_of_programs(user);
    if matches!(launcher, Launcher::OpenMpi | Launcher::Hydra) {
        watch::begin();
    }
    log::info!("{launcher:?}: {} {arguments:?}", program.display());
    let inherited = variables.into_iter().filter(|(name, _)| name != PRELOAD);
    let error = Command::new(program).args(arguments).envs(inherited).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Warns of programs that certainly do not load the library.
fn warn_of_programs(user: &[OsString]) {
    for part in user.split(|argument| argument == ":") {
        let program = part.iter().find_map(|argument| program_of(argument));
        let obstacle = program.as_deref().and_then(reach::obstacle);
        if let (Some(program), Some(why)) = (program, obstacle) {
            log::warn!("{} runs without foldback: {why}", program.display());
        }
    }
}

/// The program that a launcher's argument names, if it can be started here: it is no value of an option's, most likely.
fn program_of(argument: &OsStr) -> Option<PathBuf> {
    let is_executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    match argument.as_bytes().contains(&b'/') {
        true => Some(argument.into()).filter(is_executable),
        false => {
            std::env::split_paths(&path).map(|folder| folder.join(argument)).find(is_executable)
        }
    }
}

/// Lets a program that is built with AddressSanitizer start, whose runtime else wants to be the first library.
fn sanitizer(user: &[OsString]) -> Option<(OsString, OsString)> {
    let is_sanitized = |path: &PathBuf| {
        let mark = b"__asan_init";
        std::fs::read(path).is_ok_and(|bytes| bytes.windows(mark.len()).any(|part| part == mark))
    };
    let program = user.iter().filter_map(|argument| program_of(argument)).find(is_sanitized)?;
    let mut options = std::env::var_os(ASAN_OPTIONS).filter(|options| !options.is_empty());
    options.iter_mut().for_each(|options| options.push(":"));
    let mut options = options.unwrap_or_default();
    options.push("verify_asan_link_order=0");
    log::warn!(
        "{} is built with AddressSanitizer: its ranks get {ASAN_OPTIONS}={}",
        program.display(),
        options.display()
    );
    Some((ASAN_OPTIONS.into(), options))
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

/// The ranks' variables: the library before any other preloaded one, and foldback's settings.
fn variables(library: &Path) -> Vec<(OsString, OsString)> {
    let mut preload = OsString::from(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut variables = vec![(PRELOAD.into(), preload)];
    if !settings::is_named("FOLDBACK_REPORT") {
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
        let all = Launcher::OpenMpi.arguments(&two_variables(), &user, |_| false);
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
        let all = Launcher::Hydra.arguments(&two_variables(), &user, |_| false);
        let mut expected = words("-genv A 1 -genv B");
        expected.push("x=y z".into());
        expected.extend(user);
        assert_eq!(all, expected);
    }

    /// With a program "a", and a setting whose value has a comma.
    fn told(launcher: Launcher, user: &str) -> String {
        let variables = [(PRELOAD.into(), "/l".into()), ("FOLDBACK_NET".into(), "x,y".into())];
        let all = launcher.arguments(&variables, &words(user), |argument| argument == "a");
        all.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn srun_is_told_what_to_preload_alone() {
        let told = |user| told(Launcher::Srun, user);
        assert_eq!(told("-n 2 a"), "--export=ALL,LD_PRELOAD=/l -n 2 a");
        assert_eq!(told("--export=ALL,A=1 a"), "--export=ALL,A=1,LD_PRELOAD=/l a");
        assert_eq!(
            told("--export A a --export=B"),
            "--export A,FOLDBACK_NET,LD_PRELOAD=/l a --export=B"
        );
        assert_eq!(told("--export=NONE a"), "--export=FOLDBACK_NET,LD_PRELOAD=/l a");
        let own = "--export=ALL,LD_PRELOAD=/m:/n,FOLDBACK_NET=z a";
        assert_eq!(told(own), "--export=ALL,FOLDBACK_NET=z,LD_PRELOAD=/l:/m:/n a");
    }

    #[test]
    fn flux_is_told_behind_its_options() {
        let told = |user| told(Launcher::Flux, user);
        let ours = "--env=LD_PRELOAD=/l --env=FOLDBACK_NET=x,y";
        assert_eq!(told("run -n 2 a --env=B"), format!("run {ours} -n 2 a --env=B"));
        assert_eq!(told("run --env -* -n 2 a"), format!("run --env -* {ours} -n 2 a"));
        assert_eq!(told("run -n 2 b"), format!("run {ours} -n 2 b"));
        assert_eq!(told("run --env=-* a"), format!("run --env=-* {ours} a"));
        let net = "--env=FOLDBACK_NET=x,y";
        assert_eq!(
            told("run --env=LD_PRELOAD=/m a"),
            format!("run --env=LD_PRELOAD=/l:/m {net} a")
        );
        assert_eq!(
            told("run --env LD_PRELOAD=/m a"),
            format!("run --env LD_PRELOAD=/l:/m {net} a")
        );
    }

    #[test]
    fn what_the_user_preloads_comes_behind_the_library() {
        let open = |user| told(Launcher::OpenMpi, user);
        let net = "-x FOLDBACK_NET=x,y";
        assert_eq!(open("-x LD_PRELOAD=/m a"), format!("{net} -x LD_PRELOAD=/l:/m a"));
        assert_eq!(
            open("-x LD_PRELOAD a -x LD_PRELOAD=/m"),
            format!("{net} -x LD_PRELOAD=/l a -x LD_PRELOAD=/m")
        );
        assert_eq!(
            open("-x FOLDBACK_NET=z a : -x A a"),
            format!("-x LD_PRELOAD=/l -x FOLDBACK_NET=z a : -x LD_PRELOAD=/l {net} -x A a")
        );
        let hydra = |user| told(Launcher::Hydra, user);
        let ours = "-genv LD_PRELOAD /l -genv FOLDBACK_NET x,y";
        for (one, other) in [
            ("-genv LD_PRELOAD /m a", "-genv LD_PRELOAD /l:/m a"),
            ("-genv LD_PRELOAD=/m a", "-genv LD_PRELOAD=/l:/m a"),
            ("-n 1 a : -env LD_PRELOAD /m a", "-n 1 a : -env LD_PRELOAD /l:/m a"),
            ("-genvlist LD_PRELOAD a", "-genvlist LD_PRELOAD a"),
        ] {
            assert_eq!(hydra(one), format!("{ours} {other}"));
        }
    }

    #[test]
    fn programs_with_address_sanitizer_are_let_start() {
        let program = std::env::temp_dir().join(format!("foldback-asan-{}", std::process::id()));
        let mut said = Vec::new();
        for text in ["plain", "\0__asan_init\0"] {
            std::fs::write(&program, text).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            said.push(sanitizer(&["-n".into(), program.clone().into()]));
        }
        std::fs::remove_file(&program).unwrap();
        assert_eq!(said[0], None);
        let (name, value) = said[1].take().unwrap();
        assert!(
            name == ASAN_OPTIONS && value.to_string_lossy().ends_with("verify_asan_link_order=0")
        );
    }
}
