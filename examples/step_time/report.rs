//! The results of a run: a few lines for people, a JSON file for programs.

use crate::measure::{Jax, Measured};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// A run and its results.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The model's name.
    pub model: String,
    /// The type of the weights.
    pub dtype: String,
    /// The device.
    pub device: String,
    /// The measurements.
    #[serde(flatten)]
    pub measured: Measured,
}

impl Report {
    /// Writes the report as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        std::fs::write(path, json + "\n").with_context(|| format!("cannot write the report to `{}`", path.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, dtype, device, measured } = self;
        writeln!(f, "{model} in {dtype} on {device}")?;
        writeln!(f, "step         median {:.3} ms, min {:.3} ms", measured.median_step_ms, measured.min_step_ms)?;
        writeln!(f, "async        {:.3} ms per step", measured.async_step_ms)?;
        writeln!(f, "host         {:.3} ms per step", measured.host_ms_per_step)?;
        writeln!(f, "first step   {:.2} s after the start", measured.first_step_s)?;
        if let (Some(ops), Some(compiles)) = (measured.recorded_ops_per_step, measured.compiles) {
            writeln!(f, "recorded     {ops:.0} ops per step; {compiles} programs compiled")?;
        }
        if let Some(time) = measured.record_ns_per_op {
            writeln!(f, "recording    {time:.0} ns per op")?;
        }
        if let Some(time) = measured.own_host_ms_per_step {
            writeln!(f, "burn-tpu's   {time:.3} ms of the host's time per step")?;
        }
        if let Some(bytes) = measured.memory_bytes {
            writeln!(f, "memory       {:.1} MB", bytes as f64 / 1e6)?;
        }
        if let Some(jax) = &measured.jax {
            writeln!(f, "JAX's step   median {:.3} ms, min {:.3} ms", jax.median_step_ms, jax.min_step_ms)?;
            writeln!(f, "             async {:.3} ms, host {:.3} ms", jax.async_step_ms, jax.host_ms_per_step)?;
            let Jax { median_ratio, min_ratio, async_ratio, .. } = jax;
            writeln!(f, "ours/JAX's   median {median_ratio:.3}, min {min_ratio:.3}, async {async_ratio:.3}")?;
            if let Some(ratio) = jax.memory_ratio {
                writeln!(f, "             memory {ratio:.3}")?;
            }
        }
        Ok(())
    }
}
