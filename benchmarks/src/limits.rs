//! The sizes up to which foldback is not slower. The limits (`MAX_BYTES` in `src/config/mod.rs`)
//! follow them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::latency::Point;
use super::samples::largest_buffer;

/// The size from which foldback is slower, for one collective and number of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// It is slower even at the smallest size.
    Never,
    /// Up to this size, and not at the next that was measured.
    To(u64),
    /// Somewhere behind this size, the largest that was measured and folded.
    Beyond(u64),
}

impl Reach {
    /// Of points by size.
    fn of(points: &BTreeMap<u64, &Point>) -> Self {
        let mut reach = Self::Never;
        for (&bytes, point) in points {
            if !point.folded || point.ratio < 1.0 {
                return match reach {
                    Self::To(before) if !point.folded => Self::Beyond(before),
                    other => other,
                };
            }
            reach = Self::To(bytes);
        }
        match reach {
            Self::To(last) => Self::Beyond(last),
            other => other,
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Never => 0,
            Self::To(bytes) | Self::Beyond(bytes) => bytes,
        }
    }
}

/// A table of them, in Markdown; of one MPI.
pub fn markdown(points: &[&Point]) -> String {
    let hosts: BTreeSet<u64> = points.iter().map(|point| point.hosts).collect();
    let mut order: Vec<&str> = Vec::new();
    for point in points {
        if !order.contains(&point.collective.as_str()) {
            order.push(&point.collective);
        }
    }
    let mut text = String::from(
        "Largest size at which foldback is not slower, nor at a smaller one (ratio of at least 1; ≥: \
         nothing larger was measured, or folded). Limit: the same for all of these numbers of hosts, as \
         FOLDBACK_MAX_BYTES counts.\n\n| collective |",
    );
    for hosts in &hosts {
        let _ = write!(text, " {hosts} hosts |");
    }
    let _ = writeln!(text, " limit |\n|---|{}---:|", "---:|".repeat(hosts.len()));
    for collective in order {
        let _ = write!(text, "| {collective} |");
        let mut limit = u64::MAX;
        for &hosts in &hosts {
            let of = points.iter().filter(|p| p.collective == collective && p.hosts == hosts);
            let of: BTreeMap<u64, &Point> = of.map(|point| (point.bytes, *point)).collect();
            let reach = Reach::of(&of);
            let ranks = of.values().next().map_or(hosts, |point| point.ranks);
            limit = limit.min(largest_buffer(collective, reach.bytes(), ranks));
            let _ = match reach {
                Reach::Never => write!(text, " – |"),
                _ if collective == "barrier" => write!(text, " yes |"),
                Reach::To(bytes) => write!(text, " {bytes} |"),
                Reach::Beyond(bytes) => write!(text, " ≥ {bytes} |"),
            };
        }
        let _ = match collective {
            "barrier" => writeln!(text, " |"),
            _ => writeln!(text, " {limit} |"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(points: &[Point]) -> Reach {
        Reach::of(&points.iter().map(|point| (point.bytes, point)).collect())
    }

    #[test]
    fn the_reach_ends_at_the_first_size_that_is_slower() {
        let point = |bytes, ratio| Point::example("scan", 2, bytes, ratio);
        assert_eq!(reach(&[point(4, 2.0), point(8, 0.9), point(16, 1.5)]), Reach::To(4));
        assert_eq!(reach(&[point(4, 0.9), point(8, 2.0)]), Reach::Never);
        assert_eq!(reach(&[point(4, 2.0), point(8, 1.0)]), Reach::Beyond(8));
    }

    #[test]
    fn sizes_left_to_mpi_say_nothing() {
        let mut left = Point::example("scan", 2, 8, 1.1);
        left.folded = false;
        assert_eq!(reach(&[Point::example("scan", 2, 4, 2.0), left]), Reach::Beyond(4));
    }

    #[test]
    fn the_limit_serves_all_numbers_of_hosts() {
        let points = [
            Point::example("allgather", 2, 4, 2.0),
            Point::example("allgather", 2, 1400, 0.5),
            Point::example("allgather", 4, 4, 2.0),
        ];
        let points: Vec<_> = points.iter().collect();
        assert!(markdown(&points).ends_with("| allgather | 4 | ≥ 4 | 8 |\n"));
    }
}
