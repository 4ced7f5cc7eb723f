//! The table of the tokens' vectors.

use super::few_bits::{Bits, FewBits};
use super::projection::SMALL;
use burn::module::Param;
use burn::prelude::*;
use burn::tensor::module::{embedding, linear as product};
use burn::tensor::{DType, Element};

/// A vector for each token, which is also what the logits of a decoder with a tied head are products with.
#[derive(Module, Debug)]
pub struct Embedding<B: Backend> {
    /// `[vocabulary, width]`; `None` if it has few bits.
    pub weight: Option<Param<Tensor<B, 2>>>,
    /// The table in few bits: a matrix whose inputs are the width.
    pub few_bits: Option<FewBits<B>>,
}

impl<B: Backend> Embedding<B> {
    /// Creates a table with small random vectors, which are made when they are first used.
    pub fn new(vocabulary: usize, width: usize, device: &B::Device) -> Self {
        Self { weight: Some(SMALL.init([vocabulary, width], device)), few_bits: None }
    }

    /// Maps tokens `[batch, length]` to vectors `[batch, length, width]`.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let ([batch, length], device) = (tokens.dims(), tokens.device());
        match (&self.weight, &self.few_bits) {
            (Some(table), _) => embedding(table.val(), tokens),
            (None, Some(table)) => table.rows(tokens, B::FloatElem::dtype()),
            (None, None) => Tensor::zeros([batch, length, 0], &device),
        }
    }

    /// Maps vectors `[batch, length, width]` to their products with all of the table's, `[batch, length, vocabulary]`.
    pub(super) fn products(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match (&self.weight, &self.few_bits) {
            (Some(table), _) => products(x, table.val()),
            (None, Some(table)) => table.product(x),
            (None, None) => x,
        }
    }

    /// Returns the type of the vectors.
    pub(super) fn dtype(&self) -> DType {
        self.weight.as_ref().map_or_else(B::FloatElem::dtype, |table| table.val().dtype())
    }

    /// Replaces the table by zeros of few bits, if the width is a whole number of blocks.
    pub(super) fn set_few_bits(&mut self, bits: Bits, device: &B::Device) {
        let Some(table) = &self.weight else { return };
        let [vocabulary, width] = table.lazy_shape().dims();
        self.few_bits = FewBits::at_least(bits, width, vocabulary, device);
        if self.few_bits.is_some() {
            self.weight = None;
        }
    }
}

/// Maps vectors `[batch, length, width]` to their products with rows `[rows, width]`, `[batch, length, rows]`.
fn products<B: Backend>(x: Tensor<B, 3>, table: Tensor<B, 2>) -> Tensor<B, 3> {
    let [batch, length, width] = x.dims();
    if batch * length > 1 {
        return product(x, table.transpose(), None);
    }
    // XLA's CPU compiler multiplies one vector with a transposed matrix element by element, and rows with a column in
    // vectors.
    let rows = table.dims()[0];
    table.matmul(x.reshape([width, 1])).reshape([1, 1, rows])
}
