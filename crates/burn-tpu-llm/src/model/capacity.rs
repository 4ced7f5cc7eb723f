//! Tokens in rooms of a fixed size, one for each expert and group of tokens
//! ([Lepikhin et al.](https://arxiv.org/abs/2006.16668), [Fedus et al.](https://arxiv.org/abs/2101.03961)).
//!
//! Owns: which token is where, and what is dropped. May not know: what experts compute. All is products and comparisons,
//! which a partitioner can split by groups; nothing is gathered.

use super::exchange::Exchange;
use super::router::{Routing, numbers};
use burn::prelude::*;
use burn::tensor::FloatDType;

/// Where the tokens of each group are, `[groups, tokens, experts, room]`.
pub(super) struct Rooms<B: Backend> {
    /// Whether a token has a place.
    places: Tensor<B, 4, Bool>,
    /// How much each expert counts for each token, `[groups, tokens, experts, 1]` in f32.
    shares: Tensor<B, 4>,
}

impl<B: Backend> Rooms<B> {
    /// Places the choices of a router for groups of so many rows. The first tokens of a group have the first places, and
    /// those after the `room`-th of an expert have none.
    pub(super) fn new(routing: &Routing<B>, group: usize, room: usize) -> Self {
        let chosen = routing.chosen();
        let ([rows, experts], device) = (chosen.dims(), chosen.device());
        let groups = rows / group;
        let chosen = chosen.reshape([groups, group, experts]);
        let before = chosen.clone().cumsum(1) - chosen.clone();
        // A token that has not chosen the expert is at no place.
        let place = before.mask_fill(chosen.equal_elem(0), -1).unsqueeze_dim::<4>(3);
        let shape = [groups, group, experts, room];
        let places = place.expand(shape).equal(numbers(room, &device).unsqueeze::<4>().expand(shape));
        Self { places, shares: routing.shares.clone().reshape([groups, group, experts, 1]) }
    }

    /// Returns the share of choices that have no place, `[1]` in f32.
    pub(super) fn dropped(&self, per_token: usize) -> Tensor<B, 1> {
        let [groups, group, ..] = self.places.dims();
        let placed = self.places.clone().int().sum().cast(FloatDType::F32);
        placed.div_scalar((groups * group * per_token) as f64).neg().add_scalar(1.0)
    }

    /// Computes `experts`, `[experts, rows, width]` to the same shape, for rows of tokens `[rows, width]`; returns the sum
    /// of each row's experts, each times its share.
    pub(super) fn run(
        &self,
        x: Tensor<B, 2>,
        exchange: Option<&Exchange<B>>,
        experts: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 3>,
    ) -> Tensor<B, 2> {
        let ([groups, group, count, room], [rows, width], dtype) = (self.places.dims(), x.dims(), x.dtype());
        let flat = [groups, group, count * room];
        let to = self.places.clone().float().cast(dtype).reshape(flat).swap_dims(1, 2);
        let shares = self.shares.clone().expand(self.places.dims()).mask_fill(self.places.clone().bool_not(), 0.0);
        let back = shares.cast(dtype).reshape(flat);
        let mut x = to.matmul(x.reshape([groups, group, width])).reshape([groups, count, room, width]);
        if let Some(exchange) = exchange {
            x = exchange.by_experts(exchange.by_tokens(x));
        }
        let y = experts(x.swap_dims(0, 1).reshape([count, groups * room, width]));
        let mut y = y.reshape([count, groups, room, width]).swap_dims(0, 1);
        if let Some(exchange) = exchange {
            y = exchange.by_tokens(exchange.by_experts(y));
        }
        back.matmul(y.reshape([groups, count * room, width])).reshape([rows, width])
    }
}

/// Returns the places of an expert for a group of tokens: `factor` times its part of the choices, and no more than tokens.
pub(super) fn room(factor: f64, group: usize, per_token: usize, experts: usize) -> usize {
    let room = (factor * (group * per_token) as f64 / experts as f64).ceil() as usize;
    room.clamp(1, group)
}
