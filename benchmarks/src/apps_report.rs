//! The report of `foldback bench apps`.

use std::fmt::Write;

use anyhow::Result;

use super::apps::{Measured, Of};
use super::apps_run::Program;
use super::apps_timer::Times;
use super::chart::{Dot, HUES, Series, Style, Text, draw};
use super::measure::Folded;
use super::osu_report::Point;
use super::samples::microseconds;

/// A program, an MPI and a number of hosts.
pub struct Row<'a> {
    /// Whole time, both ways.
    point: Point,
    times: Option<&'a Times>,
    folded: Option<&'a Folded>,
}

impl<'a> Row<'a> {
    /// The programs that were measured both ways, by program, then hosts.
    pub fn all(programs: &[Program], measured: &'a Measured) -> Vec<Self> {
        let mut each: Vec<Of> = Vec::new();
        for sample in &measured.samples {
            if !each.contains(&sample.of) {
                each.push(sample.of);
            }
        }
        // In the order measured otherwise.
        each.sort_by_key(|of| (of.program, of.hosts));
        let row = |of: &Of| {
            let name = &programs[of.program].name;
            let mut point = Point::new(of.mpi.name(), name, of.hosts, 0, "s");
            for sample in measured.samples.iter().filter(|sample| sample.of == *of) {
                point.add(sample.round, sample.mode, sample.seconds, true);
            }
            let times = measured.times.iter().find(|(other, _)| other == of);
            let folded = measured.folded.iter().find(|(other, _)| other == of);
            Row { point, times: times.map(|(_, t)| t), folded: folded.map(|(_, f)| f) }
        };
        each.iter().map(row).filter(|row| row.point.is_complete()).collect()
    }
}

pub fn markdown(rows: &[Row<'_>], programs: &[Program], machine: &[String]) -> String {
    let mut text = String::from(
        "Seconds from the launcher's start to its end: medians of the rounds. Ratio: median of the rounds' ratios \
         (least to greatest). Then where the time goes without foldback, in percent, means over ranks: in collectives, \
         in other calls of MPI, between calls of MPI, and before and after (the launcher, MPI_Init, MPI_Finalize). \
         At most: the ratio if collectives took no time. Calls: collective calls of a rank, and which share of \
         all ranks' calls is folded.\n\n\
         | program | MPI | hosts | without | foldback | ratio | collectives | other MPI | computing | start, end | \
         at most | calls | folded |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let (p, c) = (&row.point, row.point.to_chart());
        let _ = write!(
            text,
            "| {} | {} | {} | {} | {} | **{:.2}** ({:.2} to {:.2}) |",
            p.program,
            p.mpi,
            p.hosts,
            microseconds(c.mpi.median),
            microseconds(c.foldback.median),
            c.ratio.median,
            c.ratio.spread.0,
            c.ratio.spread.1,
        );
        match row.times {
            None => text.push_str(" | | | | | |"),
            Some(t) => {
                for part in [t.collectives, t.other, t.computing(), t.around()] {
                    let _ = write!(text, " {:.0} % |", t.percent(part));
                }
                let _ = write!(text, " {:.2} | {:.0} |", t.at_most(), t.calls);
            }
        }
        let share = row.folded.and_then(Folded::percent);
        let _ = writeln!(text, " {} |", share.map_or_else(String::new, |s| format!("{s:.1} %")));
    }
    text.push('\n');
    for program in programs {
        let _ = write!(text, "* {}: {}", program.name, program.what);
        let mut mine = rows.iter().rev().filter(|row| row.point.program == program.name);
        // Of the most hosts.
        if let Some((row, folded)) = mine.find_map(|row| Some((row, row.folded?))) {
            let _ = write!(text, "; to MPI on {} hosts: {}", row.point.hosts, folded.reasons());
        }
        text.push('\n');
    }
    for line in machine {
        let _ = writeln!(text, "* {line}");
    }
    text
}

/// The table, for other tools.
pub fn csv(rows: &[Row<'_>]) -> String {
    let mut text =
        "mpi,program,hosts,without_s,foldback_s,ratio,ratio_min,ratio_max,timed_s,run_s,\
                    collectives_s,other_s,init_finalize_s,at_most,calls,folded_percent\n"
            .to_owned();
    for row in rows {
        let (p, c) = (&row.point, row.point.to_chart());
        let _ = write!(
            text,
            "{},{},{},{:.4},{:.4},{:.3},{:.3},{:.3}",
            p.mpi,
            p.program,
            p.hosts,
            c.mpi.median,
            c.foldback.median,
            c.ratio.median,
            c.ratio.spread.0,
            c.ratio.spread.1
        );
        match row.times {
            None => text.push_str(",,,,,,,"),
            Some(t) => {
                let parts = [t.whole, t.run, t.collectives, t.other, t.ends];
                parts.iter().for_each(|part| text += &format!(",{part:.4}"));
                let _ = write!(text, ",{:.3},{:.1}", t.at_most(), t.calls);
            }
        }
        let share = row.folded.and_then(Folded::percent);
        let _ = writeln!(text, ",{}", share.map_or_else(String::new, |s| format!("{s:.2}")));
    }
    text
}

/// Each timed run.
pub fn samples_csv(programs: &[Program], measured: &Measured) -> String {
    let mut text = "round,mpi,mode,hosts,program,seconds\n".to_owned();
    for s in &measured.samples {
        let (name, mode) = (&programs[s.of.program].name, s.mode.name());
        let of = format!("{},{},{mode},{}", s.round, s.of.mpi, s.of.hosts);
        let _ = writeln!(text, "{of},{name},{:.6}", s.seconds);
    }
    text
}

/// Ratios over hosts, a line for each program; none of one number of hosts.
pub fn chart(rows: &[Row<'_>], mpi: &str, note: &str) -> Result<Option<String>> {
    let mine: Vec<_> = rows.iter().filter(|row| row.point.mpi == mpi).collect();
    let mut series: Vec<Series> = Vec::new();
    for row in &mine {
        let (x, ratio) = (row.point.hosts as f64, row.point.to_chart().ratio);
        let dot = Dot { x, y: ratio.median, spread: Some(ratio.spread), left: false };
        match series.iter_mut().find(|series| series.label == row.point.program) {
            Some(series) => series.dots.push(dot),
            None => {
                let colour = series.len() % HUES;
                let style = if series.len() < HUES { Style::Solid } else { Style::Dashed };
                let label = row.point.program.clone();
                series.push(Series { label, colour, style, dots: vec![dot] });
            }
        }
    }
    let most = series.iter().flat_map(|series| &series.dots).filter_map(|dot| dot.spread);
    let most = most.map(|(_, most)| most).fold(1.0, f64::max);
    let hosts = || mine.iter().map(|row| row.point.hosts as f64);
    let (least, greatest) = (hosts().fold(f64::MAX, f64::min), hosts().fold(0.0, f64::max));
    let dots = [least, greatest].map(|x| Dot { x, y: 1.0, spread: None, left: false }).to_vec();
    let (label, colour) = ("equal".to_owned(), series.len());
    series.push(Series { label, colour, style: Style::Line, dots });
    let title = format!("Whole programs: {mpi} / foldback");
    let text = Text::over_hosts(&title, note, "ratio of whole times (bars: all rounds)");
    // With room for the legend above.
    draw(&series, &text, 0.0..most * 1.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::Sample;
    use crate::mode::Mode;
    use foldback::lab::launch::Mpi;

    fn program() -> Vec<Program> {
        vec![Program::own("a.out", &["a.out".to_owned()])]
    }

    /// Two rounds on each number of hosts: 6 s without, and 3 s and 2 s with foldback.
    fn measured(all: &[u64]) -> Measured {
        let mut measured = Measured::default();
        for &hosts in all {
            let of = Of { program: 0, mpi: Mpi::OpenMpi4, hosts };
            for (round, mode, seconds) in [
                (0, Mode::Mpi, 6.0),
                (0, Mode::Foldback, 3.0),
                (1, Mode::Foldback, 2.0),
                (1, Mode::Mpi, 6.0),
            ] {
                measured.samples.push(Sample { of, round, mode, seconds });
            }
            let line = "run=4 collectives=2 other=1 calls=10 init=0.5 finalize=0.5";
            measured.times.push((of, Times::parse(line, 8.0).unwrap()));
            let stats = r#"{"collectives": [
                {"collective": "Bcast", "form": "Blocking", "reason": null, "calls": 3},
                {"collective": "Bcast", "form": "Blocking", "reason": "datatype", "calls": 1}]}"#;
            measured.folded.push((of, Folded::parse(stats).unwrap()));
        }
        measured
    }

    #[test]
    fn a_row_has_both_times_their_ratio_and_where_the_time_goes() {
        let (programs, measured) = (program(), measured(&[2]));
        let rows = Row::all(&programs, &measured);
        let table = markdown(&rows, &programs, &["a machine".to_owned()]);
        let row = "| a.out | openmpi4 | 2 | 6.00 | 2.50 | **2.50** (2.00 to 3.00) | 25 % | 12 % | \
                   12 % | 50 % | 1.33 | 10 | 75.0 % |";
        assert!(table.contains(row), "{table}");
        assert!(
            table.contains("* a.out: a.out; to MPI on 2 hosts: datatype: 1 calls\n"),
            "{table}"
        );
        let csv = csv(&rows);
        let fields: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(fields, [16, 16], "{csv}");
        assert_eq!(samples_csv(&programs, &measured).lines().count(), 5);
    }

    #[test]
    fn what_failed_before_it_ran_both_ways_has_no_row() {
        let mut measured = measured(&[2]);
        measured.samples.truncate(1);
        assert!(Row::all(&program(), &measured).is_empty());
    }

    #[test]
    fn a_run_without_a_timer_leaves_its_fields_empty() {
        let mut measured = measured(&[2]);
        (measured.times, measured.folded) = (Vec::new(), Vec::new());
        let rows = Row::all(&program(), &measured);
        let table = markdown(&rows, &[], &[]);
        let fields = |line: &str| line.split('|').count();
        let lines: Vec<_> = table.lines().filter(|line| line.starts_with('|')).collect();
        assert!(lines.iter().all(|line| fields(line) == fields(lines[0])), "{table}");
        let csv = csv(&rows);
        assert!(csv.lines().all(|line| line.split(',').count() == 16), "{csv}");
    }

    #[test]
    fn the_chart_has_a_line_for_each_program() {
        let programs = program();
        let svg = |measured: &Measured| {
            chart(&Row::all(&programs, measured), "openmpi4", "a machine").unwrap()
        };
        let drawn = svg(&measured(&[2, 4])).unwrap();
        for text in ["a.out", "equal", "openmpi4 / foldback", "a machine"] {
            assert!(drawn.contains(text), "no {text}");
        }
        assert_eq!(svg(&measured(&[2])), None);
    }
}
