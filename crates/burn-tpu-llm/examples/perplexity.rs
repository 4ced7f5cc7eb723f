//! How well a model predicts a text: `cargo run --release -p burn-tpu-llm --example perplexity -- FILE|DIR TEXT_FILE`.
//!
//! The program `burn-tpu-llm perplexity` does this with options.
#![allow(clippy::print_stdout, reason = "an example")]

use burn::tensor::{Int, Tensor};
use burn_tpu::{Tpu, TpuDevice};
use burn_tpu_llm::Source;
use std::error::Error;

type B = Tpu<f32>;

/// The tokens of a window: each is predicted from those before it.
const WINDOW: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(text)) = (arguments.next(), arguments.next()) else {
        return Err("usage: perplexity FILE|DIR TEXT_FILE".into());
    };
    let device = TpuDevice::default();
    let source = Source::open(path.as_ref())?;
    let model = source.load::<B>(&device)?;
    let tokens = source.tokenizer()?.encode(&std::fs::read_to_string(text)?)?;

    let (mut nats, mut windows) = (0.0, 0);
    for window in tokens.chunks_exact(WINDOW) {
        let ids: Vec<i32> = window.iter().map(|&token| token as i32).collect();
        let loss = model.loss(Tensor::<B, 1, Int>::from_data(ids.as_slice(), &device).unsqueeze());
        nats += loss.try_into_data()?.iter::<f64>().sum::<f64>();
        windows += 1;
    }
    if windows == 0 {
        return Err(format!("the text has {} tokens, less than a window of {WINDOW}", tokens.len()).into());
    }
    let mean = nats / f64::from(windows);
    println!("{windows} windows of {WINDOW} tokens: {mean:.4} nats a token, perplexity {:.3}", mean.exp());
    Ok(())
}
