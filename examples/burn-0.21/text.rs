//! A text classifier: sentences of random lengths, a transformer encoder, and padding masks made row by row.

use crate::learner::{self, VALIDATION_BATCHES};
use crate::numbers::Numbers;
use crate::programs::Options;
use crate::{SEED, weights};
use burn::data::dataloader::batcher::Batcher;
use burn::nn::attention::generate_padding_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::decay::WeightDecayConfig;
use burn::optim::lr_scheduler::LrScheduler;
use burn::optim::lr_scheduler::noam::{NoamLrScheduler, NoamLrSchedulerConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::backend::{AutodiffBackend, DeviceId};
use burn::train::{ClassificationOutput, ExecutionStrategy, InferenceStep, MultiDeviceOptim, TrainOutput, TrainStep};
use burn_flex::{Flex, FlexDevice};

const BATCH: usize = 8;
const CLASSES: usize = 4;
/// The token that fills a row up to the longest sentence of the batch.
const PADDING: usize = 0;

/// The sizes of the classifier and of its sentences.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct TextSizes {
    /// Features of the classifier of texts
    #[arg(long, value_name = "N", default_value_t = 64)]
    width: usize,
    /// Words of its vocabulary, at least 33
    #[arg(long, value_name = "N", default_value_t = 500)]
    words: usize,
    /// Tokens of its longest sentence
    #[arg(long, value_name = "N", default_value_t = 48)]
    longest: usize,
}

/// A sentence as tokens, and its class.
#[derive(Clone, Debug)]
struct Sentence {
    tokens: Vec<usize>,
    class: usize,
}

/// Returns sentences of 4 tokens to the longest, half of them from a vocabulary of their class.
fn sentences(sizes: TextSizes, count: usize, seed: u64) -> Vec<Sentence> {
    let mut numbers = Numbers::new(seed);
    let sentence = |numbers: &mut Numbers| {
        let class = numbers.within(0..CLASSES);
        let length = numbers.within(4..sizes.longest + 1);
        let token = |numbers: &mut Numbers| match numbers.within(0..2) {
            0 => 1 + class * 8 + numbers.within(0..8),
            _ => numbers.within(1..sizes.words),
        };
        Sentence { tokens: (0..length).map(|_| token(numbers)).collect(), class }
    };
    (0..count).map(|_| sentence(&mut numbers)).collect()
}

/// Pads sentences on the device.
#[derive(Clone)]
struct TextBatcher {
    longest: usize,
}

/// Sentences of one length.
#[derive(Clone, Debug)]
struct TextBatch<B: Backend> {
    /// `[batch, length]`
    tokens: Tensor<B, 2, Int>,
    /// `[batch, length]`, true where a token is padding.
    padding: Tensor<B, 2, Bool>,
    /// `[batch]`
    classes: Tensor<B, 1, Int>,
}

impl<B: Backend> Batcher<B, Sentence, TextBatch<B>> for TextBatcher {
    fn batch(&self, sentences: Vec<Sentence>, device: &B::Device) -> TextBatch<B> {
        let class = |sentence: &Sentence| Tensor::<B, 1, Int>::from_ints([sentence.class as i32], device);
        let classes = Tensor::cat(sentences.iter().map(class).collect(), 0);
        let tokens = sentences.into_iter().map(|sentence| sentence.tokens).collect();
        let padded = generate_padding_mask(PADDING, tokens, Some(self.longest), device);
        TextBatch { tokens: padded.tensor, padding: padded.mask, classes }
    }
}

/// Embeddings of tokens and positions, an encoder, and a linear layer on the first token.
#[derive(Module, Debug)]
struct TextClassifier<B: Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    encoder: TransformerEncoder<B>,
    output: Linear<B>,
}

impl<B: Backend> TextClassifier<B> {
    fn new(TextSizes { width, words, longest }: TextSizes, device: &B::Device) -> Self {
        let encoder = TransformerEncoderConfig::new(width, 2 * width, 4, 2).with_dropout(0.0).with_norm_first(true);
        Self {
            tokens: EmbeddingConfig::new(words, width).init(device),
            positions: EmbeddingConfig::new(longest, width).init(device),
            encoder: encoder.init(device),
            output: LinearConfig::new(width, CLASSES).init(device),
        }
    }

    fn forward(&self, batch: TextBatch<B>) -> ClassificationOutput<B> {
        let [rows, length] = batch.tokens.dims();
        let device = &batch.tokens.device();
        let positions = Tensor::arange(0..length as i64, device).reshape([1, length]).repeat_dim(0, rows);
        let embedded = (self.tokens.forward(batch.tokens) + self.positions.forward(positions)) / 2;
        let encoded = self.encoder.forward(TransformerEncoderInput::new(embedded).mask_pad(batch.padding));
        let logits = self.output.forward(encoded).slice([0..rows, 0..1]).reshape([rows, CLASSES]);
        let loss = CrossEntropyLossConfig::new().init(device).forward(logits.clone(), batch.classes.clone());
        ClassificationOutput::new(loss, logits, batch.classes)
    }
}

impl<B: AutodiffBackend> TrainStep for TextClassifier<B> {
    type Input = TextBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: TextBatch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.forward(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for TextClassifier<B> {
    type Input = TextBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: TextBatch<B>) -> ClassificationOutput<B> {
        self.forward(batch)
    }
}

fn model<B: Backend>(sizes: TextSizes, device: &B::Device) -> TextClassifier<B> {
    weights::same(TextClassifier::<Flex>::new(sizes, &FlexDevice), TextClassifier::new(sizes, device), device)
}

fn optimizer<B: AutodiffBackend>() -> impl Optimizer<TextClassifier<B>, B> + 'static {
    AdamConfig::new().with_weight_decay(Some(WeightDecayConfig::new(5e-5))).init()
}

fn schedule(sizes: TextSizes) -> NoamLrScheduler {
    let schedule = NoamLrSchedulerConfig::new(0.05).with_warmup_steps(50).with_model_size(sizes.width).init();
    schedule.expect("the schedule's numbers are positive")
}

/// Trains in Burn's Learner.
pub fn learn<B: AutodiffBackend>(steps: usize, options: &Options, device: &B::Device) -> Vec<f64> {
    let (sizes, workers) = (options.text, options.workers);
    let batcher = TextBatcher { longest: sizes.longest };
    let items = sentences(sizes, steps * BATCH, SEED);
    let train = learner::loader::<B, _, _, _>(batcher.clone(), items, BATCH, workers, device);
    let valid = sentences(sizes, VALIDATION_BATCHES * BATCH, SEED + 1);
    let valid = learner::loader::<B::InnerBackend, _, _, _>(batcher, valid, BATCH, workers, device);
    learner::classify(model::<B>(sizes, device), optimizer(), schedule(sizes), train, valid)
}

/// Trains in Burn's Learner on several devices: each gets a part of the sentences and batches of its own. Returns the mean
/// loss of each step.
pub fn learn_on_devices<B: AutodiffBackend>(
    steps: usize,
    options: &Options,
    optim: MultiDeviceOptim,
    first: &B::Device,
) -> Vec<f64> {
    let DeviceId { type_id, index_id } = first.to_id();
    let devices: Vec<B::Device> =
        (0..options.devices as u16).map(|i| B::Device::from_id(DeviceId::new(type_id, index_id + i))).collect();
    let sizes = options.text;
    let batcher = TextBatcher { longest: sizes.longest };
    let items = sentences(sizes, steps * devices.len() * BATCH, SEED);
    let train = learner::loader::<B, _, _, _>(batcher.clone(), items, BATCH, options.workers, first);
    let valid = sentences(sizes, VALIDATION_BATCHES * BATCH, SEED + 1);
    let valid = learner::loader::<B::InnerBackend, _, _, _>(batcher, valid, BATCH, options.workers, first);
    let strategy = ExecutionStrategy::multi(devices.clone(), optim);
    let losses = learner::classify_by(strategy, model::<B>(sizes, first), optimizer(), schedule(sizes), train, valid);
    // Within a step, the devices report in any order.
    losses.chunks(devices.len()).map(|step| step.iter().sum::<f64>() / step.len() as f64).collect()
}

/// Trains in a thread of its own, which also builds the batches.
pub fn learn_in_thread<B: AutodiffBackend>(steps: usize, options: &Options, device: &B::Device) -> Vec<f64> {
    std::thread::scope(|scope| {
        let training = scope.spawn(|| train_alone::<B>(steps, options, device));
        training.join().expect("the training thread ends")
    })
}

fn train_alone<B: AutodiffBackend>(steps: usize, options: &Options, device: &B::Device) -> Vec<f64> {
    let sizes = options.text;
    let batcher = TextBatcher { longest: sizes.longest };
    let train = learner::loader::<B, _, _, _>(batcher, sentences(sizes, steps * BATCH, SEED), BATCH, 0, device);
    let (mut model, mut optimizer, mut schedule) = (model::<B>(sizes, device), optimizer(), schedule(sizes));
    let mut losses = Vec::new();
    for (step, batch) in train.iter().enumerate() {
        let loss = model.forward(batch).loss;
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(schedule.step(), model, gradients);
        if options.reads(step) {
            losses.push(loss.into_scalar().elem());
        }
    }
    losses
}
