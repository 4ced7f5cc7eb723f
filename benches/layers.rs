//! What the depth of a model costs before it runs: `cargo bench --bench layers`, of a gpt whose blocks are a `Layers`.
//!
//! | column | of a model of width 64, f32, on the CPU plugin, if nothing else is said |
//! |---|---|
//! | weights | processor time to draw the weights, once: the one that grows with the depth |
//! | nodes | recorded nodes of a training step's graph, those of the blocks' loop among them |
//! | record | processor time of the recording thread in a step: forward, backward and update |
//! | compile, CPU | processor time of a step that is compiled less that of one that is in memory |
//! | compile, v5p | the same step of width 256 in bf16: processor time of `Fit` for a v5p chip less that for no chip |
//!
//! Medians but for the weights; the depths take turns. Without libtpu the last column is empty.
#![allow(clippy::print_stdout, reason = "a bench prints its results")]

#[path = "../examples/fit/looped.rs"]
mod looped;

use anyhow::{Context, Result, ensure};
use burn::backend::Autodiff;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{AdamW, GradientsParams, Optimizer};
use burn::prelude::*;
use burn_tpu::fit::Fit;
use burn_tpu::{Generation, Keep, Replicate, Tpu, TpuDevice, TpuOptimizer, TpuOptions, mark_step, metrics, place};
use burn_tpu_workspace::models::{GptConfig, Supervised, Tokens, adamw, train_step};
use half::bf16;
use looped::LoopedGpt;
use rustix::time::{ClockId, clock_gettime};

type A = Autodiff<Tpu<f32>>;
type Narrow = Autodiff<Tpu<bf16>>;

const DEPTHS: [usize; 4] = [2, 8, 32, 126];
/// Recorded steps of each depth.
const STEPS: usize = 51;
/// Compiles of each depth.
const COMPILES: usize = 3;

fn main() -> Result<()> {
    let device = TpuDevice::cpu(0);
    TpuOptions::training().disk_cache(false).interpret_from(0).install(&device)?;
    let mut models = DEPTHS.map(|layers| Training::new(layers, device)).into_iter().collect::<Result<Vec<_>>>()?;
    println!("blocks  weights, s   nodes  record, ms  compile, s: CPU       v5p");
    let mut recorded = vec![Vec::new(); DEPTHS.len()];
    for _ in 0..STEPS {
        for (training, times) in models.iter_mut().zip(&mut recorded) {
            times.push(1e3 * training.step()?);
        }
    }
    let (mut cpu, mut v5p) = (vec![Vec::new(); DEPTHS.len()], vec![Vec::new(); DEPTHS.len()]);
    for _ in 0..COMPILES {
        for (training, times) in models.iter_mut().zip(&mut cpu) {
            times.push(training.compile()?);
        }
        for (&layers, times) in DEPTHS.iter().zip(&mut v5p) {
            times.extend(compile_for_v5p(layers)?);
        }
    }
    for (place, &layers) in DEPTHS.iter().enumerate() {
        let [record, cpu, v5p] = [&mut recorded[place], &mut cpu[place], &mut v5p[place]].map(|times| median(times));
        let Training { weights, nodes, .. } = &models[place];
        println!("{layers:>6} {weights:>11.2} {nodes:>7} {record:>11.3} {cpu:>16.2} {v5p:>9.2}");
    }
    Ok(())
}

/// A model on the CPU plugin that is trained.
struct Training {
    device: TpuDevice,
    model: Option<LoopedGpt<A>>,
    optimizer: OptimizerAdaptor<AdamW, LoopedGpt<A>, A>,
    batch: Tokens<A>,
    /// The seconds of processor time in which they were drawn.
    weights: f64,
    /// Recorded in the last step.
    nodes: u64,
}

impl Training {
    fn new(layers: usize, device: TpuDevice) -> Result<Self> {
        let config = GptConfig::new().with_layers(layers).with_width(64).with_feed_forward(256);
        let config = config.with_batch(1).with_sequence(16);
        let begin = seconds(ClockId::ProcessCPUTime);
        let model = place(LoopedGpt::init(&config, Keep::Nothing, &device), &Replicate)?;
        Tpu::<f32>::sync(&device)?;
        let weights = seconds(ClockId::ProcessCPUTime) - begin;
        let batch = Tokens::synthetic(&config, 0, &device);
        let mut training = Self { device, model: Some(model), optimizer: adamw(), batch, weights, nodes: 0 };
        // After the second step the optimizer's state exists, and the program is the same from then on.
        for _ in 0..3 {
            training.step()?;
        }
        Ok(training)
    }

    /// Runs a step to its end, and returns the seconds of this thread's processor time to record it.
    fn step(&mut self) -> Result<f64> {
        let before = metrics(&self.device);
        let model = self.model.take().context("there is always a model")?;
        let begin = seconds(ClockId::ThreadCPUTime);
        let (model, loss) = train_step(model, &mut self.optimizer, 1e-3, self.batch.clone());
        let time = seconds(ClockId::ThreadCPUTime) - begin;
        self.model = Some(model);
        mark_step(&self.device);
        drop(loss);
        Tpu::<f32>::sync(&self.device)?;
        self.nodes = metrics(&self.device).recorded_nodes - before.recorded_nodes;
        Ok(time)
    }

    /// Returns the seconds of processor time to compile a step.
    fn compile(&mut self) -> Result<f64> {
        // The first step compiles, if another depth has emptied the memory.
        self.step()?;
        let warm = self.whole_step()?;
        let before = metrics(&self.device).compiles;
        Tpu::<f32>::memory_cleanup(&self.device);
        let cold = self.whole_step()?;
        let compiles = metrics(&self.device).compiles - before;
        ensure!(compiles == 1, "{compiles} compiles in a step");
        Ok(cold - warm)
    }

    /// Returns the seconds of processor time of a step, to its end.
    fn whole_step(&mut self) -> Result<f64> {
        let begin = seconds(ClockId::ProcessCPUTime);
        self.step()?;
        Ok(seconds(ClockId::ProcessCPUTime) - begin)
    }
}

/// Returns the seconds of processor time to compile a step in bf16 with master weights; `None` without libtpu.
fn compile_for_v5p(layers: usize) -> Result<Option<f64>> {
    let config = GptConfig::new().with_layers(layers);
    let fit = |slices: &[_]| {
        let begin = seconds(ClockId::ProcessCPUTime);
        let report = Fit::new()?.slices(slices.iter().copied()).run(
            |device| (LoopedGpt::init(&config, Keep::Nothing, device), TpuOptimizer::new(adamw()), None),
            |(model, mut optimizer, _): (LoopedGpt<Narrow>, TpuOptimizer<AdamW, _, _>, _), device| {
                let loss = model.loss(Tokens::synthetic(&config, 0, device));
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                (optimizer.step(1e-3, model, gradients), optimizer, Some(loss))
            },
        )?;
        anyhow::Ok((seconds(ClockId::ProcessCPUTime) - begin, report))
    };
    let (recorded, _) = fit(&[])?;
    let (compiled, report) = fit(&[Generation::V5p.chip()])?;
    Ok(report.slices[0].fits().then_some(compiled - recorded))
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// Sorts the times and returns their median, not a number of none.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
