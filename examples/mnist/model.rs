//! Two classifiers in plain Burn: nothing in this file knows which backend runs it.

use crate::batch::Batch;
use crate::data::{CLASSES, PIXELS};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::relu;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};

/// Which classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Architecture {
    /// Three linear layers, 784-512-256-10
    Mlp,
    /// Two 3x3 convolutions (32 and 64 channels), a 2x2 max pool, and linear layers 128 and 10
    Cnn,
}

/// A digit classifier: images `[batch, 784]` to logits `[batch, 10]`.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one classifier in the process")]
pub enum Classifier<B: Backend> {
    /// Linear layers only.
    Mlp(Mlp<B>),
    /// Convolutions first.
    Cnn(Cnn<B>),
}

/// 784-512-256-10 with ReLU between.
#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    hidden: [Linear<B>; 2],
    output: Linear<B>,
}

/// conv 3x3 1-32, conv 3x3 32-64, max pool 2x2, linear 9216-128-10.
#[derive(Module, Debug)]
pub struct Cnn<B: Backend> {
    convolutions: [Conv2d<B>; 2],
    pool: MaxPool2d,
    hidden: Linear<B>,
    output: Linear<B>,
}

impl Architecture {
    /// A new classifier with random weights.
    pub fn init<B: Backend>(self, device: &B::Device) -> Classifier<B> {
        match self {
            Architecture::Mlp => Classifier::Mlp(Mlp::new(device)),
            Architecture::Cnn => Classifier::Cnn(Cnn::new(device)),
        }
    }
}

impl<B: Backend> Mlp<B> {
    fn new(device: &B::Device) -> Self {
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        Self { hidden: [linear(PIXELS, 512), linear(512, 256)], output: linear(256, CLASSES) }
    }

    fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = self.hidden.iter().fold(images, |x, layer| relu(layer.forward(x)));
        self.output.forward(hidden)
    }
}

impl<B: Backend> Cnn<B> {
    fn new(device: &B::Device) -> Self {
        let convolution = |inputs, outputs| Conv2dConfig::new([inputs, outputs], [3, 3]).init(device);
        Self {
            convolutions: [convolution(1, 32), convolution(32, 64)],
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            // 28 pixels lose 2 in each convolution, then the pool halves them.
            hidden: LinearConfig::new(64 * 12 * 12, 128).init(device),
            output: LinearConfig::new(128, CLASSES).init(device),
        }
    }

    fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        let [batch, _] = images.dims();
        let images = images.reshape([batch, 1, 28, 28]);
        let features = self.convolutions.iter().fold(images, |x, layer| relu(layer.forward(x)));
        let features = self.pool.forward(features).flatten(1, 3);
        self.output.forward(relu(self.hidden.forward(features)))
    }
}

impl<B: Backend> Classifier<B> {
    /// Logits `[batch, 10]` in f32: the loss is computed in f32 whatever the weights are.
    pub fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        let logits = match self {
            Classifier::Mlp(model) => model.forward(images),
            Classifier::Cnn(model) => model.forward(images),
        };
        logits.cast(DType::F32)
    }

    fn classify(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        let logits = self.forward(batch.images);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        let loss = loss.forward(logits.clone(), batch.targets.clone());
        ClassificationOutput::new(loss, logits, batch.targets)
    }
}

impl<B: AutodiffBackend> TrainStep for Classifier<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Batch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Classifier<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    /// A lazy backend runs what was recorded when somebody reads it, and what exactly that is depends on whether the
    /// reader is this thread or the Learner's. The sync makes a batch one program, the same for both.
    fn step(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        let output = self.classify(batch);
        B::sync(&output.loss.device()).expect("the device takes a batch");
        output
    }
}
