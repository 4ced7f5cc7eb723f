//! A gated feed-forward layer ([Shazeer](https://arxiv.org/abs/2002.05202)).

use super::kept::FEED_FORWARD;
use super::product::Product;
use super::projection::Projection;
use crate::config::{Activation, Config};
use burn::prelude::*;
use burn::tensor::activation::{gelu_approximate, silu};
use burn_tpu::keep;

/// `down(activation(gate(x)) * up(x))`
#[derive(Module, Debug)]
pub struct FeedForward<B: Backend> {
    /// `[width, hidden]`
    pub gate_proj: Projection<B>,
    /// `[width, hidden]`
    pub up_proj: Projection<B>,
    /// `[hidden, width]`
    pub down_proj: Projection<B>,
    gelu: bool,
}

impl<B: Backend> FeedForward<B> {
    /// Creates a layer with random weights; `hidden` is the size between its products.
    pub fn new(config: &Config, hidden: usize, device: &B::Device) -> Self {
        let bias = config.feed_forward_bias;
        Self {
            gate_proj: Projection::new(config.width, hidden, bias, device),
            up_proj: Projection::new(config.width, hidden, bias, device),
            down_proj: Projection::new(hidden, config.width, bias, device),
            gelu: config.activation == Activation::GeluTanh,
        }
    }

    /// Returns the products that an adapter may change with their names, which begin with that of the layer.
    pub(super) fn products(&mut self, name: &str) -> impl Iterator<Item = (Vec<String>, Product<'_, B>)> {
        let products =
            [("gate_proj", &mut self.gate_proj), ("up_proj", &mut self.up_proj), ("down_proj", &mut self.down_proj)];
        products.map(|(product, projection)| (vec![format!("{name}.{product}")], Product::One(projection))).into_iter()
    }

    /// Maps `[batch, length, width]` to the same shape.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [gate, up] = [&self.gate_proj, &self.up_proj].map(|product| keep(FEED_FORWARD, product.forward(x.clone())));
        let gate = if self.gelu { gelu_approximate(gate) } else { silu(gate) };
        self.down_proj.forward(gate * up)
    }
}
