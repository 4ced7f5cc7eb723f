//! A perceptron with two hidden layers.

use super::{CLASSES, Images, PIXELS, Supervised, cross_entropy};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::relu;

/// Linear layers 784-512-256-10 with ReLU between them.
#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    hidden: [Linear<B>; 2],
    output: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    /// Creates a perceptron with random weights.
    pub fn new(device: &B::Device) -> Self {
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        Self { hidden: [linear(PIXELS, 512), linear(512, 256)], output: linear(256, CLASSES) }
    }

    /// Maps images `[batch, 784]` to logits `[batch, 10]` in f32.
    pub fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = self.hidden.iter().fold(images, |x, layer| relu(layer.forward(x)));
        self.output.forward(hidden).cast(DType::F32)
    }
}

impl<B: Backend> Supervised<B> for Mlp<B> {
    type Batch = Images<B>;

    fn loss(&self, batch: Images<B>) -> Tensor<B, 1> {
        cross_entropy(self.forward(batch.images), batch.targets)
    }
}
