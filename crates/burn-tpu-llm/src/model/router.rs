//! Which experts each token has, and how much each of them counts.

use burn::prelude::*;
use burn::tensor::FloatDType;
use burn::tensor::activation::softmax;

/// What a router chooses for rows of tokens.
pub(super) struct Routing<B: Backend> {
    /// The likelihood of each expert, `[rows, experts]` in f32.
    pub(super) likings: Tensor<B, 2>,
    /// How much each expert counts, `[rows, experts]` in f32: 0 for those that are not chosen.
    pub(super) shares: Tensor<B, 2>,
    /// How many experts come before each, `[rows, experts]`.
    rank: Tensor<B, 2, Int>,
    per_token: usize,
}

impl<B: Backend> Routing<B> {
    /// Chooses the `per_token` likeliest experts by logits `[rows, experts]` in f32. Of experts that are equally likely, the
    /// first ones come first. `normalised` shares of a row have the sum 1.
    pub(super) fn new(logits: Tensor<B, 2>, per_token: usize, normalised: bool) -> Self {
        let likings = softmax(logits, 1);
        let [rows, experts] = likings.dims();
        let shape = [rows, experts, experts];
        let own = likings.clone().unsqueeze_dim::<3>(2).expand(shape);
        let other = likings.clone().unsqueeze_dim::<3>(1).expand(shape);
        let index = numbers(experts, &likings.device());
        let square = [experts, experts];
        let earlier = index.clone().unsqueeze::<2>().expand(square).lower(index.unsqueeze_dim::<2>(1).expand(square));
        let equal = other.clone().equal(own.clone()).bool_and(earlier.unsqueeze::<3>().expand(shape));
        let rank = other.greater(own).bool_or(equal).int().sum_dim(2).squeeze_dim::<2>(2);
        let chosen = likings.clone().mask_fill(rank.clone().greater_equal_elem(per_token as i64), 0.0);
        let shares = if normalised { chosen.clone() / chosen.sum_dim(1) } else { chosen };
        Self { likings, shares, rank, per_token }
    }

    /// Returns for each row and each of its choices whether an expert is the one, `[rows, per_token, experts]`.
    pub(super) fn choices(&self) -> Tensor<B, 3, Bool> {
        let [rows, experts] = self.rank.dims();
        let shape = [rows, self.per_token, experts];
        let number = numbers(self.per_token, &self.rank.device()).unsqueeze_dim::<2>(1).unsqueeze::<3>();
        self.rank.clone().unsqueeze_dim::<3>(1).expand(shape).equal(number.expand(shape))
    }

    /// Returns how unevenly experts are chosen, `[1]`: [`RouterReport::balance`](super::RouterReport::balance).
    pub(super) fn balance(&self) -> Tensor<B, 1> {
        let [rows, experts] = self.rank.dims();
        let chosen = self.chosen().sum_dim(0).cast(FloatDType::F32).div_scalar(rows as f64);
        (chosen * self.likings.clone().mean_dim(0)).sum().mul_scalar(experts as f64)
    }

    /// Returns how many experts a token has.
    pub(super) fn per_token(&self) -> usize {
        self.per_token
    }

    /// Returns 1 for the experts that are chosen and 0 for others, `[rows, experts]`.
    pub(super) fn chosen(&self) -> Tensor<B, 2, Int> {
        self.rank.clone().lower_elem(self.per_token as i64).int()
    }

    /// Returns the share of each choice, `[rows, per_token]` in f32.
    pub(super) fn shares_of(&self, choices: &Tensor<B, 3, Bool>) -> Tensor<B, 2> {
        let shares = self.shares.clone().unsqueeze_dim::<3>(1).expand(choices.dims());
        shares.mask_fill(choices.clone().bool_not(), 0.0).sum_dim(2).squeeze_dim(2)
    }
}

/// Returns for each choice the number that belongs to its expert of `[rows or 1, experts]`: `[rows, per_token]`.
pub(super) fn number_of<B: Backend>(choices: &Tensor<B, 3, Bool>, numbers: Tensor<B, 2, Int>) -> Tensor<B, 2, Int> {
    let numbers = numbers.unsqueeze_dim::<3>(1).expand(choices.dims());
    numbers.mask_fill(choices.clone().bool_not(), 0).sum_dim(2).squeeze_dim(2)
}

/// Returns the numbers below a count, `[count]`.
pub(super) fn numbers<B: Backend>(count: usize, device: &B::Device) -> Tensor<B, 1, Int> {
    Tensor::arange(0..count as i64, device)
}
