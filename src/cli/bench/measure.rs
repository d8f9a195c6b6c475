//! One run of a program that measures, in a lab of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::lab::launch::Mpi;
use crate::lab::settings::Rate;

/// With or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Mpi,
    Foldback,
}

impl Mode {
    /// In tables for other tools.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpi => "mpi",
            Self::Foldback => "foldback",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpi => "without",
            Self::Foldback => "with foldback",
        })
    }
}

/// What is alike in all runs.
pub struct Bench {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub mpi: Mpi,
    /// Of the links.
    pub rate: Option<Rate>,
    /// Without limits on what is folded.
    pub lift: bool,
    pub timeout: u64,
}

/// What came of one.
pub struct Run {
    pub csv: String,
    pub folded: Folded,
    pub seconds: f64,
}

impl Bench {
    /// Measures on so many hosts.
    pub fn run(&self, hosts: u64, mode: Mode) -> Result<Run> {
        let start = Instant::now();
        let own = std::env::current_exe().context("cannot find this executable")?;
        let stats = std::env::temp_dir().join(format!("foldback-bench-{}", std::process::id()));
        let mut command = Command::new(own);
        command
            .args(["lab", "run", "--private", "--mpi", self.mpi.name()])
            .args(["--hosts", &hosts.to_string(), "--timeout", &self.timeout.to_string()])
            .args((mode == Mode::Mpi).then_some("--off"))
            .args(self.rate.iter().flat_map(|rate| ["--rate", &rate.text]))
            .arg("--")
            .arg(&self.program)
            .args(&self.arguments)
            .env("FOLDBACK_STATS", &stats)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        if self.lift {
            command.env("FOLDBACK_MAX_BYTES", i32::MAX.to_string());
        }
        let output = command.output().context("cannot start the lab")?;
        let folded = std::fs::read_to_string(&stats).ok();
        let _ = std::fs::remove_file(&stats);
        ensure!(
            output.status.success(),
            "{hosts} hosts {mode}: the job failed ({})",
            output.status
        );
        let csv = String::from_utf8(output.stdout).context("the program's output is no text")?;
        let folded = folded.map_or_else(|| Ok(Folded::default()), |text| Folded::parse(&text))?;
        Ok(Run { csv, folded, seconds: start.elapsed().as_secs_f64() })
    }
}

/// From the statistics of a job: how many calls were folded, and why the others were not.
#[derive(Default)]
pub struct Folded {
    /// By collective, as the programs name them: allreduce, iallreduce.
    by_collective: BTreeMap<String, u64>,
    by_reason: BTreeMap<String, u64>,
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

    /// Those of one collective.
    pub fn calls_of(&self, collective: &str) -> u64 {
        self.by_collective.get(collective).copied().unwrap_or(0)
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
            {"collective": "Reduce", "form": "Blocking", "reason": "datatype", "calls": 3}]}"#;
        let folded = Folded::parse(text).unwrap();
        assert_eq!(folded.calls(), 14);
        assert_eq!((folded.calls_of("allreduce"), folded.calls_of("iallreduce")), (7, 5));
        assert_eq!(folded.reasons(), "datatype: 3 calls");
    }
}
