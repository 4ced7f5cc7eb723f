//! Training of a language model in Burn's Learner, on batches as long as their longest text.

use crate::SEED;
use crate::decoder::{Decoder, VOCABULARY};
use crate::learner::{self, VALIDATION_BATCHES};
use crate::numbers::Numbers;
use burn::data::dataloader::batcher::Batcher;
use burn::nn::attention::generate_padding_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::AdamConfig;
use burn::optim::lr_scheduler::noam::NoamLrSchedulerConfig;
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};

const BATCH: usize = 8;
const LONGEST: usize = 64;
/// The token that fills a row up to the longest text of the batch.
const PADDING: usize = 0;

type Text = Vec<usize>;

/// Returns texts of 8 to 64 tokens that count upwards in steps of 1 to 4, with some errors.
fn texts(count: usize, seed: u64) -> Vec<Text> {
    let mut numbers = Numbers::new(seed);
    let text = |numbers: &mut Numbers| {
        let (start, stride) = (numbers.within(0..VOCABULARY), numbers.within(1..5));
        let length = numbers.within(8..LONGEST + 1);
        let token = |at: usize, error: usize| 1 + (start + at * stride + usize::from(error == 0)) % (VOCABULARY - 1);
        (0..length).map(|at| token(at, numbers.within(0..10))).collect()
    };
    (0..count).map(|_| text(&mut numbers)).collect()
}

#[derive(Clone)]
struct TextBatcher;

/// Texts of one length.
#[derive(Clone, Debug)]
pub struct TextBatch<B: Backend> {
    /// `[batch, length]`
    inputs: Tensor<B, 2, Int>,
    /// `[batch, length]`: the token after each input.
    targets: Tensor<B, 2, Int>,
    /// `[batch, length]`, true where an input is padding.
    padding: Tensor<B, 2, Bool>,
}

impl<B: Backend> Batcher<B, Text, TextBatch<B>> for TextBatcher {
    fn batch(&self, texts: Vec<Text>, device: &B::Device) -> TextBatch<B> {
        let padded = generate_padding_mask::<B>(PADDING, texts, Some(LONGEST), device);
        let [rows, length] = padded.tensor.dims();
        let last = length - 1;
        TextBatch {
            inputs: padded.tensor.clone().slice([0..rows, 0..last]),
            targets: padded.tensor.slice([0..rows, 1..length]),
            padding: padded.mask.slice([0..rows, 0..last]),
        }
    }
}

impl<B: Backend> Decoder<B> {
    fn predict(&self, batch: TextBatch<B>) -> ClassificationOutput<B> {
        let [rows, length] = batch.inputs.dims();
        let logits = self.forward(batch.inputs, Some(batch.padding)).reshape([rows * length, VOCABULARY]);
        let targets = batch.targets.reshape([rows * length]);
        let loss = CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![PADDING])).init(&logits.device());
        ClassificationOutput { loss: loss.forward(logits.clone(), targets.clone()), output: logits, targets }
    }
}

impl<B: AutodiffBackend> TrainStep for Decoder<B> {
    type Input = TextBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: TextBatch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.predict(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Decoder<B> {
    type Input = TextBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: TextBatch<B>) -> ClassificationOutput<B> {
        self.predict(batch)
    }
}

/// Trains in Burn's Learner.
pub fn learn<B: AutodiffBackend>(steps: usize, workers: usize, device: &B::Device) -> Vec<f64> {
    let train = learner::loader::<B, _, _, _>(TextBatcher, texts(steps * BATCH, SEED), BATCH, workers, device);
    let valid = texts(VALIDATION_BATCHES * BATCH, SEED + 1);
    let valid = learner::loader::<B::InnerBackend, _, _, _>(TextBatcher, valid, BATCH, workers, device);
    let schedule = NoamLrSchedulerConfig::new(0.05).with_warmup_steps(50).with_model_size(64).init();
    let schedule = schedule.expect("the schedule's numbers are positive");
    learner::classify(Decoder::<B>::new(device), AdamConfig::new().init(), schedule, train, valid)
}
