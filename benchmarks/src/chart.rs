//! Drawing charts: series of dots and lines over a logarithmic axis.

use std::error::Error;

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::element::Text as Label;
use plotters::prelude::*;
use plotters::series::DashedLineSeries;

const SIZE: (u32, u32) = (800, 520);
/// Height of the note below.
const FOOT: u32 = 20;
/// Colours that there are for series.
pub const HUES: usize = 5;
/// Colours that people who see no red or no green can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; HUES] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
];

/// A dot, and the range of its value.
#[derive(Clone, Copy, Debug)]
pub struct Dot {
    pub x: f64,
    pub y: f64,
    pub spread: Option<(f64, f64)>,
    /// The call is left to the real MPI, whatever the series.
    pub left: bool,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Full dots on a line.
    Solid,
    /// Empty dots on a dashed line.
    Dashed,
    /// A thin line without dots.
    Line,
}

/// Dots of one kind.
#[derive(Clone, Debug)]
pub struct Series {
    pub label: String,
    pub colour: usize,
    pub style: Style,
    pub dots: Vec<Dot>,
}

/// The texts of a chart.
pub struct Text<'a> {
    pub title: &'a str,
    /// The machine and the date of the measurement.
    pub note: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// Base of the logarithm that the x axis is ruled by.
    pub base: f64,
    /// Values on the x axis.
    pub x_label: fn(f64) -> String,
    pub legend: SeriesLabelPosition,
}

impl<'a> Text<'a> {
    /// Of a chart over the sizes of messages.
    pub fn over_size(
        title: &'a str,
        note: &'a str,
        y: &'a str,
        legend: SeriesLabelPosition,
    ) -> Self {
        Self { title, note, x: "message size", y, base: 4.0, x_label: readable_bytes, legend }
    }

    /// Of a chart over the number of hosts.
    pub fn over_hosts(title: &'a str, note: &'a str, y: &'a str) -> Self {
        let x_label = |hosts| format!("{hosts}");
        Self {
            title,
            note,
            x: "hosts",
            y,
            base: 2.0,
            x_label,
            legend: SeriesLabelPosition::UpperLeft,
        }
    }
}

/// An SVG, or none if there are fewer than two places on the x axis.
///
/// # Errors
/// An error of plotters.
pub fn draw<Y>(series: &[Series], text: &Text<'_>, y: Y) -> Result<Option<String>>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let xs = || series.iter().flat_map(|series| &series.dots).map(|dot| dot.x);
    let (least, most) = (xs().fold(f64::MAX, f64::min), xs().fold(f64::MIN, f64::max));
    if least >= most {
        return Ok(None);
    }
    let mut svg = String::new();
    draw_into(&mut svg, series, text, least * 0.8..most * 1.25, y)
        .map_err(|error| anyhow!("cannot draw the chart of {}: {error}", text.title))?;
    Ok(Some(svg))
}

/// The range of a logarithmic axis for the dots of these series.
pub fn log_range(series: &[Series]) -> std::ops::Range<f64> {
    let ys = || series.iter().flat_map(|series| &series.dots).map(|dot| dot.y);
    let (low, high) = (ys().fold(f64::MAX, f64::min), ys().fold(f64::MIN, f64::max));
    low.max(1e-3) * 0.7..high.max(1e-2) * 1.4
}

fn draw_into<Y>(
    svg: &mut String,
    series: &[Series],
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
    let (body, foot) = area.split_vertically(SIZE.1 - FOOT);
    let grey = BLACK.mix(0.6);
    foot.draw(&Label::new(text.note, (12, 2), ("sans-serif", 12).into_font().color(&grey)))?;
    let mut chart = ChartBuilder::on(&body)
        .caption(text.title, ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(x.log_scale().base(text.base), y)?;
    chart
        .configure_mesh()
        .x_desc(text.x)
        .y_desc(text.y)
        .x_label_formatter(&|x| (text.x_label)(*x))
        .y_label_formatter(&|value| readable(*value))
        .light_line_style(WHITE)
        .draw()?;

    for series in series {
        let colour = COLOURS[series.colour % COLOURS.len()];
        let line: Vec<(f64, f64)> = series.dots.iter().map(|dot| (dot.x, dot.y)).collect();
        for dot in &series.dots {
            if let Some((low, high)) = dot.spread {
                let bar = PathElement::new([(dot.x, low), (dot.x, high)], colour.stroke_width(1));
                chart.draw_series([bar])?;
            }
        }
        match series.style {
            Style::Solid => {
                let own = series.dots.iter().filter(|dot| !dot.left);
                let own = own.map(|dot| Circle::new((dot.x, dot.y), 3, colour.filled()));
                chart.draw_series(own)?;
                chart
                    .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
                    .label(&series.label)
                    .legend(move |(x, y)| {
                        PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2))
                    });
            }
            Style::Dashed => {
                chart.draw_series(line.iter().map(|&at| Circle::new(at, 3, colour)))?;
                chart
                    .draw_series(DashedLineSeries::new(line, 6, 4, colour.stroke_width(1)))?
                    .label(&series.label)
                    .legend(move |(x, y)| Circle::new((x + 10, y), 3, colour));
            }
            Style::Line => {
                let thin = colour.mix(0.6).stroke_width(1);
                chart
                    .draw_series(LineSeries::new(line, thin))?
                    .label(&series.label)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], thin));
            }
        }
    }
    let left = series.iter().flat_map(|series| &series.dots).filter(|dot| dot.left);
    let left: Vec<_> = left.map(|dot| Cross::new((dot.x, dot.y), 5, BLACK)).collect();
    if !left.is_empty() {
        chart
            .draw_series(left)?
            .label("left to MPI with foldback too")
            .legend(|(x, y)| Cross::new((x + 10, y), 5, BLACK));
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

/// "Allreduce" of "allreduce".
pub fn capitalised(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Three digits, and no more of them than it takes: "0.3", "12.5", "4000".
fn readable(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { 2 - value.abs().log10().floor() as i32 };
    let scale = 10f64.powi(digits);
    format!("{}", (value * scale).round() / scale)
}

/// For example "64 KiB".
pub fn readable_bytes(bytes: f64) -> String {
    match bytes {
        b if b >= 1024.0 * 1024.0 => format!("{} MiB", b / 1024.0 / 1024.0),
        b if b >= 1024.0 => format!("{} KiB", b / 1024.0),
        b => format!("{b} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_readable() {
        let written = [0.1 + 0.2, 12.5, 4000.0, 0.0, 100.0 / 3.0].map(readable);
        assert_eq!(written, ["0.3", "12.5", "4000", "0", "33.3"]);
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(readable_bytes(65536.0), "64 KiB");
        assert_eq!(readable_bytes(16.0 * 1024.0 * 1024.0), "16 MiB");
        assert_eq!(readable_bytes(4.0), "4 B");
    }
}
