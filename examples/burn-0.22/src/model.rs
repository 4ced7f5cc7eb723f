//! The classifier: linear layers 784-512-256-10 with ReLU between them, as the workspace's MNIST example has.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn::tensor::activation::relu;

#[derive(Module, Debug)]
pub struct Mlp {
    hidden: [Linear; 2],
    output: Linear,
}

impl Mlp {
    pub fn new(device: &Device) -> Self {
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        Self { hidden: [linear(784, 512), linear(512, 256)], output: linear(256, 10) }
    }

    /// Maps images `[batch, 784]` to logits `[batch, 10]`.
    pub fn forward(&self, images: Tensor<2>) -> Tensor<2> {
        let hidden = self.hidden.iter().fold(images, |x, layer| relu(layer.forward(x)));
        self.output.forward(hidden)
    }

    /// Returns the mean cross entropy, in f32 whatever the type of the model.
    pub fn loss(&self, images: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
        let loss = CrossEntropyLossConfig::new().init(&images.device());
        loss.forward(self.forward(images).cast(FloatDType::F32), targets)
    }
}
