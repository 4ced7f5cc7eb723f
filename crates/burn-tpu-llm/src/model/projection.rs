//! A product with a matrix, and what may be trained in its place: an adapter of low rank.
//!
//! Owns: what both compute. May not know: which products of a decoder have an adapter, which is `lora`'s.

use super::few_bits::{Bits, FewBits};
use burn::module::{Initializer, Param};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::module::linear as product;

/// How a decoder's weights begin that no file has.
pub(super) const SMALL: Initializer = Initializer::Normal { mean: 0.0, std: 0.02 };

/// A product with a matrix: `x * weight + bias`, and what the adapter adds to it, if there is one.
#[derive(Module, Debug)]
pub struct Projection<B: Backend> {
    /// `[inputs, outputs]`; `None` if it has few bits. Without both, inputs are returned as they are.
    pub weight: Option<Param<Tensor<B, 2>>>,
    /// The weight in few bits.
    pub few_bits: Option<FewBits<B>>,
    /// `[outputs]`
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// The adapter.
    pub lora: Option<Lora<B>>,
}

/// A change of a matrix, as the product of two thin ones: `dropout(x) * a * b * scale`
/// ([Hu et al.](https://arxiv.org/abs/2106.09685)).
#[derive(Module, Debug)]
pub struct Lora<B: Backend> {
    /// `[inputs, rank]`
    pub a: Linear<B>,
    /// `[rank, outputs]`, zero in a new adapter.
    pub b: Linear<B>,
    dropout: Dropout,
    scale: f64,
    /// Whether the weight contains it.
    merged: bool,
}

impl<B: Backend> Projection<B> {
    /// Creates a product with small random weights, which are made when they are first used.
    pub fn new(inputs: usize, outputs: usize, bias: bool, device: &B::Device) -> Self {
        let linear = LinearConfig::new(inputs, outputs).with_bias(bias).with_initializer(SMALL);
        let Linear { weight, bias } = linear.init(device);
        Self { weight: Some(weight), few_bits: None, bias, lora: None }
    }

    /// Maps `[batch, length, inputs]` to `[batch, length, outputs]`.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let bias = self.bias.as_ref().map(Param::val);
        let y = match (&self.weight, &self.few_bits) {
            (Some(weight), _) => product(x.clone(), weight.val(), bias),
            (None, Some(weight)) => {
                let y = weight.product(x.clone());
                match bias {
                    Some(bias) => y + bias.unsqueeze(),
                    None => y,
                }
            }
            (None, None) => x.clone(),
        };
        match &self.lora {
            Some(lora) if !lora.merged => y + lora.forward(x),
            _ => y,
        }
    }

    /// Returns the numbers of inputs and outputs.
    pub(super) fn dims(&self) -> [usize; 2] {
        match (&self.weight, &self.few_bits) {
            (Some(weight), _) => weight.lazy_shape().dims(),
            (None, Some(weight)) => weight.dims(),
            (None, None) => [0, 0],
        }
    }

    /// Replaces the weight by zeros of few bits, of at least so many as its inputs can be divided for; if they cannot,
    /// it stays.
    pub(super) fn set_few_bits(&mut self, bits: Bits, device: &B::Device) {
        let [inputs, outputs] = self.dims();
        self.few_bits = FewBits::at_least(bits, inputs, outputs, device);
        if self.few_bits.is_some() {
            self.weight = None;
        }
    }

    /// Adds the adapter's change to the weight, or takes it away again, if that has not been done. A weight in few bits
    /// stays, and its adapter beside it.
    pub(crate) fn set_merged(&mut self, merged: bool) {
        let (Some(lora), Some(whole)) = (&mut self.lora, &mut self.weight) else { return };
        if lora.merged == merged {
            return;
        }
        lora.merged = merged;
        let change = if merged { lora.change() } else { lora.change().neg() };
        *whole = changed(whole, change);
    }
}

impl<B: Backend> Lora<B> {
    /// Creates an adapter that changes nothing: `a` is random, uniform within `1 / sqrt(inputs)`, and `b` is zero.
    pub fn new(inputs: usize, outputs: usize, rank: usize, alpha: f64, dropout: f64, device: &B::Device) -> Self {
        let thin = |inputs, outputs| LinearConfig::new(inputs, outputs).with_bias(false);
        Self {
            // Burn's own initializer is that distribution.
            a: thin(inputs, rank).init(device),
            b: thin(rank, outputs).with_initializer(Initializer::Zeros).init(device),
            dropout: DropoutConfig::new(dropout).init(),
            scale: alpha / rank as f64,
            merged: false,
        }
    }

    /// Returns whether the weight contains the adapter.
    pub fn is_merged(&self) -> bool {
        self.merged
    }

    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.b.forward(self.a.forward(self.dropout.forward(x))) * self.scale
    }

    /// Returns the change of the weight, `[inputs, outputs]` in f32.
    fn change(&self) -> Tensor<B, 2> {
        let [a, b] = [&self.a, &self.b].map(|linear| linear.weight.val().cast(DType::F32));
        (a.matmul(b) * self.scale).detach()
    }
}

/// Returns a weight plus a change, in its own type. It is trained if it was.
pub(super) fn changed<B: Backend, const D: usize>(
    weight: &Param<Tensor<B, D>>,
    change: Tensor<B, D>,
) -> Param<Tensor<B, D>> {
    weight.clone().map(|weight| {
        let (dtype, is_trained) = (weight.dtype(), weight.is_require_grad());
        let sum = weight.cast(DType::F32) + change;
        sum.cast(dtype).detach().set_require_grad(is_trained)
    })
}
