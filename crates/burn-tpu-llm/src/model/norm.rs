//! Root mean square norm ([Zhang and Sennrich](https://arxiv.org/abs/1910.07467)).

use burn::module::{Initializer, Param};
use burn::prelude::*;
use burn::tensor::DType;

/// Divides vectors by their root mean square, in f32 whatever the type of the input, and multiplies them by a weight.
#[derive(Module, Debug)]
pub struct RmsNorm<B: Backend> {
    /// `[width]`
    pub weight: Param<Tensor<B, 1>>,
    epsilon: f64,
}

impl<B: Backend> RmsNorm<B> {
    /// Creates a norm whose weight is one.
    pub fn new(width: usize, epsilon: f64, device: &B::Device) -> Self {
        Self { weight: Initializer::Ones.init([width], device), epsilon }
    }

    /// Maps `[.., width]` to the same shape and type.
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let dtype = x.dtype();
        let x = x.cast(DType::F32);
        let mean_square = x.clone().square().mean_dim(D - 1);
        let x = x / (mean_square + self.epsilon).sqrt();
        (x * self.weight.val().cast(DType::F32).unsqueeze::<D>()).cast(dtype)
    }
}
