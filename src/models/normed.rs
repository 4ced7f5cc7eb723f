//! What residual networks are made of: a convolution without bias, and batch norm.

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Initializer, PaddingConfig2d};
use burn::prelude::*;

/// A convolution without bias, and batch norm.
#[derive(Module, Debug)]
pub(super) struct Normed<B: Backend> {
    convolution: Conv2d<B>,
    norm: BatchNorm<B>,
}

impl<B: Backend> Normed<B> {
    /// Creates it with a window of `size` by `size`, which is odd; with a stride of 1, the image keeps its size.
    pub(super) fn new([inputs, outputs]: [usize; 2], size: usize, stride: usize, device: &B::Device) -> Self {
        let edge = size / 2;
        let convolution = Conv2dConfig::new([inputs, outputs], [size, size])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(edge, edge, edge, edge))
            .with_bias(false)
            .with_initializer(Initializer::KaimingNormal { gain: 2f64.sqrt(), fan_out_only: false });
        Self { convolution: convolution.init(device), norm: BatchNormConfig::new(outputs).init(device) }
    }

    /// Maps `[batch, inputs, height, width]` to `[batch, outputs, height / stride, width / stride]`.
    pub(super) fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.norm.forward(self.convolution.forward(x))
    }
}
