//! A product of each expert with a matrix of its own, and what may be trained in its place: an adapter of low rank.
//!
//! Owns: how the matrices of a layer's experts are one tensor, and products with all or some of them. May not know: which
//! expert a token has.

use super::few_bits::{Bits, FewBits};
use super::projection::{SMALL, changed};
use burn::module::{Initializer, Param};
use burn::nn::{Dropout, DropoutConfig};
use burn::prelude::*;
use burn::tensor::DType;

/// A product with a matrix for each expert: `x * weight + bias`, and what the adapter adds to it, if there is one.
#[derive(Module, Debug)]
pub struct Stack<B: Backend> {
    /// `[experts, inputs, outputs]`; `None` if they have few bits.
    pub weight: Option<Param<Tensor<B, 3>>>,
    /// The weights of each expert in few bits, or none.
    pub few_bits: Vec<FewBits<B>>,
    /// `[experts, outputs]`
    pub bias: Option<Param<Tensor<B, 2>>>,
    /// The adapter.
    pub lora: Option<StackLora<B>>,
}

/// A change of each expert's matrix, as [`Lora`](super::Lora) is of one.
#[derive(Module, Debug)]
pub struct StackLora<B: Backend> {
    /// `[experts, inputs, rank]`
    pub a: Param<Tensor<B, 3>>,
    /// `[experts, rank, outputs]`, zero in a new adapter.
    pub b: Param<Tensor<B, 3>>,
    dropout: Dropout,
    scale: f64,
    /// Whether the weights contain it.
    merged: bool,
}

/// The matrices of some experts, `n` of them.
pub(super) struct Matrices<B: Backend> {
    /// `[n, inputs, outputs]`
    weight: Tensor<B, 3>,
    /// `[n, outputs]`
    bias: Option<Tensor<B, 2>>,
    /// `[n, inputs, rank]`, `[n, rank, outputs]`
    lora: Option<[Tensor<B, 3>; 2]>,
    dropout: Option<Dropout>,
    scale: f64,
}

impl<B: Backend> Stack<B> {
    /// Creates products with small random weights, which are made when they are first used.
    pub fn new([experts, inputs, outputs]: [usize; 3], bias: bool, device: &B::Device) -> Self {
        Self {
            weight: Some(SMALL.init([experts, inputs, outputs], device)),
            few_bits: Vec::new(),
            bias: bias.then(|| SMALL.init([experts, outputs], device)),
            lora: None,
        }
    }

    /// Returns the numbers of experts, inputs and outputs.
    pub(super) fn dims(&self) -> [usize; 3] {
        match (&self.weight, self.few_bits.first()) {
            (Some(weight), _) => weight.lazy_shape().dims(),
            (None, Some(first)) => {
                let [inputs, outputs] = first.dims();
                [self.few_bits.len(), inputs, outputs]
            }
            (None, None) => [0; 3],
        }
    }

    /// Returns the matrices of the experts `[n]`, or of all; `None` if they have few bits.
    pub(super) fn matrices(&self, chosen: Option<&Tensor<B, 1, Int>>) -> Option<Matrices<B>> {
        let of = |stack: Tensor<B, 3>| match chosen {
            Some(chosen) => stack.select(0, chosen.clone()),
            None => stack,
        };
        let bias = self.bias.as_ref().map(|bias| match chosen {
            Some(chosen) => bias.val().select(0, chosen.clone()),
            None => bias.val(),
        });
        let lora = self.lora.as_ref().filter(|lora| !lora.merged);
        Some(Matrices {
            weight: of(self.weight.as_ref()?.val()),
            bias,
            lora: lora.map(|lora| [&lora.a, &lora.b].map(|stack| of(stack.val()))),
            dropout: lora.map(|lora| lora.dropout.clone()),
            scale: lora.map_or(1.0, |lora| lora.scale),
        })
    }

    /// Returns the weights, if there is nothing else: neither a bias nor an adapter beside them.
    pub(super) fn weight_alone(&self) -> Option<Tensor<B, 3>> {
        let has_adapter = self.lora.as_ref().is_some_and(|lora| !lora.merged);
        self.weight.as_ref().filter(|_| self.bias.is_none() && !has_adapter).map(Param::val)
    }

    /// Maps `[1, rows, inputs]` to `[1, rows, outputs]` by the matrix of one expert.
    pub(super) fn product_of(&self, expert: usize, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let part = |stack: Tensor<B, 3>| stack.slice_dim(0, expert..expert + 1);
        let mut y = match (&self.weight, self.few_bits.get(expert)) {
            (Some(weight), _) => x.clone().matmul(part(weight.val())),
            (None, Some(matrix)) => matrix.product(x.clone()),
            (None, None) => x.clone(),
        };
        if let Some(bias) = &self.bias {
            y = y + part(bias.val().unsqueeze_dim(1));
        }
        match &self.lora {
            Some(lora) if !lora.merged => {
                let x = lora.dropout.forward(x);
                y + x.matmul(part(lora.a.val())).matmul(part(lora.b.val())) * lora.scale
            }
            _ => y,
        }
    }

    /// Replaces the weights by zeros of few bits, of at least so many as their inputs can be divided for; if they cannot,
    /// they stay.
    pub(super) fn set_few_bits(&mut self, bits: Bits, device: &B::Device) {
        let [experts, inputs, outputs] = self.dims();
        let matrices: Option<Vec<_>> = (0..experts).map(|_| FewBits::at_least(bits, inputs, outputs, device)).collect();
        if let Some(matrices) = matrices {
            (self.few_bits, self.weight) = (matrices, None);
        }
    }

    /// Adds an adapter that changes nothing.
    pub(super) fn add_lora(&mut self, rank: usize, alpha: f64, dropout: f64, device: &B::Device) {
        self.lora = Some(StackLora::new(self.dims(), rank, alpha, dropout, device));
    }

    /// Adds the adapter's change to the weights, or takes it away again, if that has not been done. Weights in few bits
    /// stay, and their adapter beside them.
    pub(super) fn set_merged(&mut self, merged: bool) {
        let (Some(lora), Some(whole)) = (&mut self.lora, &mut self.weight) else { return };
        if lora.merged == merged {
            return;
        }
        lora.merged = merged;
        let change = if merged { lora.change() } else { lora.change().neg() };
        *whole = changed(whole, change);
    }
}

impl<B: Backend> StackLora<B> {
    /// Creates an adapter that changes nothing, as [`Lora::new`](super::Lora::new) does.
    pub fn new(dims: [usize; 3], rank: usize, alpha: f64, dropout: f64, device: &B::Device) -> Self {
        let [experts, inputs, outputs] = dims;
        let most = 1.0 / (inputs as f64).sqrt();
        Self {
            a: Initializer::Uniform { min: -most, max: most }.init([experts, inputs, rank], device),
            b: Initializer::Zeros.init([experts, rank, outputs], device),
            dropout: DropoutConfig::new(dropout).init(),
            scale: alpha / rank as f64,
            merged: false,
        }
    }

    /// Returns whether the weights contain the adapter.
    pub fn is_merged(&self) -> bool {
        self.merged
    }

    /// Returns the change of the weights, `[experts, inputs, outputs]` in f32.
    fn change(&self) -> Tensor<B, 3> {
        let [a, b] = [&self.a, &self.b].map(|stack| stack.val().cast(DType::F32));
        (a.matmul(b) * self.scale).detach()
    }
}

impl<B: Backend> Matrices<B> {
    /// Maps rows of each expert, or the same ones for all, `[n or 1, rows, inputs]`, to `[n, rows, outputs]`.
    pub(super) fn products(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let mut y = x.clone().matmul(self.weight.clone());
        if let Some(bias) = &self.bias {
            y = y + bias.clone().unsqueeze_dim(1);
        }
        match &self.lora {
            Some([a, b]) => y + self.dropped(x).matmul(a.clone()).matmul(b.clone()) * self.scale,
            None => y,
        }
    }

    /// Returns the sum over the experts of their products with `[n, rows, inputs]`, each row times its share `[n, rows,
    /// 1]`: `[rows, outputs]`. One product sums over experts and inputs.
    pub(super) fn sum_of_products(&self, x: Tensor<B, 3>, shares: Tensor<B, 3>) -> Tensor<B, 2> {
        let x = x * shares.clone();
        let mut y = contracted(x.clone(), self.weight.clone());
        if let Some(bias) = &self.bias {
            y = y + shares.squeeze_dim::<2>(2).transpose().matmul(bias.clone());
        }
        match &self.lora {
            Some([a, b]) => y + contracted(self.dropped(x).matmul(a.clone()), b.clone()) * self.scale,
            None => y,
        }
    }

    fn dropped(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match &self.dropout {
            Some(dropout) => dropout.forward(x),
            None => x,
        }
    }
}

/// Maps `[n, rows, inputs]` and `[n, inputs, outputs]` to `[rows, outputs]`.
fn contracted<B: Backend>(x: Tensor<B, 3>, weight: Tensor<B, 3>) -> Tensor<B, 2> {
    let ([n, rows, inputs], outputs) = (x.dims(), weight.dims()[2]);
    x.swap_dims(0, 1).reshape([rows, n * inputs]).matmul(weight.reshape([n * inputs, outputs]))
}
