//! The small language model of `generate` and `text-generation`.

use crate::weights;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderAutoregressiveCache, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn_flex::{Flex, FlexDevice};

/// The number of tokens that the model knows.
pub const VOCABULARY: usize = 128;
/// The number of positions that the model knows.
pub const POSITIONS: usize = 256;
const WIDTH: usize = 64;

/// Embeddings of tokens and positions, an encoder with a causal mask, and logits for each position.
#[derive(Module, Debug)]
pub struct Decoder<B: Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    encoder: TransformerEncoder<B>,
    output: Linear<B>,
}

impl<B: Backend> Decoder<B> {
    /// Creates the model with the weights that every backend starts from.
    pub fn new(device: &B::Device) -> Self {
        weights::same(Decoder::<Flex>::random(&FlexDevice), Self::random(device), device)
    }

    fn random(device: &B::Device) -> Self {
        let encoder = TransformerEncoderConfig::new(WIDTH, 2 * WIDTH, 4, 2).with_dropout(0.0).with_norm_first(true);
        Self {
            tokens: EmbeddingConfig::new(VOCABULARY, WIDTH).init(device),
            positions: EmbeddingConfig::new(POSITIONS, WIDTH).init(device),
            encoder: encoder.init(device),
            output: LinearConfig::new(WIDTH, VOCABULARY).init(device),
        }
    }

    /// Maps tokens `[batch, length]` to logits `[batch, length, vocabulary]`.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>, padding: Option<Tensor<B, 2, Bool>>) -> Tensor<B, 3> {
        let mut input = self.input(tokens);
        if let Some(padding) = padding {
            input = input.mask_pad(padding);
        }
        self.output.forward(self.encoder.forward(input))
    }

    /// Maps all tokens so far to logits; only the last position is computed anew.
    pub fn forward_cached(
        &self,
        tokens: Tensor<B, 2, Int>,
        cache: &mut TransformerEncoderAutoregressiveCache<B>,
    ) -> Tensor<B, 3> {
        self.output.forward(self.encoder.forward_autoregressive_inference(self.input(tokens), cache))
    }

    /// Returns an empty cache of keys and values.
    pub fn cache(&self) -> TransformerEncoderAutoregressiveCache<B> {
        self.encoder.new_autoregressive_cache()
    }

    fn input(&self, tokens: Tensor<B, 2, Int>) -> TransformerEncoderInput<B> {
        let [rows, length] = tokens.dims();
        let device = &tokens.device();
        let positions = Tensor::arange(0..length as i64, device).reshape([1, length]).repeat_dim(0, rows);
        let embedded = self.tokens.forward(tokens) + self.positions.forward(positions);
        TransformerEncoderInput::new(embedded).mask_attn(generate_autoregressive_mask(rows, length, device))
    }
}
