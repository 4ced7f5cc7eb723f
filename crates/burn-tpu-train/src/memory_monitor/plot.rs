//! The history of a device's memory as an SVG: one area for each kind, stacked.

use super::MemorySample;
use burn_tpu::MemoryKind;
use plotters::prelude::*;

type Error = DrawingAreaErrorKind<std::io::Error>;

const SIZE: (u32, u32) = (900, 420);
const MIB: f64 = (1 << 20) as f64;

/// Colours that people with defects of colour vision tell apart (Okabe and Ito, 2008), one for each kind.
const COLOURS: [RGBColor; MemoryKind::ALL.len()] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(150, 150, 150),
];

/// Returns the picture of these samples.
pub(super) fn svg(title: &str, samples: &[MemorySample], capacity: Option<u64>) -> Result<String, String> {
    let mut svg = String::new();
    draw(&mut svg, title, samples, capacity).map_err(|error| error.to_string())?;
    Ok(svg)
}

fn draw(svg: &mut String, title: &str, samples: &[MemorySample], capacity: Option<u64>) -> Result<(), Error> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let seconds = |sample: &MemorySample| sample.time.as_secs_f64();
    let end = samples.last().map_or(1.0, seconds).max(0.001);
    let start = samples.first().map_or(0.0, seconds).min(end - 0.001);
    let most = samples.iter().map(|sample| sample.live.total()).max().unwrap_or(0);
    // A limit far above all samples would leave them a line at the bottom.
    let shown = capacity.filter(|&bytes| bytes <= most.saturating_mul(4));
    let top = (most.max(shown.unwrap_or(0)) as f64 / MIB * 1.1).max(0.001);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(start..end, 0.0..top)?;
    chart.configure_mesh().x_desc("seconds").y_desc("MiB").light_line_style(WHITE).draw()?;
    // From the top of the stack down, so that each area covers the lower part of the one before.
    for (place, colour) in COLOURS.iter().enumerate().rev() {
        let height =
            |sample: &MemorySample| -> u64 { MemoryKind::ALL[..=place].iter().map(|&kind| sample.live.of(kind)).sum() };
        let points = samples.iter().map(|sample| (seconds(sample), height(sample) as f64 / MIB));
        chart
            .draw_series(AreaSeries::new(points, 0.0, colour.filled()))?
            .label(MemoryKind::ALL[place].name())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    if let Some(bytes) = shown {
        let height = bytes as f64 / MIB;
        chart
            .draw_series(LineSeries::new([(start, height), (end, height)], BLACK))?
            .label("limit")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 12, y)], BLACK));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    area.present()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu::TpuDevice;
    use std::time::Duration;

    #[test]
    fn a_picture_has_an_area_for_each_kind_and_a_line_for_the_limit() {
        let live = TpuDevice::ndarray().memory().live;
        let samples = [0, 1, 2].map(|second| MemorySample { time: Duration::from_secs(second), live });
        let text = svg("memory of cpu:0", &samples, Some(0)).expect("a picture");
        for name in MemoryKind::ALL.map(MemoryKind::name).into_iter().chain(["limit", "seconds", "memory of cpu:0"]) {
            assert!(text.contains(name), "no {name} in {text}");
        }
        assert_eq!(text.matches("<polygon").count(), MemoryKind::ALL.len());
    }

    #[test]
    fn no_sample_is_a_picture_too() {
        assert!(svg("memory", &[], None).is_ok());
    }
}
