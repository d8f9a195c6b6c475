//! How cost grows with the number of hosts: a power of it, fitted.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::latency::{Point, Way};
use super::samples::microseconds;

/// Fewer numbers of hosts say nothing: two lie on every curve.
const LEAST: usize = 3;

/// cost = factor · hosts ^ exponent
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    pub factor: f64,
    pub exponent: f64,
    /// Share of the variation, in logarithms, that it explains: 1 for points that lie on it.
    pub r2: f64,
}

impl Fit {
    /// The least sum of squares, in logarithms. None of fewer than [`LEAST`] different numbers of
    /// hosts, or if a cost is not above 0.
    pub fn of(costs: &BTreeMap<u64, f64>) -> Option<Self> {
        if costs.len() < LEAST || costs.iter().any(|(&hosts, &cost)| hosts == 0 || cost <= 0.0) {
            return None;
        }
        let logs: Vec<(f64, f64)> =
            costs.iter().map(|(&hosts, &cost)| ((hosts as f64).ln(), cost.ln())).collect();
        let n = logs.len() as f64;
        let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / n;
        let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / n;
        let xx: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let xy: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let yy: f64 = logs.iter().map(|(_, y)| (y - mean_y).powi(2)).sum();
        let exponent = xy / xx;
        let left: f64 =
            logs.iter().map(|(x, y)| (y - mean_y - exponent * (x - mean_x)).powi(2)).sum();
        let r2 = if yy > 1e-12 { 1.0 - left / yy } else { 1.0 };
        Some(Self { factor: (mean_y - exponent * mean_x).exp(), exponent, r2 })
    }

    /// The cost at a number of hosts.
    pub fn at(&self, hosts: f64) -> f64 {
        self.factor * hosts.powf(self.exponent)
    }
}

/// One MPI, collective and size over all numbers of hosts.
pub struct Growth<'a> {
    pub mpi: &'a str,
    pub collective: &'a str,
    pub bytes: u64,
    points: Vec<&'a Point>,
}

/// In the order of the points; of those with enough numbers of hosts.
pub fn growths(points: &[Point]) -> Vec<Growth<'_>> {
    let mut growths: Vec<Growth<'_>> = Vec::new();
    for point in points {
        let key = (point.name.as_str(), point.collective.as_str(), point.bytes);
        match growths.iter_mut().find(|g| (g.mpi, g.collective, g.bytes) == key) {
            Some(growth) => growth.points.push(point),
            None => {
                let (mpi, collective, bytes) = key;
                growths.push(Growth { mpi, collective, bytes, points: vec![point] });
            }
        }
    }
    growths.retain(|growth| growth.points.len() >= LEAST);
    growths
}

impl Growth<'_> {
    /// The cost without and with foldback, by hosts.
    pub fn costs(&self, cost: fn(&Way) -> f64) -> [BTreeMap<u64, f64>; 2] {
        let of = |way: fn(&Point) -> &Way| {
            self.points.iter().map(|point| (point.hosts, cost(way(point)))).collect()
        };
        [of(|point| &point.mpi), of(|point| &point.foldback)]
    }
}

/// A cost that grows: its name, its unit, its place.
type Cost = (&'static str, &'static str, fn(&Way) -> f64);
const COSTS: [Cost; 2] = [("latency", "us", |way| way.mean), ("cpu", "us", |way| way.cpu)];

pub fn csv(points: &[Point]) -> String {
    let mut text = "mpi,collective,bytes,cost,unit,mode,factor,exponent,r2\n".to_owned();
    for growth in growths(points) {
        for (name, unit, cost) in COSTS {
            for (mode, costs) in ["mpi", "foldback"].iter().zip(growth.costs(cost)) {
                let Some(fit) = Fit::of(&costs) else { continue };
                let _ = writeln!(
                    text,
                    "{},{},{},{name},{unit},{mode},{:.4},{:.4},{:.4}",
                    growth.mpi, growth.collective, growth.bytes, fit.factor, fit.exponent, fit.r2
                );
            }
        }
    }
    text
}

/// For readers; empty if nothing can be fitted.
pub fn markdown(points: &[Point]) -> String {
    let growths = growths(points);
    if growths.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "Growth with the number of hosts: a · hosts^b, fitted by least squares to the logarithms (r²: \
         how much of the variation it explains). Latency is the mean above, CPU time that of all hosts \
         for a call; microseconds.\n\n\
         | MPI | collective | bytes | latency, MPI | r² | latency, foldback | r² | CPU, MPI | r² | CPU, foldback | r² |\n",
    );
    let _ = writeln!(text, "|---|---|---:|{}", "---:|".repeat(8));
    for growth in growths {
        let _ = write!(text, "| {} | {} | {} |", growth.mpi, growth.collective, growth.bytes);
        for (_, _, cost) in COSTS {
            for costs in growth.costs(cost) {
                let _ = match Fit::of(&costs) {
                    Some(fit) => write!(
                        text,
                        " {} · h^{:.2} | {:.2} |",
                        microseconds(fit.factor),
                        fit.exponent,
                        fit.r2
                    ),
                    None => write!(text, " – | – |"),
                };
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(values: &[(u64, f64)]) -> BTreeMap<u64, f64> {
        values.iter().copied().collect()
    }

    #[test]
    fn points_on_a_power_are_fitted_by_it() {
        let fit = Fit::of(&costs(&[(2, 12.0), (4, 48.0), (8, 192.0), (16, 768.0)])).unwrap();
        assert!((fit.factor - 3.0).abs() < 1e-9 && (fit.exponent - 2.0).abs() < 1e-9, "{fit:?}");
        assert!((fit.r2 - 1.0).abs() < 1e-9);
        assert!((fit.at(32.0) - 3072.0).abs() < 1e-6);
    }

    #[test]
    fn scatter_lowers_r2_and_not_the_mean_growth() {
        let fit = Fit::of(&costs(&[(2, 2.0), (4, 8.0), (8, 8.0)])).unwrap();
        assert!((fit.exponent - 1.0).abs() < 1e-9, "{fit:?}");
        assert!((fit.r2 - 0.75).abs() < 1e-9, "{fit:?}");
    }

    #[test]
    fn what_does_not_grow_has_exponent_0() {
        let fit = Fit::of(&costs(&[(2, 5.0), (4, 5.0), (8, 5.0)])).unwrap();
        assert!(fit.exponent.abs() < 1e-9 && (fit.factor - 5.0).abs() < 1e-9);
        assert!((fit.r2 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn too_few_points_and_zeros_are_not_fitted() {
        assert_eq!(Fit::of(&costs(&[(2, 1.0), (4, 2.0)])), None);
        assert_eq!(Fit::of(&costs(&[(2, 1.0), (4, 0.0), (8, 2.0)])), None);
    }

    #[test]
    fn tables_have_a_row_for_each_size() {
        let points: Vec<_> = [2, 4, 8].map(|hosts| Point::example("bcast", hosts, 4, 2.0)).into();
        assert!(markdown(&points).contains("| openmpi4 | bcast | 4 | 40.0 · h^0.00 | 1.00 |"));
        assert_eq!(csv(&points).lines().count(), 5);
        assert_eq!(markdown(&points[..2]), "");
    }
}
