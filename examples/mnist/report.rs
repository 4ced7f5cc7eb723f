//! What a run leaves behind: a few lines for people, a JSON file for programs.

use crate::train::Outcome;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// The JSON report. Others read these names: add, never rename.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Percent of the 10,000 test images.
    pub test_accuracy: f64,
    /// Mean loss over the last epoch's training steps.
    pub train_loss: f64,
    /// Training steps taken.
    pub steps: usize,
    /// Training images per second, without the first steps and without testing.
    pub images_per_second: f64,
    /// Programs compiled.
    pub compiles: u64,
    /// Programs found in the compile cache.
    pub cache_hits: u64,
    /// Nodes that ran on the host for want of a lowering.
    pub host_fallbacks: u64,
    /// Where it ran.
    pub platform: String,
    /// What the weights and activations were.
    pub dtype: String,
}

impl Report {
    /// Writes the report as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        std::fs::write(path, json + "\n").with_context(|| format!("cannot write the report to `{}`", path.display()))
    }
}

impl Outcome {
    /// Test images classified right, in percent.
    pub fn accuracy(&self) -> f64 {
        100.0 * self.correct as f64 / self.tested as f64
    }

    /// The result in two lines.
    pub fn print(&self) {
        println!("test accuracy  {:.2} % ({} of {})", self.accuracy(), self.correct, self.tested);
        println!("training       {} steps, {:.0} images/s", self.steps, self.images_per_second);
    }
}
