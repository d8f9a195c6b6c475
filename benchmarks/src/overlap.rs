//! The results of the overlap program.

use std::fmt::Write;

use super::mode::Mode;
use super::samples::microseconds;
use super::samples::{Samples, Subject};

pub const COLLECTIVES: &[&str] = &[
    "iallreduce",
    "ireduce",
    "ibcast",
    "ibarrier",
    "iallgather",
    "igather",
    "iscatter",
    "ireduce_scatter_block",
    "ialltoall",
];

/// The columns that it prints; explained in `benchmarks/overlap.c`.
pub const COLUMNS: &[&str] = &[
    "pure_us",
    "compute_us",
    "total_us",
    "overlap",
    "pure_median_us",
    "compute_median_us",
    "total_median_us",
    "start_median_us",
    "wait_median_us",
    "typical",
    "osu",
    "loop",
];
const PURE: usize = 0;
const OVERLAP: usize = 3;
const TYPICAL: usize = 9;
const OSU: usize = 10;
const LOOP: usize = 11;

/// A collective, a size and a number of hosts: both ways, over all rounds.
#[derive(Debug)]
pub struct Point {
    /// The MPI's name.
    pub name: String,
    pub collective: String,
    pub bytes: u64,
    pub hosts: u64,
    /// Not left to MPI.
    pub folded: bool,
    pub mpi: Measured,
    pub foldback: Measured,
}

/// The medians of one way over rounds.
#[derive(Debug)]
pub struct Measured {
    /// Microseconds of the pure collective.
    pub pure: f64,
    /// Percent, with the least and the greatest.
    pub overlap: [f64; 3],
    /// Percent: of the median calls; computation as OSU measures it; by whole iterations.
    pub typical: f64,
    pub osu: f64,
    pub by_loop: f64,
}

/// Summed up, in the order of [`Samples::subjects`].
pub fn points(samples: &Samples) -> Vec<Point> {
    let point = |subject: &Subject<'_>| {
        Some(Point {
            name: subject.mpi.name().to_owned(),
            collective: subject.collective.to_owned(),
            bytes: subject.bytes,
            hosts: subject.hosts,
            folded: subject.folded(),
            mpi: Measured::of(subject, Mode::Mpi)?,
            foldback: Measured::of(subject, Mode::Foldback)?,
        })
    };
    samples.subjects().iter().filter_map(point).collect()
}

impl Measured {
    fn of(subject: &Subject<'_>, mode: Mode) -> Option<Self> {
        let overlaps = subject.values(mode, OVERLAP);
        Some(Self {
            pure: subject.median(mode, PURE)?,
            overlap: [
                subject.median(mode, OVERLAP)?,
                overlaps.iter().copied().reduce(f64::min)?,
                overlaps.iter().copied().reduce(f64::max)?,
            ],
            typical: subject.median(mode, TYPICAL)?,
            osu: subject.median(mode, OSU)?,
            by_loop: subject.median(mode, LOOP)?,
        })
    }
}

/// The summary, for readers.
pub fn markdown(points: &[Point], machine: &[String], tests: u64) -> String {
    let mut text = format!(
        "Overlap in percent, as the OSU micro-benchmarks define it: how much of the time that the \
         collective takes by itself (pure, microseconds) is hidden by as long a computation between \
         its start and MPI_Wait, with {tests} calls of MPI_Test in it. Medians over rounds (least to \
         greatest). typical: of the median calls; osu: with the time of the computation taken between start and wait, as OSU \
         takes it; loop: by whole iterations. All are explained in benchmarks/overlap.c. Bytes \
         as in the table of latencies. *: left to MPI.\n\n"
    );
    let mut names: Vec<&str> = points.iter().map(|point| point.name.as_str()).collect();
    names.dedup();
    for name in names {
        table(&mut text, points, name);
    }
    for line in machine {
        let _ = writeln!(text, "* {line}");
    }
    text
}

fn table(text: &mut String, points: &[Point], mpi: &str) {
    let columns = "pure | overlap | typical | osu | loop";
    let _ =
        writeln!(text, "| collective | hosts | bytes | {mpi}: {columns} | foldback: {columns} |");
    let _ = writeln!(text, "|---|---:|---:|{}", "---:|".repeat(10));
    for p in points.iter().filter(|point| point.name == mpi) {
        let bytes = if p.collective == "ibarrier" { "-".to_owned() } else { p.bytes.to_string() };
        let star = if p.folded { "" } else { " *" };
        let _ = write!(text, "| {} | {} | {bytes}{star} |", p.collective, p.hosts);
        for m in [&p.mpi, &p.foldback] {
            let [median, least, most] = m.overlap;
            let _ = write!(
                text,
                " {} | **{median:.0}** ({least:.0} to {most:.0}) | {:.0} | {:.0} | {:.0} |",
                microseconds(m.pure),
                m.typical,
                m.osu,
                m.by_loop
            );
        }
        text.push('\n');
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Folded;
    use crate::samples::Of;
    use foldback::lab::launch::Mpi;

    #[test]
    fn a_table_has_both_ways_side_by_side() {
        let mut samples = Samples::new(COLUMNS);
        for (round, mode, overlap) in [
            (0, Mode::Mpi, 10),
            (0, Mode::Foldback, 90),
            (1, Mode::Foldback, 96),
            (1, Mode::Mpi, 2),
        ] {
            let csv = format!(
                "collective,bytes,ranks,iterations,calls,{}\n\
                 ibcast,64,2,10,12,5.5,6,7,{overlap},5,6,7,1,2,40,50,80\n",
                COLUMNS.join(",")
            );
            let of = Of { round, mpi: Mpi::OpenMpi4, hosts: 2, mode };
            samples.add(of, &csv, &Folded::default()).unwrap();
        }
        let table = markdown(&points(&samples), &[], 0);
        let row = "| ibcast | 2 | 64 * | 5.50 | **6** (2 to 10) | 40 | 50 | 80 | 5.50 | **93** (90 to 96) |";
        assert!(table.contains(row), "{table}");
    }
}
