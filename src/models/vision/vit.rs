//! A vision transformer: Dosovitskiy et al., "An Image is Worth 16x16 Words", with a class token and learned positions.

use super::super::{Supervised, cross_entropy};
use super::Photos;
use burn::config::Config;
use burn::module::{Initializer, Param};
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;

/// The sizes of a [`Vit`]. The defaults are those of ViT-B/16.
#[derive(Config, Debug)]
pub struct VitConfig {
    /// Transformer blocks.
    #[config(default = 12)]
    pub layers: usize,
    /// Size of a patch's vector; a multiple of `heads`.
    #[config(default = 768)]
    pub width: usize,
    /// Attention heads.
    #[config(default = 12)]
    pub heads: usize,
    /// Size of the hidden layer after attention.
    #[config(default = 3072)]
    pub feed_forward: usize,
    /// Side of a patch, in pixels.
    #[config(default = 16)]
    pub patch: usize,
    /// Side of a photograph, in pixels; a multiple of `patch`.
    #[config(default = 224)]
    pub side: usize,
    /// Number of classes.
    #[config(default = 1000)]
    pub classes: usize,
}

/// Layer norm and attention, then layer norm and feed-forward with exact GELU; each is added to its input.
#[derive(Module, Debug)]
struct Layer<B: Backend> {
    attention_norm: LayerNorm<B>,
    attention: MultiHeadAttention<B>,
    feed_forward_norm: LayerNorm<B>,
    feed_forward: PositionWiseFeedForward<B>,
}

impl<B: Backend> Layer<B> {
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let seen = MhaInput::self_attn(self.attention_norm.forward(x.clone()));
        let x = x + self.attention.forward(seen).context;
        x.clone() + self.feed_forward.forward(self.feed_forward_norm.forward(x))
    }
}

/// A convolution that reads patches, transformer blocks, and a linear layer on the class token.
#[derive(Module, Debug)]
pub struct Vit<B: Backend> {
    patches: Conv2d<B>,
    /// `[1, 1, width]`
    class: Param<Tensor<B, 3>>,
    /// `[1, patches + 1, width]`
    positions: Param<Tensor<B, 3>>,
    layers: Vec<Layer<B>>,
    norm: LayerNorm<B>,
    output: Linear<B>,
}

impl VitConfig {
    /// Creates a classifier with random weights.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Vit<B> {
        let small = Initializer::Normal { mean: 0.0, std: 0.02 };
        let sides = self.side / self.patch;
        let patches = Conv2dConfig::new([3, self.width], [self.patch, self.patch]);
        Vit {
            patches: patches.with_stride([self.patch, self.patch]).init(device),
            class: small.init([1, 1, self.width], device),
            positions: small.init([1, sides * sides + 1, self.width], device),
            layers: (0..self.layers).map(|_| self.layer(device)).collect(),
            norm: LayerNormConfig::new(self.width).init(device),
            output: LinearConfig::new(self.width, self.classes).init(device),
        }
    }

    fn layer<B: Backend>(&self, device: &B::Device) -> Layer<B> {
        let norm = LayerNormConfig::new(self.width);
        let attention = MultiHeadAttentionConfig::new(self.width, self.heads).with_dropout(0.0);
        let feed_forward = PositionWiseFeedForwardConfig::new(self.width, self.feed_forward).with_dropout(0.0);
        Layer {
            attention_norm: norm.init(device),
            attention: attention.init(device),
            feed_forward_norm: norm.init(device),
            feed_forward: feed_forward.init(device),
        }
    }
}

impl<B: Backend> Vit<B> {
    /// Maps photographs `[batch, 3, side, side]` to logits `[batch, classes]` in f32.
    pub fn forward(&self, photos: Tensor<B, 4>) -> Tensor<B, 2> {
        let patches = self.patches.forward(photos).flatten::<3>(2, 3).swap_dims(1, 2);
        let [batch, _, width] = patches.dims();
        let class = self.class.val().expand([batch, 1, width]);
        let x = Tensor::cat(vec![class, patches], 1) + self.positions.val();
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x));
        let class = self.norm.forward(x.slice([0..batch, 0..1])).squeeze_dim(1);
        self.output.forward(class).cast(DType::F32)
    }
}

impl<B: Backend> Supervised<B> for Vit<B> {
    type Batch = Photos<B>;

    fn loss(&self, batch: Photos<B>) -> Tensor<B, 1> {
        cross_entropy(self.forward(batch.photos), batch.targets)
    }
}
