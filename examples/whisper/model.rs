//! Whisper: an encoder of spectrograms, and a decoder of tokens that attends to what the encoder found.
//!
//! Layer norm before each part, exact GELU. The decoder takes one token at a time and keeps keys and values in caches of
//! fixed size, so every step has the same shapes. Source: "Robust Speech Recognition via Large-Scale Weak Supervision",
//! <https://arxiv.org/abs/2212.04356>.

use burn::module::Param;
use burn::nn::conv::Conv1d;
use burn::nn::{Embedding, LayerNorm, Linear};
use burn::prelude::*;
use burn::tensor::activation::gelu;
use burn::tensor::module::attention;

/// The two halves of Whisper.
#[derive(Module, Debug)]
pub struct Whisper<B: Backend> {
    pub encoder: Encoder<B>,
    pub decoder: Decoder<B>,
}

/// Maps spectrograms to a vector for each 20 ms.
#[derive(Module, Debug)]
pub struct Encoder<B: Backend> {
    pub conv1: Conv1d<B>,
    /// Of stride 2: it halves the number of frames.
    pub conv2: Conv1d<B>,
    /// `[frames / 2, width]`
    pub positions: Param<Tensor<B, 2>>,
    pub layers: Vec<EncoderLayer<B>>,
    pub norm: LayerNorm<B>,
}

#[derive(Module, Debug)]
pub struct EncoderLayer<B: Backend> {
    pub attention_norm: LayerNorm<B>,
    pub attention: Attention<B>,
    pub mlp_norm: LayerNorm<B>,
    pub mlp: Mlp<B>,
}

/// Maps tokens and what the encoder found to logits of the next token.
#[derive(Module, Debug)]
pub struct Decoder<B: Backend> {
    pub tokens: Embedding<B>,
    /// `[length, width]`
    pub positions: Param<Tensor<B, 2>>,
    pub layers: Vec<DecoderLayer<B>>,
    pub norm: LayerNorm<B>,
}

#[derive(Module, Debug)]
pub struct DecoderLayer<B: Backend> {
    pub attention_norm: LayerNorm<B>,
    pub attention: Attention<B>,
    pub cross_norm: LayerNorm<B>,
    pub cross: Attention<B>,
    pub mlp_norm: LayerNorm<B>,
    pub mlp: Mlp<B>,
}

#[derive(Module, Debug)]
pub struct Attention<B: Backend> {
    pub query: Linear<B>,
    pub key: Linear<B>,
    pub value: Linear<B>,
    pub output: Linear<B>,
    pub heads: usize,
}

#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    pub up: Linear<B>,
    pub down: Linear<B>,
}

/// Keys and values, `[1, heads, length, width of a head]`.
#[derive(Clone, Debug)]
pub struct KeysValues<B: Backend> {
    keys: Tensor<B, 4>,
    values: Tensor<B, 4>,
}

/// The keys and values of a decoder's layers.
#[derive(Clone, Debug)]
pub struct Cache<B: Backend> {
    /// For each layer: those of the tokens so far, in space for all positions, and those of the sound.
    layers: Vec<(KeysValues<B>, KeysValues<B>)>,
}

impl<B: Backend> Encoder<B> {
    /// Maps a spectrogram `[1, mels, frames]` to `[1, frames / 2, width]`.
    pub fn forward(&self, mel: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = gelu(self.conv1.forward(mel));
        let x = gelu(self.conv2.forward(x));
        let mut x = x.swap_dims(1, 2) + self.positions.val().unsqueeze();
        for layer in &self.layers {
            let normed = layer.attention_norm.forward(x.clone());
            let own = layer.attention.keys_values(normed.clone());
            x = x + layer.attention.forward(normed, &own, None);
            x = layer.mlp.forward(layer.mlp_norm.forward(x.clone())) + x;
        }
        self.norm.forward(x)
    }
}

impl<B: Backend> Decoder<B> {
    /// Returns the most tokens of a text.
    pub fn length(&self) -> usize {
        self.positions.dims()[0]
    }

    /// Begins a text about what the encoder found, `[1, sounds, width]`.
    pub fn begin(&self, sound: &Tensor<B, 3>) -> Cache<B> {
        let [length, width] = self.positions.dims();
        let layers = self.layers.iter().map(|layer| {
            let heads = layer.attention.heads;
            let empty = Tensor::zeros([1, heads, length, width / heads], &sound.device());
            let own = KeysValues { keys: empty.clone(), values: empty };
            (own, layer.cross.keys_values(sound.clone()))
        });
        Cache { layers: layers.collect() }
    }

    /// Maps the token `[1, 1]` at a position to logits of the next one, `[1, vocabulary]`.
    pub fn forward(&self, token: Tensor<B, 2, Int>, position: usize, cache: Cache<B>) -> (Tensor<B, 2>, Cache<B>) {
        let place = self.positions.val().narrow(0, position, 1);
        let mut x = self.tokens.forward(token) + place.unsqueeze();
        // What the cache has no tokens for yet.
        let later = Tensor::arange(0..self.length() as i64, &x.device()).greater_elem(position as i64);
        let mut layers = Vec::with_capacity(cache.layers.len());
        for (layer, (own, sound)) in self.layers.iter().zip(cache.layers) {
            let normed = layer.attention_norm.forward(x.clone());
            let own = own.with(layer.attention.keys_values(normed.clone()), position);
            x = x + layer.attention.forward(normed, &own, Some(later.clone()));
            let normed = layer.cross_norm.forward(x.clone());
            x = x + layer.cross.forward(normed, &sound, None);
            x = layer.mlp.forward(layer.mlp_norm.forward(x.clone())) + x;
            layers.push((own, sound));
        }
        let x: Tensor<B, 2> = self.norm.forward(x).squeeze_dim(1);
        (x.matmul(self.tokens.weight.val().transpose()), Cache { layers })
    }
}

impl<B: Backend> KeysValues<B> {
    /// Writes those of one token at a position.
    fn with(self, token: Self, position: usize) -> Self {
        let [_, heads, _, width] = self.keys.dims();
        let place = [0..1, 0..heads, position..position + 1, 0..width];
        Self {
            keys: self.keys.slice_assign(place.clone(), token.keys),
            values: self.values.slice_assign(place, token.values),
        }
    }
}

impl<B: Backend> Attention<B> {
    /// Returns the keys and values of `[1, length, width]`.
    fn keys_values(&self, x: Tensor<B, 3>) -> KeysValues<B> {
        KeysValues { keys: self.split(self.key.forward(x.clone())), values: self.split(self.value.forward(x)) }
    }

    /// Attends from `[1, length, width]`, except to the places that `hidden` names.
    fn forward(&self, x: Tensor<B, 3>, to: &KeysValues<B>, hidden: Option<Tensor<B, 1, Bool>>) -> Tensor<B, 3> {
        let query = self.split(self.query.forward(x));
        let [_, heads, length, _] = query.dims();
        let hidden = hidden.map(|hidden| {
            let places = hidden.dims()[0];
            hidden.reshape([1, 1, 1, places]).expand([1, heads, length, places])
        });
        let x = attention(query, to.keys.clone(), to.values.clone(), hidden, None, Default::default());
        self.output.forward(x.swap_dims(1, 2).flatten(2, 3))
    }

    /// Divides `[1, length, width]` into heads: `[1, heads, length, width / heads]`.
    fn split(&self, x: Tensor<B, 3>) -> Tensor<B, 4> {
        let [batch, length, width] = x.dims();
        x.reshape([batch, length, self.heads, width / self.heads]).swap_dims(1, 2)
    }
}

impl<B: Backend> Mlp<B> {
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.down.forward(gelu(self.up.forward(x)))
    }
}
