//! `foldback bench apps`: whole programs with and without foldback, in turns, and where their time goes.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser};
use foldback::lab::launch::Mpi;
use foldback::output::{print, tell};
use foldback::progress::Progress;

use super::agents::Agents;
use super::apps_programs::{ENTRIES, Entry};
use super::apps_report::{Row, chart, csv, markdown, samples_csv};
use super::apps_run::{Aim, Done, Failure, Program, Run, Runner};
use super::apps_timer::Times;
use super::arena::Arena;
use super::measure::Folded;
use super::mode::Mode;
use super::setting::{Setting, comments};

/// Compare whole programs with and without foldback
///
/// Measures the time from the launcher's start to its end. The ranks run without privilege, and each host has an
/// agent. Another run, without foldback, tells how much of the time passes in collectives, and so the most that
/// they could gain. Another, with foldback, tells the number of folded calls.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    setting: Setting,

    /// Programs, which `make setup-science` installs [default: all that are there]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = names())]
    programs: Vec<String>,

    /// A program of your own and its arguments, in place of --programs
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", conflicts_with = "programs")]
    own: Vec<String>,
}

fn names() -> PossibleValuesParser {
    ENTRIES.iter().map(|entry| PossibleValue::new(entry.name).help(entry.what)).into()
}

/// A program, an MPI and a number of hosts.
#[derive(Clone, Copy, PartialEq)]
pub struct Of {
    pub program: usize,
    pub mpi: Mpi,
    pub hosts: u64,
}

/// One timed run.
pub struct Sample {
    pub of: Of,
    pub round: u64,
    pub mode: Mode,
    pub seconds: f64,
}

/// All that was measured.
#[derive(Default)]
pub struct Measured {
    pub samples: Vec<Sample>,
    pub times: Vec<(Of, Times)>,
    pub folded: Vec<(Of, Folded)>,
    /// Programs that failed, and are not run again.
    failed: Vec<Of>,
}

/// Measures, and writes a table, samples and charts.
pub fn run(mut args: Args) -> Result<ExitCode> {
    if args.setting.hosts.is_empty() {
        args.setting.hosts = vec![2, 4, 8];
    }
    let setting = &args.setting;
    let programs = chosen(&args)?;
    setting.make_out()?;
    let mut machine = setting.describe();
    machine.push("ranks without privilege, an agent on each host, OMP_NUM_THREADS=1".to_owned());
    let arena = Arena::new(setting.most_hosts(), &setting.network())?;
    let _agents = Agents::start(&arena, setting.most_hosts())?;
    let runner = Runner::new(&arena, setting)?;
    let (programs, mut sound) = prepare(setting, &runner, programs)?;
    let measured = measure_all(setting, &runner, &programs)?;
    sound &= measured.failed.is_empty();
    let rows = Row::all(&programs, &measured);
    ensure!(!rows.is_empty(), "no program ran both ways, so there is nothing to compare");
    let table = markdown(&rows, &programs, &machine);
    setting.write("table.md", &table)?;
    setting.write("summary.csv", &(comments(&machine) + &csv(&rows)))?;
    setting.write("samples.csv", &(comments(&machine) + &samples_csv(&programs, &measured)))?;
    for mpi in &setting.mpi {
        if let Some(svg) = chart(&rows, mpi.name(), &setting.note())? {
            setting.write(&setting.chart_name("apps", mpi.name()), &svg)?;
        }
    }
    tell(format_args!("bench: table, chart and samples are in {}\n", setting.out.display()));
    print(format_args!("{table}\n"))?;
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The chosen programs that are installed.
fn chosen(args: &Args) -> Result<Vec<Program>> {
    if let Some(program) = args.own.first() {
        return Ok(vec![Program::own(program, &args.own)]);
    }
    let mut entries: Vec<&Entry> = ENTRIES.iter().collect();
    if !args.programs.is_empty() {
        entries.retain(|entry| args.programs.iter().any(|name| name == entry.name));
    }
    ensure!(
        args.setting.mpi == [Mpi::OpenMpi4],
        "--mpi: Debian's programs are for openmpi4; name one of your own for another"
    );
    entries.retain(|entry| match entry.missing() {
        None => true,
        Some(missing) => {
            let name = entry.name;
            tell(format_args!("bench: {name} is left out: no {missing} (make setup-science)\n"));
            false
        }
    });
    ensure!(!entries.is_empty(), "none of the programs is installed: make setup-science");
    let runs = (2 * args.setting.repeats + 2) * args.setting.hosts.len() as u64;
    let seconds: u64 = entries.iter().map(|entry| u64::from(entry.seconds)).sum();
    let minutes = (runs * seconds).div_ceil(60);
    let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
    tell(format_args!("bench: {}: about {minutes} minutes\n", names.join(", ")));
    Ok(entries.into_iter().map(Program::of).collect())
}

/// The programs that could be made ready, and whether all could.
fn prepare(
    setting: &Setting,
    runner: &Runner<'_>,
    programs: Vec<Program>,
) -> Result<(Vec<Program>, bool)> {
    let all = programs.len();
    let mut ready = Vec::new();
    for program in programs {
        match runner.prepare(&program)? {
            Done::Ok(()) => ready.push(program),
            Done::Failed(failure) => {
                let what = format!("{} cannot be made ready", program.name);
                tell_failure(setting, &what, &program.name, &failure)?;
            }
        }
    }
    let sound = ready.len() == all;
    Ok((ready, sound))
}

/// Writes a line, and a file with all the program's output.
fn tell_failure(setting: &Setting, what: &str, name: &str, failure: &Failure) -> Result<()> {
    let file = format!("failed-{name}.txt");
    setting.write(&file, &failure.said)?;
    let (why, path) = (&failure.why, setting.out.join(file));
    tell(format_args!("bench: {what}: {why}; what it said is in {}\n", path.display()));
    Ok(())
}

/// The measurement of all programs. A program that fails is not run again on as many hosts.
struct Measurement<'a> {
    setting: &'a Setting,
    runner: &'a Runner<'a>,
    programs: &'a [Program],
    progress: Progress,
    measured: Measured,
}

impl Measurement<'_> {
    /// Runs a program, unless it has failed before. `None`: it fails.
    fn run(&mut self, when: &str, of: Of, aim: Aim) -> Result<Option<Run>> {
        if self.measured.failed.contains(&of) {
            return Ok(None);
        }
        let program = &self.programs[of.program];
        let what = format!("{} hosts, {}, {} {}", of.hosts, program.name, of.mpi, aim.mode());
        let run = || self.runner.run(program, of.mpi, of.hosts, aim);
        match self.progress.step(format_args!("{when}, {what}"), run)? {
            Done::Ok(run) => Ok(Some(run)),
            Done::Failed(failure) => {
                let name = format!("{}-{}-{}", program.name, of.mpi, of.hosts);
                tell_failure(self.setting, &what, &name, &failure)?;
                self.measured.failed.push(of);
                Ok(None)
            }
        }
    }
}

fn measure_all(setting: &Setting, runner: &Runner<'_>, programs: &[Program]) -> Result<Measured> {
    let each = || {
        let of = |hosts| (0..programs.len()).map(move |program| (hosts, program));
        setting.hosts.iter().flat_map(move |&hosts| of(hosts))
    };
    let runs = (2 * setting.repeats + 2) * (each().count() * setting.mpi.len()) as u64;
    let progress = Progress::with_lines("bench", runs);
    let measured = Measured::default();
    let mut all = Measurement { setting, runner, programs, progress, measured };
    for round in 0..setting.repeats {
        for (hosts, program) in each() {
            for (mpi, mode) in setting.order(round) {
                let of = Of { program, mpi, hosts };
                if let Some(run) = all.run(&setting.round(round), of, Aim::Time(mode))? {
                    let sample = Sample { of, round, mode, seconds: run.seconds };
                    all.measured.samples.push(sample);
                }
            }
        }
    }
    for (hosts, program) in each() {
        for &mpi in &setting.mpi {
            let of = Of { program, mpi, hosts };
            if let Some(run) = all.run("with the timer", of, Aim::Shares)? {
                all.measured.times.push((of, run.times));
            }
            if let Some(run) = all.run("with statistics", of, Aim::Folds)? {
                all.measured.folded.push((of, run.folded));
            }
        }
    }
    Ok(all.measured)
}
