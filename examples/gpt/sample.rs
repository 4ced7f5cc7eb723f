//! The choice of the next token, on the device: temperature, top-k and top-p.

use anyhow::{Result, ensure};
use burn::prelude::*;
use burn::tensor::activation::softmax;
use burn::tensor::{DType, Distribution};

/// The logit of a token that must not be chosen.
const NEVER: f32 = -1e9;

/// How the next token is chosen.
#[derive(Clone, Debug, clap::Args)]
pub struct Sampler {
    /// Divides the logits: below 1 the likely tokens are chosen more often; 0 always chooses the likeliest
    #[arg(long, default_value_t = 0.8)]
    pub temperature: f64,
    /// Choose among this many likeliest tokens only; 0 for all
    #[arg(long, default_value_t = 40)]
    pub top_k: usize,
    /// Choose among the likeliest tokens only that together have this probability; 1 for all
    #[arg(long, default_value_t = 0.95)]
    pub top_p: f64,
}

impl Sampler {
    /// Checks the numbers that a user chose.
    pub fn check(&self) -> Result<()> {
        ensure!(self.temperature >= 0.0, "--temperature must be at least 0");
        ensure!(self.top_p > 0.0 && self.top_p <= 1.0, "--top-p must be above 0 and at most 1");
        Ok(())
    }

    /// Returns a token `[batch, 1]` for each row of logits `[batch, vocab]`, which are f32.
    pub fn sample<B: Backend>(&self, logits: Tensor<B, 2>) -> Tensor<B, 2, Int> {
        if self.temperature == 0.0 {
            return logits.argmax(1);
        }
        let [_, vocab] = logits.dims();
        let count = if self.top_k == 0 { vocab } else { self.top_k.min(vocab) };
        if count == vocab && self.top_p == 1.0 {
            return draw(logits / self.temperature);
        }
        let (logits, tokens) = logits.sort_descending_with_indices(1);
        let logits = self.keep_top_p(logits.narrow(1, 0, count) / self.temperature);
        tokens.narrow(1, 0, count).gather(1, draw(logits))
    }

    /// Excludes what follows the likeliest tokens that have the probability `top_p` together. The logits descend.
    fn keep_top_p<B: Backend>(&self, logits: Tensor<B, 2>) -> Tensor<B, 2> {
        if self.top_p == 1.0 {
            return logits;
        }
        let probabilities = softmax(logits.clone(), 1);
        let before = probabilities.clone().cumsum(1) - probabilities;
        logits.mask_fill(before.greater_equal_elem(self.top_p), NEVER)
    }
}

/// Draws an index `[batch, 1]` from each row, with the probabilities of its softmax: the largest logit after independent
/// noise from Gumbel's distribution is added to all of them.
fn draw<B: Backend>(logits: Tensor<B, 2>) -> Tensor<B, 2, Int> {
    // f32 whatever the backend's own type: bf16 has too few numbers between 0 and 1.
    let uniform = Tensor::<B, 2>::random(logits.dims(), Distribution::Default, (&logits.device(), DType::F32));
    (logits - uniform.log().neg().log()).argmax(1)
}
