//! A convolutional network with a transformer's proportions: Liu et al., "A ConvNet for the 2020s", without
//! stochastic depth.

use super::super::{Supervised, cross_entropy};
use super::Photos;
use burn::config::Config;
use burn::module::{Initializer, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::gelu;

/// What a block's change is multiplied by at first.
const FIRST_SCALE: f64 = 1e-6;

/// The sizes of a [`ConvNext`]. The defaults are those of ConvNeXt-T.
#[derive(Config, Debug)]
pub struct ConvNextConfig {
    /// Blocks of each stage.
    #[config(default = "vec![3, 3, 9, 3]")]
    pub depths: Vec<usize>,
    /// Channels of the first stage; each later stage has twice those of the one before.
    #[config(default = 96)]
    pub width: usize,
    /// Number of classes.
    #[config(default = 1000)]
    pub classes: usize,
}

/// A depthwise 7x7 convolution, layer norm, and two linear layers over the channels, whose scaled result is added to the
/// input.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    depthwise: Conv2d<B>,
    norm: LayerNorm<B>,
    inner: Linear<B>,
    outer: Linear<B>,
    /// `[channels]`
    scale: Param<Tensor<B, 1>>,
}

impl<B: Backend> Block<B> {
    fn new(channels: usize, device: &B::Device) -> Self {
        let depthwise = Conv2dConfig::new([channels, channels], [7, 7])
            .with_groups(channels)
            .with_padding(PaddingConfig2d::Explicit(3, 3, 3, 3));
        Self {
            depthwise: depthwise.init(device),
            norm: LayerNormConfig::new(channels).init(device),
            inner: LinearConfig::new(channels, 4 * channels).init(device),
            outer: LinearConfig::new(4 * channels, channels).init(device),
            scale: Initializer::Constant { value: FIRST_SCALE }.init([channels], device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let features = self.norm.forward(channels_last(self.depthwise.forward(x.clone())));
        let change = self.outer.forward(gelu(self.inner.forward(features)));
        x + channels_first(change * self.scale.val().unsqueeze())
    }
}

/// Layer norm over the channels, and a convolution whose windows do not overlap. The first stage has them the other way
/// round.
#[derive(Module, Debug)]
struct Downsample<B: Backend> {
    norm: LayerNorm<B>,
    convolution: Conv2d<B>,
    norm_is_first: bool,
}

impl<B: Backend> Downsample<B> {
    fn new([inputs, outputs]: [usize; 2], size: usize, norm_is_first: bool, device: &B::Device) -> Self {
        let convolution = Conv2dConfig::new([inputs, outputs], [size, size]).with_stride([size, size]);
        let norm = LayerNormConfig::new(if norm_is_first { inputs } else { outputs });
        Self { norm: norm.init(device), convolution: convolution.init(device), norm_is_first }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let norm = |x| channels_first(self.norm.forward(channels_last(x)));
        match self.norm_is_first {
            true => self.convolution.forward(norm(x)),
            false => norm(self.convolution.forward(x)),
        }
    }
}

fn channels_last<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    x.permute([0, 2, 3, 1])
}

fn channels_first<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    x.permute([0, 3, 1, 2])
}

/// Blocks of one width, after a step to it.
#[derive(Module, Debug)]
struct Stage<B: Backend> {
    downsample: Downsample<B>,
    blocks: Vec<Block<B>>,
}

/// Four stages, the mean over all pixels, layer norm, and a linear layer.
#[derive(Module, Debug)]
pub struct ConvNext<B: Backend> {
    stages: Vec<Stage<B>>,
    norm: LayerNorm<B>,
    output: Linear<B>,
}

impl ConvNextConfig {
    /// Creates a classifier with random weights.
    pub fn init<B: Backend>(&self, device: &B::Device) -> ConvNext<B> {
        let (mut stages, mut inputs) = (Vec::new(), 3);
        for (number, &depth) in self.depths.iter().enumerate() {
            let (channels, size) = (self.width << number, if number == 0 { 4 } else { 2 });
            stages.push(Stage {
                downsample: Downsample::new([inputs, channels], size, number > 0, device),
                blocks: (0..depth).map(|_| Block::new(channels, device)).collect(),
            });
            inputs = channels;
        }
        ConvNext {
            stages,
            norm: LayerNormConfig::new(inputs).init(device),
            output: LinearConfig::new(inputs, self.classes).init(device),
        }
    }
}

impl<B: Backend> ConvNext<B> {
    /// Maps photographs `[batch, 3, height, width]` to logits `[batch, classes]` in f32.
    pub fn forward(&self, photos: Tensor<B, 4>) -> Tensor<B, 2> {
        let mut x = photos;
        for stage in &self.stages {
            x = stage.downsample.forward(x);
            x = stage.blocks.iter().fold(x, |x, block| block.forward(x));
        }
        let features = x.flatten::<3>(2, 3).mean_dim(2).squeeze_dim(2);
        self.output.forward(self.norm.forward(features)).cast(DType::F32)
    }
}

impl<B: Backend> Supervised<B> for ConvNext<B> {
    type Batch = Photos<B>;

    fn loss(&self, batch: Photos<B>) -> Tensor<B, 1> {
        cross_entropy(self.forward(batch.photos), batch.targets)
    }
}
