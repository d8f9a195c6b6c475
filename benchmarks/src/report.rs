//! Tables of latencies and costs.

use std::fmt::Write;

use super::chart::{capitalised, readable_bytes};
use super::latency::{Point, Way};
use super::samples::microseconds;
use super::{growth, limits};

/// The summary, for other tools.
pub fn csv(points: &[Point]) -> String {
    let mut text = "mpi,collective,hosts,ranks,bytes,folded".to_owned();
    for mode in ["mpi", "foldback"] {
        let _ = write!(
            text,
            ",{mode}_us,{mode}_min_us,{mode}_median_us,{mode}_p99_us,{mode}_cpu_us,{mode}_frames,\
             {mode}_wire_bytes,{mode}_stream_us"
        );
    }
    text.push_str(",ratio,ratio_min,ratio_max,slowest_ratio,fastest_ratio,stream_ratio\n");
    for p in points {
        let (folded, barrier) = (u8::from(p.folded), p.collective == "barrier");
        let bytes = if barrier { 0 } else { p.bytes };
        let _ =
            write!(text, "{},{},{},{},{bytes},{folded}", p.name, p.collective, p.hosts, p.ranks);
        for way in [&p.mpi, &p.foldback] {
            let Way { mean, min, median, p99, cpu, frames, wire_bytes, stream, .. } = way;
            let _ = write!(
                text,
                ",{mean:.2},{min:.2},{median:.2},{p99:.2},{cpu:.2},{frames:.2},{wire_bytes:.0},\
                 {stream:.2}"
            );
        }
        let _ = writeln!(
            text,
            ",{:.3},{:.3},{:.3},{:.3},{:.3},{:.3}",
            p.ratio, p.ratio_min, p.ratio_max, p.slowest_ratio, p.fastest_ratio, p.stream_ratio
        );
    }
    text
}

/// The summary, for readers: for each MPI latencies, costs and limits, then growth.
pub fn markdown(points: &[Point], machine: &[String]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&point.name.as_str()) {
            names.push(&point.name);
        }
    }
    let several = names.len() > 1;
    let mut text = String::from(LATENCIES);
    if several {
        text.push_str(" To the fastest: by the MPI that was fastest in each round.");
    }
    text.push_str("\n\n");
    for name in &names {
        latencies(&mut text, &of(points, name), name, several);
    }
    text.push_str(COSTS);
    for name in &names {
        costs(&mut text, &of(points, name), name);
    }
    for name in &names {
        if several {
            let _ = writeln!(text, "{name}:\n");
        }
        let _ = writeln!(text, "{}", limits::markdown(&of(points, name)));
    }
    let growth = growth::markdown(points);
    if !growth.is_empty() {
        let _ = writeln!(text, "{growth}");
    }
    for line in machine {
        let _ = writeln!(text, "* {line}");
    }
    text
}

const LATENCIES: &str = "Microseconds as the OSU micro-benchmarks count them, the mean over calls and ranks: median \
     over rounds (in brackets the 99th percentile on the slowest rank). Ratio: median of the \
     rounds' ratios (least to greatest); then the ratio of the median call on the slowest rank, and \
     of calls one behind the other, without a barrier between. Bytes as OSU has them: a rank's part \
     in gathers and scatters, a pair's in Alltoall and halo exchanges; else of the whole vector. \
     *: left to MPI, so the ratio says nothing.";

const COSTS: &str = "What a call costs over all hosts, of calls one behind the other: microseconds of the ranks' CPU \
     time, waiting included; frames that the interfaces sent, and their bytes. \
     benchmarks/latency.c explains what is counted where.\n\n";

fn of<'a>(points: &'a [Point], name: &str) -> Vec<&'a Point> {
    points.iter().filter(|point| point.name == name).collect()
}

/// The first columns of a row.
fn subject(point: &Point) -> String {
    let bytes = match point.collective.as_str() {
        "barrier" => "-".to_owned(),
        _ => point.bytes.to_string(),
    };
    let star = if point.folded { "" } else { " *" };
    format!("| {} | {} | {bytes}{star} |", point.collective, point.hosts)
}

fn latencies(text: &mut String, points: &[&Point], mpi: &str, several: bool) {
    let (head, rule) = if several { (" to the fastest |", "---:|") } else { ("", "") };
    let _ = writeln!(
        text,
        "| collective | hosts | bytes | {mpi} | foldback | ratio | slowest | back to back |{head}"
    );
    let _ = writeln!(text, "|---|---:|---:|---:|---:|---:|---:|---:|{rule}");
    for p in points {
        let _ = write!(
            text,
            "{} {} ({}) | {} ({}) | **{:.2}** ({:.2} to {:.2}) | {:.2} | {:.2} |",
            subject(p),
            microseconds(p.mpi.mean),
            microseconds(p.mpi.p99),
            microseconds(p.foldback.mean),
            microseconds(p.foldback.p99),
            p.ratio,
            p.ratio_min,
            p.ratio_max,
            p.slowest_ratio,
            p.stream_ratio
        );
        if several {
            let _ = write!(text, " {:.2} |", p.fastest_ratio);
        }
        text.push('\n');
    }
    text.push('\n');
}

fn costs(text: &mut String, points: &[&Point], mpi: &str) {
    let columns = "CPU | frames | bytes";
    let _ =
        writeln!(text, "| collective | hosts | bytes | {mpi}: {columns} | foldback: {columns} |");
    let _ = writeln!(text, "|---|---:|---:|{}", "---:|".repeat(6));
    for p in points {
        text.push_str(&subject(p));
        for way in [&p.mpi, &p.foldback] {
            let cpu = microseconds(way.cpu);
            let _ = write!(text, " {cpu} | {:.1} | {:.0} |", way.frames, way.wire_bytes);
        }
        text.push('\n');
    }
    text.push('\n');
}

/// Two sentences to quote, of the first collective on the first MPI and the most hosts: the smallest
/// message's gain, and the sizes left to MPI. None without a gain.
pub fn conclusion(points: &[Point]) -> Option<String> {
    let first = points.first()?;
    let same = |p: &&Point| p.name == first.name && p.collective == first.collective;
    let hosts = points.iter().filter(same).map(|p| p.hosts).max()?;
    let mut mine: Vec<&Point> = points.iter().filter(same).filter(|p| p.hosts == hosts).collect();
    mine.sort_by_key(|p| p.bytes);
    let least = mine.first().filter(|p| p.folded && p.ratio > 1.0)?;
    let call = match least.collective.as_str() {
        "barrier" => "an MPI_Barrier".to_owned(),
        name => format!("MPI_{} of {}", capitalised(name), readable_bytes(least.bytes as f64)),
    };
    let gain = format!(
        "Between {hosts} hosts of this lab, {call} takes {} µs with foldback and {} with {} alone: \
         {:.1} times as fast ({:.1} to {:.1} over the rounds).",
        microseconds(least.foldback.mean),
        microseconds(least.mpi.mean),
        least.name,
        least.ratio,
        least.ratio_min,
        least.ratio_max,
    );
    let left: Vec<_> =
        mine.iter().filter(|p| !p.folded).map(|p| readable_bytes(p.bytes as f64)).collect();
    let rest = if left.is_empty() {
        "foldback carries all sizes that were measured.".to_owned()
    } else {
        format!(
            "Of the sizes measured the MPI itself carries {}, as without foldback.",
            left.join(", ")
        )
    };
    Some(format!("{gain} {rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(microseconds(2.104), "2.10");
        assert_eq!(microseconds(26.14), "26.1");
        assert_eq!(microseconds(1234.5), "1234");
    }

    #[test]
    fn sizes_left_to_mpi_are_marked() {
        let mut point = Point::example("bcast", 2, 8, 1.0);
        assert!(markdown(&[point.clone()], &[]).contains("| bcast | 2 | 8 |"));
        point.folded = false;
        assert!(markdown(&[point], &[]).contains("| bcast | 2 | 8 * |"));
    }

    #[test]
    fn the_conclusion_is_of_the_smallest_message_and_what_is_left_to_mpi() {
        let mut points = [
            Point::example("allreduce", 2, 4, 9.0),
            Point::example("allreduce", 4, 65536, 1.0),
            Point::example("allreduce", 4, 8, 2.5),
            Point::example("bcast", 8, 4, 7.0),
        ];
        let all = conclusion(&points).unwrap();
        assert!(all.contains("4 hosts") && all.contains("of 8 B takes 32.0 µs"), "{all}");
        assert!(all.contains("80.0 with openmpi4 alone: 2.5 times as fast"), "{all}");
        assert!(all.ends_with("foldback carries all sizes that were measured."), "{all}");
        points[1].folded = false;
        let left = conclusion(&points).unwrap();
        assert!(left.ends_with("the MPI itself carries 64 KiB, as without foldback."), "{left}");
        points[2].ratio = 0.9;
        assert_eq!(conclusion(&points), None);
    }

    #[test]
    fn several_mpis_have_a_table_each() {
        let mut other = Point::example("bcast", 2, 8, 1.0);
        other.name = "mpich4".to_owned();
        other.fastest_ratio = 0.25;
        let table = markdown(&[Point::example("bcast", 2, 8, 1.0), other], &[]);
        assert!(
            table.contains("| openmpi4 | foldback |") && table.contains("| mpich4 | foldback |")
        );
        assert!(table.contains("(1.00 to 1.00) | 1.00 | 1.00 | 0.25 |"), "{table}");
    }

    #[test]
    fn the_csv_has_as_many_fields_as_names() {
        let text = csv(&[Point::example("bcast", 2, 8, 1.0)]);
        let fields: Vec<_> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(fields, [28, 28]);
    }
}
