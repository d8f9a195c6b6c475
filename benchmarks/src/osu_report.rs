//! Tables of the measurements of the OSU micro-benchmarks.

use std::fmt::Write;

use super::charts::{Compared, Rounds};
use super::mode::Mode;
use super::samples::microseconds;

/// A program, an MPI, a number of hosts and a size: both ways, over all rounds.
#[derive(Clone, Debug)]
pub struct Point {
    pub mpi: String,
    pub program: String,
    pub hosts: u64,
    pub bytes: u64,
    pub unit: String,
    without: Vec<(u64, f64)>,
    with: Vec<(u64, f64)>,
    /// The program's collective was folded in every round, at some size.
    folded: bool,
}

impl Point {
    pub fn new(mpi: &str, program: &str, hosts: u64, bytes: u64, unit: &str) -> Self {
        Self {
            mpi: mpi.to_owned(),
            program: program.to_owned(),
            hosts,
            bytes,
            unit: unit.to_owned(),
            without: Vec::new(),
            with: Vec::new(),
            folded: true,
        }
    }

    /// Takes the value of a round.
    pub fn add(&mut self, round: u64, mode: Mode, value: f64, folded: bool) {
        match mode {
            Mode::Mpi => self.without.push((round, value)),
            Mode::Foldback => {
                self.folded &= folded;
                self.with.push((round, value));
            }
        }
    }

    /// Whether there is a ratio.
    pub fn is_complete(&self) -> bool {
        !self.ratios().is_empty()
    }

    /// Without divided by with, in each round that has both.
    pub fn ratios(&self) -> Vec<f64> {
        let ratio = |(round, with): &(u64, f64)| {
            let (_, without) = self.without.iter().find(|(other, _)| other == round)?;
            (*with > 0.0).then(|| without / with)
        };
        self.with.iter().filter_map(ratio).collect()
    }

    /// Both ways, and their ratio.
    pub fn to_chart(&self) -> Compared {
        let values = |of: &[(u64, f64)]| of.iter().map(|(_, value)| *value).collect::<Vec<_>>();
        Compared {
            hosts: self.hosts,
            bytes: self.bytes,
            folded: self.folded,
            mpi: Rounds::of(&values(&self.without)),
            foldback: Rounds::of(&values(&self.with)),
            ratio: Rounds::of(&self.ratios()),
        }
    }
}

pub fn csv(points: &[Point]) -> String {
    let mut text =
        "mpi,program,hosts,bytes,folded,without,foldback,unit,ratio,ratio_min,ratio_max\n"
            .to_owned();
    for p in points {
        let c = p.to_chart();
        let _ = writeln!(
            text,
            "{},{},{},{},{},{:.2},{:.2},{},{:.3},{:.3},{:.3}",
            p.mpi,
            p.program,
            p.hosts,
            p.bytes,
            u8::from(p.folded),
            c.mpi.median,
            c.foldback.median,
            p.unit,
            c.ratio.median,
            c.ratio.spread.0,
            c.ratio.spread.1
        );
    }
    text
}

pub fn markdown(points: &[Point], machine: &[String]) -> String {
    let mut text = String::from(
        "What the OSU micro-benchmarks print, their first value: median over rounds. Ratio: median of \
         the rounds' ratios (least to greatest). *: no call of the program's collective was folded. \
         Whether a single size was is not to be seen: sizes beyond the limits go to MPI both ways.\n\n\
         | program | MPI | hosts | bytes | without | foldback | ratio |\n\
         |---|---|---:|---:|---:|---:|---:|\n",
    );
    for p in points {
        let c = p.to_chart();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {}{} | {} | {} | **{:.2}** ({:.2} to {:.2}) |",
            p.program,
            p.mpi,
            p.hosts,
            if p.bytes == 0 { "-".to_owned() } else { p.bytes.to_string() },
            if p.folded { "" } else { " *" },
            microseconds(c.mpi.median),
            microseconds(c.foldback.median),
            c.ratio.median,
            c.ratio.spread.0,
            c.ratio.spread.1
        );
    }
    text.push('\n');
    for line in machine {
        let _ = writeln!(text, "* {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_both_ways_and_the_spread() {
        let mut point = Point::new("openmpi4", "osu_bcast", 2, 64, "us");
        for (round, without, with) in [(0, 10.0, 5.0), (1, 12.0, 3.0), (2, 9.0, 3.0)] {
            point.add(round, Mode::Mpi, without, false);
            point.add(round, Mode::Foldback, with, true);
        }
        let table = markdown(&[point.clone()], &["a machine".into()]);
        let row = "| osu_bcast | openmpi4 | 2 | 64 | 10.0 | 3.00 | **3.00** (2.00 to 4.00) |";
        assert!(table.contains(row), "{table}");
        let text = csv(&[point]);
        assert!(text.ends_with("openmpi4,osu_bcast,2,64,1,10.00,3.00,us,3.000,2.000,4.000\n"));
    }

    #[test]
    fn a_program_that_folds_nothing_is_marked_and_half_a_round_is_none() {
        let mut point = Point::new("openmpi4", "osu_barrier", 2, 0, "us");
        point.add(0, Mode::Foldback, 5.0, false);
        assert!(!point.is_complete());
        point.add(0, Mode::Mpi, 5.0, false);
        assert!(point.is_complete());
        assert!(markdown(&[point], &[]).contains("| - * |"));
    }
}
