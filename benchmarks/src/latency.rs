//! The results of the latency program.

use super::mode::Mode;
use super::samples::{Samples, Subject, median};

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
    "gatherv",
    "scatterv",
    "alltoallv",
    "alltoallw",
    "neighbor_allgather",
    "halo1d",
    "halo2d",
    "halo3d",
    "halo2dv",
];

/// Reductions, which alone depend on the type.
pub const REDUCTIONS: &[&str] =
    &["allreduce", "reduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan"];

/// The collective of MPI that a name of the program's stands for.
pub fn collective_of(name: &str) -> &str {
    match name {
        "halo1d" | "halo2d" | "halo3d" => "neighbor_alltoall",
        "halo2dv" => "neighbor_alltoallv",
        name => name,
    }
}

/// Whether no rank knows all sizes of a call, so that the router has one class for all.
pub fn is_by_pairs(collective: &str) -> bool {
    collective.starts_with("neighbor")
        || ["gatherv", "scatterv", "alltoallv", "alltoallw"].contains(&collective)
}

/// The columns that it prints; explained in `benchmarks/latency.c`.
pub const COLUMNS: &[&str] =
    &["min_us", "median_us", "p99_us", "mean_us", "cpu_us", "frames", "wire_bytes", "stream_us"];
const MIN: usize = 0;
pub const MEDIAN: usize = 1;
pub const P99: usize = 2;
pub const MEAN: usize = 3;
const CPU: usize = 4;
const FRAMES: usize = 5;
const WIRE_BYTES: usize = 6;
const STREAM: usize = 7;

/// An MPI, a collective, a size and a number of hosts: both ways, over all rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The MPI's name.
    pub name: String,
    pub collective: String,
    pub bytes: u64,
    pub hosts: u64,
    /// On all hosts together.
    pub ranks: u64,
    /// Not left to MPI.
    pub folded: bool,
    pub mpi: Way,
    pub foldback: Way,
    /// Median, least and greatest of the rounds' ratios of means.
    pub ratio: f64,
    pub ratio_min: f64,
    pub ratio_max: f64,
    /// Median of the rounds' ratios of the median call on the slowest rank.
    pub slowest_ratio: f64,
    /// Median of the rounds' ratios to the MPI that was fastest in each.
    pub fastest_ratio: f64,
    /// Median of the rounds' ratios of calls one behind the other.
    pub stream_ratio: f64,
}

/// One way: medians over rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Way {
    /// The mean over calls and ranks in microseconds, as the OSU micro-benchmarks print it.
    pub mean: f64,
    /// The least and the greatest of the rounds.
    pub spread: (f64, f64),
    /// Of calls, each as long as on its slowest rank, in microseconds.
    pub min: f64,
    pub median: f64,
    pub p99: f64,
    /// Of one call, over all hosts: CPU time in microseconds, frames, bytes of them.
    pub cpu: f64,
    pub frames: f64,
    pub wire_bytes: f64,
    /// From one call to the next, of calls one behind the other: the mean over ranks in microseconds.
    pub stream: f64,
}

impl Way {
    fn of(subject: &Subject<'_>, mode: Mode) -> Option<Self> {
        let median = |column| subject.median(mode, column);
        Some(Self {
            mean: median(MEAN)?,
            spread: subject.range(mode, MEAN)?,
            min: median(MIN)?,
            median: median(MEDIAN)?,
            p99: median(P99)?,
            cpu: median(CPU)?,
            frames: median(FRAMES)?,
            wire_bytes: median(WIRE_BYTES)?,
            stream: median(STREAM)?,
        })
    }
}

/// Summed up, in the order of [`Samples::subjects`].
pub fn points(samples: &Samples) -> Vec<Point> {
    let subjects = samples.subjects();
    subjects.iter().filter_map(|subject| Point::of(subject, &subjects)).collect()
}

impl Point {
    fn of(subject: &Subject<'_>, all: &[Subject<'_>]) -> Option<Self> {
        let ratios = subject.ratios(MEAN);
        let key = |s: &Subject<'_>| (s.collective.to_owned(), s.hosts, s.bytes);
        let same: Vec<_> = all.iter().filter(|other| key(other) == key(subject)).collect();
        Some(Self {
            name: subject.mpi.name().to_owned(),
            collective: subject.collective.to_owned(),
            bytes: subject.bytes,
            hosts: subject.hosts,
            ranks: subject.ranks(),
            folded: subject.folded(),
            mpi: Way::of(subject, Mode::Mpi)?,
            foldback: Way::of(subject, Mode::Foldback)?,
            ratio_min: ratios.iter().copied().reduce(f64::min)?,
            ratio_max: ratios.iter().copied().reduce(f64::max)?,
            ratio: median(ratios)?,
            slowest_ratio: median(subject.ratios(MEDIAN))?,
            fastest_ratio: median(subject.ratios_to_fastest(&same, MEAN))?,
            stream_ratio: median(subject.ratios(STREAM))?,
        })
    }

    #[cfg(test)]
    pub fn example(collective: &str, hosts: u64, bytes: u64, ratio: f64) -> Self {
        let way = |mean| Way { mean, spread: (mean, mean), cpu: mean, ..Way::default() };
        Self {
            name: "openmpi4".to_owned(),
            collective: collective.to_owned(),
            bytes,
            hosts,
            ranks: hosts,
            folded: true,
            mpi: way(10.0 * bytes as f64),
            foldback: way(10.0 * bytes as f64 / ratio),
            ratio,
            ratio_min: ratio,
            ratio_max: ratio,
            slowest_ratio: ratio,
            fastest_ratio: ratio,
            stream_ratio: ratio,
        }
    }
}
