//! A residual network of bottlenecks: He et al., "Deep Residual Learning for Image Recognition", section 4.1,
//! with the stride in the 3x3 convolution.

use super::super::normed::Normed;
use super::super::{Supervised, cross_entropy};
use super::Photos;
use burn::config::Config;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::relu;

/// The result of a bottleneck is as many times as wide as its 3x3 convolution.
const EXPANSION: usize = 4;

/// The sizes of a [`ResNet50`].
#[derive(Config, Debug)]
pub struct ResNet50Config {
    /// Bottlenecks of each stage.
    #[config(default = "vec![3, 4, 6, 3]")]
    pub depths: Vec<usize>,
    /// Channels of the 3x3 convolutions of the first stage; each later stage has twice those of the one before.
    #[config(default = 64)]
    pub width: usize,
    /// Number of classes.
    #[config(default = 1000)]
    pub classes: usize,
}

/// Convolutions of 1x1, 3x3 and 1x1, whose result is added to the input, or to a projection of it.
#[derive(Module, Debug)]
struct Bottleneck<B: Backend> {
    narrow: Normed<B>,
    middle: Normed<B>,
    wide: Normed<B>,
    shortcut: Option<Normed<B>>,
}

impl<B: Backend> Bottleneck<B> {
    fn new(inputs: usize, width: usize, stride: usize, device: &B::Device) -> Self {
        let outputs = EXPANSION * width;
        Self {
            narrow: Normed::new([inputs, width], 1, 1, device),
            middle: Normed::new([width, width], 3, stride, device),
            wide: Normed::new([width, outputs], 1, 1, device),
            shortcut: (inputs != outputs).then(|| Normed::new([inputs, outputs], 1, stride, device)),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let inner = relu(self.middle.forward(relu(self.narrow.forward(x.clone()))));
        let x = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x),
            None => x,
        };
        relu(x + self.wide.forward(inner))
    }
}

/// A 7x7 convolution, a max pool, four stages of bottlenecks, the mean over all pixels, and a linear layer.
#[derive(Module, Debug)]
pub struct ResNet50<B: Backend> {
    stem: Normed<B>,
    pool: MaxPool2d,
    blocks: Vec<Bottleneck<B>>,
    output: Linear<B>,
}

impl ResNet50Config {
    /// Creates a classifier with random weights.
    pub fn init<B: Backend>(&self, device: &B::Device) -> ResNet50<B> {
        let pool =
            MaxPool2dConfig::new([3, 3]).with_strides([2, 2]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
        let (mut blocks, mut inputs) = (Vec::new(), self.width);
        for (stage, &depth) in self.depths.iter().enumerate() {
            let width = self.width << stage;
            for block in 0..depth {
                let stride = if block == 0 && stage > 0 { 2 } else { 1 };
                blocks.push(Bottleneck::new(inputs, width, stride, device));
                inputs = EXPANSION * width;
            }
        }
        ResNet50 {
            stem: Normed::new([3, self.width], 7, 2, device),
            pool: pool.init(),
            blocks,
            output: LinearConfig::new(inputs, self.classes).init(device),
        }
    }
}

impl<B: Backend> ResNet50<B> {
    /// Maps photographs `[batch, 3, height, width]` to logits `[batch, classes]` in f32.
    pub fn forward(&self, photos: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.pool.forward(relu(self.stem.forward(photos)));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        let features = x.flatten::<3>(2, 3).mean_dim(2).squeeze_dim(2);
        self.output.forward(features).cast(DType::F32)
    }
}

impl<B: Backend> Supervised<B> for ResNet50<B> {
    type Batch = Photos<B>;

    fn loss(&self, batch: Photos<B>) -> Tensor<B, 1> {
        cross_entropy(self.forward(batch.photos), batch.targets)
    }
}
