//! The numbers that programs print, by run.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use foldback::lab::launch::Mpi;

use super::latency::collective_of;
use super::measure::Folded;
use super::mode::Mode;

/// The columns that every program prints first. `calls` counts each rank's calls in all, untimed
/// ones as well.
const FIRST: &str = "collective,bytes,ranks,iterations,calls";

/// The measured values: one line for each run, collective and size.
pub struct Samples {
    /// The columns behind the first ones.
    columns: &'static [&'static str],
    lines: Vec<Sample>,
}

/// The run that a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Of {
    pub round: u64,
    pub mpi: Mpi,
    pub hosts: u64,
    pub mode: Mode,
}

struct Sample {
    of: Of,
    ranks: u64,
    collective: String,
    bytes: u64,
    /// Calls of each rank.
    calls: u64,
    /// Whether foldback folded these calls.
    folded: bool,
    /// One for each of the columns behind `FIRST`.
    values: Vec<f64>,
}

/// A collective, an MPI, a number of hosts and a size: both ways, over all rounds.
pub struct Subject<'a> {
    pub mpi: Mpi,
    pub collective: &'a str,
    pub hosts: u64,
    pub bytes: u64,
    lines: Vec<&'a Sample>,
}

impl Samples {
    /// Of a program that prints these columns behind the first ones.
    pub fn new(columns: &'static [&'static str]) -> Self {
        Self { columns, lines: Vec::new() }
    }

    /// Takes what one run printed. Lines that are no CSV of ours are left out: MPIs warn on stdout.
    ///
    /// # Errors
    /// The program printed something else.
    pub fn add(&mut self, of: Of, csv: &str, folded: &Folded) -> Result<()> {
        let header = format!("{FIRST},{}", self.columns.join(","));
        ensure!(csv.contains(&header), "the program printed something else:\n{csv}");
        let mut lines = Vec::new();
        for line in csv.lines().filter(|line| *line != header) {
            let fields: Vec<&str> = line.split(',').collect();
            let [collective, bytes, ranks, _iterations, calls, values @ ..] = fields.as_slice()
            else {
                continue;
            };
            if values.len() != self.columns.len() {
                continue;
            }
            let wrong = || format!("no number: {line}");
            lines.push(Sample {
                of,
                ranks: ranks.parse().with_context(wrong)?,
                collective: (*collective).to_owned(),
                bytes: bytes.parse().with_context(wrong)?,
                calls: calls.parse().with_context(wrong)?,
                folded: false,
                values: values
                    .iter()
                    .map(|value| value.parse().with_context(wrong))
                    .collect::<Result<_>>()?,
            });
        }
        mark_folded(&mut lines, folded);
        self.lines.append(&mut lines);
        Ok(())
    }

    /// All of it, for other tools.
    pub fn csv(&self) -> String {
        let mut text = format!(
            "round,mpi,mode,hosts,ranks,collective,bytes,folded,{}\n",
            self.columns.join(",")
        );
        for line in &self.lines {
            let values: Vec<_> = line.values.iter().map(f64::to_string).collect();
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{}",
                line.of.round,
                line.of.mpi,
                line.of.mode.name(),
                line.of.hosts,
                line.ranks,
                line.collective,
                line.bytes,
                u8::from(line.folded),
                values.join(",")
            );
        }
        text
    }

    /// By MPI and collective, in the order measured, then hosts, then size.
    pub fn subjects(&self) -> Vec<Subject<'_>> {
        let mut order: Vec<(Mpi, &str)> = Vec::new();
        let mut subjects: BTreeMap<(usize, u64, u64), Vec<&Sample>> = BTreeMap::new();
        for line in &self.lines {
            let name = (line.of.mpi, line.collective.as_str());
            let index = order.iter().position(|known| *known == name).unwrap_or_else(|| {
                order.push(name);
                order.len() - 1
            });
            subjects.entry((index, line.of.hosts, line.bytes)).or_default().push(line);
        }
        let subject = |((index, hosts, bytes), lines): ((usize, u64, u64), _)| Subject {
            mpi: order[index].0,
            collective: order[index].1,
            hosts,
            bytes,
            lines,
        };
        subjects.into_iter().map(subject).collect()
    }
}

/// Marks the folded sizes by the router's choice. Without a choice, limits leave the larger sizes to MPI, so the folded
/// calls are the calls of the smallest sizes. Of communicators but MPI_COMM_WORLD no choice is told, and a few calls are
/// left to MPI to compare. So half of the calls of a size suffice.
fn mark_folded(lines: &mut [Sample], folded: &Folded) {
    let mut order: Vec<&mut Sample> = lines.iter_mut().collect();
    order.sort_by_key(|line| line.bytes);
    let mut so_far: BTreeMap<String, u64> = BTreeMap::new();
    for line in order {
        let calls = so_far.entry(line.collective.clone()).or_default();
        let own = line.calls * line.ranks;
        *calls += own;
        let in_all = largest_buffer(&line.collective, line.bytes, line.ranks);
        let collective = collective_of(&line.collective);
        let chosen = folded.route_of(collective, in_all);
        line.folded = chosen.unwrap_or(*calls - own / 2 <= folded.calls_of(collective));
    }
}

impl Subject<'_> {
    fn of(&self, mode: Mode) -> impl Iterator<Item = &Sample> {
        self.lines.iter().copied().filter(move |line| line.of.mode == mode)
    }

    /// Whether foldback folded it, in every round.
    pub fn folded(&self) -> bool {
        self.of(Mode::Foldback).all(|line| line.folded)
    }

    /// The rounds' values of a column.
    pub fn values(&self, mode: Mode, column: usize) -> Vec<f64> {
        self.of(mode).map(|line| line.values[column]).collect()
    }

    pub fn median(&self, mode: Mode, column: usize) -> Option<f64> {
        median(self.values(mode, column))
    }

    /// The least and the greatest of them.
    pub fn range(&self, mode: Mode, column: usize) -> Option<(f64, f64)> {
        range(&self.values(mode, column))
    }

    pub fn ranks(&self) -> u64 {
        self.lines.first().map_or(0, |line| line.ranks)
    }

    /// Without divided by with, in each round.
    pub fn ratios(&self, column: usize) -> Vec<f64> {
        self.ratios_to_fastest(&[self], column)
    }

    /// The fastest of `others` without, divided by this one with, in each round.
    pub fn ratios_to_fastest(&self, others: &[&Self], column: usize) -> Vec<f64> {
        let without = |round: u64| {
            let values = others.iter().flat_map(|other| other.of(Mode::Mpi));
            let values = values.filter(|line| line.of.round == round);
            values.map(|line| line.values[column]).reduce(f64::min)
        };
        let ratio = |with: &Sample| Some(without(with.of.round)? / with.values[column]);
        self.of(Mode::Foldback).filter_map(ratio).collect()
    }
}

/// The least and the greatest.
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    Some((least, values.iter().copied().reduce(f64::max)?))
}

/// Of an even number, the mean of the middle two.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    let lower = values.len().checked_sub(1)? / 2;
    Some((values[lower] + values[upper]) / 2.0)
}

/// The size of a message as `FOLDBACK_MAX_BYTES` counts it: the bytes that each rank gets. In
/// gathers a rank gets the parts of all. Scans and Alltoall are made of gathers.
pub fn largest_buffer(collective: &str, bytes: u64, ranks: u64) -> u64 {
    match collective {
        "allgather" | "allgatherv" | "gather" | "scatter" | "scan" | "exscan" => bytes * ranks,
        "alltoall" => bytes * ranks * ranks,
        _ => bytes,
    }
}

/// Three digits or so.
pub fn microseconds(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(round: u64, mode: Mode) -> Of {
        Of { round, mpi: Mpi::OpenMpi4, hosts: 2, mode }
    }

    const HEADER: &str = "collective,bytes,ranks,iterations,calls,mean_us";

    #[test]
    fn the_median_of_an_even_number_lies_in_between() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn ratios_pair_the_runs_of_one_round() {
        let mut samples = Samples::new(&["mean_us"]);
        for (round, mpi, foldback) in [(0, 10.0, 5.0), (1, 40.0, 10.0), (2, 12.0, 4.0)] {
            for (mode, time) in [(Mode::Mpi, mpi), (Mode::Foldback, foldback)] {
                let csv = format!("{HEADER}\nallreduce,4,2,1000,1200,{time}\n");
                samples.add(of(round, mode), &csv, &Folded::default()).unwrap();
            }
        }
        let subjects = samples.subjects();
        assert_eq!(subjects.len(), 1);
        assert_eq!(subjects[0].median(Mode::Mpi, 0), Some(12.0));
        assert_eq!(subjects[0].ratios(0), [2.0, 4.0, 3.0]);
    }

    #[test]
    fn the_fastest_mpi_of_each_round_counts() {
        let mut samples = Samples::new(&["mean_us"]);
        for (round, mpi, times) in [
            (0, Mpi::OpenMpi4, [10.0, 5.0]),
            (0, Mpi::Mpich4, [8.0, 4.0]),
            (1, Mpi::OpenMpi4, [6.0, 3.0]),
            (1, Mpi::Mpich4, [9.0, 1.0]),
        ] {
            for (mode, time) in [Mode::Mpi, Mode::Foldback].into_iter().zip(times) {
                let csv = format!("{HEADER}\nallreduce,4,2,1000,1200,{time}\n");
                let of = Of { mpi, ..of(round, mode) };
                samples.add(of, &csv, &Folded::default()).unwrap();
            }
        }
        let subjects = samples.subjects();
        let all: Vec<_> = subjects.iter().collect();
        assert_eq!(subjects[0].ratios_to_fastest(&all, 0), [8.0 / 5.0, 2.0]);
        assert_eq!(subjects[1].ratios_to_fastest(&all, 0), [2.0, 6.0]);
    }

    #[test]
    fn other_output_is_left_out_and_no_output_is_an_error() {
        let mut samples = Samples::new(&["mean_us"]);
        let csv = format!("a warning\n{HEADER}\n\nbarrier,0,2,1000,1200,4\n");
        samples.add(of(0, Mode::Mpi), &csv, &Folded::default()).unwrap();
        assert_eq!(samples.lines.len(), 1);
        assert!(samples.add(of(0, Mode::Mpi), "usage: latency", &Folded::default()).is_err());
    }

    #[test]
    fn the_smallest_sizes_are_those_that_were_folded() {
        let csv = format!("{HEADER}\nbcast,64,2,9,10,1\nbcast,4,2,9,10,1\nbcast,8,2,9,10,1\n");
        // 20 of each size; some of these are left to the MPI to compare.
        for (calls, marks) in [(38, [true, true, false]), (29, [true, false, false])] {
            let mut samples = Samples::new(&["mean_us"]);
            let folded = Folded::parse(&format!(
                r#"{{"collectives": [{{"collective": "Bcast", "form": "Blocking", "calls": {calls}}}]}}"#,
            ));
            samples.add(of(0, Mode::Foldback), &csv, &folded.unwrap()).unwrap();
            let subjects = samples.subjects();
            assert_eq!(
                subjects.iter().map(|subject| subject.bytes).collect::<Vec<_>>(),
                [4, 8, 64]
            );
            assert_eq!(subjects.iter().map(Subject::folded).collect::<Vec<_>>(), marks);
        }
    }
}
