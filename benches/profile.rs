//! What a profile costs: steps of a GPT on the default device, in turns without a profile and in one. It prints medians.
//!
//!     cargo bench --bench profile
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use burn::backend::Autodiff;
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer};
use burn_tpu_workspace::models::{Gpt, GptConfig, Tokens, adamw, train_step};
use std::hint::black_box;
use std::time::{Duration, Instant};

type B = Autodiff<Tpu<f32>>;

const ROUNDS: usize = 9;

/// The steps of a turn; in a profile, the first captures the stacks.
const STEPS: usize = 4;

fn main() {
    let device = TpuDevice::default();
    // A short step: what a profile costs shows more than in a long one.
    let config = GptConfig::new().with_batch(4);
    let mut model = Some(config.init::<B>(&device));
    let mut optimizer = TpuOptimizer::new(adamw());
    let mut number = 0;
    let mut step = || {
        let batch = Tokens::synthetic(&config, number, &device);
        number += 1;
        let begin = Instant::now();
        let (next, _) = train_step::<B, Gpt<B>, _>(model.take().expect("a model"), &mut optimizer, 1e-3, batch);
        model = Some(next);
        device.sync().expect("the step runs");
        begin.elapsed()
    };
    for _ in 0..4 {
        step();
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (mut without, mut first, mut later) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.extend((0..STEPS).map(|_| step()));
        let turn = || (0..STEPS).map(|_| step()).collect::<Vec<_>>();
        let (times, _) = burn_tpu::profile(&device, folder.path(), turn).expect("a profile");
        first.push(times[0]);
        later.extend(&times[1..]);
    }
    let base = median(&mut without);
    let row = |name: &str, time: Duration| {
        println!("{name:<28} {:>9.3} ms  {:>6.3}", time.as_secs_f64() * 1e3, time.as_secs_f64() / base.as_secs_f64());
    };
    row("no profile", base);
    row("profiled, first step", median(&mut first));
    row("profiled, later steps", median(&mut later));
    println!("{:<28} {:>9.3} ns", "one check without a profile", check().as_secs_f64() * 1e3);
    let metrics = device.metrics();
    println!("{:<28} {:>9.0} ops", "recorded in a step", metrics.recorded_ops as f64 / number as f64);
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Returns the time of a million times what each recorded op does for a profile while there is none: the shortest of many
/// batches, since other processes lengthen the rest.
fn check() -> Duration {
    const CHECKS: u32 = 1_000_000;
    let batch = |_| {
        let begin = Instant::now();
        for _ in 0..CHECKS {
            black_box(burn_tpu_runtime::testing::is_profiled());
        }
        begin.elapsed()
    };
    (0..200).map(batch).min().unwrap_or_default()
}
