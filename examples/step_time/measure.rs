//! A run: training, timing, and what was found.

use crate::jax::JaxStep;
use crate::target::Target;
use crate::turns;
use anyhow::{Result, ensure};
use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::prelude::{Backend, ElementConversion};
use burn_tpu::Metrics;
use burn_tpu_workspace::models::{Supervised, train_step};
use serde::Serialize;
use std::time::Instant;

/// Steps before the timed ones: the first compile.
const WARM_UP: usize = 5;
const LEARNING_RATE: f64 = 1e-3;

/// What a run found. Others read these names in the JSON report: add, never rename. What a backend does not count is null.
#[derive(Debug, Default, Serialize)]
pub struct Measured {
    /// Of steps that are finished before the next begins.
    pub median_step_ms: f64,
    /// The quickest of them.
    pub min_step_ms: f64,
    /// Time per step when only the last of several is waited for: the median of five rounds.
    pub async_step_ms: f64,
    /// From the program's start to the end of the first step: plugin, weights and compiling included.
    pub first_step_s: f64,
    /// Median time on the calling thread until the step is dispatched: autodiff, recording, lookup, dispatch.
    pub host_ms_per_step: f64,
    /// The last step's loss.
    pub loss: f64,
    /// Programs compiled in the whole run.
    pub compiles: Option<u64>,
    /// Backend calls recorded in a step.
    pub recorded_ops_per_step: Option<f64>,
    /// Graph nodes recorded for them.
    pub recorded_nodes_per_step: Option<f64>,
    /// What recording one of them costs, in nanoseconds: shape inference, structural hash, the tensor. From a sample; the
    /// median of the steps.
    pub record_ns_per_op: Option<f64>,
    /// Of the host's time, what is burn-tpu's: recording, finding the program, dispatching it. The median of the
    /// steps; the rest is Burn's.
    pub own_host_ms_per_step: Option<f64>,
    /// Argument bytes given back to the device in a step.
    pub donated_bytes: Option<u64>,
    /// Bytes of a step's arguments, as the compiler planned them.
    pub argument_bytes: Option<u64>,
    /// Bytes of everything between a step's arguments and its results, likewise.
    pub temp_bytes: Option<u64>,
    /// All memory of a step: arguments, results and everything in between, less results in an argument's memory.
    pub memory_bytes: Option<u64>,
    /// JAX's step in turn with ours, if asked for.
    pub jax: Option<Jax>,
}

/// JAX's step, run in turn with ours.
#[derive(Debug, Serialize)]
pub struct Jax {
    /// Median step.
    pub median_step_ms: f64,
    /// Quickest step.
    pub min_step_ms: f64,
    /// Time per step when only the last of several is waited for.
    pub async_step_ms: f64,
    /// Our median to theirs.
    pub median_ratio: f64,
    /// Our quickest to theirs.
    pub min_ratio: f64,
    /// Our unwaited step to theirs.
    pub async_ratio: f64,
    /// All memory of their step.
    pub memory_bytes: u64,
    /// Ours to theirs.
    pub memory_ratio: Option<f64>,
}

/// Trains and times.
pub fn measure<T, M, O>(
    model: M,
    mut optimizer: O,
    batches: Vec<M::Batch>,
    steps: usize,
    device: &T::Device,
    mut jax: Option<JaxStep>,
    begun: Instant,
) -> Result<Measured>
where
    T: Target,
    M: Supervised<T::Backend> + AutodiffModule<T::Backend>,
    O: Optimizer<M, T::Backend>,
{
    let mut batches = batches.iter().cycle().cloned();
    let mut model = Some(model);
    let mut step = || {
        let (untrained, batch) = model.take().zip(batches.next()).expect("a model, and a cycle that does not end");
        let (trained, loss) = train_step(untrained, &mut optimizer, LEARNING_RATE, batch);
        model = Some(trained);
        T::end_step(device);
        loss
    };

    step();
    T::Backend::sync(device)?;
    let mut measured = Measured { first_step_s: begun.elapsed().as_secs_f64(), ..Measured::default() };
    for _ in 1..WARM_UP {
        step();
        T::Backend::sync(device)?;
    }

    let before = T::metrics(device);
    let mut waited = turns::waited::<T>(steps, device, || drop(step()), &mut jax)?;
    if let (Some(before), Some(after)) = (before, T::metrics(device)) {
        measured.count(&before, &after, steps as u64);
        measured.record_ns_per_op = Some(median(&mut waited.per_op));
        measured.own_host_ms_per_step = Some(median(&mut waited.own));
    }
    let (mut ours, mut theirs) = turns::unwaited::<T>(steps, device, || drop(step()), &mut jax)?;
    measured.loss = step().into_scalar().elem();
    ensure!(measured.loss.is_finite(), "the loss is {}", measured.loss);

    measured.median_step_ms = median(&mut waited.whole);
    measured.min_step_ms = waited.whole[0];
    measured.host_ms_per_step = median(&mut waited.host);
    measured.async_step_ms = median(&mut ours);
    measured.jax = jax.map(|jax| Jax::compare(&measured, &mut waited.jax, &mut theirs, jax.memory_bytes));
    Ok(measured)
}

impl Measured {
    /// What so many steps added to the metrics.
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
    fn compare(ours: &Measured, theirs: &mut [f64], unwaited: &mut [f64], memory_bytes: u64) -> Self {
        let (median_step_ms, min_step_ms, async_step_ms) = (median(theirs), theirs[0], median(unwaited));
        Self {
            median_step_ms,
            min_step_ms,
            async_step_ms,
            median_ratio: ours.median_step_ms / median_step_ms,
            min_ratio: ours.min_step_ms / min_step_ms,
            async_ratio: ours.async_step_ms / async_step_ms,
            memory_bytes,
            memory_ratio: ours.memory_bytes.map(|bytes| bytes as f64 / memory_bytes as f64),
        }
    }
}

/// Sorts; there is at least one.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
