//! An image classifier whose batcher makes each image a tensor of its own, scales it there, and stacks them.

use crate::learner::{self, VALIDATION_BATCHES};
use crate::numbers::Numbers;
use crate::{SEED, weights};
use burn::data::dataloader::batcher::Batcher;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig, Relu};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use burn_flex::{Flex, FlexDevice};

const BATCH: usize = 64;
const SIDE: usize = 28;
const CLASSES: usize = 10;
const HIDDEN: usize = 128;
const RATE: f64 = 1e-3;

/// Grey values 0 to 255, and the digit.
#[derive(Clone, Debug)]
struct Image {
    pixels: Vec<f32>,
    label: u8,
}

/// Returns images with a bright bar at a place that depends on the digit.
fn images(count: usize, seed: u64) -> Vec<Image> {
    let mut numbers = Numbers::new(seed);
    let image = |numbers: &mut Numbers| {
        let label = numbers.within(0..CLASSES);
        let pixel = |at: usize, noise: usize| if at / SIDE / 2 == label { 155 + noise } else { noise };
        let pixels = (0..SIDE * SIDE).map(|at| pixel(at, numbers.within(0..101)) as f32).collect();
        Image { pixels, label: label as u8 }
    };
    (0..count).map(|_| image(&mut numbers)).collect()
}

#[derive(Clone)]
struct ImageBatcher;

#[derive(Clone, Debug)]
struct ImageBatch<B: Backend> {
    /// `[batch, side, side]`
    images: Tensor<B, 3>,
    /// `[batch]`
    targets: Tensor<B, 1, Int>,
}

impl<B: Backend> Batcher<B, Image, ImageBatch<B>> for ImageBatcher {
    fn batch(&self, items: Vec<Image>, device: &B::Device) -> ImageBatch<B> {
        let images = items
            .iter()
            .map(|item| TensorData::new(item.pixels.clone(), [SIDE, SIDE]).convert::<B::FloatElem>())
            .map(|data| Tensor::<B, 2>::from_data(data, device))
            .map(|image| image.reshape([1, SIDE, SIDE]))
            .map(|image| ((image / 255) - 0.1307) / 0.3081)
            .collect();
        let target =
            |item: &Image| Tensor::<B, 1, Int>::from_data([i64::from(item.label).elem::<B::IntElem>()], device);
        let targets = items.iter().map(target).collect();
        ImageBatch { images: Tensor::cat(images, 0), targets: Tensor::cat(targets, 0) }
    }
}

/// Two convolutions, a pool, and two linear layers.
#[derive(Module, Debug)]
struct ImageClassifier<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    pool: AdaptiveAvgPool2d,
    dropout: Dropout,
    linear1: Linear<B>,
    linear2: Linear<B>,
    activation: Relu,
}

impl<B: Backend> ImageClassifier<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            conv1: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            conv2: Conv2dConfig::new([8, 16], [3, 3]).init(device),
            pool: AdaptiveAvgPool2dConfig::new([8, 8]).init(),
            dropout: DropoutConfig::new(0.0).init(),
            linear1: LinearConfig::new(16 * 8 * 8, HIDDEN).init(device),
            linear2: LinearConfig::new(HIDDEN, CLASSES).init(device),
            activation: Relu::new(),
        }
    }

    fn forward(&self, images: Tensor<B, 3>) -> Tensor<B, 2> {
        let [rows, height, width] = images.dims();
        let x = self.conv1.forward(images.reshape([rows, 1, height, width]));
        let x = self.conv2.forward(self.dropout.forward(x));
        let x = self.activation.forward(self.dropout.forward(x));
        let x = self.pool.forward(x).reshape([rows, 16 * 8 * 8]);
        let x = self.activation.forward(self.dropout.forward(self.linear1.forward(x)));
        self.linear2.forward(x)
    }

    fn classify(&self, batch: ImageBatch<B>) -> ClassificationOutput<B> {
        let output = self.forward(batch.images);
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        let loss = loss.forward(output.clone(), batch.targets.clone());
        ClassificationOutput { loss, output, targets: batch.targets }
    }
}

impl<B: AutodiffBackend> TrainStep for ImageClassifier<B> {
    type Input = ImageBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: ImageBatch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for ImageClassifier<B> {
    type Input = ImageBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: ImageBatch<B>) -> ClassificationOutput<B> {
        self.classify(batch)
    }
}

fn model<B: Backend>(device: &B::Device) -> ImageClassifier<B> {
    weights::same(ImageClassifier::<Flex>::new(&FlexDevice), ImageClassifier::new(device), device)
}

/// Trains in Burn's Learner.
pub fn learn<B: AutodiffBackend>(steps: usize, workers: usize, device: &B::Device) -> Vec<f64> {
    let train = learner::loader::<B, _, _, _>(ImageBatcher, images(steps * BATCH, SEED), BATCH, workers, device);
    let valid = images(VALIDATION_BATCHES * BATCH, SEED + 1);
    let valid = learner::loader::<B::InnerBackend, _, _, _>(ImageBatcher, valid, BATCH, workers, device);
    learner::classify(model::<B>(device), AdamConfig::new().init(), RATE, train, valid)
}

/// Trains in a plain loop, which prints loss and accuracy before it goes backward, and validates at the end.
pub fn train<B: AutodiffBackend>(steps: usize, device: &B::Device) -> Vec<f64> {
    let train = learner::loader::<B, _, _, _>(ImageBatcher, images(steps * BATCH, SEED), BATCH, 0, device);
    let (mut model, mut optimizer) = (model::<B>(device), AdamConfig::new().init());
    let mut losses = Vec::new();
    for batch in train.iter() {
        let output = model.classify(batch);
        let loss = output.loss.clone();
        let correct = accuracy(output.output, output.targets);
        let value: f64 = loss.clone().into_scalar().elem();
        println!("step {:>3}  loss {value:.3}  accuracy {correct:.1} %", losses.len() + 1);
        losses.push(value);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(RATE, model, gradients);
    }
    losses
}

/// Returns the correctly classified share in percent.
fn accuracy<B: Backend>(output: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> f64 {
    let count = targets.dims()[0] as f64;
    let correct = output.argmax(1).squeeze_dim::<1>(1).equal(targets).int().sum();
    100.0 * correct.into_scalar().elem::<f64>() / count
}
