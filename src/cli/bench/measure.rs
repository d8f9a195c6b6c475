//! One run of the latency program in a lab of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::lab::launch::Mpi;

/// With or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Mpi,
    Foldback,
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
    pub mpi: Mpi,
    pub collectives: Vec<String>,
    pub sizes: Vec<u64>,
    pub iterations: u64,
    pub timeout: u64,
}

/// What came of one.
pub struct Run {
    pub csv: String,
    pub folded: Folded,
    pub seconds: f64,
}

impl Bench {
    /// Measures all collectives and sizes on so many hosts.
    pub fn run(&self, hosts: u64, mode: Mode) -> Result<Run> {
        let start = Instant::now();
        let mut csv = String::new();
        let mut folded = Folded::default();
        for collective in &self.collectives {
            let (text, stats) = self.run_one(hosts, mode, collective)?;
            csv.push_str(&text);
            folded.add(&stats);
        }
        Ok(Run { csv, folded, seconds: start.elapsed().as_secs_f64() })
    }

    fn run_one(&self, hosts: u64, mode: Mode, collective: &str) -> Result<(String, Folded)> {
        let own = std::env::current_exe().context("cannot find this executable")?;
        let stats = std::env::temp_dir().join(format!("foldback-bench-{}", std::process::id()));
        let sizes: Vec<_> = self.sizes.iter().map(u64::to_string).collect();
        let mut command = Command::new(own);
        command
            .args(["lab", "run", "--private", "--mpi", self.mpi.name()])
            .args(["--hosts", &hosts.to_string(), "--timeout", &self.timeout.to_string()])
            .args((mode == Mode::Mpi).then_some("--off"))
            .arg("--")
            .arg(&self.program)
            .args(["--collective", collective, "--sizes", &sizes.join(",")])
            .args(["--iterations", &self.iterations.to_string()])
            .env("FOLDBACK_STATS", &stats)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        let output = command.output().context("cannot start the lab")?;
        let folded = std::fs::read_to_string(&stats).ok();
        let _ = std::fs::remove_file(&stats);
        ensure!(
            output.status.success(),
            "{collective} on {hosts} hosts {mode}: the job failed ({})",
            output.status
        );
        let csv = String::from_utf8(output.stdout).context("the program's output is no text")?;
        Ok((csv, folded.map_or_else(|| Ok(Folded::default()), |text| Folded::parse(&text))?))
    }
}

/// From the statistics of a job: how many calls were folded, and why the others were not.
#[derive(Default)]
pub struct Folded {
    pub calls: u64,
    by_reason: BTreeMap<String, u64>,
}

impl Folded {
    fn parse(text: &str) -> Result<Self> {
        let document: serde_json::Value =
            serde_json::from_str(text).context("FOLDBACK_STATS is no JSON")?;
        let mut folded = Self::default();
        for line in document["collectives"].as_array().into_iter().flatten() {
            let calls = line["calls"].as_u64().unwrap_or(0);
            match line["reason"].as_str() {
                None => folded.calls += calls,
                Some(reason) => *folded.by_reason.entry(reason.to_owned()).or_default() += calls,
            }
        }
        Ok(folded)
    }

    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        for (reason, calls) in &other.by_reason {
            *self.by_reason.entry(reason.clone()).or_default() += calls;
        }
    }

    /// "datatype: 12 calls, too large: 3 calls"
    pub fn reasons(&self) -> String {
        if self.by_reason.is_empty() {
            return "no statistics came from the library".into();
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
            {"collective": "Allreduce", "route": "fold", "reason": null, "calls": 7, "bytes": 28},
            {"collective": "Barrier", "route": "fold", "reason": null, "calls": 2, "bytes": 0},
            {"collective": "Reduce", "route": "mpi", "reason": "datatype", "calls": 3, "bytes": 9}]}"#;
        let folded = Folded::parse(text).unwrap();
        assert_eq!(folded.calls, 9);
        assert_eq!(folded.reasons(), "datatype: 3 calls");
    }
}
