//! The first steps of a training: a step is compiled once, though the first one makes the weights and has no optimizer's
//! state.

use crate::common;

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::optim::{AdamWConfig, Optimizer, SgdConfig};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer, TpuOptions, mark_step};
use burn_tpu_workspace::models::{GptConfig, Images, ResNet, Supervised, Tokens, train_step};
use common::alone;

type F32 = Autodiff<Tpu<f32>>;

/// Returns a device of the CPU plugin with the options of training; `None` if there is no plugin.
#[track_caller]
fn device(name: &str) -> Option<TpuDevice> {
    common::cpu_with(name, TpuOptions::training().disk_cache(false))
}

fn gpt() -> GptConfig {
    GptConfig::new().with_layers(2).with_width(64).with_feed_forward(256).with_sequence(32).with_batch(4)
}

/// Returns the bits of the losses of `steps` steps.
fn losses<B: AutodiffBackend<Device = TpuDevice>, M, O>(
    mut model: M,
    mut optimizer: O,
    batch: impl Fn(usize) -> M::Batch,
    steps: usize,
    after: impl Fn(usize, &Tensor<B, 1>),
) -> Vec<u32>
where
    M: Supervised<B> + AutodiffModule<B>,
    O: Optimizer<M, B>,
{
    let mut losses = Vec::new();
    for step in 0..steps {
        let loss;
        (model, loss) = train_step(model, &mut optimizer, 1e-3, batch(step));
        after(step, &loss);
        losses.push(loss);
    }
    losses.into_iter().map(|loss| loss.into_scalar().elem::<f32>().to_bits()).collect()
}

/// The processor time of this process in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap_or_default());
    ticks.sum::<f64>() / 100.0
}

/// Prints what the first steps of `FIRST_STEPS` cost: a model and an optimizer, such as `gpt tpu`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr, reason = "a measurement")]
fn what_the_first_steps_cost() {
    let Some(device) = device("measured") else { return };
    let _alone = alone();
    F32::seed(&device, 11);
    let case = std::env::var("FIRST_STEPS").unwrap_or_else(|_| "gpt tpu".into());
    let (model, optimizer) = case.split_once(' ').expect("a model and an optimizer");
    let start = cpu_seconds();
    let report = |step: usize, _: &Tensor<F32, 1>| {
        device.sync().unwrap();
        let m = burn_tpu::metrics(&device);
        if step < 4 {
            eprintln!(
                "{case}: step {step}: {:.1} CPU s, {} compiles, {:.1} s of compiles, interpreted {}, host parts {}, executions {}",
                cpu_seconds() - start,
                m.compiles,
                m.compile_time().as_secs_f64(),
                m.interpreted,
                m.host_parts,
                m.executions
            );
        }
    };
    let marked = |step: usize, loss: &Tensor<F32, 1>| {
        mark_step(&device);
        report(step, loss);
    };
    let config = GptConfig::new().with_layers(4).with_width(128).with_sequence(64).with_batch(4).with_dropout(0.1);
    let tokens = |step| Tokens::synthetic(&config, step, &device);
    let images = |step| Images::synthetic(16, step, &device);
    let adamw = AdamWConfig::new();
    let bits = match (model, optimizer) {
        ("gpt", "tpu") => losses(config.init::<F32>(&device), TpuOptimizer::new(adamw.init()), tokens, 20, report),
        ("gpt", "plain") => losses(config.init::<F32>(&device), adamw.init(), tokens, 20, marked),
        ("gpt", "read") => losses(config.init::<F32>(&device), adamw.init(), tokens, 20, report),
        ("gpt", "sgd") => losses(config.init::<F32>(&device), SgdConfig::new().init(), tokens, 20, marked),
        ("resnet", "tpu") => losses(ResNet::<F32>::new(&device), TpuOptimizer::new(adamw.init()), images, 20, report),
        ("resnet", "plain") => losses(ResNet::<F32>::new(&device), adamw.init(), images, 20, marked),
        ("resnet", "read") => losses(ResNet::<F32>::new(&device), adamw.init(), images, 20, report),
        other => panic!("no case {other:?}"),
    };
    eprintln!("{case}: losses {bits:x?}\n{}", burn_tpu::metrics(&device));
}
