//! A residual network for small images: the CIFAR form of He et al., "Deep Residual Learning for Image Recognition",
//! section 4.2, on images of one channel.

use super::normed::Normed;
use super::{CLASSES, Images, SIDE, Supervised, cross_entropy};
use burn::nn::pool::{AvgPool2d, AvgPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::relu;

/// The channels of the three stages; each stage but the first halves the image's sides.
const CHANNELS: [usize; 3] = [16, 32, 64];
/// The blocks of a stage: `2 * 3 * 3` convolutions, the first one, and a linear layer are 20 layers.
const BLOCKS: usize = 3;

/// Two convolutions, whose result is added to the input. A block that widens the image has no weights on the shortcut
/// (option A): it takes every second pixel, and pads the channels with zeros.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    first: Normed<B>,
    second: Normed<B>,
    /// 1x1 windows.
    every_second: Option<AvgPool2d>,
}

impl<B: Backend> Block<B> {
    fn new([inputs, outputs]: [usize; 2], device: &B::Device) -> Self {
        let widens = inputs != outputs;
        let every_second = AvgPool2dConfig::new([1, 1]).with_strides([2, 2]);
        Self {
            first: Normed::new([inputs, outputs], 3, if widens { 2 } else { 1 }, device),
            second: Normed::new([outputs, outputs], 3, 1, device),
            every_second: widens.then(|| every_second.init()),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let change = self.second.forward(relu(self.first.forward(x.clone())));
        relu(self.shortcut(x, change.dims()) + change)
    }

    fn shortcut(&self, x: Tensor<B, 4>, [batch, channels, height, width]: [usize; 4]) -> Tensor<B, 4> {
        let Some(pool) = &self.every_second else { return x };
        let x = pool.forward(x);
        let missing = [batch, channels - x.dims()[1], height, width];
        let zeros = Tensor::zeros(missing, (&x.device(), x.dtype()));
        Tensor::cat(vec![x, zeros], 1)
    }
}

/// ResNet-20: a convolution, three stages of three blocks, the mean over all pixels, and a linear layer.
#[derive(Module, Debug)]
pub struct ResNet<B: Backend> {
    stem: Normed<B>,
    blocks: Vec<Block<B>>,
    output: Linear<B>,
}

impl<B: Backend> ResNet<B> {
    /// Creates a classifier with random weights.
    pub fn new(device: &B::Device) -> Self {
        let inputs = std::iter::once(CHANNELS[0]).chain(CHANNELS);
        let stages = inputs.zip(CHANNELS).flat_map(|(inputs, outputs)| {
            (0..BLOCKS).map(move |block| [if block == 0 { inputs } else { outputs }, outputs])
        });
        Self {
            stem: Normed::new([1, CHANNELS[0]], 3, 1, device),
            blocks: stages.map(|channels| Block::new(channels, device)).collect(),
            output: LinearConfig::new(CHANNELS[2], CLASSES).init(device),
        }
    }

    /// Maps images `[batch, 784]` to logits `[batch, 10]` in f32.
    pub fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        let [batch, _] = images.dims();
        let x = relu(self.stem.forward(images.reshape([batch, 1, SIDE, SIDE])));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        let features = x.flatten::<3>(2, 3).mean_dim(2).squeeze_dim(2);
        self.output.forward(features).cast(DType::F32)
    }
}

impl<B: Backend> Supervised<B> for ResNet<B> {
    type Batch = Images<B>;

    fn loss(&self, batch: Images<B>) -> Tensor<B, 1> {
        cross_entropy(self.forward(batch.images), batch.targets)
    }
}
