//! The options of all comparisons: MPIs, hosts, links, rounds.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use foldback::lab::launch::Mpi;
use foldback::lab::settings::{Rate, Settings};
use foldback::places;
use foldback::progress::Progress;

use super::machine;
use super::mode::Mode;

/// Options of every comparison.
#[derive(clap::Args)]
pub struct Setting {
    /// MPIs to compare with
    #[arg(
        long,
        value_enum,
        value_name = "MPI,...",
        value_delimiter = ',',
        default_value = "openmpi4"
    )]
    pub mpi: Vec<Mpi>,

    /// Numbers of hosts [default: 2,4,8; 2,4 with --overlap]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(2..=64))]
    pub hosts: Vec<u64>,

    /// Ranks on each host
    #[arg(long, value_name = "R", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    pub ranks_per_host: u64,

    /// Largest IP packet, on every link, such as 1500 or 9000
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
          value_parser = clap::value_parser!(u32).range(576..=9000))]
    pub mtu: u32,

    /// Speed of every link, in each direction, such as 1gbit [default: as fast as it goes]
    #[arg(long)]
    pub rate: Option<Rate>,

    /// Rounds
    #[arg(long, value_name = "R", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub repeats: u64,

    /// Seconds that one run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 900,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,

    /// Directory of the results
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    pub out: PathBuf,
}

impl Setting {
    /// The network of the lab.
    pub fn network(&self) -> Settings {
        Settings { mtu: self.mtu, rate: self.rate.clone(), ..Settings::default() }
    }

    /// Hosts that the lab needs.
    pub fn most_hosts(&self) -> u64 {
        self.hosts.iter().copied().max().unwrap_or(2)
    }

    /// The runs of a round: each MPI with and without, in one order and then in the other, so that
    /// a drift hits all of them.
    pub fn order(&self, round: u64) -> Vec<(Mpi, Mode)> {
        let both = |&mpi| [(mpi, Mode::Mpi), (mpi, Mode::Foldback)];
        let mut runs: Vec<_> = self.mpi.iter().flat_map(both).collect();
        if !round.is_multiple_of(2) {
            runs.reverse();
        }
        runs
    }

    /// The number of runs of a round.
    pub fn runs(&self) -> u64 {
        2 * self.mpi.len() as u64
    }

    /// Progress of all rounds, with so many programs on each number of hosts.
    pub fn progress(&self, programs: usize) -> Progress {
        let jobs = self.runs() * self.hosts.len() as u64 * programs as u64;
        Progress::with_lines("bench", self.repeats * jobs)
    }

    /// "round 2/3"
    pub fn round(&self, round: u64) -> String {
        format!("round {}/{}", round + 1, self.repeats)
    }

    /// The machine and the setting of the measurement, one fact a line.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = machine::describe(&self.mpi);
        let ranks = match self.ranks_per_host {
            1 => "one rank on each".to_owned(),
            ranks => format!("{ranks} ranks on each"),
        };
        let hosts: Vec<_> = self.hosts.iter().map(u64::to_string).collect();
        let rate = match &self.rate {
            Some(rate) => format!("shaped to {}", rate.text),
            None => "not shaped".to_owned(),
        };
        lines.push(format!("{} hosts, {ranks}; mtu {}, links {rate}", hosts.join(", "), self.mtu));
        lines.push(format!("{} rounds, with and without in turns, in one lab", self.repeats));
        lines
    }

    /// The machine and the rounds in one line, with the date.
    pub fn note(&self) -> String {
        let rounds = self.repeats;
        format!("{}; {rounds} rounds; {}", machine::note(), machine::today())
    }

    /// Makes the directory of the results.
    pub fn make_out(&self) -> Result<()> {
        std::fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make the directory {}", self.out.display()))
    }

    /// Writes one of the results.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// A chart's file name: with more than one MPI, the MPI's name is in it.
    pub fn chart_name(&self, subject: &str, mpi: &str) -> String {
        if self.mpi.len() > 1 { format!("{subject}-{mpi}.svg") } else { format!("{subject}.svg") }
    }
}

/// Facts in front of a CSV, as comments.
pub fn comments(facts: &[String]) -> String {
    facts.iter().map(|fact| format!("# {fact}\n")).collect()
}

/// A program that measures, for one MPI: `target/mpi-tests/` lies beside `target/release/`.
pub fn program(directory: Option<&Path>, mpi: Mpi, name: &str) -> Result<PathBuf> {
    let directory = match directory {
        Some(directory) => directory.to_owned(),
        None => places::own()?
            .parent()
            .context("this executable is in no directory")?
            .with_file_name("mpi-tests"),
    };
    let path = directory.join(mpi.name()).join(name);
    if !path.is_file() {
        bail!(
            "{} not found: make -C mpi-tests, or name its directory in --programs",
            path.display()
        );
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn setting(words: &[&str]) -> Setting {
        let command = Setting::augment_args(clap::Command::new("bench").no_binary_name(true));
        Setting::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn rounds_go_forth_and_back() {
        let setting = setting(&["--mpi", "openmpi,mpich"]);
        let there = setting.order(0);
        let back = setting.order(1);
        assert_eq!(there[0], (Mpi::OpenMpi4, Mode::Mpi));
        assert_eq!(there[3], (Mpi::Mpich4, Mode::Foldback));
        assert_eq!(there.into_iter().rev().collect::<Vec<_>>(), back);
    }

    #[test]
    fn the_facts_name_the_links() {
        let facts = setting(&["--hosts", "2,4", "--mtu", "9000", "--rate", "1gbit"]).describe();
        let line = "2, 4 hosts, one rank on each; mtu 9000, links shaped to 1gbit";
        assert!(facts.iter().any(|fact| fact == line), "{facts:?}");
    }
}
