//! The chart: memory and its limit, and the lower bound on a step's time, by slice.

use anyhow::{Context, Result, anyhow};
use burn_tpu::fit::{FitReport, SliceFit};
use plotters::prelude::*;
use std::path::Path;

type Panel<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws two panels side by side, with the slices in the order of the report.
pub fn draw(report: &FitReport, path: &Path) -> Result<()> {
    let failed = |error: String| anyhow!(error).context(format!("cannot draw {}", path.display()));
    let area = SVGBackend::new(path, (1000, 420)).into_drawing_area();
    panels(report, &area).map_err(|error| failed(error.to_string()))?;
    area.present().map_err(|error| failed(error.to_string())).context("the chart could not be written")
}

fn panels(report: &FitReport, area: &Panel) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(500);
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let peak = |slice: &SliceFit| gib(slice.memory.peak_bytes);
    let limit = |slice: &SliceFit| gib(slice.memory.limit_bytes);
    bars(&left, "memory of a device, peak (filled) and limit: GiB", &report.slices, &peak, Some(&limit))?;
    let time = |slice: &SliceFit| slice.speed.map_or(0.0, |speed| 1e3 * speed.roofline_seconds);
    bars(&right, "least time of a step (roofline): ms", &report.slices, &time, None)
}

type Figure<'a> = &'a dyn Fn(&SliceFit) -> f64;

/// Draws a filled bar per slice, red if the step does not fit, with its limit as a frame.
fn bars(
    area: &Panel,
    title: &str,
    slices: &[SliceFit],
    value: Figure,
    limit: Option<Figure>,
) -> Result<(), Box<dyn std::error::Error>> {
    let tallest = |slice: &SliceFit| limit.map_or(0.0, |limit| limit(slice)).max(value(slice));
    let top = slices.iter().map(tallest).fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(56)
        .build_cartesian_2d((0..slices.len()).into_segmented(), 0.0..1.1 * top)?;
    let name = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(place) => slices.get(*place).map_or(String::new(), |slice| slice.topology.clone()),
        SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
    };
    chart.configure_mesh().disable_x_mesh().x_labels(slices.len()).x_label_formatter(&name).draw()?;
    let bar = |place: usize, height: f64, style: ShapeStyle| {
        let mut bar =
            Rectangle::new([(SegmentValue::Exact(place), 0.0), (SegmentValue::Exact(place + 1), height)], style);
        bar.set_margin(0, 0, 14, 14);
        bar
    };
    let fill = |slice: &SliceFit| if slice.fits() { BLUE.mix(0.6).filled() } else { RED.mix(0.6).filled() };
    chart.draw_series(slices.iter().enumerate().map(|(i, slice)| bar(i, value(slice), fill(slice))))?;
    if let Some(limit) = limit {
        chart.draw_series(slices.iter().enumerate().map(|(i, slice)| bar(i, limit(slice), BLACK.stroke_width(1))))?;
    }
    Ok(())
}
