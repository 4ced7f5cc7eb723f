//! The chart: memory and its limit, and the lower bound on a step's time, by slice or by layout.

use anyhow::{Context, Result, anyhow};
use burn_tpu::fit::search::{Figures, Row, Search};
use burn_tpu::fit::{FitReport, SliceFit};
use plotters::prelude::*;
use std::path::Path;

type Panel<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws two panels side by side, with the entries in the order of the report.
pub fn draw(report: &FitReport, path: &Path) -> Result<()> {
    draw_bars(report.slices.iter().map(Bar::of_slice).collect(), path)
}

fn draw_bars(bars: Vec<Bar>, path: &Path) -> Result<()> {
    let failed = |error: String| anyhow!(error).context(format!("cannot draw {}", path.display()));
    let area = SVGBackend::new(path, (1000, 420)).into_drawing_area();
    panels(&bars, &area).map_err(|error| failed(error.to_string()))?;
    area.present().map_err(|error| failed(error.to_string())).context("the chart could not be written")
}

/// Draws the layouts of the first slice of a search, in their order.
pub fn draw_search(searched: &[Search], path: &Path) -> Result<()> {
    let bars = searched.first().map(|search| search.rows.iter().map(Bar::of_row).collect()).unwrap_or_default();
    draw_bars(bars, path)
}

/// A slice or a layout.
struct Bar {
    name: String,
    fits: bool,
    peak_gib: f64,
    limit_gib: f64,
    milliseconds: f64,
}

const GIB: f64 = (1u64 << 30) as f64;

impl Bar {
    fn of_slice(slice: &SliceFit) -> Self {
        Self {
            name: slice.topology.clone(),
            fits: slice.fits(),
            peak_gib: slice.memory.peak_bytes as f64 / GIB,
            limit_gib: slice.memory.limit_bytes as f64 / GIB,
            milliseconds: slice.speed.map_or(0.0, |speed| 1e3 * speed.roofline_seconds),
        }
    }

    fn of_row(row: &Row) -> Self {
        let figure = |of: fn(&Figures) -> f64| row.figures().map_or(0.0, of);
        let axes = row.candidate.axes().into_iter().map(|(name, size)| format!("{}{size}", &name[..1]));
        Self {
            name: axes.collect::<Vec<_>>().join(" "),
            fits: row.fits(),
            peak_gib: figure(|figures| figures.peak_bytes / GIB),
            limit_gib: figure(|figures| figures.limit_bytes / GIB),
            milliseconds: figure(|figures| 1e3 * figures.step_seconds()),
        }
    }
}

fn panels(all: &[Bar], area: &Panel) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(500);
    let limit = |bar: &Bar| bar.limit_gib;
    bars(&left, "memory of a device, peak (filled) and limit: GiB", all, &|bar| bar.peak_gib, Some(&limit))?;
    bars(&right, "least time of a step: ms", all, &|bar| bar.milliseconds, None)
}

type Figure<'a> = &'a dyn Fn(&Bar) -> f64;

/// Draws a filled bar per slice, red if the step does not fit, with its limit as a frame.
fn bars(
    area: &Panel,
    title: &str,
    entries: &[Bar],
    value: Figure,
    limit: Option<Figure>,
) -> Result<(), Box<dyn std::error::Error>> {
    let tallest = |slice: &Bar| limit.map_or(0.0, |limit| limit(slice)).max(value(slice));
    let top = entries.iter().map(tallest).fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(56)
        .build_cartesian_2d((0..entries.len()).into_segmented(), 0.0..1.1 * top)?;
    let name = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(place) => entries.get(*place).map_or(String::new(), |slice| slice.name.clone()),
        SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
    };
    chart.configure_mesh().disable_x_mesh().x_labels(entries.len()).x_label_formatter(&name).draw()?;
    let bar = |place: usize, height: f64, style: ShapeStyle| {
        let mut bar =
            Rectangle::new([(SegmentValue::Exact(place), 0.0), (SegmentValue::Exact(place + 1), height)], style);
        bar.set_margin(0, 0, 14, 14);
        bar
    };
    let fill = |slice: &Bar| if slice.fits { BLUE.mix(0.6).filled() } else { RED.mix(0.6).filled() };
    chart.draw_series(entries.iter().enumerate().map(|(i, slice)| bar(i, value(slice), fill(slice))))?;
    if let Some(limit) = limit {
        chart.draw_series(entries.iter().enumerate().map(|(i, slice)| bar(i, limit(slice), BLACK.stroke_width(1))))?;
    }
    Ok(())
}
