//! Measurements of programs whole and in pieces, run by hand: a process for each, since `BURN_TPU_PROGRAM_CAP` sets the cap.

use crate::rolling::recurrent::{self, Layer, Model, sequences};
use burn::backend::Autodiff;
use burn::optim::AdamConfig;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData, linalg};
use burn_tpu::{Metrics, Tpu, TpuDevice, TpuOptimizer, TpuOptions, metrics};
use burn_tpu_fusion::Optimization;
use burn_tpu_graph::cost;
use burn_tpu_runtime::Device;
use burn_tpu_runtime::testing::{recorded, with_level};
use burn_tpu_workspace::models::{Gpt, GptConfig, Tokens, adamw, train_step};
use std::time::{Duration, Instant};

type D = Autodiff<Tpu<f32>>;

/// Returns the seconds that all threads of this process have run.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
    ticks.iter().sum::<f64>() / 100.0
}

/// Prints what the first steps and the later ones cost, and what ran.
fn report(name: &str, device: &TpuDevice, mut step: impl FnMut()) {
    let mut last = metrics(device);
    // The second step finds the optimizer's state.
    for number in 0..2 {
        let start = cpu_seconds();
        step();
        D::sync(device).expect("it runs");
        let now = metrics(device);
        let (cpu, seconds) = (cpu_seconds() - start, (now.compile_time() - last.compile_time()).as_secs_f64());
        eprintln!("{name}, step {number}: {cpu:.1} CPU s, compile {seconds:.1} s: {}", counts(&last, &now));
        last = now;
    }
    let mut shortest = f64::INFINITY;
    for _ in 0..10 {
        let start = Instant::now();
        step();
        D::sync(device).expect("it runs");
        shortest = shortest.min(1e3 * start.elapsed().as_secs_f64());
    }
    eprintln!("{name}, later: {shortest:.1} ms, ten steps: {}", counts(&last, &metrics(device)));
}

fn counts(before: &Metrics, after: &Metrics) -> String {
    let Metrics { recorded_nodes, compiles, executions, pieces, temporary_bytes, argument_bytes, output_bytes, .. } =
        after;
    let mib = |after: u64, before: u64| (after - before) >> 20;
    format!(
        "{} nodes, {} compiles, {} executions, {} pieces, MiB of arguments {}, results {}, temporaries {}",
        recorded_nodes - before.recorded_nodes,
        compiles - before.compiles,
        executions - before.executions,
        pieces - before.pieces,
        mib(*argument_bytes, before.argument_bytes),
        mib(*output_bytes, before.output_bytes),
        mib(*temporary_bytes, before.temporary_bytes),
    )
}

/// `PIECES=lstm-100` (time steps, not rolled), `gpt-12` (layers) or `lu-256`; `PIECES_DEVICE=v5e:1x1` compiles for a TPU.
#[test]
#[ignore = "a measurement"]
fn whole_and_in_pieces() {
    let asked = |name| std::env::var(name).ok();
    let what = asked("PIECES").unwrap_or_else(|| "lstm-28".into());
    let (kind, size) = what.split_once('-').expect("a kind and a size");
    let size: usize = size.parse().expect("a number");
    let device = match asked("PIECES_DEVICE") {
        Some(slice) => TpuDevice::topology(&slice).expect("a slice's name"),
        None => TpuDevice::cpu(0),
    };
    let options = TpuOptions::training().disk_cache(false).interpret_from(0).compile_timeout(Duration::ZERO);
    options.install(&device).expect("first use");
    match kind {
        "lstm" => {
            let mut model = Some(Model::<D>::new(Layer::Lstm, 28, 64, &device));
            let mut optimizer = TpuOptimizer::new(AdamConfig::new().init());
            let mut step = || {
                let x = sequences::<D>([32, size, 28], &device);
                model = model.take().map(|model| recurrent::step(model, &mut optimizer, x).0);
            };
            with_level(Optimization::Off, || report(&what, &device, &mut step));
        }
        "gpt" => {
            let config = GptConfig::new().with_layers(size).with_width(64).with_feed_forward(256).with_sequence(64);
            let mut model = Some(config.init::<D>(&device));
            let mut optimizer = TpuOptimizer::new(adamw());
            let build = |device: &Device| (config.init::<D>(&TpuDevice::from(*device)), adamw());
            let train = |(model, mut optimizer): (Gpt<D>, _), device: &Device| {
                let tokens = Tokens::synthetic(&config, 0, &TpuDevice::from(*device));
                (train_step(model, &mut optimizer, 1e-3, tokens).0, optimizer)
            };
            let programs = recorded(build, train).expect("a step");
            eprintln!("{what}: programs of {:?} nodes", programs.iter().map(|p| cost::nodes(p)).collect::<Vec<_>>());
            let mut step = || {
                let tokens = Tokens::synthetic(&config, 0, &device);
                model = model.take().map(|model| train_step(model, &mut optimizer, 1e-3, tokens).0);
            };
            report(&what, &device, &mut step);
        }
        _ => {
            let number = |i: usize| (((i + 1) * 104_729) % 1009) as f32 / 1009.0 - 0.5;
            let values: Vec<f32> = (0..size * size / 2).map(number).collect();
            let data = TensorData::new(values, [size, size / 2]);
            let mut held = None;
            let mut step = || held = Some(linalg::lu::<Tpu<f32>, 2, 1>(Tensor::from_data(data.clone(), &device)));
            report(&what, &device, &mut step);
        }
    }
}
