//! The loops that are timed.

use crate::jax::JaxStep;
use crate::target::Target;
use anyhow::{Result, ensure};
use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::prelude::{Backend, ElementConversion};
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
    /// Time per step when only the last is waited for.
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
    /// What recording one of them costs, in nanoseconds: shape inference, structural hash, the tensor. From a sample.
    pub record_ns_per_op: Option<f64>,
    /// Argument bytes given back to the device in a step.
    pub donated_bytes: Option<u64>,
    /// Bytes of a step's arguments, as the compiler planned them.
    pub argument_bytes: Option<u64>,
    /// Bytes of everything between a step's arguments and its results, likewise.
    pub temp_bytes: Option<u64>,
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
    /// Our median to theirs.
    pub median_ratio: f64,
    /// Our quickest to theirs.
    pub min_ratio: f64,
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
    let finish = || T::Backend::sync(device);

    step();
    finish()?;
    let mut measured = Measured { first_step_s: begun.elapsed().as_secs_f64(), ..Measured::default() };
    for _ in 1..WARM_UP {
        step();
        finish()?;
    }

    let before = T::metrics(device);
    let (mut whole, mut host, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..steps {
        let start = Instant::now();
        step();
        host.push(milliseconds(start));
        finish()?;
        whole.push(milliseconds(start));
        if let Some(jax) = &mut jax {
            let start = Instant::now();
            jax.step()?;
            theirs.push(milliseconds(start));
        }
    }
    let after = T::metrics(device);

    let start = Instant::now();
    (1..steps).for_each(|_| drop(step()));
    let loss = step();
    finish()?;
    measured.async_step_ms = milliseconds(start) / steps as f64;
    measured.loss = loss.into_scalar().elem();
    ensure!(measured.loss.is_finite(), "the loss is {}", measured.loss);

    measured.median_step_ms = median(&mut whole);
    measured.min_step_ms = whole[0];
    measured.host_ms_per_step = median(&mut host);
    measured.jax = jax.map(|_| Jax::compare(&measured, &mut theirs));
    if let (Some(before), Some(after)) = (before, after) {
        let per_step = |count: u64| Some(count as f64 / steps as f64);
        let recorded_ops = after.recorded_ops - before.recorded_ops;
        measured.recorded_ops_per_step = per_step(recorded_ops);
        measured.record_ns_per_op = Some((after.record_ns - before.record_ns) as f64 / recorded_ops as f64);
        measured.recorded_nodes_per_step = per_step(after.recorded_nodes - before.recorded_nodes);
        let whole = |count: u64| Some(count / steps as u64);
        measured.donated_bytes = whole(after.donated_bytes - before.donated_bytes);
        measured.argument_bytes = whole(after.argument_bytes - before.argument_bytes);
        measured.temp_bytes = whole(after.temporary_bytes - before.temporary_bytes);
        measured.compiles = Some(after.compiles);
    }
    Ok(measured)
}

impl Jax {
    fn compare(ours: &Measured, theirs: &mut [f64]) -> Self {
        let (median_step_ms, min_step_ms) = (median(theirs), theirs[0]);
        let (median_ratio, min_ratio) = (ours.median_step_ms / median_step_ms, ours.min_step_ms / min_step_ms);
        Self { median_step_ms, min_step_ms, median_ratio, min_ratio }
    }
}

fn milliseconds(start: Instant) -> f64 {
    1e3 * start.elapsed().as_secs_f64()
}

/// Sorts; there is at least one.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
