//! Burn 0.22 on a TPU, GPU or CPU in this process: `cargo run --release`. The model, the data and the loop are those of
//! `examples/burn-0.22`, which knows no burn-tpu; only this file does.

#[path = "../../burn-0.22/src/data.rs"]
mod data;
#[path = "../../burn-0.22/src/model.rs"]
mod model;
#[path = "../../burn-0.22/src/training.rs"]
mod training;

use anyhow::{Context, Result};
use burn::optim::AdamConfig;
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_tpu::{TpuDevice, TpuOptimizer};
use clap::{Parser, ValueEnum};
use training::{LossRead, Options};

/// Train and test a digit classifier on the best device present.
#[derive(Parser)]
struct Args {
    /// The type of weights and activations; bf16 weights have f32 master copies
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// Read the loss in every step, as a program does that knows no burn-tpu
    #[arg(long)]
    read: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    F32,
    Bf16,
}

impl From<Dtype> for FloatDType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::Bf16 => Self::BF16,
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let tpu = TpuDevice::default();
    let mut device = Device::from(tpu);
    device.configure(FloatDType::from(args.dtype)).context("a device is configured before its first tensor")?;
    println!("device {tpu}");
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().build());
    let loss_read = if args.read { LossRead::Always } else { LossRead::Seldom };
    training::run(&args.options, &device, loss_read, |rate, model, gradients| {
        Ok(optimizer.step(rate, model, gradients))
    })?;
    println!("{}", tpu.metrics());
    Ok(())
}
