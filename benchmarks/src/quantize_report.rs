//! The report of `foldback bench quantize`.

use std::fmt::Write;

use anyhow::Result;
use plotters::prelude::{IntoLogRange, SeriesLabelPosition};

use super::chart::{Dot, Series, Style, Text, draw, log_range, readable_bytes};
use super::latency::Point;
use super::samples::microseconds;

/// One way to quantize, at one size and number of hosts, on one MPI.
pub struct Row {
    /// The value of `FOLDBACK_QUANTIZE`.
    pub mode: String,
    pub point: Point,
    /// Mean and greatest distance from the exact sums of numbers up to 1, with foldback and without.
    pub error: Option<[f64; 2]>,
    pub mpi_error: Option<[f64; 2]>,
}

impl Row {
    /// Time divided by the fastest MPI's time.
    fn to_fastest(&self) -> f64 {
        1.0 / self.point.fastest_ratio
    }

    fn to_same(&self) -> f64 {
        1.0 / self.point.ratio
    }
}

/// The distinct values, in the order of their first appearance.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut known = Vec::new();
    for one in all {
        if !known.contains(&one) {
            known.push(one);
        }
    }
    known
}

pub fn csv(rows: &[Row]) -> String {
    let mut text =
        "mpi,mode,hosts,ranks,bytes,mpi_us,foldback_us,to_same,to_fastest,mpi_wire_bytes,\
                    wire_bytes,mpi_mean_error,mpi_max_error,mean_error,max_error\n"
            .to_owned();
    for row in rows {
        let Row { mode, point: p, .. } = row;
        let _ = write!(
            text,
            "{},\"{mode}\",{},{},{},{:.2},{:.2},{:.3},{:.3},{:.0},{:.0}",
            p.name,
            p.hosts,
            p.ranks,
            p.bytes,
            p.mpi.mean,
            p.foldback.mean,
            row.to_same(),
            row.to_fastest(),
            p.mpi.wire_bytes,
            p.foldback.wire_bytes
        );
        for error in [row.mpi_error, row.error] {
            let [mean, most] = error.unwrap_or([f64::NAN; 2]);
            let _ = write!(text, ",{mean:e},{most:e}");
        }
        text.push('\n');
    }
    text
}

/// A table with a row for each size and a column for each mode.
fn table(text: &mut String, rows: &[&Row], first: &str, cell: impl Fn(&Row) -> [String; 2]) {
    let modes = distinct(rows.iter().map(|row| row.mode.as_str()));
    let _ = write!(text, "\n| {first} | without |");
    modes.iter().for_each(|mode| {
        let _ = write!(text, " {mode} |");
    });
    let _ = writeln!(text, "\n|---|---|{}", "---|".repeat(modes.len()));
    for bytes in distinct(rows.iter().map(|row| row.point.bytes)) {
        let _ = write!(text, "| {} |", readable_bytes(bytes as f64));
        let of_size: Vec<_> = rows.iter().filter(|row| row.point.bytes == bytes).collect();
        let without = of_size.first().map(|row| cell(row)[0].clone()).unwrap_or_default();
        let _ = write!(text, " {without} |");
        for mode in &modes {
            let with = of_size.iter().find(|row| row.mode == *mode);
            let _ = write!(text, " {} |", with.map(|row| cell(row)[1].clone()).unwrap_or_default());
        }
        text.push('\n');
    }
}

pub fn markdown(rows: &[Row], machine: &[String]) -> String {
    let mut text = "# Quantized sums\n\nTime: microseconds of the MPI by itself; of foldback, divided by that of the fastest MPI, and in \
                    brackets by that of the same. Medians of rounds. Errors: of numbers up to 1, the mean and the greatest.\n"
        .to_owned();
    for (mpi, hosts) in distinct(rows.iter().map(|row| (row.point.name.as_str(), row.point.hosts)))
    {
        let is_of = |row: &&Row| row.point.name == mpi && row.point.hosts == hosts;
        let mine: Vec<_> = rows.iter().filter(is_of).collect();
        let _ = write!(text, "\n## {mpi}, {hosts} hosts\n");
        table(&mut text, &mine, "time", |row| {
            let with = format!("{:.2} ({:.2})", row.to_fastest(), row.to_same());
            [microseconds(row.point.mpi.mean), with]
        });
        table(&mut text, &mine, "bytes on the wire, of a call", |row| {
            [row.point.mpi.wire_bytes, row.point.foldback.wire_bytes]
                .map(|bytes| format!("{bytes:.0}"))
        });
        table(&mut text, &mine, "error", |row| {
            [row.mpi_error, row.error].map(|error| {
                error.map_or_else(String::new, |[mean, most]| format!("{mean:.1e}, {most:.1e}"))
            })
        });
    }
    text.push('\n');
    machine.iter().for_each(|fact| text += &format!("* {fact}\n"));
    text
}

/// Time to the fastest MPI's over size, a line for each mode; none of fewer than two sizes.
pub fn chart(rows: &[Row], mpi: &str, hosts: u64, note: &str) -> Result<Option<String>> {
    let mine = || rows.iter().filter(|row| row.point.name == mpi && row.point.hosts == hosts);
    let series: Vec<_> = distinct(mine().map(|row| row.mode.as_str()))
        .into_iter()
        .enumerate()
        .map(|(colour, mode)| Series {
            label: if mode == "off" { "not quantized".to_owned() } else { mode.to_owned() },
            colour,
            style: Style::Solid,
            dots: mine()
                .filter(|row| row.mode == mode)
                .map(|row| Dot {
                    x: row.point.bytes as f64,
                    y: row.to_fastest(),
                    spread: None,
                    left: !row.point.folded,
                })
                .collect(),
        })
        .collect();
    let title = format!("MPI_Allreduce, quantized, {hosts} hosts");
    let y = "time, divided by that of the fastest MPI";
    let text = Text::over_size(&title, note, y, SeriesLabelPosition::UpperRight);
    draw(&series, &text, log_range(&series).log_scale().base(2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let of = |mode: &str, bytes, ratio| Row {
            mode: mode.to_owned(),
            point: Point::example("allreduce", 4, bytes, ratio),
            error: Some([1e-3, 2e-3]),
            mpi_error: None,
        };
        vec![of("off", 1024, 1.0), of("int8,block=64", 1024, 4.0), of("int8,block=64", 4096, 5.0)]
    }

    #[test]
    fn each_mode_has_a_column_and_each_size_a_row() {
        let text = markdown(&rows(), &["a machine".to_owned()]);
        for line in [
            "## openmpi4, 4 hosts",
            "| time | without | off | int8,block=64 |",
            "| 1 KiB | 10240 | 1.00 (1.00) | 0.25 (0.25) |",
            "| 4 KiB | 40960 |  | 0.20 (0.20) |",
            "| 1 KiB |  | 1.0e-3, 2.0e-3 | 1.0e-3, 2.0e-3 |",
            "* a machine",
        ] {
            assert!(text.lines().any(|said| said == line), "no {line:?} in:\n{text}");
        }
    }

    #[test]
    fn numbers_are_for_other_tools_too_and_commas_of_a_mode_are_no_columns() {
        let csv = csv(&rows());
        let last = "openmpi4,\"int8,block=64\",4,4,4096,40960.00,8192.00,0.200,0.200,0,0,NaN,NaN,1e-3,2e-3";
        assert_eq!(csv.lines().last(), Some(last));
    }

    #[test]
    fn a_chart_has_a_line_for_each_mode() {
        let svg = chart(&rows(), "openmpi4", 4, "a machine").unwrap().unwrap();
        assert!(svg.contains("not quantized") && svg.contains("int8,block=64"));
        assert!(chart(&rows(), "openmpi4", 2, "a machine").unwrap().is_none());
    }
}
