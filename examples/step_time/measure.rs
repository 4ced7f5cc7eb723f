//! A run: training, timing and the results.

use crate::jax::JaxStep;
use crate::target::{Step, Target};
use crate::turns::{self, StepTimes};
use anyhow::{Result, ensure};
use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::prelude::{Backend, ElementConversion};
use burn_tpu::Metrics;
use burn_tpu_workspace::models::{Supervised, train_step};
use serde::Serialize;
use std::time::Instant;

/// Steps before the timed ones; the first of them compile.
const WARM_UP: usize = 5;
pub const LEARNING_RATE: f64 = 1e-3;

/// The results of a run. Other programs read these names in the JSON report: add names, never rename them. A value
/// that a backend does not count is null.
#[derive(Debug, Default, Serialize)]
pub struct Measured {
    /// Median time of steps that are finished before the next begins.
    pub median_step_ms: f64,
    /// The shortest time of these steps.
    pub min_step_ms: f64,
    /// Time per step when only the last of several steps is times for: the median of five rounds.
    pub async_step_ms: f64,
    /// Time from the program's start to the end of the first step, including plugin, weights and compilation.
    pub first_step_s: f64,
    /// Median time on the calling thread until the step is dispatched: autodiff, recording, lookup, dispatch.
    pub host_ms_per_step: f64,
    /// The last step's loss.
    pub loss: f64,
    /// Programs compiled in the whole run.
    pub compiles: Option<u64>,
    /// Backend calls recorded in a step.
    pub recorded_ops_per_step: Option<f64>,
    /// Graph nodes recorded for these calls.
    pub recorded_nodes_per_step: Option<f64>,
    /// Time to record one backend call, in nanoseconds: shape inference, structural hash, the tensor. Sampled; the
    /// median of the steps.
    pub record_ns_per_op: Option<f64>,
    /// The part of the host's time that burn-tpu uses: recording, finding the program, dispatching it. The median of
    /// the steps; the rest is Burn's.
    pub own_host_ms_per_step: Option<f64>,
    /// Argument bytes donated to the device in a step.
    pub donated_bytes: Option<u64>,
    /// Bytes of a step's arguments, as the compiler planned them.
    pub argument_bytes: Option<u64>,
    /// Bytes of a step's temporaries, as the compiler planned them.
    pub temp_bytes: Option<u64>,
    /// Memory of a step in bytes: arguments, results and temporaries, without results that use an argument's memory.
    pub memory_bytes: Option<u64>,
    /// JAX's step, measured in alternation with ours, if requested.
    pub jax: Option<Jax>,
}

/// JAX's step, measured in alternation with ours.
#[derive(Debug, Serialize)]
pub struct Jax {
    /// Median time of a step.
    pub median_step_ms: f64,
    /// Shortest time of a step.
    pub min_step_ms: f64,
    /// Time per step when only the last of several steps is times for.
    pub async_step_ms: f64,
    /// Median time on the calling thread until JAX's program is dispatched: the plugin's part, without Python.
    pub host_ms_per_step: f64,
    /// Our median divided by JAX's.
    pub median_ratio: f64,
    /// Our shortest time divided by JAX's.
    pub min_ratio: f64,
    /// Our asynchronous time divided by JAX's.
    pub async_ratio: f64,
    /// Memory of JAX's step in bytes.
    pub memory_bytes: u64,
    /// Our memory divided by JAX's.
    pub memory_ratio: Option<f64>,
}

/// Returns the step of a loop, which is recorded each time.
pub fn recorded<T, M, O>(model: M, mut optimizer: O, device: &T::Device) -> Step<T::Backend, M::Batch>
where
    T: Target,
    M: Supervised<T::Backend> + AutodiffModule<T::Backend> + 'static,
    O: Optimizer<M, T::Backend> + 'static,
    T::Device: 'static,
{
    let (mut model, device) = (Some(model), device.clone());
    Box::new(move |batch| {
        let untrained = model.take().expect("there is always a model");
        let (trained, loss) = train_step(untrained, &mut optimizer, LEARNING_RATE, batch);
        model = Some(trained);
        T::end_step(&device);
        Ok(loss.inner())
    })
}

/// Runs a training step on the batches in turn, and times it.
pub fn measure<T: Target, Batch: Clone>(
    mut step: Step<T::Backend, Batch>,
    batches: Vec<Batch>,
    steps: usize,
    device: &T::Device,
    mut jax: Option<JaxStep>,
    begun: Instant,
) -> Result<Measured> {
    let mut batches = batches.iter().cycle().cloned();
    let mut step = || step(batches.next().expect("the cycle never ends"));

    step()?;
    T::Backend::sync(device)?;
    let mut measured = Measured { first_step_s: begun.elapsed().as_secs_f64(), ..Measured::default() };
    for _ in 1..WARM_UP {
        step()?;
        T::Backend::sync(device)?;
    }

    let before = T::metrics(device);
    let mut times = turns::time_each_step::<T>(steps, device, || step().map(drop), &mut jax)?;
    if let (Some(before), Some(after)) = (before, T::metrics(device)) {
        measured.count(&before, &after, steps as u64);
        measured.record_ns_per_op = (!times.per_op.is_empty()).then(|| median(&mut times.per_op));
        measured.own_host_ms_per_step = Some(median(&mut times.own));
    }
    let (mut ours, mut theirs) = turns::time_rounds::<T>(steps, device, || step().map(drop), &mut jax)?;
    measured.loss = step()?.into_scalar().elem();
    ensure!(measured.loss.is_finite(), "the loss is {}", measured.loss);

    measured.median_step_ms = median(&mut times.whole);
    measured.min_step_ms = times.whole[0];
    measured.host_ms_per_step = median(&mut times.host);
    measured.async_step_ms = median(&mut ours);
    measured.jax = jax.map(|jax| Jax::compare(&measured, &mut times, &mut theirs, jax.memory_bytes));
    Ok(measured)
}

impl Measured {
    /// Stores the increase of the metrics over `steps` steps, per step.
    fn count(&mut self, before: &Metrics, after: &Metrics, steps: u64) {
        let mean = |count: fn(&Metrics) -> u64| Some((count(after) - count(before)) as f64 / steps as f64);
        let whole = |count: fn(&Metrics) -> u64| Some((count(after) - count(before)) / steps);
        self.recorded_ops_per_step = mean(|m| m.recorded_ops);
        self.recorded_nodes_per_step = mean(|m| m.recorded_nodes);
        self.donated_bytes = whole(|m| m.donated_bytes);
        self.argument_bytes = whole(|m| m.argument_bytes);
        self.temp_bytes = whole(|m| m.temporary_bytes);
        self.memory_bytes = whole(|m| m.argument_bytes + m.output_bytes + m.temporary_bytes)
            .zip(whole(|m| m.alias_bytes))
            .map(|(all, shared)| all - shared);
        self.compiles = Some(after.compiles);
    }
}

impl Jax {
    fn compare(ours: &Measured, times: &mut StepTimes, async_times: &mut [f64], memory_bytes: u64) -> Self {
        let (median_step_ms, min_step_ms, async_step_ms) = (median(&mut times.jax), times.jax[0], median(async_times));
        Self {
            median_step_ms,
            min_step_ms,
            async_step_ms,
            host_ms_per_step: median(&mut times.jax_host),
            median_ratio: ours.median_step_ms / median_step_ms,
            min_ratio: ours.min_step_ms / min_step_ms,
            async_ratio: ours.async_step_ms / async_step_ms,
            memory_bytes,
            memory_ratio: ours.memory_bytes.map(|bytes| bytes as f64 / memory_bytes as f64),
        }
    }
}

/// Sorts the times, of which there is at least one, and returns their median.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
