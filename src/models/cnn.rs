//! A small convolutional classifier.

use super::{CLASSES, Images, SIDE, Supervised, cross_entropy};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::relu;

/// The side of an image after two 3x3 convolutions without padding and a 2x2 pool.
const POOLED: usize = (SIDE - 4) / 2;

/// conv 3x3 1-32, conv 3x3 32-64, max pool 2x2, linear 9216-128-10, with ReLU after each layer except the pool and
/// the last.
#[derive(Module, Debug)]
pub struct Cnn<B: Backend> {
    convolutions: [Conv2d<B>; 2],
    pool: MaxPool2d,
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Cnn<B> {
    /// Creates a classifier with random weights.
    pub fn new(device: &B::Device) -> Self {
        let convolution = |inputs, outputs| Conv2dConfig::new([inputs, outputs], [3, 3]).init(device);
        Self {
            convolutions: [convolution(1, 32), convolution(32, 64)],
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            hidden: LinearConfig::new(64 * POOLED * POOLED, 128).init(device),
            output: LinearConfig::new(128, CLASSES).init(device),
        }
    }

    /// Maps images `[batch, 784]` to logits `[batch, 10]` in f32.
    pub fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        let [batch, _] = images.dims();
        let images = images.reshape([batch, 1, SIDE, SIDE]);
        let features = self.convolutions.iter().fold(images, |x, layer| relu(layer.forward(x)));
        let features = self.pool.forward(features).flatten(1, 3);
        let hidden = relu(self.hidden.forward(features));
        self.output.forward(hidden).cast(DType::F32)
    }
}

impl<B: Backend> Supervised<B> for Cnn<B> {
    type Batch = Images<B>;

    fn loss(&self, batch: Images<B>) -> Tensor<B, 1> {
        cross_entropy(self.forward(batch.images), batch.targets)
    }
}
