//! The timed loops. Each alternates with JAX's step if there is one. Times are in milliseconds.

use crate::jax::JaxStep;
use crate::target::Target;
use anyhow::Result;
use burn::prelude::Backend;
use burn_tpu::Metrics;
use std::time::Instant;

/// The number of rounds in which only the last step is time_each_step for.
const ROUNDS: usize = 5;

/// Times of steps that are finished before the next begins; one entry per step.
#[derive(Default)]
pub struct StepTimes {
    /// The whole step.
    pub whole: Vec<f64>,
    /// Time on the calling thread until the step is dispatched.
    pub host: Vec<f64>,
    /// The part of `host` that burn-tpu uses, if the backend counts it.
    pub own: Vec<f64>,
    /// Nanoseconds per recorded op, if the backend counts them.
    pub per_op: Vec<f64>,
    /// Times of JAX's steps.
    pub jax: Vec<f64>,
    /// Time on the calling thread until JAX's step is dispatched.
    pub jax_host: Vec<f64>,
}

/// Times the steps one by one, each finished before the next begins.
pub fn time_each_step<T: Target>(
    steps: usize,
    device: &T::Device,
    mut step: impl FnMut() -> Result<()>,
    jax: &mut Option<JaxStep>,
) -> Result<StepTimes> {
    let mut times = StepTimes::default();
    for _ in 0..steps {
        let before = T::metrics(device);
        let start = Instant::now();
        step()?;
        times.host.push(milliseconds(start));
        let after = T::metrics(device);
        T::Backend::sync(device)?;
        times.whole.push(milliseconds(start));
        if let (Some(before), Some(after)) = (before, after) {
            let own = |m: &Metrics| m.record_time() + m.key_time() + m.dispatch_time();
            times.own.push((own(&after) - own(&before)).as_secs_f64() * 1e3);
            let ops = after.recorded_ops - before.recorded_ops;
            if ops > 0 {
                times.per_op.push((after.record_time() - before.record_time()).as_nanos() as f64 / ops as f64);
            }
        }
        if let Some(jax) = jax {
            let start = Instant::now();
            jax.step()?;
            times.jax_host.push(milliseconds(start));
            jax.finish()?;
            times.jax.push(milliseconds(start));
        }
    }
    Ok(times)
}

/// Returns the times per step, ours and JAX's, in rounds in which only the last step is time_each_step for.
pub fn time_rounds<T: Target>(
    steps: usize,
    device: &T::Device,
    mut step: impl FnMut() -> Result<()>,
    jax: &mut Option<JaxStep>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let in_round = steps.div_ceil(ROUNDS);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..in_round).try_for_each(|_| step())?;
        T::Backend::sync(device)?;
        ours.push(milliseconds(start) / in_round as f64);
        if let Some(jax) = jax {
            let start = Instant::now();
            (0..in_round).try_for_each(|_| jax.step())?;
            jax.finish()?;
            theirs.push(milliseconds(start) / in_round as f64);
        }
    }
    Ok((ours, theirs))
}

fn milliseconds(start: Instant) -> f64 {
    1e3 * start.elapsed().as_secs_f64()
}
