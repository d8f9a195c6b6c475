//! Running a whole program once, for its time or for the shares of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use foldback::lab::launch::Mpi;
use foldback::lab::registry::make_public_dir;
use foldback::places;

use super::apps_programs::Entry;
use super::apps_timer::Times;
use super::arena::Arena;
use super::measure::{Bench, Folded};
use super::mode::Mode;
use super::setting::{self, Setting};

/// "nobody", without any privilege.
const USER: &str = "65534";

/// Seconds that a program may take to be made ready.
const PREPARATION: &str = "300";

/// The exit status of `lab run` and of timeout(1) then.
const TIMED_OUT: u8 = 124;

/// A program to run.
pub struct Program {
    pub name: String,
    pub what: String,
    entry: Option<&'static Entry>,
    /// The command of a program without an entry.
    words: Vec<String>,
}

impl Program {
    /// A program of the list.
    pub fn of(entry: &'static Entry) -> Self {
        let (name, what) = (entry.name.to_owned(), entry.what.to_owned());
        Self { name, what, entry: Some(entry), words: Vec::new() }
    }

    /// A program of the user's.
    pub fn own(program: &str, words: &[String]) -> Self {
        let name = Path::new(program).file_name().map_or_else(
            || program.to_owned(),
            |name| name.to_string_lossy().replace([',', '|'], "_"),
        );
        Self { name, what: words.join(" "), entry: None, words: words.to_vec() }
    }

    fn jobs(&self) -> u32 {
        self.entry.map_or(1, |entry| entry.jobs)
    }
}

/// The aim of a run.
#[derive(Clone, Copy)]
pub enum Aim {
    /// The time of the whole run.
    Time(Mode),
    /// The shares of the time, without foldback.
    Shares,
    /// The folded calls.
    Folds,
}

impl Aim {
    pub fn mode(self) -> Mode {
        match self {
            Self::Time(mode) => mode,
            Self::Shares => Mode::Mpi,
            Self::Folds => Mode::Foldback,
        }
    }
}

/// The end of a step that may fail without ending the comparison.
pub enum Done<T> {
    Ok(T),
    Failed(Failure),
}

/// Why a step did not succeed.
pub struct Failure {
    pub why: String,
    /// All that it wrote.
    pub said: String,
}

impl Failure {
    fn of(status: u8, said: String) -> Self {
        let why = match status {
            TIMED_OUT => "it takes too long".to_owned(),
            status => format!("exit status {status}"),
        };
        Self { why, said }
    }
}

/// The results of all jobs of a program.
#[derive(Default)]
pub struct Run {
    pub seconds: f64,
    /// Of `Aim::Shares`.
    pub times: Times,
    /// Of `Aim::Folds`.
    pub folded: Folded,
}

/// Runs programs in a lab, by an unprivileged user, who may read and write below one directory.
pub struct Runner<'a> {
    arena: &'a Arena,
    bench: Bench<'a>,
    ranks_per_host: u64,
    directory: PathBuf,
    library: PathBuf,
    timers: Vec<(Mpi, PathBuf)>,
}

impl<'a> Runner<'a> {
    /// Copies the ranks' libraries to where every user can read them: the sources may be in root's home
    /// directory.
    ///
    /// # Errors
    /// The library or a timer is not there, or cannot be copied.
    pub fn new(arena: &'a Arena, setting: &Setting) -> Result<Self> {
        let directory = arena.scratch("apps");
        make_public_dir(&directory)?;
        let copy = |from: PathBuf, name: String| {
            let to = directory.join(name);
            fs::copy(&from, &to)
                .and_then(|_| fs::set_permissions(&to, fs::Permissions::from_mode(0o755)))
                .with_context(|| format!("cannot copy {}", from.display()))?;
            anyhow::Ok(to)
        };
        let library = copy(places::library()?, "libfoldback.so".to_owned())?;
        let timer = |&mpi: &Mpi| {
            let built = setting::program(None, mpi, "timer.so")?;
            anyhow::Ok((mpi, copy(built, format!("timer-{mpi}.so"))?))
        };
        let timers = setting.mpi.iter().map(timer).collect::<Result<_>>()?;
        let (bench, ranks_per_host) = (Bench::new(arena, setting, false), setting.ranks_per_host);
        Ok(Self { arena, bench, ranks_per_host, directory, library, timers })
    }

    fn directory_of(&self, entry: &Entry) -> PathBuf {
        self.directory.join(entry.name)
    }

    /// Makes a program's directory, and the files that the program needs.
    ///
    /// # Errors
    /// A file cannot be written, or somebody interrupts it.
    pub fn prepare(&self, program: &Program) -> Result<Done<()>> {
        let Some(entry) = program.entry else { return Ok(Done::Ok(())) };
        let directory = self.directory_of(entry);
        make_public_dir(&directory)?;
        // The number of ranks does not matter here: the preparation is the same for all.
        entry.write(&directory, 2)?;
        let Some(words) = entry.preparation(&directory) else { return Ok(Done::Ok(())) };
        let mut command = Command::new("timeout");
        let (said, status) = self.arena.run_quietly(command.arg(PREPARATION).args(words))?;
        Ok(match status {
            0 => Done::Ok(()),
            _ => Done::Failed(Failure::of(status, said)),
        })
    }

    /// Runs all its jobs.
    ///
    /// # Errors
    /// One cannot be started, somebody interrupts it, or it leaves something else than it should.
    pub fn run(&self, program: &Program, mpi: Mpi, hosts: u64, aim: Aim) -> Result<Done<Run>> {
        let mut all = Run::default();
        for _ in 0..program.jobs() {
            match self.job(program, mpi, hosts, aim)? {
                Done::Ok(run) => {
                    all.seconds += run.seconds;
                    all.times.add(&run.times);
                    all.folded.add(&run.folded);
                }
                failed @ Done::Failed(_) => return Ok(failed),
            }
        }
        Ok(Done::Ok(all))
    }

    fn job(&self, program: &Program, mpi: Mpi, hosts: u64, aim: Aim) -> Result<Done<Run>> {
        let [seconds, line, stats] =
            ["seconds", "timer", "stats.json"].map(|name| self.directory.join(name));
        let mut command = self.bench.command(mpi, hosts, aim.mode())?;
        command
            .args(["--as-user", USER, "-x", "OMP_NUM_THREADS=1"])
            .arg("--seconds")
            .arg(&seconds)
            .env("FOLDBACK_LIB", &self.library)
            .env("FOLDBACK_REPORT", "off");
        match aim {
            Aim::Time(_) => {}
            Aim::Shares => {
                let timer = self.timers.iter().find(|(of, _)| *of == mpi);
                let timer = &timer.expect("one for each MPI").1;
                command.args(["-x", &format!("LD_PRELOAD={}", timer.display())]);
                command.args(["-x", &format!("MPI_TIMER={}", line.display())]);
            }
            Aim::Folds => drop(command.env("FOLDBACK_STATS", &stats)),
        }
        command.arg("--");
        match program.entry {
            None => command.args(&program.words),
            Some(entry) => {
                let directory = self.directory_of(entry);
                entry.write(&directory, hosts * self.ranks_per_host)?;
                command.args(entry.words(&directory))
            }
        };
        let (said, status) = self.arena.run_quietly(&mut command)?;
        let [took, line, stats] = [&seconds, &line, &stats].map(|path| {
            let text = fs::read_to_string(path);
            let _ = fs::remove_file(path);
            text
        });
        if status != 0 {
            return Ok(Done::Failed(Failure::of(status, said)));
        }
        let took = took.context("the job left no time")?;
        let seconds: f64 = took.trim().parse().context("the job's time is no number")?;
        let mut run = Run { seconds, ..Run::default() };
        match (aim, line, stats) {
            (Aim::Time(_), ..) => {}
            (Aim::Shares, Ok(line), _) => run.times = Times::parse(&line, seconds)?,
            (Aim::Folds, _, Ok(stats)) => run.folded = Folded::parse(&stats)?,
            _ => {
                let why = format!("it is no program of {mpi}: it left no numbers");
                return Ok(Done::Failed(Failure { why, said }));
            }
        }
        Ok(Done::Ok(run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_why() {
        let why = |status| Failure::of(status, String::new()).why;
        assert_eq!((why(3), why(124)), ("exit status 3".into(), "it takes too long".into()));
    }

    #[test]
    fn a_program_of_ones_own_is_named_after_its_file() {
        let words = ["/opt/bin/a,b".to_owned(), "--fast".to_owned()];
        let program = Program::own(&words[0], &words);
        assert_eq!((program.name.as_str(), program.what.as_str()), ("a_b", "/opt/bin/a,b --fast"));
        assert_eq!(program.jobs(), 1);
    }
}
