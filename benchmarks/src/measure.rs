//! One run of a program that measures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use foldback::lab::launch::Mpi;
use foldback::places;

use super::arena::Arena;
use super::latency::is_by_pairs;
use super::mode::Mode;
use super::setting::Setting;

/// The common part of all runs.
pub struct Bench<'a> {
    arena: &'a Arena,
    ranks_per_host: u64,
    /// Without limits on what is folded.
    lift: bool,
    /// Seconds that a run may take.
    timeout: u64,
}

/// One program on one MPI.
pub struct Job<'a> {
    pub mpi: Mpi,
    pub program: &'a Path,
    pub arguments: &'a [String],
    pub hosts: u64,
    pub mode: Mode,
    /// The value of `FOLDBACK_QUANTIZE`; `None`: as the environment has it.
    pub quantize: Option<&'a str>,
}

/// The place of a run among many.
#[derive(Clone, Copy)]
pub struct Which {
    pub round: u64,
    pub mpi: Mpi,
    pub hosts: u64,
    pub mode: Mode,
}

/// The result of one run.
pub struct Run {
    /// The program's output.
    pub output: String,
    pub folded: Folded,
}

impl<'a> Bench<'a> {
    /// As a setting has it.
    pub fn new(arena: &'a Arena, setting: &Setting, lift: bool) -> Self {
        Self { arena, ranks_per_host: setting.ranks_per_host, lift, timeout: setting.timeout }
    }

    /// `lab run` on the lab's first hosts; the program is still to be given.
    ///
    /// # Errors
    /// This executable is not found.
    pub fn command(&self, mpi: Mpi, hosts: u64, mode: Mode) -> Result<Command> {
        let own = places::command()?;
        let mut command = Command::new(own);
        command
            .args(["lab", "run", "--name", &self.arena.name, "--mpi", mpi.name()])
            .args(["--hosts", &hosts.to_string(), "--timeout", &self.timeout.to_string()])
            .args(["--ranks-per-host", &self.ranks_per_host.to_string()])
            .args((mode == Mode::Mpi).then_some("--off"));
        Ok(command)
    }

    /// Runs it on the lab's first hosts.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub fn run(&self, job: &Job<'_>) -> Result<Run> {
        let (hosts, mode) = (job.hosts, job.mode);
        let stats = self.arena.scratch("stats.json");
        let mut command = self.command(job.mpi, hosts, mode)?;
        command
            .arg("--")
            .arg(job.program)
            .args(job.arguments)
            .env("FOLDBACK_STATS", &stats)
            .env("FOLDBACK_REPORT", "off")
            // The program measures calls on a group, not the setup of groups.
            .env("FOLDBACK_SETUP_CALLS", "0")
            .envs(job.quantize.map(|quantize| ("FOLDBACK_QUANTIZE", quantize)));
        if self.lift {
            command.env("FOLDBACK_MAX_BYTES", i32::MAX.to_string());
            command.env("FOLDBACK_ROUTE", "fold");
        }
        let (output, status) = self.arena.run(&mut command)?;
        let folded = std::fs::read_to_string(&stats).ok();
        let _ = std::fs::remove_file(&stats);
        ensure!(
            status == 0,
            "{}, {hosts} hosts, {mode}: the job failed (exit status {status})",
            job.mpi
        );
        let folded = folded.map_or_else(|| Ok(Folded::default()), |text| Folded::parse(&text))?;
        Ok(Run { output, folded })
    }
}

/// Runs a program in all rounds: on each number of hosts, with each MPI, with foldback and without. `lift`: without
/// limits on what is folded. Returns the calls of all runs.
///
/// # Errors
/// A run fails; of `each`.
pub fn all_rounds(
    setting: &Setting,
    program: impl Fn(Mpi) -> Result<PathBuf>,
    arguments: &[String],
    lift: bool,
    mut each: impl FnMut(Which, &Run) -> Result<()>,
) -> Result<Folded> {
    let find = |&mpi: &Mpi| Ok((mpi, program(mpi)?));
    let programs: Vec<(Mpi, PathBuf)> = setting.mpi.iter().map(find).collect::<Result<_>>()?;
    let arena = Arena::new(setting.most_hosts(), &setting.network())?;
    let bench = Bench::new(&arena, setting, lift);
    let mut folded = Folded::default();
    let progress = setting.progress(1);
    for round in 0..setting.repeats {
        for &hosts in &setting.hosts {
            for (mpi, mode) in setting.order(round) {
                let program = programs.iter().find(|(of, _)| *of == mpi);
                let program = &program.expect("one for each MPI").1;
                let job = Job { mpi, program, arguments, hosts, mode, quantize: None };
                let what = format_args!("{}, {hosts} hosts, {mpi} {mode}", setting.round(round));
                let run = progress.step(what, || bench.run(&job))?;
                folded.add(&run.folded);
                each(Which { round, mpi, hosts, mode }, &run)?;
            }
        }
    }
    Ok(folded)
}

/// The numbers of folded calls in the statistics of a job, and why the others were not folded.
#[derive(Default)]
pub struct Folded {
    /// By collective, as the programs name them: allreduce, iallreduce.
    by_collective: BTreeMap<String, u64>,
    by_reason: BTreeMap<String, u64>,
    /// The router's choices, by collective and greatest bytes of the class: whether it chose a fold.
    routes: BTreeMap<(String, u64), bool>,
    /// Folded calls that were quantized, over all ranks.
    pub quantized: u64,
}

impl Folded {
    pub fn parse(text: &str) -> Result<Self> {
        let document: serde_json::Value =
            serde_json::from_str(text).context("FOLDBACK_STATS is no JSON")?;
        let mut folded = Self::default();
        for line in document["collectives"].as_array().into_iter().flatten() {
            let calls = line["calls"].as_u64().unwrap_or(0);
            let (to, key) = match line["reason"].as_str() {
                None => {
                    let form = if line["form"] == "Nonblocking" { "i" } else { "" };
                    let name = line["collective"].as_str().unwrap_or("?").to_lowercase();
                    (&mut folded.by_collective, format!("{form}{name}"))
                }
                Some(reason) => (&mut folded.by_reason, reason.to_owned()),
            };
            *to.entry(key).or_default() += calls;
            folded.quantized += if line["quantized"] == true { calls } else { 0 };
        }
        for route in document["routes"].as_array().into_iter().flatten() {
            let name = route["collective"].as_str().unwrap_or("?").to_lowercase();
            let class = (name, route["up_to_bytes"].as_u64().unwrap_or(0));
            folded.routes.insert(class, route["way"] != "mpi");
        }
        Ok(folded)
    }

    pub fn add(&mut self, other: &Self) {
        for (to, from) in [
            (&mut self.by_collective, &other.by_collective),
            (&mut self.by_reason, &other.by_reason),
        ] {
            for (key, calls) in from {
                *to.entry(key.clone()).or_default() += calls;
            }
        }
    }

    /// Folded calls, over all ranks.
    pub fn calls(&self) -> u64 {
        self.by_collective.values().sum()
    }

    /// Their share of all calls; `None`: there was no call.
    pub fn percent(&self) -> Option<f64> {
        let all = self.calls() + self.by_reason.values().sum::<u64>();
        (all > 0).then(|| 100.0 * self.calls() as f64 / all as f64)
    }

    /// Folded calls of one collective.
    pub fn calls_of(&self, collective: &str) -> u64 {
        self.by_collective.get(collective).copied().unwrap_or(0)
    }

    /// Whether the router chose a fold for messages of so many bytes in all; `None`: it was not asked.
    pub fn route_of(&self, collective: &str, bytes: u64) -> Option<bool> {
        let has_no_size = collective == "barrier" || is_by_pairs(collective);
        let class = if has_no_size { 0 } else { bytes.next_power_of_two() };
        self.routes.get(&(collective.to_owned(), class)).copied()
    }

    /// "datatype: 12 calls, too large: 3 calls"
    pub fn reasons(&self) -> String {
        if self.by_collective.is_empty() && self.by_reason.is_empty() {
            return "no statistics came from the library".into();
        }
        if self.by_reason.is_empty() {
            return "none".into();
        }
        let each = self.by_reason.iter().map(|(reason, calls)| format!("{reason}: {calls} calls"));
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_tell_folded_calls_from_the_others() {
        let text = r#"{"collectives": [
            {"collective": "Allreduce", "form": "Blocking", "reason": null, "calls": 7},
            {"collective": "Allreduce", "form": "Nonblocking", "reason": null, "calls": 5},
            {"collective": "Barrier", "form": "Blocking", "reason": null, "calls": 2},
            {"collective": "Reduce", "form": "Blocking", "reason": "datatype", "calls": 3}],
            "routes": [{"collective": "Allreduce", "up_to_bytes": 8, "way": "star"},
            {"collective": "Allreduce", "up_to_bytes": 16, "way": "mpi"}]}"#;
        let folded = Folded::parse(text).unwrap();
        assert_eq!(folded.calls(), 14);
        assert_eq!((folded.calls_of("allreduce"), folded.calls_of("iallreduce")), (7, 5));
        assert_eq!(folded.reasons(), "datatype: 3 calls");
        let route_of = |bytes| folded.route_of("allreduce", bytes);
        assert_eq!([5, 8, 9, 17].map(route_of), [Some(true), Some(true), Some(false), None]);
    }
}
