//! A batch and its loss.

use crate::model::Decoder;
use burn::module::Module;
use burn::prelude::*;

/// Rows that are learned from at once. It is a module, so that a compiled step takes it as an argument.
#[derive(Module, Debug)]
pub struct Batch<B: Backend> {
    /// `[batch, length + 1]`
    pub tokens: Tensor<B, 2, Int>,
    /// Of each token but the first, 1 if it is learned, else 0; `[batch, length]` in f32.
    pub weights: Tensor<B, 2>,
    /// Of each token but the last, where in its row its text begins, `[batch, length]`; without it, at 0.
    pub starts: Option<Tensor<B, 2, Int>>,
}

impl<B: Backend> Batch<B> {
    /// Returns the mean cross-entropy in nats of the tokens that are learned, `[1]` in f32.
    pub fn loss(self, model: &Decoder<B>) -> Tensor<B, 1> {
        let count = self.weights.clone().sum().clamp_min(1.0);
        self.nats(model) / count
    }

    /// Returns the sum of the cross-entropy in nats of the tokens that are learned, `[1]` in f32.
    pub fn nats(self, model: &Decoder<B>) -> Tensor<B, 1> {
        (model.nats(self.tokens, self.starts) * self.weights).sum()
    }
}
