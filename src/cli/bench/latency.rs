//! What the latency program's numbers come to.

use super::measure::Mode;
use super::samples::{Samples, Subject, median};

/// What it measures.
pub const COLLECTIVES: &[&str] = &[
    "allreduce",
    "reduce",
    "bcast",
    "barrier",
    "allgather",
    "allgatherv",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_block",
    "scan",
    "exscan",
    "alltoall",
];

/// What it prints.
pub const COLUMNS: &[&str] = &["min_us", "median_us", "p99_us", "mean_us"];
const MEDIAN: usize = 1;
const P99: usize = 2;
const MEAN: usize = 3;

/// A collective, a size and a number of hosts: both ways, over all rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub collective: String,
    pub bytes: u64,
    pub hosts: u64,
    /// Not left to MPI.
    pub folded: bool,
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

/// Summed up, in the order of [`Samples::subjects`].
pub fn points(samples: &Samples) -> Vec<Point> {
    samples.subjects().iter().filter_map(Point::of).collect()
}

impl Point {
    fn of(subject: &Subject<'_>) -> Option<Self> {
        let ratios = subject.ratios(MEAN);
        Some(Self {
            collective: subject.collective.to_owned(),
            bytes: subject.bytes,
            hosts: subject.hosts,
            folded: subject.folded(),
            mpi: subject.median(Mode::Mpi, MEAN)?,
            foldback: subject.median(Mode::Foldback, MEAN)?,
            mpi_p99: subject.median(Mode::Mpi, P99)?,
            foldback_p99: subject.median(Mode::Foldback, P99)?,
            ratio_min: ratios.iter().copied().reduce(f64::min)?,
            ratio_max: ratios.iter().copied().reduce(f64::max)?,
            ratio: median(ratios)?,
            slowest_ratio: median(subject.ratios(MEDIAN))?,
        })
    }

    /// One for tests.
    #[cfg(test)]
    pub fn example(collective: &str, hosts: u64, bytes: u64, ratio: f64) -> Self {
        Self {
            collective: collective.to_owned(),
            bytes,
            hosts,
            folded: true,
            mpi: 10.0 * bytes as f64,
            foldback: 10.0 * bytes as f64 / ratio,
            mpi_p99: 0.0,
            foldback_p99: 0.0,
            ratio,
            ratio_min: ratio,
            ratio_max: ratio,
            slowest_ratio: ratio,
        }
    }
}
