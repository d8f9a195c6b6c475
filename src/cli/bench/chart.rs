//! Charts: latency over message size, both axes logarithmic.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::series::DashedLineSeries;

use super::samples::Point;

const SIZE: (u32, u32) = (800, 500);
/// Told apart also by those who see no red or no green (Okabe and Ito).
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
];

/// An SVG of one collective, or none if fewer than two sizes were measured.
pub fn draw(points: &[Point], collective: &str, mpi: &str) -> Result<Option<String>> {
    let points: Vec<&Point> = points.iter().filter(|p| p.collective == collective).collect();
    let sizes: BTreeSet<u64> = points.iter().map(|p| p.bytes).collect();
    if sizes.len() < 2 {
        return Ok(None);
    }
    let mut svg = String::new();
    draw_into(&mut svg, &points, collective, mpi)
        .map_err(|error| anyhow!("cannot draw the chart of {collective}: {error}"))?;
    Ok(Some(svg))
}

type DrawResult = Result<(), Box<dyn std::error::Error>>;

fn draw_into(svg: &mut String, points: &[&Point], collective: &str, mpi: &str) -> DrawResult {
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (x_low, x_high) = range(&mut points.iter().map(|p| p.bytes as f64));
    let (y_low, y_high) = range(&mut points.iter().flat_map(|p| [p.mpi, p.foldback]));

    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("MPI_{}", capitalised(collective)), ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(
            (x_low * 0.8..x_high * 1.25).log_scale().base(4.0),
            (y_low * 0.7..y_high * 1.4).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("message size")
        .y_desc("mean latency, microseconds")
        .x_label_formatter(&|bytes| readable_bytes(*bytes))
        .y_label_formatter(&|time| format!("{time}"))
        .light_line_style(WHITE)
        .draw()?;

    let hosts: BTreeSet<u64> = points.iter().map(|p| p.hosts).collect();
    for (&hosts, &colour) in hosts.iter().zip(COLOURS.iter().cycle()) {
        let of = |time: fn(&Point) -> f64| -> Vec<(f64, f64)> {
            let mine = points.iter().filter(|p| p.hosts == hosts);
            mine.map(|p| (p.bytes as f64, time(p))).collect()
        };
        let (with, without) = (of(|p| p.foldback), of(|p| p.mpi));
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
        .position(SeriesLabelPosition::UpperLeft)
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

    fn point(bytes: u64, hosts: u64) -> Point {
        Point {
            collective: "allreduce".into(),
            bytes,
            hosts,
            mpi: 10.0 * bytes as f64,
            foldback: 3.0 * bytes as f64,
            mpi_p99: 0.0,
            foldback_p99: 0.0,
            ratio: 1.0,
            ratio_min: 1.0,
            ratio_max: 1.0,
            slowest_ratio: 1.0,
        }
    }

    #[test]
    fn a_chart_names_both_ways_and_all_hosts() {
        let points = [point(4, 2), point(1024, 2), point(4, 8), point(1024, 8)];
        let svg = draw(&points, "allreduce", "openmpi4").unwrap().unwrap();
        for text in ["MPI_Allreduce", "foldback, 8 hosts", "openmpi4, 2 hosts"] {
            assert!(svg.contains(text), "no {text} in the chart");
        }
    }

    #[test]
    fn one_size_makes_no_chart_and_sizes_are_readable() {
        assert_eq!(readable_bytes(65536.0), "64 KiB");
        assert!(draw(&[point(4, 2)], "allreduce", "openmpi4").unwrap().is_none());
    }
}
