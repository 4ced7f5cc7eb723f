//! Choices of tokens sorted by expert, and in blocks that have one expert each.
//!
//! Owns: where a row goes and comes from. May not know: what experts compute. Sizes are static: each expert may waste a part
//! of a block, for which there is room.

use super::router::{Routing, number_of, numbers};
use burn::prelude::*;
use burn::tensor::IndexingUpdateOp;

/// The choices of rows of tokens, sorted by expert. Those of one expert keep their order.
pub(super) struct Sorted<B: Backend> {
    /// How many choices each expert has, `[experts]`.
    pub(super) sizes: Tensor<B, 1, Int>,
    /// Where each choice is among the sorted ones, `[rows * per_token]`.
    pub(super) places: Tensor<B, 1, Int>,
    /// The choice at each place: the inverse.
    pub(super) choices: Tensor<B, 1, Int>,
    /// The row of tokens at each place.
    pub(super) sources: Tensor<B, 1, Int>,
    /// The share of each choice, `[rows, per_token]` in f32.
    shares: Tensor<B, 2>,
}

impl<B: Backend> Sorted<B> {
    pub(super) fn new(routing: &Routing<B>) -> Self {
        let (choices, chosen) = (routing.choices(), routing.chosen());
        let [rows, per_token, experts] = choices.dims();
        let (all, device) = (rows * per_token, chosen.device());
        let sizes = chosen.clone().sum_dim(0);
        let begins = sizes.clone().cumsum(1) - sizes.clone();
        let within = chosen.clone().cumsum(0) - chosen;
        let places = number_of(&choices, begins.expand([rows, experts]) + within).reshape([all]);
        let inverse = Tensor::zeros([all], &device).select_assign(
            0,
            places.clone(),
            numbers(all, &device),
            IndexingUpdateOp::Add,
        );
        let sources = inverse.clone().div_scalar(per_token as i64);
        Self { sizes: sizes.squeeze_dim(0), places, choices: inverse, sources, shares: routing.shares_of(&choices) }
    }

    /// Returns the sum of each row's choices, `[rows * per_token, width]`, each times its share: `[rows, width]`.
    pub(super) fn combine(&self, y: Tensor<B, 2>) -> Tensor<B, 2> {
        let ([rows, per_token], width, dtype) = (self.shares.dims(), y.dims()[1], y.dtype());
        let shares = self.shares.clone().cast(dtype).unsqueeze_dim(2);
        (y.reshape([rows, per_token, width]) * shares).sum_dim(1).squeeze_dim(1)
    }
}

/// Where sorted rows are in blocks of a size.
pub(super) struct Layout<B: Backend> {
    /// The expert of each block, `[blocks]`.
    pub(super) experts: Tensor<B, 1, Int>,
    /// The sorted row that each row of the blocks has, `[blocks * size]`; any in those that have none.
    pub(super) sources: Tensor<B, 1, Int>,
    /// Whether a row of the blocks has one.
    pub(super) is_filled: Tensor<B, 1, Bool>,
    /// The row of the blocks that each sorted row has, `[rows]`.
    pub(super) places: Tensor<B, 1, Int>,
}

impl<B: Backend> Layout<B> {
    /// Lays out rows, as many of each expert as `sizes` says, `[experts]`.
    pub(super) fn new(sizes: Tensor<B, 1, Int>, rows: usize, size: usize) -> Self {
        let ([experts], device, step) = (sizes.dims(), sizes.device(), size as i64);
        // So many can be needed; those after the last one that is have any expert.
        let blocks = (rows + experts * (size - 1)) / size;
        let ends = sizes.clone().cumsum(0);
        let blocks_of_each = sizes.clone().add_scalar(step - 1).div_scalar(step);
        let block_ends = blocks_of_each.clone().cumsum(0);
        let begins = ends.clone() - sizes.clone();
        let block_begins = (block_ends.clone() - blocks_of_each).mul_scalar(step);
        let of_block = part_of(block_ends, blocks);
        let of_slot = of_block.clone().unsqueeze_dim::<2>(1).expand([blocks, size]).reshape([blocks * size]);
        let within = numbers::<B>(blocks * size, &device) - block_begins.clone().select(0, of_slot.clone());
        let sources = begins.clone().select(0, of_slot.clone()) + within.clone();
        let of_row = part_of(ends, rows);
        let places = numbers::<B>(rows, &device) - (begins - block_begins).select(0, of_row);
        Self {
            experts: of_block,
            sources: sources.clamp(0, rows as i64 - 1),
            is_filled: within.lower(sizes.select(0, of_slot)),
            places,
        }
    }
}

/// Returns for each number below a count how many ends are not after it, `[count]`: which part it is in. The last part has
/// what is after all ends.
fn part_of<B: Backend>(ends: Tensor<B, 1, Int>, count: usize) -> Tensor<B, 1, Int> {
    let ([parts], device) = (ends.dims(), ends.device());
    let number = numbers::<B>(count, &device).unsqueeze_dim::<2>(1).expand([count, parts]);
    let before = ends.unsqueeze::<2>().expand([count, parts]).lower_equal(number);
    before.int().sum_dim(1).squeeze_dim::<1>(1).clamp_max(parts as i64 - 1)
}
