//! Burn 0.22 on a TPU, GPU or CPU in this process: `cargo run --release`. The model, the data and the loop are those of
//! `examples/burn-0.22`, which knows no burn-tpu; only this file does.

#[path = "../../burn-0.22/src/data.rs"]
mod data;
#[path = "../../burn-0.22/src/model.rs"]
mod model;
#[path = "../../burn-0.22/src/training.rs"]
mod training;

use anyhow::Result;
use burn::prelude::*;
use burn_tpu_0_22::TpuDevice;
use clap::Parser;
use training::{Options, StepEnd};

/// Train and test a digit classifier on the best device present.
#[derive(Parser)]
struct Args {
    /// Read the loss in every step, as a program does that knows no burn-tpu
    #[arg(long)]
    read: bool,
    #[command(flatten)]
    options: Options,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let tpu = TpuDevice::default();
    // This does not compile if the real burn-flex is in the slot.
    let device = Device::from(tpu);
    println!("device {tpu}");
    let mark = |_: &Device| {
        TpuDevice::default().mark_step();
        Ok(())
    };
    let step_end = if args.read { StepEnd::Read } else { StepEnd::Mark(mark) };
    training::run(&args.options, &device, &step_end)?;
    println!("{}", tpu.metrics());
    Ok(())
}
