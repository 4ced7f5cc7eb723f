//! The results of training: a JSON file for programs, and the curve of the loss as SVG.

use crate::optimizer::Settings;
use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The JSON report. Other programs read these names: add names, never rename them.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Weights of the model.
    pub parameters: usize,
    /// Training steps taken.
    pub steps: usize,
    /// Tokens of a step.
    pub tokens_per_step: usize,
    /// Mean loss of the last fifty steps, in nats for each token.
    pub train_loss: f64,
    /// The held-out text, from the first measurement to the last.
    pub held_out: Vec<HeldOut>,
    /// Bits for each byte of the held-out text at the end.
    pub bits_per_byte: f64,
    /// Training tokens per second of the time in steps, without compiles and measurements on held-out text.
    pub tokens_per_second: f64,
    /// Programs compiled.
    pub compiles: u64,
    /// Programs loaded from disk instead.
    pub disk_hits: u64,
    /// Nodes that ran on the host because the engine has no lowering for them.
    pub host_fallbacks: u64,
    /// Memory of a training step as the compiler planned it: arguments, results and temporaries.
    pub step_memory_bytes: u64,
    /// The largest memory of the process so far, if the system tells it.
    pub peak_process_bytes: Option<u64>,
    /// The platform of the run.
    pub platform: String,
    /// The type of the weights and activations.
    pub dtype: String,
    /// The text.
    pub text: Text,
    /// The optimizer's numbers.
    pub optimizer: Settings,
    /// The loss of each step, in nats for each token.
    pub losses: Vec<f64>,
}

/// The text of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Text {
    /// Bytes to train on.
    pub train_bytes: usize,
    /// Tokens to train on.
    pub train_tokens: usize,
    /// Tokens that are held out.
    pub held_out_tokens: usize,
}

/// A measurement on held-out text.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HeldOut {
    /// Training steps before it.
    pub step: usize,
    /// Loss in nats for each token.
    pub loss: f64,
    /// The same in bits for each byte.
    pub bits_per_byte: f64,
}

impl Report {
    /// Writes the report as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        std::fs::write(path, json + "\n").with_context(|| format!("cannot write the report to `{}`", path.display()))
    }

    /// Draws the loss of each step and of the held-out text.
    pub fn draw(&self, path: &Path) -> Result<()> {
        let failed = |error: String| anyhow!(error).context(format!("cannot draw `{}`", path.display()));
        let area = SVGBackend::new(path, (900, 480)).into_drawing_area();
        curves(&area, &self.losses, &self.held_out).map_err(|error| failed(error.to_string()))?;
        area.present().map_err(|error| failed(error.to_string()))
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn curves(area: &Area, losses: &[f64], held_out: &[HeldOut]) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let finite = || losses.iter().copied().chain(held_out.iter().map(|at| at.loss)).filter(|loss| loss.is_finite());
    let (low, high) = finite().fold((f64::MAX, f64::MIN), |(low, high), loss| (low.min(loss), high.max(loss)));
    let mut chart = ChartBuilder::on(area)
        .caption("loss in nats for each token", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(0..losses.len().max(1), low.min(high) - 0.1..high.max(low) + 0.1)?;
    chart.configure_mesh().x_desc("step").draw()?;
    let steps: Vec<_> = losses.iter().enumerate().map(|(at, loss)| (at + 1, *loss)).collect();
    let held: Vec<_> = held_out.iter().map(|at| (at.step, at.loss)).collect();
    chart.draw_series([PathElement::new(steps, BLUE.mix(0.5))])?.label("training").legend(|at| line(at, &BLUE));
    let held = PathElement::new(held, RED.stroke_width(2));
    chart.draw_series([held])?.label("held out").legend(|at| line(at, &RED));
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    Ok(())
}

fn line((x, y): (i32, i32), colour: &RGBColor) -> PathElement<(i32, i32)> {
    PathElement::new([(x, y), (x + 16, y)], colour)
}

/// Returns the largest memory of this process so far, as Linux counts it.
pub fn peak_process_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_drawn_even_of_a_run_that_diverged() {
        let folder = tempfile::tempdir().unwrap();
        for losses in [vec![3.0, 2.0, f64::NAN], vec![]] {
            let path = folder.path().join("loss.svg");
            let area = SVGBackend::new(&path, (300, 200)).into_drawing_area();
            curves(&area, &losses, &[HeldOut { step: 2, loss: 2.5, bits_per_byte: 1.0 }]).unwrap();
            area.present().unwrap();
            assert!(std::fs::read_to_string(&path).unwrap().contains("</svg>"));
        }
    }
}
