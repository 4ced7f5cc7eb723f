//! The results of a run: a few lines for people, a JSON file for programs.

use crate::train::Outcome;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// The JSON report. Other programs read these names: add names, never rename them.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Correctly classified share of the 10,000 test images, in percent.
    pub test_accuracy: f64,
    /// Mean loss over the training steps of the last epoch.
    pub train_loss: f64,
    /// Training steps taken.
    pub steps: usize,
    /// Training images per second, excluding the first steps and testing.
    pub images_per_second: f64,
    /// Programs compiled.
    pub compiles: u64,
    /// Programs found in the compile cache.
    pub cache_hits: u64,
    /// Nodes that ran on the host because the engine has no lowering for them.
    pub host_fallbacks: u64,
    /// The platform of the run.
    pub platform: String,
    /// The type of the weights and activations.
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
    /// Returns the correctly classified share of the test images, in percent.
    pub fn accuracy(&self) -> f64 {
        self.share(self.correct)
    }

    /// Returns what so many test images are of all, in percent.
    fn share(&self, correct: usize) -> f64 {
        100.0 * correct as f64 / self.tested as f64
    }

    /// Prints the result.
    pub fn print(&self) {
        println!("test accuracy  {:.2} % ({} of {})", self.accuracy(), self.correct, self.tested);
        if let Some(correct) = self.correct_in_8_bits {
            println!("in 8 bits      {:.2} % ({correct} of {})", self.share(correct), self.tested);
        }
        println!("training       {} steps, {:.0} images/s", self.steps, self.images_per_second);
    }
}
