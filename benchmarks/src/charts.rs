//! The charts: latency, ratio and overlap over message size, cost over hosts.

use std::collections::BTreeSet;

use anyhow::Result;
use plotters::prelude::{IntoLogRange, SeriesLabelPosition};

use super::chart::{Dot, Series, Style, Text, capitalised, draw, log_range, readable_bytes};
use super::growth::{Fit, Growth};
use super::latency::{Point, Way};
use super::overlap;
use super::samples::{median, range};

/// Most sizes in a chart of growth: more cannot be told apart.
const MOST_SIZES: usize = 4;

/// For each number of hosts the dots of its points, if any.
fn by_hosts<P>(
    points: &[&P],
    hosts: fn(&P) -> u64,
    series: impl Fn(usize, u64, &[&P]) -> Vec<Series>,
) -> Vec<Series> {
    let all: BTreeSet<u64> = points.iter().map(|point| hosts(point)).collect();
    let of = |(colour, n): (usize, u64)| {
        let mine: Vec<&P> = points.iter().copied().filter(|point| hosts(point) == n).collect();
        series(colour, n, &mine)
    };
    all.into_iter().enumerate().flat_map(of).collect()
}

/// The two ways side by side, for each number of hosts.
fn both_ways<P>(
    points: &[&P],
    mpi: &str,
    hosts: fn(&P) -> u64,
    place: fn(&P) -> u64,
    values: fn(&P) -> [Rounds; 2],
    folded: fn(&P) -> bool,
) -> Vec<Series> {
    by_hosts(points, hosts, |colour, n, mine| {
        let dots = |way: usize| {
            let dot = |p: &&P| Dot { left: way == 1 && !folded(p), ..values(p)[way].dot(place(p)) };
            mine.iter().map(dot).collect()
        };
        let with = format!("foldback, {n} hosts");
        vec![
            Series { label: with, colour, style: Style::Solid, dots: dots(1) },
            Series {
                label: format!("{mpi}, {n} hosts"),
                colour,
                style: Style::Dashed,
                dots: dots(0),
            },
        ]
    })
}

/// The result of several rounds.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub median: f64,
    /// The least and the greatest.
    pub spread: (f64, f64),
}

impl Rounds {
    /// The median and the range; NaN if there are no values.
    pub fn of(values: &[f64]) -> Self {
        let nothing = (f64::NAN, f64::NAN);
        Self {
            median: median(values.to_vec()).unwrap_or(f64::NAN),
            spread: range(values).unwrap_or(nothing),
        }
    }

    fn dot(&self, x: u64) -> Dot {
        Dot { x: x as f64, y: self.median, spread: Some(self.spread), left: false }
    }
}

impl From<&Way> for Rounds {
    fn from(way: &Way) -> Self {
        Self { median: way.mean, spread: way.spread }
    }
}

impl From<&overlap::Measured> for Rounds {
    fn from(measured: &overlap::Measured) -> Self {
        let [median, least, most] = measured.overlap;
        Self { median, spread: (least, most) }
    }
}

/// Both ways at one size and number of hosts.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    pub hosts: u64,
    pub bytes: u64,
    /// Not left to MPI.
    pub folded: bool,
    pub mpi: Rounds,
    pub foldback: Rounds,
    pub ratio: Rounds,
}

impl From<&&Point> for Compared {
    fn from(p: &&Point) -> Self {
        Self {
            hosts: p.hosts,
            bytes: p.bytes,
            folded: p.folded,
            mpi: (&p.mpi).into(),
            foldback: (&p.foldback).into(),
            ratio: Rounds { median: p.ratio, spread: (p.ratio_min, p.ratio_max) },
        }
    }
}

/// An SVG of the latency of one collective, or none if fewer than two sizes were measured.
pub fn latency(
    points: &[&Point],
    collective: &str,
    mpi: &str,
    note: &str,
) -> Result<Option<String>> {
    let points: Vec<Compared> = points.iter().map(Compared::from).collect();
    latency_of(&points, &format!("MPI_{}", capitalised(collective)), "microseconds", mpi, note)
}

/// An SVG of anything that takes time, in the same form.
pub fn latency_of(
    points: &[Compared],
    title: &str,
    unit: &str,
    mpi: &str,
    note: &str,
) -> Result<Option<String>> {
    let points: Vec<&Compared> = points.iter().collect();
    let values = |p: &Compared| [p.mpi, p.foldback];
    let series = both_ways(&points, mpi, |p| p.hosts, |p| p.bytes, values, |p| p.folded);
    let y = format!("mean latency, {unit} (bars: all rounds)");
    let text = Text::over_size(title, note, &y, SeriesLabelPosition::UpperLeft);
    draw(&series, &text, log_range(&series).log_scale().base(2.0))
}

/// An SVG of the ratio, with its least and greatest value.
pub fn ratio(points: &[&Point], collective: &str, mpi: &str, note: &str) -> Result<Option<String>> {
    let points: Vec<Compared> = points.iter().map(Compared::from).collect();
    ratio_of(&points, &format!("MPI_{}: {mpi} / foldback", capitalised(collective)), note)
}

/// A chart of ratios whose lines have names of their own.
pub fn ratio_of(points: &[Compared], title: &str, note: &str) -> Result<Option<String>> {
    let points: Vec<&Compared> = points.iter().collect();
    let dot = |p: &&Compared| Dot { left: !p.folded, ..p.ratio.dot(p.bytes) };
    let mut series = by_hosts(
        &points,
        |p| p.hosts,
        |colour, hosts, mine| {
            let dots = mine.iter().map(dot).collect();
            vec![Series { label: format!("{hosts} hosts"), colour, style: Style::Solid, dots }]
        },
    );
    let sizes = || points.iter().map(|point| point.bytes);
    if let (Some(least), Some(most)) = (sizes().min(), sizes().max()) {
        let dot = |x: u64| Dot { x: x as f64, y: 1.0, spread: None, left: false };
        let dots = vec![dot(least), dot(most)];
        let label = "equal".to_owned();
        series.push(Series { label, colour: series.len(), style: Style::Line, dots });
    }
    let most = points.iter().map(|point| point.ratio.spread.1).fold(1.0, f64::max);
    let y = "ratio of latencies (bars: all rounds)";
    draw(
        &series,
        &Text::over_size(title, note, y, SeriesLabelPosition::UpperRight),
        0.0..most * 1.1,
    )
}

/// An SVG of the overlap.
pub fn overlap(
    points: &[&overlap::Point],
    collective: &str,
    mpi: &str,
    note: &str,
) -> Result<Option<String>> {
    let values = |p: &overlap::Point| [(&p.mpi).into(), (&p.foldback).into()];
    let series = both_ways(points, mpi, |p| p.hosts, |p| p.bytes, values, |p| p.folded);
    let title = format!("MPI_{}", capitalised(collective));
    let y = "overlap, percent (bars: all rounds)";
    let text = Text::over_size(&title, note, y, SeriesLabelPosition::MiddleLeft);
    draw(&series, &text, 0.0..105.0)
}

/// An SVG of latency over the number of hosts, with the fitted curve; or none if there are too few.
pub fn growth(
    growths: &[Growth<'_>],
    collective: &str,
    mpi: &str,
    note: &str,
) -> Result<Option<String>> {
    let mine: Vec<_> =
        growths.iter().filter(|g| g.collective == collective && g.mpi == mpi).collect();
    // The smallest, the largest, and sizes evenly between.
    let chosen: Vec<_> = match mine.len() {
        n if n <= MOST_SIZES => mine,
        n => (0..MOST_SIZES).map(|i| mine[i * (n - 1) / (MOST_SIZES - 1)]).collect(),
    };
    let mut series = Vec::new();
    for (colour, growth) in chosen.iter().enumerate() {
        let size = readable_bytes(growth.bytes as f64);
        let costs = growth.costs(|way| way.mean);
        for (way, costs) in costs.iter().enumerate() {
            let (name, style) = [(mpi, Style::Dashed), ("foldback", Style::Solid)][way];
            let fit = Fit::of(costs);
            let grows = fit.map_or_else(String::new, |fit| format!(" ~ h^{:.2}", fit.exponent));
            let label =
                if collective == "barrier" { name.to_owned() } else { format!("{name}, {size}") };
            let dot =
                |(&hosts, &y): (&u64, &f64)| Dot { x: hosts as f64, y, spread: None, left: false };
            let dots: Vec<_> = costs.iter().map(dot).collect();
            // Both ways of the only size have colours of their own.
            let colour = if chosen.len() == 1 { way } else { colour };
            let fitted: Vec<_> = fit
                .iter()
                .flat_map(|fit| dots.iter().map(|dot| Dot { y: fit.at(dot.x), ..*dot }))
                .collect();
            series.push(Series { label: label.clone(), colour, style, dots });
            let label = format!("{label}{grows}");
            series.push(Series { label, colour, style: Style::Line, dots: fitted });
        }
    }
    let title = format!("MPI_{} over hosts", capitalised(collective));
    let text = Text::over_hosts(&title, note, "mean latency, microseconds");
    draw(&series, &text, log_range(&series).log_scale().base(2.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::growths;

    const NOTE: &str = "2 CPUs of some kind, a lab, 2026-11-24";

    fn points(hosts: &[u64], sizes: &[u64]) -> Vec<Point> {
        let of = |hosts: &u64| {
            let hosts = *hosts;
            sizes.iter().map(move |&size| Point::example("allreduce", hosts, size, 3.0))
        };
        hosts.iter().flat_map(of).collect()
    }

    fn assert_says(svg: &str, texts: &[&str]) {
        for text in texts {
            assert!(svg.contains(text), "no {text} in the chart");
        }
    }

    #[test]
    fn a_chart_names_both_ways_and_all_hosts() {
        let points = points(&[2, 8], &[4, 1024]);
        let points: Vec<_> = points.iter().collect();
        let svg = latency(&points, "allreduce", "openmpi4", NOTE).unwrap().unwrap();
        assert_says(&svg, &["MPI_Allreduce", "foldback, 8 hosts", "openmpi4, 2 hosts"]);
        let svg = ratio(&points, "allreduce", "openmpi4", NOTE).unwrap().unwrap();
        assert_says(&svg, &["openmpi4 / foldback", "8 hosts", "equal"]);
    }

    #[test]
    fn what_mpi_carries_is_marked_and_where_it_was_measured_is_said() {
        let mut points = points(&[2], &[4, 1024]);
        let draw = |points: &[Point]| {
            let points: Vec<_> = points.iter().collect();
            latency(&points, "allreduce", "openmpi4", NOTE).unwrap().unwrap()
        };
        let all = draw(&points);
        assert_says(&all, &[NOTE, "1 KiB"]);
        assert!(!all.contains("left to MPI"));
        points[1].folded = false;
        assert_says(&draw(&points), &["left to MPI"]);
    }

    #[test]
    fn one_size_makes_no_chart() {
        let points = points(&[2], &[4]);
        let points: Vec<_> = points.iter().collect();
        assert!(latency(&points, "allreduce", "openmpi4", NOTE).unwrap().is_none());
        assert!(ratio(&points, "allreduce", "openmpi4", NOTE).unwrap().is_none());
    }

    #[test]
    fn growth_is_drawn_with_what_was_fitted() {
        let points = points(&[2, 4, 8], &[4, 64, 256, 1024, 4096, 16384]);
        let svg = growth(&growths(&points), "allreduce", "openmpi4", NOTE).unwrap().unwrap();
        assert_says(&svg, &["foldback, 4 B", "openmpi4, 16 KiB", "h^0.00", "hosts"]);
        assert!(growth(&growths(&points), "bcast", "openmpi4", NOTE).unwrap().is_none());
    }
}
