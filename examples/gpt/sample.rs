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
        let tokens =
            if count == vocab { logits.clone().argsort_descending(1) } else { logits.clone().argtopk(count, 1) };
        let logits = self.keep_top_p(logits.gather(1, tokens.clone()) / self.temperature);
        tokens.gather(1, draw(logits))
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

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu::{Tpu, TpuDevice};

    /// The probabilities of five tokens, which are not in order.
    const PROBABILITIES: [f32; 5] = [0.1, 0.4, 0.05, 0.3, 0.15];

    /// Returns how often each token is chosen in 20,000 draws.
    fn shares(sampler: &Sampler) -> [f32; 5] {
        // burn-ndarray has no argtopk.
        let device = TpuDevice::ndarray();
        Tpu::<f32>::seed(&device, 3);
        let logits = Tensor::<Tpu<f32>, 1>::from_data(PROBABILITIES, &device).log();
        let tokens = sampler.sample(logits.unsqueeze::<2>().repeat_dim(0, 20_000));
        assert_eq!(tokens.dims(), [20_000, 1]);
        let mut counts = [0; 5];
        tokens.into_data().iter::<u32>().for_each(|token| counts[token as usize] += 1);
        counts.map(|count| count as f32 / 20_000.0)
    }

    fn assert_shares(sampler: &Sampler, expected: [f32; 5]) {
        let shares = shares(sampler);
        let close = shares.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.015);
        assert!(close && shares.iter().zip(expected).all(|(a, b)| b > 0.0 || *a == 0.0), "{sampler:?}: {shares:?}");
    }

    #[test]
    fn tokens_are_drawn_with_their_probabilities() {
        assert_shares(&Sampler { temperature: 1.0, top_k: 0, top_p: 1.0 }, PROBABILITIES);
        let squares = PROBABILITIES.map(|p| p * p);
        let sum: f32 = squares.iter().sum();
        assert_shares(&Sampler { temperature: 0.5, top_k: 0, top_p: 1.0 }, squares.map(|square| square / sum));
        assert_shares(&Sampler { temperature: 0.0, top_k: 2, top_p: 0.5 }, [0.0, 1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn only_the_likeliest_tokens_are_drawn() {
        let two = [0.0, 0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0];
        assert_shares(&Sampler { temperature: 1.0, top_k: 2, top_p: 1.0 }, two);
        assert_shares(&Sampler { temperature: 1.0, top_k: 0, top_p: 0.65 }, two);
        // Both: of the three likeliest, those that have four fifths of their probability together.
        assert_shares(&Sampler { temperature: 1.0, top_k: 3, top_p: 0.8 }, two);
        // The likeliest token is always among them, and more tokens than there are is all.
        assert_shares(&Sampler { temperature: 1.0, top_k: 9, top_p: 0.01 }, [0.0, 1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn numbers_that_make_no_sense_are_errors() {
        let sampler = |temperature, top_p| Sampler { temperature, top_k: 0, top_p };
        assert!(sampler(1.0, 1.0).check().is_ok());
        assert!(sampler(-1.0, 1.0).check().is_err() && sampler(1.0, 0.0).check().is_err());
    }
}
