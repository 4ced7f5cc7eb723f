//! The classifiers, with the traits of Burn's Learner. Nothing in this file depends on the backend.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use burn_tpu_workspace::models::{Cnn, Images, Mlp, ResNet};

/// The kind of classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Architecture {
    /// Three linear layers, 784-512-256-10
    Mlp,
    /// Two 3x3 convolutions (32 and 64 channels), a 2x2 max pool, and linear layers 128 and 10
    Cnn,
    /// ResNet-20: 19 convolutions with batch norm in residual blocks, and a linear layer
    Resnet,
}

/// A digit classifier: images `[batch, 784]` to logits `[batch, 10]`.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one classifier in the process")]
pub enum Classifier<B: Backend> {
    /// Linear layers only.
    Mlp(Mlp<B>),
    /// The same with weights and activations in 8 bits, after its training.
    Mlp8(Mlp<B>),
    /// Convolutions first.
    Cnn(Cnn<B>),
    /// Residual blocks.
    ResNet(ResNet<B>),
}

impl Architecture {
    /// Creates a classifier with random weights.
    pub fn init<B: Backend>(self, device: &B::Device) -> Classifier<B> {
        match self {
            Architecture::Mlp => Classifier::Mlp(Mlp::new(device)),
            Architecture::Cnn => Classifier::Cnn(Cnn::new(device)),
            Architecture::Resnet => Classifier::ResNet(ResNet::new(device)),
        }
    }
}

impl<B: Backend> Classifier<B> {
    /// Returns logits `[batch, 10]` in f32: the loss is computed in f32, whatever the type of the weights.
    pub fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        match self {
            Classifier::Mlp(model) => model.forward(images),
            Classifier::Mlp8(model) => model.forward_in_8_bits(images),
            Classifier::Cnn(model) => model.forward(images),
            Classifier::ResNet(model) => model.forward(images),
        }
    }

    /// Returns the classifier with weights of 8 bits; `None` for one that has convolutions.
    pub fn quantized(self) -> Option<Self> {
        match self {
            Classifier::Mlp(model) => Some(Classifier::Mlp8(model.quantized())),
            _ => None,
        }
    }

    fn classify(&self, batch: Images<B>) -> ClassificationOutput<B> {
        let logits = self.forward(batch.images);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        let loss = loss.forward(logits.clone(), batch.targets.clone());
        ClassificationOutput::new(loss, logits, batch.targets)
    }
}

impl<B: AutodiffBackend> TrainStep for Classifier<B> {
    type Input = Images<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Images<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Classifier<B> {
    type Input = Images<B>;
    type Output = ClassificationOutput<B>;

    /// A lazy backend runs the recorded ops when a value is read, and which ops these are depends on whether this
    /// thread or the Learner's reads it. The sync makes each batch one program in both cases.
    fn step(&self, batch: Images<B>) -> ClassificationOutput<B> {
        let output = self.classify(batch);
        B::sync(&output.loss.device()).expect("the batch runs");
        output
    }
}
