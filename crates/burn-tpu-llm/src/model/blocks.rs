//! Choices of tokens sorted by expert, and in blocks that have one expert each.
//!
//! Owns: where a row goes and comes from. May not know: what experts compute. Sizes are static: each expert may waste a part
//! of a block, for which there is room, and of the experts of one chip there is room for all choices that a token can have.

use super::division::Division;
use super::exchange::Exchange;
use super::moved;
use super::router::{Routing, numbers};
use burn::prelude::*;
use burn::tensor::IndexingUpdateOp;

/// The choices of groups of tokens for the experts of each part, sorted by expert. Those of one expert keep their order. A
/// token has as many choices in a part as it may have there, of which some may be none.
pub(super) struct Sorted<B: Backend> {
    /// How many choices each expert has, `[groups, parts, experts of a part]`.
    pub(super) sizes: Tensor<B, 3, Int>,
    /// Where each choice is among the sorted ones of its part, `[groups, parts, choices, tokens]`; -1 if there is none.
    pub(super) places: Tensor<B, 4, Int>,
    /// The choice at each place: the inverse, `[groups, parts, choices * tokens]`; -1 after the last one.
    pub(super) choices: Tensor<B, 3, Int>,
    /// The token at each place, of those of its group; -1 after the last one.
    pub(super) sources: Tensor<B, 3, Int>,
    /// The share of each choice, `[groups, parts, choices, tokens]` in f32; 0 if there is none.
    shares: Tensor<B, 4>,
    exchange: Option<Exchange<B>>,
}

/// The order of the choices of some tokens for some experts.
pub(super) struct Order<B: Backend> {
    /// How many choices each expert has, `[experts]`.
    pub(super) sizes: Tensor<B, 1, Int>,
    /// The expert of each choice, `[choices, tokens]`; -1 if there is none.
    pub(super) experts: Tensor<B, 2, Int>,
    /// As [`Sorted::places`], `[choices, tokens]`.
    pub(super) places: Tensor<B, 2, Int>,
    /// As [`Sorted::choices`], `[choices * tokens]`.
    pub(super) choices: Tensor<B, 1, Int>,
}

impl<B: Backend> Order<B> {
    /// Orders choices, which are 1 in `[tokens, experts]`; a token has at most as many as `numbers` has, which counts from 0.
    pub(super) fn new(chosen: Tensor<B, 2, Int>, numbers: Tensor<B, 1, Int>) -> Self {
        let ([tokens, experts], [most]) = (chosen.dims(), numbers.dims());
        let (shape, all, device) = ([most, tokens, experts], tokens * most, chosen.device());
        let before = |dim| chosen.clone().cumsum(dim) - chosen.clone();
        let sizes = chosen.clone().sum_dim(0);
        let begins = sizes.clone().cumsum(1) - sizes.clone();
        let number = before(1).mask_fill(chosen.clone().equal_elem(0), -1).unsqueeze::<3>().expand(shape);
        let is_not = number.not_equal(numbers.reshape([most, 1, 1]).expand(shape));
        // One more than the number that belongs to its expert, so that none is -1.
        let of_choice = |x: Tensor<B, 2, Int>| {
            let x = x.add_scalar(1).unsqueeze::<3>().expand(shape).mask_fill(is_not.clone(), 0);
            x.sum_dim(2).squeeze_dim::<2>(2).sub_scalar(1)
        };
        let places = of_choice(begins.expand([tokens, experts]) + before(0));
        let number: Tensor<B, 1, Int> = Tensor::arange(0..experts as i64, &device);
        let experts = of_choice(number.unsqueeze::<2>().expand([tokens, experts]));
        // What is no choice goes to a place after all others.
        let to = places.clone().reshape([all]);
        let to = to.clone().mask_fill(to.lower_elem(0), all as i64);
        let from: Tensor<B, 1, Int> = Tensor::arange(1..all as i64 + 1, &device);
        let inverse = Tensor::zeros([all + 1], &device).select_assign(0, to, from, IndexingUpdateOp::Add);
        let choices = inverse.slice_dim(0, 0..all).sub_scalar(1);
        Self { sizes: sizes.squeeze_dim(0), experts, places, choices }
    }
}

impl<B: Backend> Sorted<B> {
    /// Sorts the choices of a router; `None` on a mesh, on a backend whose tensors are not those of a TPU.
    pub(super) fn new(routing: &Routing<B>, division: Division, exchange: Option<&Exchange<B>>) -> Option<Self> {
        let chosen = routing.chosen();
        let ([rows, all], device, Division { groups, parts }) = (chosen.dims(), chosen.device(), division);
        let (tokens, own) = (rows / groups, all / parts);
        let most = routing.per_token().min(own);
        let chosen = chosen.reshape([groups, tokens, parts, own]).swap_dims(1, 2);
        let (sizes, experts, places, choices) = if division == Division::WHOLE {
            let order = Order::new(chosen.reshape([tokens, own]), numbers(most, &device));
            (order.sizes.unsqueeze(), order.experts.unsqueeze(), order.places.unsqueeze(), order.choices.unsqueeze())
        } else {
            moved::order(chosen, numbers(most, &device))?
        };
        let shape = [groups, parts, most, tokens, own];
        let number = numbers::<B>(own, &device).reshape([1, 1, 1, 1, own]).expand(shape);
        let is_not = experts.unsqueeze_dim::<5>(4).expand(shape).not_equal(number);
        let shares = routing.shares.clone().reshape([groups, tokens, parts, own]).swap_dims(1, 2);
        let shares = shares.unsqueeze_dim::<5>(2).expand(shape).mask_fill(is_not, 0.0).sum_dim(4).squeeze_dim(4);
        let sources = choices.clone().remainder_scalar(tokens as i64).mask_fill(choices.clone().lower_elem(0), -1);
        Some(Self { sizes, places, choices, sources, shares, exchange: exchange.cloned() })
    }

    /// Returns the rows of tokens `[rows, width]` as those of each part, `[groups, parts, tokens, width]`.
    pub(super) fn rows(&self, x: Tensor<B, 2>) -> Tensor<B, 4> {
        let ([groups, parts, _, tokens], width) = (self.shares.dims(), x.dims()[1]);
        let x = x.reshape([groups, 1, tokens, width]).expand([groups, parts, tokens, width]);
        self.by_experts(x)
    }

    /// Returns the sum of each row's choices, `[groups, parts, choices * tokens, width]`, each times its share: `[rows, width]`.
    pub(super) fn combine(&self, y: Tensor<B, 4>) -> Tensor<B, 2> {
        let ([groups, parts, most, tokens], width, dtype) = (self.shares.dims(), y.dims()[3], y.dtype());
        let shares = self.shares.clone().cast(dtype).unsqueeze_dim::<5>(4);
        let y = (y.reshape([groups, parts, most, tokens, width]) * shares).sum_dim(2).squeeze_dim::<4>(2);
        let sum = self.by_experts(y).sum_dim(1).reshape([groups * tokens, width]);
        match &self.exchange {
            Some(exchange) => exchange.rows_by_tokens(sum),
            None => sum,
        }
    }

    /// Says that every chip has its part, of the gradient too: that of a sum would be split as the tokens are.
    fn by_experts(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        match &self.exchange {
            Some(exchange) => exchange.by_experts(x),
            None => x,
        }
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
