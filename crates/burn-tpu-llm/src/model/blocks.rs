//! Rows of tokens sorted by expert, in blocks that have one expert each.
//!
//! Owns: where a row goes and comes from. May not know: what experts compute. Sizes are static: each expert may waste a part
//! of a block, so there are room for all choices and one block more for each expert.

use super::router::{Routing, number_of, numbers};
use burn::prelude::*;
use burn::tensor::IndexingUpdateOp;

/// Where the choices of rows are.
pub(super) struct Blocks<B: Backend> {
    /// The expert of each block, `[blocks]`.
    pub(super) experts: Tensor<B, 1, Int>,
    /// The row of tokens that each row of the blocks has, `[blocks * size]`; 0 in those that have none.
    pub(super) sources: Tensor<B, 1, Int>,
    /// The row of the blocks that each choice has, `[rows * per_token]`.
    pub(super) places: Tensor<B, 1, Int>,
    /// The share of each choice, `[rows, per_token]` in f32.
    pub(super) shares: Tensor<B, 2>,
}

impl<B: Backend> Blocks<B> {
    /// Sorts the choices of a router into blocks of so many rows.
    pub(super) fn new(routing: &Routing<B>, size: usize) -> Self {
        let (choices, chosen) = (routing.choices(), routing.chosen());
        let [rows, per_token, experts] = choices.dims();
        let (device, size) = (chosen.device(), size as i64);
        let blocks = (rows * per_token).div_ceil(size as usize) + experts;
        let ends = blocks_of(chosen.clone().sum_dim(0), size).cumsum(1);
        let begins = ends.clone() - blocks_of(chosen.clone().sum_dim(0), size);
        // Rows of one expert keep their order.
        let within = chosen.clone().cumsum(0) - chosen;
        let places = number_of(&choices, begins.mul_scalar(size).expand([rows, experts]) + within);
        let places = places.reshape([rows * per_token]);
        let shape = [blocks, experts];
        let number = numbers::<B>(blocks, &device).unsqueeze_dim::<2>(1).expand(shape);
        let before = ends.expand(shape).lower_equal(number).int().sum_dim(1).squeeze_dim::<1>(1);
        let from = numbers::<B>(rows, &device).unsqueeze_dim::<2>(1).expand([rows, per_token]);
        let empty = Tensor::zeros([blocks * size as usize], &device);
        let sources = empty.select_assign(0, places.clone(), from.reshape([rows * per_token]), IndexingUpdateOp::Add);
        // Blocks after the last one that is needed have any expert.
        let experts = before.clamp_max(experts as i64 - 1);
        Self { experts, sources, places, shares: routing.shares_of(&choices) }
    }

    /// Returns rows `[rows, width]` in blocks, `[blocks, size, width]`.
    pub(super) fn gather(&self, rows: Tensor<B, 2>) -> Tensor<B, 3> {
        let ([blocks], width) = (self.experts.dims(), rows.dims()[1]);
        let size = self.sources.dims()[0] / blocks;
        rows.select(0, self.sources.clone()).reshape([blocks, size, width])
    }

    /// Returns the sum of each row's choices, each times its share: `[blocks, size, width]` to `[rows, width]`.
    pub(super) fn combine(&self, y: Tensor<B, 3>) -> Tensor<B, 2> {
        let ([blocks, size, width], dtype) = (y.dims(), y.dtype());
        let [rows, per_token] = self.shares.dims();
        let y = y.reshape([blocks * size, width]).select(0, self.places.clone()).reshape([rows, per_token, width]);
        (y * self.shares.clone().cast(dtype).unsqueeze_dim(2)).sum_dim(1).squeeze_dim(1)
    }
}

/// Returns how many blocks of a size counts of rows take.
fn blocks_of<B: Backend>(counts: Tensor<B, 2, Int>, size: i64) -> Tensor<B, 2, Int> {
    counts.add_scalar(size - 1).div_scalar(size)
}
