//! Tables of latencies.

use std::fmt::Write;

use super::latency::Point;
use super::limits;

/// The summary, for other tools.
pub fn csv(points: &[Point]) -> String {
    let mut text = "collective,hosts,bytes,folded,mpi_us,foldback_us,mpi_p99_us,foldback_p99_us,\
                    ratio,ratio_min,ratio_max,slowest_ratio\n"
        .to_owned();
    for p in points {
        let _ = writeln!(
            text,
            "{},{},{},{},{:.2},{:.2},{:.2},{:.2},{:.3},{:.3},{:.3},{:.3}",
            p.collective,
            p.hosts,
            p.bytes,
            u8::from(p.folded),
            p.mpi,
            p.foldback,
            p.mpi_p99,
            p.foldback_p99,
            p.ratio,
            p.ratio_min,
            p.ratio_max,
            p.slowest_ratio
        );
    }
    text
}

/// The summary, for readers.
pub fn markdown(points: &[Point], machine: &[String], mpi: &str) -> String {
    let mut text = String::new();
    text.push_str(
        "Microseconds as the OSU micro-benchmarks count them, the mean over calls and ranks: median \
         over rounds (in brackets the 99th percentile on the slowest rank). Ratio: median of the \
         rounds' ratios (least to greatest); then that of the median call on the slowest rank. Bytes \
         as OSU has them: what a rank sends (Scatter: gets) in gathers, and sends to each in \
         Alltoall; else of the whole vector. *: left to MPI, so the ratio says nothing.\n\n",
    );
    let _ = writeln!(text, "| collective | hosts | bytes | {mpi} | foldback | ratio | slowest |");
    let _ = writeln!(text, "|---|---:|---:|---:|---:|---:|---:|");
    for p in points {
        let _ = writeln!(
            text,
            "| {} | {} | {}{} | {} ({}) | {} ({}) | **{:.2}** ({:.2} to {:.2}) | {:.2} |",
            p.collective,
            p.hosts,
            if p.collective == "barrier" { "-".to_owned() } else { p.bytes.to_string() },
            if p.folded { "" } else { " *" },
            microseconds(p.mpi),
            microseconds(p.mpi_p99),
            microseconds(p.foldback),
            microseconds(p.foldback_p99),
            p.ratio,
            p.ratio_min,
            p.ratio_max,
            p.slowest_ratio
        );
    }
    let _ = writeln!(text, "\n{}", limits::markdown(points));
    for line in machine {
        let _ = writeln!(text, "* {line}");
    }
    text
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

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(microseconds(2.104), "2.10");
        assert_eq!(microseconds(26.14), "26.1");
        assert_eq!(microseconds(1234.5), "1234");
    }

    #[test]
    fn sizes_left_to_mpi_are_marked() {
        let mut point = Point::example("bcast", 2, 8, 1.0);
        assert!(markdown(&[point.clone()], &[], "openmpi4").contains("| bcast | 2 | 8 |"));
        point.folded = false;
        assert!(markdown(&[point], &[], "openmpi4").contains("| bcast | 2 | 8 * |"));
    }
}
