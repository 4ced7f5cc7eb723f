//! A BERT encoder that maps sentences to unit vectors: the architecture of MiniLM and other sentence encoders.
//!
//! The transformer is Burn's own. [`BertConfig`] has the names of a checkpoint's `config.json`, so `BertConfig::load` reads
//! that file.

use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig};
use burn::prelude::*;
use burn::tensor::DType;

/// The sizes of a BERT encoder.
#[derive(Config, Debug)]
pub struct BertConfig {
    /// The number of tokens in the vocabulary
    pub vocab_size: usize,
    /// The width of a token's vector
    pub hidden_size: usize,
    /// The number of transformer layers
    pub num_hidden_layers: usize,
    /// The number of attention heads; divides `hidden_size`
    pub num_attention_heads: usize,
    /// The width of the feed-forward layers
    pub intermediate_size: usize,
    /// The longest sentence in tokens, including the two special ones
    pub max_position_embeddings: usize,
    /// The number of token types; sentences on their own have type 0
    #[config(default = 2)]
    pub type_vocab_size: usize,
    /// Added to the variance in each layer norm
    #[config(default = 1e-12)]
    pub layer_norm_eps: f64,
}

/// The sum of three embeddings, normalised.
#[derive(Module, Debug)]
pub struct Embeddings<B: Backend> {
    word_embeddings: Embedding<B>,
    position_embeddings: Embedding<B>,
    token_type_embeddings: Embedding<B>,
    layer_norm: LayerNorm<B>,
}

/// Embeddings and a post-norm transformer with exact GELU.
#[derive(Module, Debug)]
pub struct Bert<B: Backend> {
    embeddings: Embeddings<B>,
    encoder: TransformerEncoder<B>,
}

impl BertConfig {
    /// Creates an encoder with random weights.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Bert<B> {
        let (width, layers) = (self.hidden_size, self.num_hidden_layers);
        let encoder = TransformerEncoderConfig::new(width, self.intermediate_size, self.num_attention_heads, layers);
        let embedding = |rows| EmbeddingConfig::new(rows, width).init(device);
        Bert {
            embeddings: Embeddings {
                word_embeddings: embedding(self.vocab_size),
                position_embeddings: embedding(self.max_position_embeddings),
                token_type_embeddings: embedding(self.type_vocab_size),
                layer_norm: LayerNormConfig::new(width).with_epsilon(self.layer_norm_eps).init(device),
            },
            encoder: encoder.with_dropout(0.0).with_layer_norm_eps(self.layer_norm_eps).init(device),
        }
    }
}

impl<B: Backend> Embeddings<B> {
    /// Maps token ids `[batch, length]` to vectors `[batch, length, width]`.
    fn forward(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let [_, length] = ids.dims();
        let positions = self.position_embeddings.weight.val().slice(0..length);
        let kind = self.token_type_embeddings.weight.val().slice(0..1);
        let places = (positions + kind).unsqueeze::<3>();
        self.layer_norm.forward(self.word_embeddings.forward(ids) + places)
    }
}

impl<B: Backend> Bert<B> {
    /// Maps token ids and their mask, both `[batch, length]`, to one unit vector for each sentence, `[batch, width]` in f32:
    /// the mean over its tokens. The mask is 1 for tokens and 0 for padding.
    pub fn forward(&self, ids: Tensor<B, 2, Int>, mask: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let input = TransformerEncoderInput::new(self.embeddings.forward(ids));
        let tokens = self.encoder.forward(input.mask_pad(mask.clone().equal_elem(0)));
        unit(mean_of_tokens(tokens.cast(DType::F32), mask))
    }
}

/// Returns the mean over the tokens of each sentence, `[batch, width]`.
fn mean_of_tokens<B: Backend>(tokens: Tensor<B, 3>, mask: Tensor<B, 2, Int>) -> Tensor<B, 2> {
    let mask = mask.float().cast(DType::F32).unsqueeze_dim::<3>(2);
    let sum = (tokens * mask.clone()).sum_dim(1);
    (sum / mask.sum_dim(1).clamp_min(1e-9)).squeeze_dim(1)
}

/// Returns vectors `[batch, width]` of length 1.
fn unit<B: Backend>(vectors: Tensor<B, 2>) -> Tensor<B, 2> {
    let length = vectors.clone().square().sum_dim(1).sqrt();
    vectors / length.clamp_min(1e-12)
}
