//! `perplexity`: how well a model predicts a text, in windows that do not overlap.

use super::{Loaded, ModelArgs, Outcome};
use burn::prelude::*;
use burn_tpu::{Tpu, TpuFloat};
use burn_tpu_llm::LlmError;
use std::path::PathBuf;

/// What `perplexity` takes.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// The text
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Tokens of a window, of which each is predicted from those before it
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(2..))]
    window: u32,
    /// The most windows; the text is read from its beginning
    #[arg(long, default_value_t = usize::MAX)]
    windows: usize,
}

/// Runs the command.
pub fn run<F: TpuFloat>(args: &Args, loaded: &Loaded<F>) -> Outcome {
    let text = std::fs::read_to_string(&args.text).map_err(|error| format!("`{}`: {error}", args.text.display()))?;
    let (tokens, window) = (loaded.tokenizer.encode(&text)?, args.window as usize);
    let windows: Vec<_> = tokens.chunks_exact(window).take(args.windows).collect();
    if windows.is_empty() {
        return Err(format!("the text has {} tokens, less than a window of {window}", tokens.len()).into());
    }
    let (mut nats, mut bytes) = (0.0, 0);
    for window in &windows {
        let ids: Vec<i32> = window.iter().map(|token| *token as i32).collect();
        let ids = Tensor::<Tpu<F>, 1, Int>::from_data(ids.as_slice(), &loaded.device).unsqueeze();
        let loss = loaded.model.loss(ids).try_into_data().map_err(LlmError::Device)?;
        nats += loss.iter::<f64>().sum::<f64>() * (window.len() - 1) as f64;
        bytes += loaded.tokenizer.decode(&window[1..])?.len();
    }
    let count = windows.len() * (window - 1);
    let each = nats / count as f64;
    println!(
        "{count} tokens in {} windows: {each:.4} nats a token, perplexity {:.3}, {:.4} bits a byte",
        windows.len(),
        each.exp(),
        nats / std::f64::consts::LN_2 / bytes as f64
    );
    Ok(())
}
