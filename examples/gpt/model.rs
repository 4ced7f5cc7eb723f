//! The decoder: GPT-2's architecture in plain Burn modules. Nothing in this file depends on the backend.
//!
//! Owns: the weights, the forward pass of training, and the two passes of generation, which share the weights and the
//! attention: `prefill` reads a whole prompt, `decode` adds one token to a cache of fixed size.

use burn::config::Config;
use burn::module::{Initializer, ParamId};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::softmax;

/// The score of a position that must not be seen. Finite, so that every type of float holds it.
const HIDDEN: f32 = -1e4;

/// The sizes of a [`Gpt`].
#[derive(Config, Debug, PartialEq)]
pub struct GptConfig {
    /// The number of distinct tokens.
    pub vocab: usize,
    /// Blocks of attention and feed-forward.
    #[config(default = 4)]
    pub layers: usize,
    /// Size of a token's vector; a multiple of `heads`.
    #[config(default = 256)]
    pub width: usize,
    /// Attention heads.
    #[config(default = 4)]
    pub heads: usize,
    /// The longest sequence of the model.
    #[config(default = 128)]
    pub sequence: usize,
    /// The share of activations that training drops.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether the tokens' embedding is also the matrix of the logits.
    #[config(default = true)]
    pub tied: bool,
}

/// A decoder: layer norm before attention and before the feed-forward, exact GELU, learned positions.
#[derive(Module, Debug)]
pub struct Gpt<B: Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    dropout: Dropout,
    blocks: Vec<Block<B>>,
    norm: LayerNorm<B>,
    /// `None` if the tokens' embedding is also the matrix of the logits.
    head: Option<Linear<B>>,
}

/// Attention and feed-forward.
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    attention_norm: LayerNorm<B>,
    /// Queries, keys and values: `[width, 3 * width]`.
    qkv: Linear<B>,
    projection: Linear<B>,
    feed_forward_norm: LayerNorm<B>,
    inner: Linear<B>,
    gelu: Gelu,
    outer: Linear<B>,
    dropout: Dropout,
    heads: usize,
}

/// The keys and values of all positions, one tensor `[batch, heads, sequence, head]` for each layer. Its size never
/// changes: positions after the last token hold numbers that nothing reads.
#[derive(Module, Debug)]
pub struct Cache<B: Backend> {
    keys: Vec<Tensor<B, 4>>,
    values: Vec<Tensor<B, 4>>,
}

impl GptConfig {
    /// Creates a model with random weights, as GPT-2's: a deviation of 0.02, less for what is added to the residual.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Gpt<B> {
        let embedding = |count| EmbeddingConfig::new(count, self.width).with_initializer(normal(0.02)).init(device);
        Gpt {
            tokens: embedding(self.vocab),
            positions: embedding(self.sequence),
            dropout: DropoutConfig::new(self.dropout).init(),
            blocks: (0..self.layers).map(|_| self.block(device)).collect(),
            norm: LayerNormConfig::new(self.width).init(device),
            head: (!self.tied).then(|| linear(self.width, self.vocab, 0.02, device)),
        }
    }

    fn block<B: Backend>(&self, device: &B::Device) -> Block<B> {
        let (width, residual) = (self.width, 0.02 / (2.0 * self.layers as f64).sqrt());
        let norm = LayerNormConfig::new(width);
        Block {
            attention_norm: norm.init(device),
            qkv: linear(width, 3 * width, 0.02, device),
            projection: linear(width, width, residual, device),
            feed_forward_norm: norm.init(device),
            inner: linear(width, 4 * width, 0.02, device),
            gelu: Gelu::new(),
            outer: linear(4 * width, width, residual, device),
            dropout: DropoutConfig::new(self.dropout).init(),
            heads: self.heads,
        }
    }
}

fn normal(std: f64) -> Initializer {
    Initializer::Normal { mean: 0.0, std }
}

/// Returns a layer whose bias starts at zero.
fn linear<B: Backend>(inputs: usize, outputs: usize, std: f64, device: &B::Device) -> Linear<B> {
    let layer = LinearConfig::new(inputs, outputs).with_initializer(normal(std)).init(device);
    Linear { bias: Some(Initializer::Zeros.init([outputs], device)), ..layer }
}

impl<B: Backend> Gpt<B> {
    /// Maps tokens `[batch, sequence]` to the logits of each next token, `[batch, sequence, vocab]` in f32.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let (x, mask) = self.begin(tokens);
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x, mask.clone()).0);
        self.logits(x)
    }

    /// Returns the mean cross-entropy in nats, `[1]` in f32, of the targets `[batch, sequence]`.
    pub fn loss(&self, tokens: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        let logits = self.forward(tokens).flatten::<2>(0, 1);
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets.flatten(0, 1))
    }

    /// Reads prompts `[batch, bucket]`, each padded at its end, of which `lengths` `[batch]` tokens count. Returns the
    /// logits `[batch, vocab]` of each prompt's next token in f32, and the cache for [`Gpt::decode`].
    pub fn prefill(&self, prompts: Tensor<B, 2, Int>, lengths: Tensor<B, 1, Int>) -> (Tensor<B, 2>, Cache<B>) {
        let [batch, bucket] = prompts.dims();
        let [context, width] = self.positions.weight.dims();
        let (mut x, mask) = self.begin(prompts);
        let mut cache = Cache { keys: Vec::new(), values: Vec::new() };
        for block in &self.blocks {
            let (next, keys, values) = block.forward(x, mask.clone());
            x = next;
            cache.keys.push(fill_up(keys, context));
            cache.values.push(fill_up(values, context));
        }
        // Which position is the last one is a number on the device, so that prompts of all lengths share a program.
        let last = (lengths - 1).reshape([batch, 1, 1]).expand([batch, 1, width]);
        let x = x.reshape([batch, bucket, width]).gather(1, last);
        (self.logits(x).squeeze_dim(1), cache)
    }

    /// Adds tokens `[batch, 1]` at the positions `[batch]` to the cache, and returns the logits `[batch, vocab]` of the
    /// tokens after them in f32. A pure function of its arguments: nothing on the host differs from call to call.
    pub fn decode(
        &self,
        cache: Cache<B>,
        tokens: Tensor<B, 2, Int>,
        positions: Tensor<B, 1, Int>,
    ) -> (Tensor<B, 2>, Cache<B>) {
        let [batch, _] = tokens.dims();
        let [context, _] = self.positions.weight.dims();
        let order = Tensor::<B, 1, Int>::arange(0..context as i64, &tokens.device());
        let order = order.reshape([1, 1, 1, context]).expand([batch, 1, 1, context]);
        let at = positions.clone().reshape([batch, 1, 1, 1]).expand([batch, 1, 1, context]);
        let here = order.clone().equal(at.clone()).swap_dims(2, 3);
        let hidden = order.greater(at);
        let mut x = self.tokens.forward(tokens) + self.positions.forward(positions.reshape([batch, 1]));
        let mut next = Cache { keys: Vec::new(), values: Vec::new() };
        for ((block, keys), values) in self.blocks.iter().zip(cache.keys).zip(cache.values) {
            let (y, keys, values) = block.decode(x, keys, values, here.clone(), hidden.clone());
            x = y;
            next.keys.push(keys);
            next.values.push(values);
        }
        (self.logits(x).squeeze_dim(1), next)
    }

    /// Returns the ids of the weights that decay: the matrices, but not norms, biases and embeddings.
    pub fn decayed(&self) -> Vec<ParamId> {
        let layers = self.blocks.iter().flat_map(|block| [&block.qkv, &block.projection, &block.inner, &block.outer]);
        layers.chain(&self.head).map(|layer| layer.weight.id).collect()
    }

    /// Returns the vectors of tokens `[batch, sequence]`, and the mask that hides later positions.
    fn begin(&self, tokens: Tensor<B, 2, Int>) -> (Tensor<B, 3>, Tensor<B, 4, Bool>) {
        let [batch, length] = tokens.dims();
        let [_, width] = self.positions.weight.dims();
        let mask = Tensor::<B, 2, Bool>::tril_mask([length, length], 0, &tokens.device());
        let positions = self.positions.weight.val().slice(0..length).reshape([1, length, width]);
        let x = self.tokens.forward(tokens) + positions.expand([batch, length, width]);
        (self.dropout.forward(x), mask.unsqueeze())
    }

    fn logits(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = self.norm.forward(x);
        let logits = match &self.head {
            Some(head) => head.forward(x),
            None => x.matmul(self.tokens.weight.val().transpose().unsqueeze()),
        };
        logits.cast(DType::F32)
    }
}

/// Adds positions to keys or values `[batch, heads, length, head]`, up to `context`.
fn fill_up<B: Backend>(x: Tensor<B, 4>, context: usize) -> Tensor<B, 4> {
    let [batch, heads, length, head] = x.dims();
    if length == context {
        return x;
    }
    let rest = Tensor::zeros([batch, heads, context - length, head], (&x.device(), x.dtype()));
    Tensor::cat(vec![x, rest], 2)
}

impl<B: Backend> Block<B> {
    /// Maps `[batch, length, width]` to the same shape; also returns the keys and values `[batch, heads, length, head]`.
    fn forward(&self, x: Tensor<B, 3>, mask: Tensor<B, 4, Bool>) -> (Tensor<B, 3>, Tensor<B, 4>, Tensor<B, 4>) {
        let [query, keys, values] = self.heads_of(x.clone());
        let [batch, heads, length, _] = query.dims();
        let mask = mask.expand([batch, heads, length, length]);
        let x = self.rest(x, attend(query, keys.clone(), values.clone(), mask, &self.dropout));
        (x, keys, values)
    }

    /// The same for one token `[batch, 1, width]`, whose key and value replace those of the cache where `here`
    /// `[batch, 1, context, 1]` is true. `hidden` `[batch, 1, 1, context]` is true at the positions after it.
    ///
    /// A comparison with all positions and a choice is one fused loop over the cache on every platform; a scatter is a
    /// loop over its updates on CPUs, and slow on TPUs.
    fn decode(
        &self,
        x: Tensor<B, 3>,
        keys: Tensor<B, 4>,
        values: Tensor<B, 4>,
        here: Tensor<B, 4, Bool>,
        hidden: Tensor<B, 4, Bool>,
    ) -> (Tensor<B, 3>, Tensor<B, 4>, Tensor<B, 4>) {
        let [query, key, value] = self.heads_of(x.clone());
        let shape = keys.dims();
        let [batch, heads, context, _] = shape;
        let here = here.expand(shape);
        let keys = keys.mask_where(here.clone(), key.expand(shape));
        let values = values.mask_where(here, value.expand(shape));
        let mask = hidden.expand([batch, heads, 1, context]);
        let x = self.rest(x, attend(query, keys.clone(), values.clone(), mask, &self.dropout));
        (x, keys, values)
    }

    /// Returns query, keys and values of `[batch, length, width]`, each `[batch, heads, length, head]`.
    fn heads_of(&self, x: Tensor<B, 3>) -> [Tensor<B, 4>; 3] {
        let [batch, length, width] = x.dims();
        let parts = self.qkv.forward(self.attention_norm.forward(x)).chunk(3, 2);
        let split = |part: Tensor<B, 3>| part.reshape([batch, length, self.heads, width / self.heads]).swap_dims(1, 2);
        let parts: Vec<_> = parts.into_iter().map(split).collect();
        parts.try_into().unwrap_or_else(|_| unreachable!("a chunk into three returns three parts"))
    }

    /// Everything after the attention: its projection and the feed-forward, each added to what it reads.
    fn rest(&self, x: Tensor<B, 3>, seen: Tensor<B, 4>) -> Tensor<B, 3> {
        let seen = self.projection.forward(seen.swap_dims(1, 2).reshape(x.dims()));
        let x = x + self.dropout.forward(seen);
        let hidden = self.gelu.forward(self.inner.forward(self.feed_forward_norm.forward(x.clone())));
        x + self.dropout.forward(self.outer.forward(hidden))
    }
}

/// Returns what queries `[batch, heads, q, head]` see of values `[batch, heads, k, head]`; `mask` `[batch, heads, q, k]` is
/// true where a position is hidden.
fn attend<B: Backend>(
    query: Tensor<B, 4>,
    keys: Tensor<B, 4>,
    values: Tensor<B, 4>,
    mask: Tensor<B, 4, Bool>,
    dropout: &Dropout,
) -> Tensor<B, 4> {
    let [_, _, _, head] = query.dims();
    let scores = query.matmul(keys.transpose()) / (head as f64).sqrt();
    let weights = softmax(scores.mask_fill(mask, HIDDEN), 3);
    dropout.forward(weights).matmul(values)
}
