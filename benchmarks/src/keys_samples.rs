//! The numbers that the pairs program prints, by run.

use std::fmt::{self, Write};

use anyhow::{Context, Result, ensure};
use foldback::lab::launch::Mpi;

use super::mode::Mode;
use super::samples::median;

/// The columns of a line; explained in `benchmarks/pairs.c`.
const HEADER: &str = "skew,keys,way,ranks,pairs,different,sum,hash,add_s,shuffle_s,all_s,cpu_s,\
                      frames,wire_bytes";
/// The measured ones of them.
pub const MEASURED: [&str; 6] = ["add_s", "shuffle_s", "all_s", "cpu_s", "frames", "wire_bytes"];
pub const SHUFFLE: usize = 1;
pub const ALL: usize = 2;
pub const CPU: usize = 3;
pub const WIRE_BYTES: usize = 5;

/// A way to reduce pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Foldback,
    Combined,
    Uncombined,
}

pub const WAYS: [Way; 3] = [Way::Foldback, Way::Combined, Way::Uncombined];
/// The ways of plain MPI.
pub const PLAIN: [Way; 2] = [Way::Combined, Way::Uncombined];

impl Way {
    /// As the program says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Foldback => "foldback",
            Self::Combined => "combined",
            Self::Uncombined => "uncombined",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The run that a line comes from.
#[derive(Clone, Copy, Debug)]
pub struct Of {
    pub round: u64,
    pub mpi: Mpi,
    pub hosts: u64,
}

struct Sample {
    of: Of,
    way: Way,
    ranks: u64,
    problem: Problem,
    answer: [String; 3],
    values: [f64; MEASURED.len()],
}

/// The pairs to reduce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub skew: String,
    pub keys: u64,
    pub pairs: u64,
}

/// The measured values: a line for each run, problem and way.
#[derive(Default)]
pub struct Samples {
    lines: Vec<Sample>,
}

/// A problem on an MPI and a number of hosts: all ways, over all rounds.
pub struct Subject<'a> {
    pub mpi: Mpi,
    pub hosts: u64,
    pub ranks: u64,
    pub problem: &'a Problem,
    /// Keys that came.
    pub different: &'a str,
    lines: Vec<&'a Sample>,
}

impl Samples {
    /// Takes the output of one run. Lines that are no CSV of ours are left out: MPIs warn on stdout.
    ///
    /// # Errors
    /// The program printed something else, not all of its ways, or another answer than in another run.
    pub fn add(&mut self, of: Of, mode: Mode, csv: &str) -> Result<()> {
        ensure!(csv.contains(HEADER), "the program printed something else:\n{csv}");
        let ways = match mode {
            Mode::Mpi => &WAYS[1..],
            Mode::Foldback => &WAYS[..1],
        };
        let columns = HEADER.split(',').count();
        let before = self.lines.len();
        for line in csv.lines().filter(|line| *line != HEADER) {
            let fields: Vec<&str> = line.split(',').collect();
            if fields.len() != columns {
                continue;
            }
            let sample = Sample::parse(of, &fields).with_context(|| format!("no row: {line}"))?;
            ensure!(ways.contains(&sample.way), "{mode}, yet the program went by {}", sample.way);
            if let Some(other) = self.lines.iter().find(|other| other.problem == sample.problem) {
                ensure!(
                    other.answer == sample.answer,
                    "{} keys, {}: {} with {} ranks has another answer than {} with {} ranks",
                    sample.problem.keys,
                    sample.problem.skew,
                    sample.way,
                    sample.ranks,
                    other.way,
                    other.ranks
                );
            }
            self.lines.push(sample);
        }
        let found = self.lines.len() - before;
        ensure!(found > 0 && found.is_multiple_of(ways.len()), "a way is missing:\n{csv}");
        Ok(())
    }

    /// All of it, for other tools.
    pub fn csv(&self) -> String {
        let mut text = format!(
            "round,mpi,hosts,ranks,way,skew,keys,pairs,different,sum,hash,{}\n",
            MEASURED.join(",")
        );
        for Sample { of, way, ranks, problem, answer, values } in &self.lines {
            let Of { round, mpi, hosts } = of;
            let Problem { skew, keys, pairs } = problem;
            let answer = answer.join(",");
            let _ =
                write!(text, "{round},{mpi},{hosts},{ranks},{way},{skew},{keys},{pairs},{answer}");
            values.iter().for_each(|value| text += &format!(",{value}"));
            text.push('\n');
        }
        text
    }

    /// In the order measured.
    pub fn subjects(&self) -> Vec<Subject<'_>> {
        let mut subjects: Vec<Subject<'_>> = Vec::new();
        for line in &self.lines {
            let Sample { of: Of { mpi, hosts, .. }, problem, .. } = line;
            let key = (*mpi, *hosts, problem);
            match subjects.iter_mut().find(|s| (s.mpi, s.hosts, s.problem) == key) {
                Some(subject) => subject.lines.push(line),
                None => subjects.push(Subject {
                    mpi: *mpi,
                    hosts: *hosts,
                    ranks: line.ranks,
                    problem,
                    different: &line.answer[0],
                    lines: vec![line],
                }),
            }
        }
        subjects
    }
}

impl Sample {
    fn parse(of: Of, fields: &[&str]) -> Result<Self> {
        let [skew, keys, way, ranks, pairs, different, sum, hash, values @ ..] = fields else {
            unreachable!("the caller has counted them");
        };
        let is_named = |known: &&Way| known.name() == *way;
        let values = values.iter().map(|value| value.parse()).collect::<Result<Vec<f64>, _>>()?;
        Ok(Self {
            of,
            way: *WAYS.iter().find(is_named).context("an unknown way")?,
            ranks: ranks.parse()?,
            problem: Problem {
                skew: (*skew).to_owned(),
                keys: keys.parse()?,
                pairs: pairs.parse()?,
            },
            answer: [different, sum, hash].map(|part| (*part).to_owned()),
            values: values.try_into().ok().context("not enough columns")?,
        })
    }
}

impl Subject<'_> {
    fn of(&self, way: Way) -> impl Iterator<Item = &Sample> {
        self.lines.iter().copied().filter(move |line| line.way == way)
    }

    /// Median over rounds.
    pub fn median(&self, way: Way, column: usize) -> Option<f64> {
        median(self.of(way).map(|line| line.values[column]).collect())
    }

    /// Median of the rounds' ratios: the least of `others` in a round, divided by foldback's in the same.
    pub fn ratio_to(&self, others: &[Way], column: usize) -> Option<f64> {
        let least = |round: u64| {
            let values = others.iter().flat_map(|way| self.of(*way));
            let values = values.filter(|line| line.of.round == round);
            values.map(|line| line.values[column]).reduce(f64::min)
        };
        let ratio = |line: &Sample| Some(least(line.of.round)? / line.values[column]);
        median(self.of(Way::Foldback).filter_map(ratio).collect())
    }
}

/// Samples of two rounds, of 10 and 1000 keys. The rounds' ratios of shuffles are 2 and 3 to the
/// best, 8 and 24 to what does not combine.
#[cfg(test)]
pub fn example() -> Samples {
    let mut samples = Samples::default();
    for (round, best, uncombined) in [(0, 2.0, 8.0), (1, 3.0, 24.0)] {
        for (mode, ways) in [
            (Mode::Mpi, &[("combined", best), ("uncombined", uncombined)][..]),
            (Mode::Foldback, &[("foldback", 1.0)]),
        ] {
            let mut csv = format!("{HEADER}\n");
            for keys in [10, 1000] {
                for (way, seconds) in ways {
                    let _ = writeln!(
                        csv,
                        "uniform,{keys},{way},4,5000,{keys},77,00ff,0.5,{seconds},{},4,50,6000000",
                        2.0 * seconds
                    );
                }
            }
            let of = Of { round, mpi: Mpi::OpenMpi4, hosts: 4 };
            samples.add(of, mode, &csv).expect("a CSV of the program");
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Of = Of { round: 0, mpi: Mpi::OpenMpi4, hosts: 2 };

    #[test]
    fn ratios_pair_the_runs_of_one_round() {
        let samples = example();
        let subjects = samples.subjects();
        assert_eq!(subjects.len(), 2);
        for subject in subjects {
            assert_eq!(subject.median(Way::Combined, SHUFFLE), Some(2.5));
            assert_eq!(subject.ratio_to(&PLAIN, SHUFFLE), Some(2.5));
            assert_eq!(subject.ratio_to(&[Way::Uncombined], SHUFFLE), Some(16.0));
            assert_eq!(subject.ratio_to(&PLAIN, ALL), Some(2.5));
        }
    }

    /// The answer does not depend on MPI, hosts or way.
    #[test]
    fn another_answer_is_an_error() {
        let mut samples = example();
        let csv = |hash| format!("{HEADER}\nuniform,10,foldback,2,5000,10,77,{hash},1,1,1,1,1,1\n");
        samples.add(OF, Mode::Foldback, &csv("00ff")).unwrap();
        let error = samples.add(OF, Mode::Foldback, &csv("00fe")).unwrap_err().to_string();
        let says =
            "10 keys, uniform: foldback with 2 ranks has another answer than combined with 4 ranks";
        assert_eq!(error, says);
    }

    #[test]
    fn other_output_and_missing_ways_are_errors() {
        let line = "uniform,10,combined,2,5000,10,77,00ff,1,1,1,1,1,1";
        for (mode, csv, says) in [
            (Mode::Mpi, "usage: pairs", "the program printed something else"),
            (Mode::Mpi, &*format!("{HEADER}\n{line}\n"), "a way is missing"),
            (Mode::Mpi, &*format!("{HEADER}\n"), "a way is missing"),
            (Mode::Foldback, &*format!("{HEADER}\n{line}\n"), "the program went by combined"),
        ] {
            let error = Samples::default().add(OF, mode, csv).unwrap_err().to_string();
            assert!(error.contains(says), "no {says:?} in {error}");
        }
    }
}
