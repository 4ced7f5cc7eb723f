//! A pre-norm GPT, built from Burn's own modules.

use super::noise::Noise;
use super::{Supervised, cross_entropy};
use burn::config::Config;
use burn::module::{Initializer, Param};
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask};
use burn::nn::transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;

/// The sizes of a [`Gpt`] and of its batches. The defaults give a model of 3.3 million parameters.
#[derive(Config, Debug)]
pub struct GptConfig {
    /// Transformer blocks.
    #[config(default = 4)]
    pub layers: usize,
    /// Size of a token's vector; a multiple of `heads`.
    #[config(default = 256)]
    pub width: usize,
    /// Attention heads.
    #[config(default = 4)]
    pub heads: usize,
    /// Size of the hidden layer after attention.
    #[config(default = 1024)]
    pub feed_forward: usize,
    /// Tokens in a sample, which is also the longest sequence of the model.
    #[config(default = 128)]
    pub sequence: usize,
    /// Samples in a synthetic batch.
    #[config(default = 16)]
    pub batch: usize,
    /// Number of distinct tokens.
    #[config(default = 96)]
    pub vocabulary: usize,
    /// Share of the scores of attention, and of the hidden values after it, that are dropped in training.
    #[config(default = 0.0)]
    pub dropout: f64,
}

/// A decoder-only transformer: layer norm before attention and before the feed-forward, exact GELU, biases, learned
/// positions, causal mask.
#[derive(Module, Debug)]
pub struct Gpt<B: Backend> {
    tokens: Embedding<B>,
    /// `[sequence, width]`
    positions: Param<Tensor<B, 2>>,
    blocks: Vec<Block<B>>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

/// A layer of a [`Gpt`]: attention and feed-forward.
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    attention_norm: LayerNorm<B>,
    attention: MultiHeadAttention<B>,
    feed_forward_norm: LayerNorm<B>,
    feed_forward: PositionWiseFeedForward<B>,
}

impl GptConfig {
    /// Creates a model with random weights.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Gpt<B> {
        let small = Initializer::Normal { mean: 0.0, std: 0.02 };
        let tokens = EmbeddingConfig::new(self.vocabulary, self.width).with_initializer(small.clone());
        Gpt {
            tokens: tokens.init(device),
            positions: small.init([self.sequence, self.width], device),
            blocks: (0..self.layers).map(|_| self.block(device)).collect(),
            norm: LayerNormConfig::new(self.width).init(device),
            head: LinearConfig::new(self.width, self.vocabulary).init(device),
        }
    }

    /// Creates a block with random weights.
    pub fn block<B: Backend>(&self, device: &B::Device) -> Block<B> {
        let norm = LayerNormConfig::new(self.width);
        let attention = MultiHeadAttentionConfig::new(self.width, self.heads).with_dropout(self.dropout);
        let feed_forward = PositionWiseFeedForwardConfig::new(self.width, self.feed_forward);
        let feed_forward = feed_forward.with_dropout(self.dropout);
        Block {
            attention_norm: norm.init(device),
            attention: attention.init(device),
            feed_forward_norm: norm.init(device),
            feed_forward: feed_forward.init(device),
        }
    }
}

impl<B: Backend> Block<B> {
    /// Maps `[batch, sequence, width]` to the same shape; `mask` `[batch, sequence, sequence]` is true at the
    /// positions that attention must ignore.
    pub fn forward(&self, x: Tensor<B, 3>, mask: Tensor<B, 3, Bool>) -> Tensor<B, 3> {
        let seen = MhaInput::self_attn(self.attention_norm.forward(x.clone())).mask_attn(mask);
        let x = x + self.attention.forward(seen).context;
        x.clone() + self.feed_forward.forward(self.feed_forward_norm.forward(x))
    }
}

impl<B: Backend> Gpt<B> {
    /// Maps tokens `[batch, sequence]` to the logits of each next token, `[batch, sequence, vocabulary]` in f32.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.forward_by(tokens, |block, x, mask| block.forward(x, mask))
    }

    /// The same as [`Gpt::forward`]; `run` runs each block, and may do more than [`Block::forward`].
    pub fn forward_by<'m>(
        &'m self,
        tokens: Tensor<B, 2, Int>,
        mut run: impl FnMut(&'m Block<B>, Tensor<B, 3>, Tensor<B, 3, Bool>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        self.forward_around(tokens, |x, mask| self.blocks.iter().fold(x, |x, block| run(block, x, mask.clone())))
    }

    /// The same as [`Gpt::forward`]; `blocks` runs all blocks, and may be others than the model's own. It is given `x`
    /// `[batch, sequence, width]` and the mask of [`Block::forward`].
    pub fn forward_around(
        &self,
        tokens: Tensor<B, 2, Int>,
        blocks: impl FnOnce(Tensor<B, 3>, Tensor<B, 3, Bool>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let [batch, sequence] = tokens.dims();
        let mask = generate_autoregressive_mask::<B>(batch, sequence, &tokens.device());
        let positions = self.positions.val().slice(0..sequence).unsqueeze::<3>();
        let x = self.tokens.forward(tokens) + positions;
        self.head.forward(self.norm.forward(blocks(x, mask))).cast(DType::F32)
    }
}

impl<B: Backend> Supervised<B> for Gpt<B> {
    type Batch = Tokens<B>;

    fn loss(&self, batch: Tokens<B>) -> Tensor<B, 1> {
        self.loss_by(batch, |block, x, mask| block.forward(x, mask))
    }
}

impl<B: Backend> Gpt<B> {
    /// The same as [`Supervised::loss`]; `run` runs each block, as in [`Gpt::forward_by`].
    pub fn loss_by<'m>(
        &'m self,
        batch: Tokens<B>,
        run: impl FnMut(&'m Block<B>, Tensor<B, 3>, Tensor<B, 3, Bool>) -> Tensor<B, 3>,
    ) -> Tensor<B, 1> {
        let logits = self.forward_by(batch.inputs, run).flatten(0, 1);
        cross_entropy(logits, batch.targets.flatten(0, 1))
    }

    /// The same as [`Supervised::loss`]; `blocks` runs all blocks, as in [`Gpt::forward_around`].
    pub fn loss_around(
        &self,
        batch: Tokens<B>,
        blocks: impl FnOnce(Tensor<B, 3>, Tensor<B, 3, Bool>) -> Tensor<B, 3>,
    ) -> Tensor<B, 1> {
        let logits = self.forward_around(batch.inputs, blocks).flatten(0, 1);
        cross_entropy(logits, batch.targets.flatten(0, 1))
    }
}

/// Samples of text, and the same samples shifted by one token.
#[derive(Module, Debug)]
pub struct Tokens<B: Backend> {
    /// `[batch, sequence]`
    pub inputs: Tensor<B, 2, Int>,
    /// `[batch, sequence]`
    pub targets: Tensor<B, 2, Int>,
}

impl<B: Backend> Tokens<B> {
    /// Returns a learnable batch: each sample counts upwards with a random stride and occasional errors. A step's
    /// batch is the same on every backend.
    pub fn synthetic(config: &GptConfig, step: usize, device: &B::Device) -> Self {
        let GptConfig { batch, sequence, vocabulary, .. } = *config;
        let mut noise = Noise::of_step(step);
        let mut tokens = Vec::with_capacity(batch * (sequence + 1));
        for _ in 0..batch {
            let (start, stride) = (noise.below(vocabulary), 1 + noise.below(3));
            tokens.extend((0..=sequence).map(|at| {
                let error = if noise.below(16) == 0 { noise.below(vocabulary) } else { 0 };
                ((start + stride * at + error) % vocabulary) as i32
            }));
        }
        let shifted = |by: usize| {
            let samples = tokens.chunks(sequence + 1).flat_map(|sample| &sample[by..by + sequence]);
            Tensor::from_data(TensorData::new(samples.copied().collect::<Vec<i32>>(), [batch, sequence]), device)
        };
        Self { inputs: shifted(0), targets: shifted(1) }
    }
}
