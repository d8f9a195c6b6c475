//! The report of `foldback bench keys`.

use std::fmt::Write;

use anyhow::Result;
use foldback::lab::launch::Mpi;
use plotters::prelude::{IntoLogRange, SeriesLabelPosition};

use super::chart::{Dot, Series, Style, Text, draw, log_range};
use super::keys_samples::{
    ALL, CPU, MEASURED, PLAIN, Problem, SHUFFLE, Samples, Subject, WAYS, WIRE_BYTES, Way,
};
use super::samples::microseconds;

/// One problem on one MPI and number of hosts.
pub struct Row {
    mpi: Mpi,
    hosts: u64,
    ranks: u64,
    problem: Problem,
    different: String,
    /// Medians over rounds, by way in the order of [`WAYS`].
    ways: [[f64; MEASURED.len()]; WAYS.len()],
    /// Of shuffle and of all: plain MPI's time divided by foldback's, to the better of its ways, and to that without
    /// combining.
    to_best: [f64; 2],
    to_uncombined: [f64; 2],
}

/// Summed up, in the order of [`Samples::subjects`].
pub fn rows(samples: &Samples) -> Vec<Row> {
    samples.subjects().iter().filter_map(Row::of).collect()
}

impl Row {
    fn of(subject: &Subject<'_>) -> Option<Self> {
        let mut ways = [[0.0; MEASURED.len()]; WAYS.len()];
        for (values, way) in ways.iter_mut().zip(WAYS) {
            for (column, value) in values.iter_mut().enumerate() {
                *value = subject.median(way, column)?;
            }
        }
        let to = |others: &[Way]| {
            Some([subject.ratio_to(others, SHUFFLE)?, subject.ratio_to(others, ALL)?])
        };
        Some(Self {
            mpi: subject.mpi,
            hosts: subject.hosts,
            ranks: subject.ranks,
            problem: subject.problem.clone(),
            different: subject.different.to_owned(),
            ways,
            to_best: to(&PLAIN)?,
            to_uncombined: to(&[Way::Uncombined])?,
        })
    }

    fn is_of(&self, (mpi, hosts, skew): (Mpi, u64, &str)) -> bool {
        (self.mpi, self.hosts, self.problem.skew.as_str()) == (mpi, hosts, skew)
    }
}

pub fn csv(rows: &[Row]) -> String {
    let mut text = "mpi,skew,hosts,ranks,keys,pairs,different".to_owned();
    for way in WAYS {
        MEASURED.iter().for_each(|column| text += &format!(",{way}_{column}"));
    }
    text += ",shuffle_to_best,all_to_best,shuffle_to_uncombined,all_to_uncombined\n";
    for row in rows {
        let Problem { skew, keys, pairs } = &row.problem;
        let _ = write!(
            text,
            "{},{skew},{},{},{keys},{pairs},{}",
            row.mpi, row.hosts, row.ranks, row.different
        );
        row.ways.iter().flatten().for_each(|value| text += &format!(",{value}"));
        let ratios = row.to_best.iter().chain(&row.to_uncombined);
        ratios.for_each(|ratio| text += &format!(",{ratio:.3}"));
        text.push('\n');
    }
    text
}

pub fn markdown(rows: &[Row], machine: &[String]) -> String {
    let mut text = "# Pairs by key\n\nTimes in milliseconds, on the slowest rank: of the shuffle to the owners with the reduction there, \
                    and of all. Ratios are plain MPI's time divided by foldback's, so above 1 foldback is faster: to \
                    the better way of plain MPI, and to the way that does not combine. CPU time of all ranks, in milliseconds; \
                    bytes that the hosts' interfaces sent, in millions. Medians of rounds.\n"
        .to_owned();
    let mut known = Vec::new();
    for row in rows {
        let of = (row.mpi, row.hosts, row.problem.skew.as_str());
        if known.contains(&of) {
            continue;
        }
        known.push(of);
        let mine: Vec<_> = rows.iter().filter(|row| row.is_of(of)).collect();
        let _ = write!(text, "\n## {}, {} hosts, {}\n", of.0, of.1, of.2);
        times(&mut text, &mine);
        costs(&mut text, &mine);
    }
    text.push('\n');
    machine.iter().for_each(|fact| text += &format!("* {fact}\n"));
    text
}

fn times(text: &mut String, rows: &[&Row]) {
    text.push_str("\n| keys |");
    WAYS.iter().for_each(|way| *text += &format!(" {way}: shuffle | all |"));
    text.push_str(" best / foldback: shuffle | all | uncombined / foldback: shuffle | all |\n");
    let _ = writeln!(text, "|---:|{}", "---:|".repeat(2 * WAYS.len() + 4));
    for row in rows {
        let _ = write!(text, "| {} |", row.problem.keys);
        for values in &row.ways {
            let [shuffle, all] = [SHUFFLE, ALL].map(|column| microseconds(1e3 * values[column]));
            let _ = write!(text, " {shuffle} | {all} |");
        }
        row.to_best.iter().for_each(|ratio| *text += &format!(" **{ratio:.2}** |"));
        row.to_uncombined.iter().for_each(|ratio| *text += &format!(" {ratio:.2} |"));
        text.push('\n');
    }
}

fn costs(text: &mut String, rows: &[&Row]) {
    text.push_str("\n| keys |");
    WAYS.iter().for_each(|way| *text += &format!(" {way}: CPU | bytes |"));
    let _ = writeln!(text, "\n|---:|{}", "---:|".repeat(2 * WAYS.len()));
    for row in rows {
        let _ = write!(text, "| {} |", row.problem.keys);
        for values in &row.ways {
            let (cpu, bytes) = (microseconds(1e3 * values[CPU]), values[WIRE_BYTES] / 1e6);
            let _ = write!(text, " {cpu} | {bytes:.2} |");
        }
        text.push('\n');
    }
}

/// Times over the number of keys: of the shuffle, and dashed of all; none of fewer than two numbers.
pub fn chart(rows: &[Row], of: (Mpi, u64, &str), note: &str) -> Result<Option<String>> {
    let mut series = Vec::new();
    for (colour, way) in WAYS.iter().enumerate() {
        for (what, column, style) in
            [("shuffle", SHUFFLE, Style::Solid), ("all", ALL, Style::Dashed)]
        {
            let mine = rows.iter().filter(|row| row.is_of(of));
            let dot = |row: &Row| Dot {
                x: row.problem.keys as f64,
                y: 1e3 * row.ways[colour][column],
                spread: None,
                left: false,
            };
            let label = match way {
                Way::Foldback => format!("foldback, {what}"),
                plain => format!("plain MPI, {plain}, {what}"),
            };
            series.push(Series { label, colour, style, dots: mine.map(dot).collect() });
        }
    }
    let (_, hosts, skew) = of;
    let title = format!("Pairs reduced by key, {skew}, {hosts} hosts");
    let text = Text {
        title: &title,
        note,
        x: "different keys",
        y: "milliseconds",
        base: 10.0,
        x_label: |keys| format!("{keys}"),
        legend: SeriesLabelPosition::LowerRight,
    };
    draw(&series, &text, log_range(&series).log_scale())
}

#[cfg(test)]
mod tests {
    use super::super::keys_samples::example;
    use super::*;

    #[test]
    fn each_number_of_keys_has_a_row_of_times_and_one_of_costs() {
        let text = markdown(&rows(&example()), &["a machine".to_owned()]);
        for line in [
            "## openmpi4, 4 hosts, uniform",
            "| 10 | 1000 | 2000 | 2500 | 5000 | 16000 | 32000 | **2.50** | **2.50** | 16.00 | 16.00 |",
            "| 1000 | 4000 | 6.00 | 4000 | 6.00 | 4000 | 6.00 |",
            "* a machine",
        ] {
            assert!(text.lines().any(|said| said == line), "no {line:?} in:\n{text}");
        }
        assert_eq!(text.matches("\n## ").count(), 1, "{text}");
    }

    #[test]
    fn numbers_are_for_other_tools_too() {
        let csv = csv(&rows(&example()));
        let columns: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [29; 3]);
        let last = csv.lines().last().unwrap();
        assert!(last.starts_with("openmpi4,uniform,4,4,1000,5000,1000,0.5,1,2,4,50,6000000,"));
        assert!(last.ends_with(",2.500,2.500,16.000,16.000"), "{last}");
    }

    #[test]
    fn a_chart_has_two_lines_for_each_way() {
        let rows = rows(&example());
        let svg = chart(&rows, (Mpi::OpenMpi4, 4, "uniform"), "a machine").unwrap().unwrap();
        for label in ["foldback, shuffle", "plain MPI, combined, all", "plain MPI, uncombined, all"]
        {
            assert!(svg.contains(label), "no {label:?} in the chart");
        }
        assert!(chart(&rows, (Mpi::OpenMpi4, 4, "zipf"), "a machine").unwrap().is_none());
    }
}
