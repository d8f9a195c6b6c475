//! The numbers, and what they come to.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, ensure};

use super::measure::Mode;

/// The columns that the latency program prints.
const HEADER: &str = "collective,bytes,ranks,iterations,min_us,median_us,p99_us,mean_us";

/// What was measured: one line for each run, collective and size.
#[derive(Default)]
pub struct Samples {
    lines: Vec<Sample>,
}

struct Sample {
    round: u64,
    hosts: u64,
    mode: Mode,
    collective: String,
    bytes: u64,
    /// min, median, p99, mean, in microseconds
    times: [f64; 4],
}

const MEDIAN: usize = 1;
const P99: usize = 2;
const MEAN: usize = 3;

/// A collective, a size and a number of hosts: both ways, over all rounds.
#[derive(Debug, PartialEq)]
pub struct Point {
    pub collective: String,
    pub bytes: u64,
    pub hosts: u64,
    /// What the OSU micro-benchmarks print, in microseconds: the mean over calls and ranks. Of the
    /// rounds' means, the median.
    pub mpi: f64,
    pub foldback: f64,
    /// Likewise the 99th percentile of calls, as long as they took on the slowest rank.
    pub mpi_p99: f64,
    pub foldback_p99: f64,
    /// Median, least and greatest of the rounds' ratios of means.
    pub ratio: f64,
    pub ratio_min: f64,
    pub ratio_max: f64,
    /// Median of the rounds' ratios of the median call on the slowest rank.
    pub slowest_ratio: f64,
}

impl Samples {
    /// Takes what one run printed. Lines that are no CSV of ours are left out: MPIs warn on stdout.
    pub fn add(&mut self, round: u64, hosts: u64, mode: Mode, csv: &str) -> Result<()> {
        ensure!(csv.contains(HEADER), "the latency program printed something else:\n{csv}");
        for line in csv.lines().filter(|line| *line != HEADER && !line.trim().is_empty()) {
            let fields: Vec<&str> = line.split(',').collect();
            let Ok([collective, bytes, _ranks, _iterations, times @ ..]) =
                <[&str; 8]>::try_from(fields)
            else {
                continue;
            };
            let mut sample = Sample {
                round,
                hosts,
                mode,
                collective: collective.to_owned(),
                bytes: bytes.parse().with_context(|| format!("no size: {line}"))?,
                times: [0.0; 4],
            };
            for (to, from) in sample.times.iter_mut().zip(times) {
                *to = from.parse().with_context(|| format!("no time: {line}"))?;
            }
            self.lines.push(sample);
        }
        Ok(())
    }

    /// All of it, for other tools.
    pub fn csv(&self) -> String {
        let mut text =
            "round,mode,hosts,collective,bytes,min_us,median_us,p99_us,mean_us\n".to_owned();
        for line in &self.lines {
            let mode = if line.mode == Mode::Mpi { "mpi" } else { "foldback" };
            let [min, median, p99, mean] = line.times;
            let _ = writeln!(
                text,
                "{},{mode},{},{},{},{min},{median},{p99},{mean}",
                line.round, line.hosts, line.collective, line.bytes
            );
        }
        text
    }

    /// Summed up, in the order measured first by collective, then hosts, then size.
    pub fn points(&self) -> Vec<Point> {
        let mut order: Vec<&str> = Vec::new();
        let mut groups: BTreeMap<(usize, u64, u64), Vec<&Sample>> = BTreeMap::new();
        for line in &self.lines {
            let index = order.iter().position(|name| *name == line.collective);
            let index = index.unwrap_or_else(|| {
                order.push(&line.collective);
                order.len() - 1
            });
            groups.entry((index, line.hosts, line.bytes)).or_default().push(line);
        }
        groups
            .iter()
            .filter_map(|(&(index, hosts, bytes), lines)| {
                Point::of(order[index], hosts, bytes, lines)
            })
            .collect()
    }
}

impl Point {
    fn of(collective: &str, hosts: u64, bytes: u64, lines: &[&Sample]) -> Option<Self> {
        let times = |mode, which: usize| -> Vec<f64> {
            lines.iter().filter(|line| line.mode == mode).map(|line| line.times[which]).collect()
        };
        let ratios = |which: usize| -> Vec<f64> {
            let with = lines.iter().filter(|line| line.mode == Mode::Foldback);
            with.filter_map(|with| {
                let without =
                    lines.iter().find(|l| l.mode == Mode::Mpi && l.round == with.round)?;
                Some(without.times[which] / with.times[which])
            })
            .collect()
        };
        let of_means = ratios(MEAN);
        Some(Self {
            collective: collective.to_owned(),
            bytes,
            hosts,
            mpi: median(times(Mode::Mpi, MEAN))?,
            foldback: median(times(Mode::Foldback, MEAN))?,
            mpi_p99: median(times(Mode::Mpi, P99))?,
            foldback_p99: median(times(Mode::Foldback, P99))?,
            ratio_min: of_means.iter().copied().reduce(f64::min)?,
            ratio_max: of_means.iter().copied().reduce(f64::max)?,
            ratio: median(of_means)?,
            slowest_ratio: median(ratios(MEDIAN))?,
        })
    }
}

/// Of an even number, the mean of the middle two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    let lower = values.len().checked_sub(1)? / 2;
    Some((values[lower] + values[upper]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_in_between() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn ratios_pair_the_runs_of_one_round() {
        let mut samples = Samples::default();
        for (round, mpi, foldback) in [(0, 10.0, 5.0), (1, 40.0, 10.0), (2, 12.0, 4.0)] {
            for (mode, time) in [(Mode::Mpi, mpi), (Mode::Foldback, foldback)] {
                let csv = format!("{HEADER}\nallreduce,4,2,1000,1.0,7.0,99.0,{time}\n");
                samples.add(round, 2, mode, &csv).unwrap();
            }
        }
        let points = samples.points();
        assert_eq!(points.len(), 1);
        assert_eq!((points[0].mpi, points[0].foldback), (12.0, 5.0));
        assert_eq!((points[0].ratio_min, points[0].ratio, points[0].ratio_max), (2.0, 3.0, 4.0));
        assert_eq!(points[0].slowest_ratio, 1.0);
    }

    #[test]
    fn other_output_is_left_out_and_no_output_is_an_error() {
        let mut samples = Samples::default();
        let csv = format!("a warning\n{HEADER}\nbarrier,0,2,1000,1,2,3,4\n");
        samples.add(0, 2, Mode::Mpi, &csv).unwrap();
        assert_eq!(samples.lines.len(), 1);
        assert!(samples.add(0, 2, Mode::Mpi, "usage: latency").is_err());
    }
}
