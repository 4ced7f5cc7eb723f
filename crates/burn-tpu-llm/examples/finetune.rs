//! Trains an adapter on a text: `cargo run --release -p burn-tpu-llm --example finetune -- FILE|DIR TEXT_FILE OUTPUT_DIR`.
//!
//! The program `burn-tpu finetune` does this with options, and on conversations.
#![allow(clippy::print_stdout, reason = "an example")]

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn_tpu::{DeviceAdamW, Tpu, TpuDevice, TpuOptions, compile_step};
use burn_tpu_llm::training::{Batch, Example, Rows};
use burn_tpu_llm::{Decoder, LoraConfig, Source};
use std::error::Error;

type B = Autodiff<Tpu<f32>>;

const STEPS: usize = 20;
/// Rows of a step, and their tokens.
const BATCH: usize = 2;
const LENGTH: usize = 128;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(text), Some(output)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: finetune FILE|DIR TEXT_FILE OUTPUT_DIR".into());
    };
    let device = TpuDevice::default();
    TpuOptions::training().install(&device)?;
    let source = Source::open(path.as_ref())?;
    let tokenizer = source.tokenizer()?;
    let rows = Rows::new(&Example::of_text(&tokenizer, &std::fs::read_to_string(text)?, LENGTH)?, LENGTH);

    let lora = LoraConfig { rank: 16, alpha: 32.0, ..LoraConfig::default() };
    let model = source.load::<B>(&device)?.with_lora(&lora)?;
    // Forward, backward and update are one program.
    let mut step = compile_step(model, DeviceAdamW::new().with_gradient_norm(1.0), |model: &Decoder<B>, batch| {
        let loss = Batch::from_inner(batch).loss(model).unwrap_or_else(|error| panic!("{error}"));
        (loss.clone(), loss.inner())
    });
    for number in 0..STEPS {
        let batch = rows.batch(&rows.shuffled(number, BATCH, 0), &device);
        let loss = step.run(2e-4, batch)?;
        println!("step {}: loss {:.4}", number + 1, loss.try_into_scalar()?);
    }

    step.into_model().valid().save_lora(output.as_ref())?;
    println!("`{output}` has the adapter, in PEFT's form");
    Ok(())
}
