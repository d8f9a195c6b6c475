//! Charts: latency over message size, both axes logarithmic; and overlap.

use std::collections::BTreeSet;
use std::error::Error;

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::series::DashedLineSeries;

use super::latency;
use super::overlap;

const SIZE: (u32, u32) = (800, 500);
/// Told apart also by those who see no red or no green (Okabe and Ito).
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
];

/// One number of hosts at one size.
struct Dot {
    hosts: u64,
    bytes: u64,
    mpi: f64,
    foldback: f64,
}

/// What a chart says besides its dots.
struct Text<'a> {
    collective: &'a str,
    mpi: &'a str,
    y: &'a str,
    legend: SeriesLabelPosition,
}

/// An SVG of the latency of one collective, or none if fewer than two sizes were measured.
pub fn latency(points: &[latency::Point], collective: &str, mpi: &str) -> Result<Option<String>> {
    let of = points.iter().filter(|point| point.collective == collective);
    let dots: Vec<Dot> = of
        .map(|p| Dot { hosts: p.hosts, bytes: p.bytes, mpi: p.mpi, foldback: p.foldback })
        .collect();
    let low = dots.iter().map(|dot| dot.mpi.min(dot.foldback)).fold(f64::MAX, f64::min);
    let high = dots.iter().map(|dot| dot.mpi.max(dot.foldback)).fold(f64::MIN, f64::max);
    let y = "mean latency, microseconds";
    let text = Text { collective, mpi, y, legend: SeriesLabelPosition::UpperLeft };
    draw(&dots, &text, (low * 0.7..high * 1.4).log_scale())
}

/// Likewise of its overlap.
pub fn overlap(points: &[overlap::Point], collective: &str, mpi: &str) -> Result<Option<String>> {
    let of = points.iter().filter(|point| point.collective == collective);
    let dot = |p: &overlap::Point| {
        let (mpi, foldback) = (p.mpi.overlap[0], p.foldback.overlap[0]);
        Dot { hosts: p.hosts, bytes: p.bytes, mpi, foldback }
    };
    let dots: Vec<Dot> = of.map(dot).collect();
    let text =
        Text { collective, mpi, y: "overlap, percent", legend: SeriesLabelPosition::MiddleLeft };
    draw(&dots, &text, 0.0..105.0)
}

fn draw<Y>(dots: &[Dot], text: &Text<'_>, y: Y) -> Result<Option<String>>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let sizes: BTreeSet<u64> = dots.iter().map(|dot| dot.bytes).collect();
    let (Some(least), Some(most), 2..) = (sizes.first(), sizes.last(), sizes.len()) else {
        return Ok(None);
    };
    let x = *least as f64 * 0.8..*most as f64 * 1.25;
    let mut svg = String::new();
    draw_into(&mut svg, dots, text, x, y)
        .map_err(|error| anyhow!("cannot draw the chart of {}: {error}", text.collective))?;
    Ok(Some(svg))
}

fn draw_into<Y>(
    svg: &mut String,
    dots: &[Dot],
    text: &Text<'_>,
    x: std::ops::Range<f64>,
    y: Y,
) -> Result<(), Box<dyn Error>>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("MPI_{}", capitalised(text.collective)), ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(x.log_scale().base(4.0), y)?;
    chart
        .configure_mesh()
        .x_desc("message size")
        .y_desc(text.y)
        .x_label_formatter(&|bytes| readable_bytes(*bytes))
        .y_label_formatter(&|value| format!("{value}"))
        .light_line_style(WHITE)
        .draw()?;

    let mpi = text.mpi;
    let hosts: BTreeSet<u64> = dots.iter().map(|dot| dot.hosts).collect();
    for (&hosts, &colour) in hosts.iter().zip(COLOURS.iter().cycle()) {
        let of = |value: fn(&Dot) -> f64| -> Vec<(f64, f64)> {
            let mine = dots.iter().filter(|dot| dot.hosts == hosts);
            mine.map(|dot| (dot.bytes as f64, value(dot))).collect()
        };
        let (with, without) = (of(|dot| dot.foldback), of(|dot| dot.mpi));
        chart.draw_series(with.iter().map(|&at| Circle::new(at, 3, colour.filled())))?;
        chart.draw_series(without.iter().map(|&at| Circle::new(at, 3, colour)))?;
        chart
            .draw_series(LineSeries::new(with, colour.stroke_width(2)))?
            .label(format!("foldback, {hosts} hosts"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
        chart
            .draw_series(DashedLineSeries::new(without, 6, 4, colour.stroke_width(1)))?
            .label(format!("{mpi}, {hosts} hosts"))
            .legend(move |(x, y)| Circle::new((x + 10, y), 3, colour));
    }
    chart
        .configure_series_labels()
        .position(text.legend.clone())
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE.mix(0.9))
        .draw()?;
    area.present()?;
    drop(chart);
    Ok(())
}

fn capitalised(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn readable_bytes(bytes: f64) -> String {
    match bytes {
        b if b >= 1024.0 * 1024.0 => format!("{} MiB", b / 1024.0 / 1024.0),
        b if b >= 1024.0 => format!("{} KiB", b / 1024.0),
        b => format!("{b} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(hosts: u64, bytes: u64) -> latency::Point {
        latency::Point::example("allreduce", hosts, bytes, 3.0)
    }

    #[test]
    fn a_chart_names_both_ways_and_all_hosts() {
        let points = [point(2, 4), point(2, 1024), point(8, 4), point(8, 1024)];
        let svg = latency(&points, "allreduce", "openmpi4").unwrap().unwrap();
        for text in ["MPI_Allreduce", "foldback, 8 hosts", "openmpi4, 2 hosts"] {
            assert!(svg.contains(text), "no {text} in the chart");
        }
    }

    #[test]
    fn one_size_makes_no_chart_and_sizes_are_readable() {
        assert_eq!(readable_bytes(65536.0), "64 KiB");
        assert!(latency(&[point(2, 4)], "allreduce", "openmpi4").unwrap().is_none());
    }
}
