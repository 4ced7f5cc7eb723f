//! The learning curve: the loss of each training step and of the test images after each epoch, as an SVG.

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

/// The losses of a run.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Of each training step.
    pub training: Vec<f64>,
    /// Means over the test images, each with the number of training steps before it.
    pub test: Vec<(usize, f64)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Curve {
    /// Draws both curves into a file.
    pub fn draw(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
        }
        let failed = |error: String| anyhow!(error).context(format!("cannot draw `{}`", path.display()));
        let area = SVGBackend::new(path, (900, 480)).into_drawing_area();
        self.draw_on(&area).map_err(|error| failed(error.to_string()))?;
        area.present().map_err(|error| failed(error.to_string()))
    }

    fn draw_on(&self, area: &Area) -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        let finite = |loss: &f64| loss.is_finite();
        let losses = self.training.iter().copied().chain(self.test.iter().map(|(_, loss)| *loss));
        let top = losses.filter(finite).fold(0.1, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption("loss (cross-entropy in nats)", ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(0..self.training.len().max(1), 0.0..top)?;
        chart.configure_mesh().x_desc("training step").draw()?;
        let steps = self.training.iter().enumerate().map(|(at, loss)| (at + 1, *loss));
        let steps: Vec<_> = steps.filter(|(_, loss)| finite(loss)).collect();
        let tested: Vec<_> = self.test.iter().copied().filter(|(_, loss)| finite(loss)).collect();
        let training = PathElement::new(steps, BLUE.mix(0.5));
        chart.draw_series([training])?.label("training, each step").legend(|at| key(at, &BLUE));
        let dots = tested.iter().map(|&at| Circle::new(at, 4, RED.filled()));
        chart.draw_series(dots)?;
        let test = PathElement::new(tested, RED.stroke_width(2));
        chart.draw_series([test])?.label("test, after each epoch").legend(|at| key(at, &RED));
        chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
        Ok(())
    }
}

fn key((x, y): (i32, i32), colour: &RGBColor) -> PathElement<(i32, i32)> {
    PathElement::new([(x, y), (x + 16, y)], colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_drawn_even_of_a_run_that_diverged_or_never_began() {
        let folder = tempfile::tempdir().unwrap();
        for training in [vec![2.3, 1.0, f64::NAN], vec![]] {
            let path = folder.path().join("new/curve.svg");
            Curve { training, test: vec![(2, 0.9), (3, f64::INFINITY)] }.draw(&path).unwrap();
            let svg = std::fs::read_to_string(&path).unwrap();
            assert!(svg.contains("</svg>") && svg.contains("training step"), "{svg}");
        }
    }
}
