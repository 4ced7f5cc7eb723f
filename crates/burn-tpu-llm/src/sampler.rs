//! The choice of the next token of each text of a batch, on the device.
//!
//! Its random numbers are drawn on the host, one for each token, from the text's seed and the number of the token
//! alone. So a seed gives the same text on every backend and in every batch, up to the rounding of logits.

use crate::error::{LlmError, Result};
use crate::random::uniform;
use burn::prelude::*;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::ExecutionError;
use burn::tensor::ops::{TransactionPrimitive, TransactionPrimitiveData};
use burn::tensor::{DType, TensorData, read_sync};
use std::pin::Pin;

/// The logit of a token that must not be chosen.
const NEVER: f32 = -1e9;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits: below 1 the likely tokens are chosen more often; 0 always chooses the likeliest.
    pub temperature: f64,
    /// Choose among this many likeliest tokens only; 0 for all.
    pub top_k: usize,
    /// Choose among the likeliest tokens only that together have this probability; 1 for all.
    pub top_p: f64,
    /// Choose among tokens only that have this share of the likeliest one's probability; 0 for all.
    pub min_p: f64,
    /// Divides the positive logits of tokens in the prompt and the answer, and multiplies the negative ones; 1 for none
    /// ([Keskar et al.](https://arxiv.org/abs/1909.05858)).
    pub repetition_penalty: f64,
    /// Subtracted from the logits of tokens in the answer.
    pub presence_penalty: f64,
    /// Subtracted from the logits of tokens in the answer, as often as they are in it.
    pub frequency_penalty: f64,
    /// Added to the logits of these tokens, before all else: -100 practically excludes a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// What the random numbers follow from.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl Sampling {
    /// Checks that the numbers make sense, for a model that knows `vocabulary` tokens.
    ///
    /// # Errors
    /// [`LlmError::Sampling`], with the number and its range.
    pub fn check(&self, vocabulary: usize) -> Result<()> {
        let rules = [
            ("temperature", self.temperature, "at least 0", self.temperature >= 0.0),
            ("top-p", self.top_p, "above 0 and at most 1", self.top_p > 0.0 && self.top_p <= 1.0),
            ("min-p", self.min_p, "from 0 to 1", (0.0..=1.0).contains(&self.min_p)),
            ("repetition penalty", self.repetition_penalty, "above 0", self.repetition_penalty > 0.0),
        ];
        let is_wrong = |(token, bias): &&(u32, f32)| *token as usize >= vocabulary || !bias.is_finite();
        if let Some((token, bias)) = self.logit_bias.iter().find(is_wrong) {
            return Err(LlmError::Sampling(format!(
                "the logit bias of token {token} is {bias}: it must be a number, and the model knows {vocabulary} tokens"
            )));
        }
        match rules.iter().find(|(.., holds)| !holds) {
            Some((name, value, range, _)) => {
                Err(LlmError::Sampling(format!("the {name} is {value}: it must be {range}")))
            }
            None => Ok(()),
        }
    }

    fn filters(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }
}

/// A text of a batch, as its sampler needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'p> {
    pub(crate) prompt: &'p [u32],
    pub(crate) seed: u64,
}

/// Chooses the tokens of the answers of a batch, and counts them.
#[derive(Clone, Debug)]
pub(crate) struct Sampler<B: Backend> {
    sampling: Sampling,
    with_probability: bool,
    /// `[1, vocabulary]` in f32
    bias: Option<Tensor<B, 2>>,
    counts: Option<Counts<B>>,
    seeds: Vec<u64>,
    draws: u64,
}

/// How often tokens have come, `[batch, vocabulary]` in f32.
#[derive(Clone, Debug)]
struct Counts<B: Backend> {
    prompt: Tensor<B, 2>,
    answer: Tensor<B, 2>,
}

/// The tokens that were chosen, on the device and on their way to the host.
#[derive(Debug)]
pub(crate) struct Choice<B: Backend> {
    /// `[batch, 1]`
    pub(crate) tokens: Tensor<B, 2, Int>,
    reading: Reading,
}

/// A read that has begun.
struct Reading(Pin<Box<dyn Future<Output = Result<TransactionPrimitiveData, ExecutionError>> + Send>>);

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reading")
    }
}

impl<B: Backend> Choice<B> {
    /// Begins to read tokens and, if they are asked for, the logarithms of their probabilities before sampling changed
    /// the logits, `[batch, 1]` each. A backend that records ops dispatches them here, and nothing waits.
    fn new(tokens: Tensor<B, 2, Int>, log_probabilities: Option<Tensor<B, 2>>) -> Self {
        let floats = log_probabilities.map(|values| values.into_primitive().tensor()).into_iter().collect();
        let reads = TransactionPrimitive::<B>::new(floats, vec![], vec![tokens.clone().into_primitive()], vec![]);
        Self { tokens, reading: Reading(Box::pin(B::tr_execute(reads))) }
    }

    /// Waits for the tokens, and returns each with the logarithm of its probability.
    pub(crate) fn read(self) -> Result<Vec<(u32, Option<f32>)>> {
        let read = read_sync(self.reading.0).map_err(LlmError::Device)?;
        let mut probabilities = read.read_floats.iter().flat_map(TensorData::iter::<f32>);
        let tokens = read.read_ints.iter().flat_map(TensorData::iter::<u32>);
        Ok(tokens.map(|token| (token, probabilities.next())).collect())
    }
}

impl<B: Backend> Sampler<B> {
    pub(crate) fn new(
        sampling: &Sampling,
        with_probability: bool,
        rows: &[Row<'_>],
        vocabulary: usize,
        device: &B::Device,
    ) -> Self {
        let penalties = [sampling.repetition_penalty - 1.0, sampling.presence_penalty, sampling.frequency_penalty];
        let has_penalty = penalties.iter().any(|penalty| *penalty != 0.0);
        let bias = || {
            let mut bias = vec![0.0; vocabulary];
            sampling.logit_bias.iter().for_each(|(token, more)| bias[*token as usize] += more);
            Tensor::from_data(TensorData::new(bias, [1, vocabulary]), (device, DType::F32))
        };
        Self {
            sampling: sampling.clone(),
            with_probability,
            bias: (!sampling.logit_bias.is_empty()).then(bias),
            counts: has_penalty.then(|| Counts::new(rows, vocabulary, device)),
            seeds: rows.iter().map(|row| row.seed).collect(),
            draws: 0,
        }
    }

    /// Chooses a token of each row by its logits, `[batch, vocabulary]` in f32.
    pub(crate) fn choose(&mut self, logits: Tensor<B, 2>) -> Choice<B> {
        let mut changed = logits.clone();
        if let Some(bias) = &self.bias {
            changed = changed + bias.clone();
        }
        if let Some(counts) = &self.counts {
            changed = counts.penalised(changed, &self.sampling);
        }
        let tokens = if self.sampling.temperature == 0.0 { changed.argmax(1) } else { self.drawn(changed) };
        if let Some(counts) = &mut self.counts {
            counts.add(tokens.clone());
        }
        let probabilities = self.with_probability.then(|| log_softmax(logits, 1).gather(1, tokens.clone()));
        Choice::new(tokens, probabilities)
    }

    fn drawn(&mut self, logits: Tensor<B, 2>) -> Tensor<B, 2, Int> {
        let shares: Vec<f32> = self.seeds.iter().map(|seed| uniform(*seed, self.draws) as f32).collect();
        self.draws += 1;
        let shape = [shares.len(), 1];
        let shares = Tensor::from_data(TensorData::new(shares, shape), (&logits.device(), DType::F32));
        let logits = logits / self.sampling.temperature;
        if !self.sampling.filters() {
            return inverse(softmax(logits, 1), shares);
        }
        let (logits, tokens) = logits.sort_descending_with_indices(1);
        tokens.gather(1, inverse(softmax(self.filtered(logits), 1), shares))
    }

    /// Excludes tokens; the logits of each row descend.
    fn filtered(&self, mut logits: Tensor<B, 2>) -> Tensor<B, 2> {
        let Sampling { top_k, top_p, min_p, .. } = self.sampling;
        let [batch, vocabulary] = logits.dims();
        if top_k > 0 && top_k < vocabulary {
            let place = Tensor::<B, 1, Int>::arange(0..vocabulary as i64, &logits.device()).unsqueeze::<2>();
            let excluded = place.greater_equal_elem(top_k as i64).expand([batch, vocabulary]);
            logits = logits.mask_fill(excluded, NEVER);
        }
        if top_p < 1.0 {
            let probabilities = softmax(logits.clone(), 1);
            let before = probabilities.clone().cumsum(1) - probabilities;
            logits = logits.mask_fill(before.greater_equal_elem(top_p), NEVER);
        }
        if min_p > 0.0 {
            let likeliest = logits.clone().slice_dim(1, 0..1).expand([batch, vocabulary]);
            logits = logits.clone().mask_fill(logits.lower(likeliest + min_p.ln()), NEVER);
        }
        logits
    }
}

/// Returns the index, `[batch, 1]`, at which the sum of a row's probabilities exceeds its share of all, `[batch, 1]`.
fn inverse<B: Backend>(probabilities: Tensor<B, 2>, shares: Tensor<B, 2>) -> Tensor<B, 2, Int> {
    let last = probabilities.dims()[1] - 1;
    let sums = probabilities.cumsum(1);
    let targets = sums.clone().slice_dim(1, last..last + 1) * shares;
    let before = sums.clone().lower_equal(targets.expand(sums.dims()));
    before.int().sum_dim(1).clamp_max(last as i64)
}

impl<B: Backend> Counts<B> {
    fn new(rows: &[Row<'_>], vocabulary: usize, device: &B::Device) -> Self {
        let mut counts = vec![0f32; rows.len() * vocabulary];
        for (row, counts) in rows.iter().zip(counts.chunks_mut(vocabulary)) {
            for token in row.prompt {
                if let Some(count) = counts.get_mut(*token as usize) {
                    *count += 1.0;
                }
            }
        }
        let shape = [rows.len(), vocabulary];
        let prompt = Tensor::from_data(TensorData::new(counts, shape), (device, DType::F32));
        Self { answer: Tensor::zeros(shape, (device, DType::F32)), prompt }
    }

    fn add(&mut self, tokens: Tensor<B, 2, Int>) {
        let shape = self.answer.dims();
        let all = Tensor::<B, 1, Int>::arange(0..shape[1] as i64, &self.answer.device()).unsqueeze::<2>();
        let one = all.expand(shape).equal(tokens.expand(shape)).float().cast(DType::F32);
        self.answer = self.answer.clone() + one;
    }

    fn penalised(&self, logits: Tensor<B, 2>, sampling: &Sampling) -> Tensor<B, 2> {
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } = *sampling;
        let seen = (self.prompt.clone() + self.answer.clone()).greater_elem(0.0);
        let positive = logits.clone().greater_elem(0.0);
        let lower = (logits.clone() * repetition_penalty).mask_where(positive, logits.clone() / repetition_penalty);
        let present = self.answer.clone().greater_elem(0.0).float().cast(DType::F32);
        let penalty = present * presence_penalty + self.answer.clone() * frequency_penalty;
        logits.mask_where(seen, lower) - penalty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::{Flex, FlexDevice};

    const PROBABILITIES: [f32; 5] = [0.1, 0.4, 0.05, 0.3, 0.15];

    fn sampler(sampling: &Sampling, prompt: &[u32]) -> Sampler<Flex> {
        let row = Row { prompt, seed: sampling.seed };
        Sampler::new(sampling, true, &[row], PROBABILITIES.len(), &FlexDevice)
    }

    fn logits() -> Tensor<Flex, 2> {
        Tensor::<Flex, 1>::from_data(PROBABILITIES, &FlexDevice).log().unsqueeze()
    }

    fn assert_shares(sampling: Sampling, expected: [f32; 5]) {
        const DRAWS: usize = 1000;
        let mut sampler = sampler(&Sampling { temperature: 1.0, ..sampling }, &[]);
        let mut shares = [0.0; 5];
        for _ in 0..DRAWS {
            let (token, probability) = sampler.choose(logits()).read().unwrap()[0];
            shares[token as usize] += 1.0 / DRAWS as f32;
            assert!((probability.unwrap().exp() - PROBABILITIES[token as usize]).abs() < 1e-5);
        }
        let close = shares.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.05 && (b > 0.0 || *a == 0.0));
        assert!(close, "{shares:?} instead of {expected:?}");
    }

    #[test]
    fn tokens_are_drawn_with_their_probabilities() {
        let all = Sampling::default();
        assert_shares(all.clone(), PROBABILITIES);
        let two = [0.0, 0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0];
        assert_shares(Sampling { top_k: 2, ..all.clone() }, two);
        assert_shares(Sampling { top_p: 0.65, ..all.clone() }, two);
        assert_shares(Sampling { min_p: 0.5, ..all.clone() }, two);
        assert_shares(Sampling { top_k: 3, top_p: 0.8, ..all }, two);
    }

    #[test]
    fn a_seed_gives_the_same_tokens_and_another_seed_others() {
        let drawn = |seed| {
            let mut sampler = sampler(&Sampling { temperature: 1.0, seed, ..Sampling::default() }, &[]);
            (0..40).map(|_| sampler.choose(logits()).read().unwrap()[0].0).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn rows_have_seeds_prompts_and_counts_of_their_own() {
        let sampling =
            Sampling { temperature: 1.0, frequency_penalty: 0.5, repetition_penalty: 1.2, ..Sampling::default() };
        let rows = [(3, &[0][..]), (4, &[1, 1]), (3, &[])].map(|(seed, prompt)| Row { prompt, seed });
        let tokens = |rows: &[Row<'_>]| {
            let mut sampler = Sampler::<Flex>::new(&sampling, false, rows, 5, &FlexDevice);
            let mut choose = || sampler.choose(logits().repeat_dim(0, rows.len())).read().unwrap();
            (0..20).map(|_| choose().iter().map(|(token, _)| *token).collect()).collect::<Vec<Vec<_>>>()
        };
        let together = tokens(&rows);
        for (at, row) in rows.iter().enumerate() {
            let alone: Vec<_> = tokens(&[*row]).concat();
            assert_eq!(together.iter().map(|tokens| tokens[at]).collect::<Vec<_>>(), alone, "row {at}");
        }
    }

    #[test]
    fn a_bias_is_added_to_the_logits_of_its_token() {
        let likeliest = |logit_bias: &[(u32, f32)]| {
            let mut sampler = sampler(&Sampling { logit_bias: logit_bias.to_vec(), ..Sampling::default() }, &[]);
            sampler.choose(logits()).read().unwrap()[0]
        };
        assert_eq!(likeliest(&[]).0, 1);
        // 0.3 * exp(0.25) is less than 0.4, and 0.3 * exp(0.3) is more.
        assert_eq!((likeliest(&[(3, 0.25)]).0, likeliest(&[(3, 0.3)]).0, likeliest(&[(1, -100.0)]).0), (1, 3, 3));
        // The model's own probability is given.
        assert!((likeliest(&[(3, 9.0)]).1.unwrap().exp() - 0.3).abs() < 1e-5);
    }

    #[test]
    fn penalties_are_those_of_their_definitions() {
        let sampling =
            Sampling { repetition_penalty: 2.0, presence_penalty: 0.5, frequency_penalty: 0.25, ..Sampling::default() };
        let mut sampler = sampler(&sampling, &[0, 0]);
        let choose = |sampler: &mut Sampler<Flex>, logits: [f32; 5]| {
            sampler.choose(Tensor::<Flex, 2>::from_data([logits], &FlexDevice)).read().unwrap()[0].0
        };
        // Token 0 is in the prompt: 4 becomes 2.
        assert_eq!(choose(&mut sampler, [4.0, 2.1, 0.0, 0.0, 0.0]), 1);
        // Token 1 has come once: 8 becomes 8 / 2 - 0.5 - 0.25 = 3.25; -1 becomes -2 for token 0.
        assert_eq!(choose(&mut sampler, [-1.0, 8.0, 3.2, 0.0, 0.0]), 1);
        // And twice: 8 / 2 - 0.5 - 0.5 = 3.
        assert_eq!(choose(&mut sampler, [-1.0, 8.0, 3.2, 0.0, 0.0]), 2);
    }

    #[test]
    fn numbers_that_make_no_sense_are_errors() {
        let wrong = |sampling: Sampling| sampling.check(5).unwrap_err().to_string();
        assert!(Sampling::default().check(5).is_ok());
        let message = wrong(Sampling { temperature: -1.0, ..Sampling::default() });
        assert_eq!(message, "the temperature is -1: it must be at least 0");
        assert!(wrong(Sampling { top_p: 0.0, ..Sampling::default() }).contains("top-p is 0"));
        assert!(wrong(Sampling { min_p: 1.5, ..Sampling::default() }).contains("min-p is 1.5"));
        let message = wrong(Sampling { logit_bias: vec![(1, 2.0), (5, 0.5)], ..Sampling::default() });
        assert_eq!(message, "the logit bias of token 5 is 0.5: it must be a number, and the model knows 5 tokens");
        assert!(wrong(Sampling { logit_bias: vec![(1, f32::NAN)], ..Sampling::default() }).contains("is NaN"));
        assert!(wrong(Sampling { repetition_penalty: f64::NAN, ..Sampling::default() }).contains("repetition"));
    }
}
