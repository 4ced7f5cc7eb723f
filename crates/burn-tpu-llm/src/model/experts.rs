//! The gated feed-forwards of a layer's experts, whose weights are stacks.
//!
//! Owns: what they compute for rows of tokens. May not know: the router.

use super::blocks::{Layout, Sorted};
use super::product::Product;
use super::stack::{Matrices, Stack};
use super::{grouped, moved};
use crate::config::{Activation, Config};
use burn::prelude::*;
use burn::tensor::activation::{gelu_approximate, silu};

/// `down(activation(gate(x)) * up(x))` of each expert.
#[derive(Module, Debug)]
pub struct FeedForwards<B: Backend> {
    /// `[experts, width, hidden]`
    pub gate_proj: Stack<B>,
    /// `[experts, width, hidden]`
    pub up_proj: Stack<B>,
    /// `[experts, hidden, width]`
    pub down_proj: Stack<B>,
    gelu: bool,
}

/// The matrices of some experts.
pub(super) struct Chosen<B: Backend> {
    gate: Matrices<B>,
    up: Matrices<B>,
    down: Matrices<B>,
    gelu: bool,
}

impl<B: Backend> FeedForwards<B> {
    /// Creates feed-forwards with random weights; `hidden` is the size between the products of each.
    pub fn new(config: &Config, experts: usize, hidden: usize, device: &B::Device) -> Self {
        let (width, bias) = (config.width, config.feed_forward_bias);
        Self {
            gate_proj: Stack::new([experts, width, hidden], bias, device),
            up_proj: Stack::new([experts, width, hidden], bias, device),
            down_proj: Stack::new([experts, hidden, width], bias, device),
            gelu: config.activation == Activation::GeluTanh,
        }
    }

    /// Returns the products that an adapter may change with their names for each expert, which begin with `name`.
    pub(super) fn products(&mut self, name: &str) -> Vec<(Vec<String>, Product<'_, B>)> {
        let experts = self.gate_proj.dims()[0];
        let products =
            [("gate_proj", &mut self.gate_proj), ("up_proj", &mut self.up_proj), ("down_proj", &mut self.down_proj)];
        let names = |product| (0..experts).map(|expert| format!("{name}.{expert}.{product}")).collect();
        products.map(|(product, stack)| (names(product), Product::Each(stack))).into_iter().collect()
    }

    pub(super) fn has_few_bits(&self) -> bool {
        let stacks = [&self.gate_proj, &self.up_proj, &self.down_proj];
        stacks.iter().any(|stack| !stack.few_bits.is_empty())
    }

    /// Returns the experts `[n]`, or all; `None` if their weights have few bits.
    pub(super) fn chosen(&self, experts: Option<&Tensor<B, 1, Int>>) -> Option<Chosen<B>> {
        let of = |stack: &Stack<B>| stack.matrices(experts);
        Some(Chosen { gate: of(&self.gate_proj)?, up: of(&self.up_proj)?, down: of(&self.down_proj)?, gelu: self.gelu })
    }

    /// Returns the sum of all experts for every row `[rows, width]`, each times its share `[experts, rows, 1]`.
    pub(super) fn all(&self, x: Tensor<B, 2>, shares: Tensor<B, 3>) -> Tensor<B, 2> {
        let x = x.unsqueeze::<3>();
        match self.chosen(None) {
            Some(all) => all.down.sum_of_products(all.hidden(x), shares),
            None => self.in_turns(x, shares),
        }
    }

    /// Returns whether the experts have weights alone: no biases, no adapter, no few bits.
    pub(super) fn has_weights_alone(&self) -> bool {
        [&self.gate_proj, &self.up_proj, &self.down_proj].iter().all(|stack| stack.weight_alone().is_some())
    }

    /// Computes the sorted choices of rows `[rows, width]` by a TPU's kernel or, on a mesh, by every chip for itself: `[groups,
    /// parts, choices * tokens, width]` in the order of the choices. `None` on other backends, and for experts that have more
    /// than weights.
    pub(super) fn sorted(&self, x: Tensor<B, 2>, sorted: &Sorted<B>) -> Option<Tensor<B, 4>> {
        let [gate, up, down] = [&self.gate_proj, &self.up_proj, &self.down_proj].map(Stack::weight_alone);
        let ([groups, parts, most, tokens], rows) = (sorted.places.dims(), sorted.rows(x));
        let product = |x, weight| grouped::product(x, weight, sorted.sizes.clone());
        let x = moved::taken(rows, sorted.sources.clone(), sorted.places.clone())?;
        let gate = activated(product(x.clone(), gate?)?, self.gelu);
        let y = product(gate * product(x, up?)?, down?)?;
        let places = sorted.places.clone().reshape([groups, parts, most * tokens]);
        moved::taken(y, places, sorted.choices.clone().unsqueeze_dim(2))
    }

    /// Computes the same on one device in blocks of rows; `None` if the weights have few bits.
    pub(super) fn in_blocks(&self, x: Tensor<B, 2>, sorted: &Sorted<B>, size: usize) -> Option<Tensor<B, 4>> {
        let ([_, _, choices], [_, _, experts], width) = (sorted.choices.dims(), sorted.sizes.dims(), x.dims()[1]);
        let layout = Layout::new(sorted.sizes.clone().reshape([experts]), choices, size);
        let [blocks] = layout.experts.dims();
        let chosen = self.chosen(Some(&layout.experts))?;
        let sources = sorted.sources.clone().reshape([choices]).select(0, layout.sources);
        let y = chosen.forward(x.select(0, sources).reshape([blocks, size, width]));
        let places = layout.places.select(0, sorted.places.clone().reshape([choices]));
        Some(y.reshape([blocks * size, width]).select(0, places).unsqueeze())
    }

    /// Computes the same, one expert after another: rows `[1, rows, width]`. Matrices in few bits are no one tensor.
    pub(super) fn in_turns(&self, x: Tensor<B, 3>, shares: Tensor<B, 3>) -> Tensor<B, 2> {
        let mut sum = x.zeros_like();
        for expert in 0..shares.dims()[0] {
            let gate = activated(self.gate_proj.product_of(expert, x.clone()), self.gelu);
            let hidden = gate * self.up_proj.product_of(expert, x.clone());
            let share = shares.clone().slice_dim(0, expert..expert + 1);
            sum = sum + self.down_proj.product_of(expert, hidden) * share;
        }
        sum.squeeze_dim(0)
    }
}

impl<B: Backend> Chosen<B> {
    /// Maps the rows of each expert `[n, rows, width]` to the same shape.
    pub(super) fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.down.products(self.hidden(x))
    }

    /// Maps `[n or 1, rows, width]` to `[n, rows, hidden]`.
    fn hidden(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        activated(self.gate.products(x.clone()), self.gelu) * self.up.products(x)
    }
}

fn activated<B: Backend, const D: usize>(gate: Tensor<B, D>, gelu: bool) -> Tensor<B, D> {
    if gelu { gelu_approximate(gate) } else { silu(gate) }
}
