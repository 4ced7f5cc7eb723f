//! What a layer computes after attention: one feed-forward, or a mixture of some.

use super::feed_forward::FeedForward;
use super::projection::Projection;
use crate::config::{Config, Experts};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::{sigmoid, softmax};

/// What a layer computes after attention.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "a layer has one, and a decoder some dozens of layers")]
pub enum Mlp<B: Backend> {
    /// One feed-forward.
    Dense(FeedForward<B>),
    /// Several feed-forwards. The router chooses a few of them for each token.
    Mixture(Mixture<B>),
}

impl<B: Backend> Mlp<B> {
    /// Creates it with random weights.
    pub fn new(config: &Config, device: &B::Device) -> Self {
        match &config.experts {
            Some(experts) => Self::Mixture(Mixture::new(config, experts, device)),
            None => Self::Dense(FeedForward::new(config, config.feed_forward, device)),
        }
    }

    /// Maps `[batch, length, width]` to the same shape.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match self {
            Self::Dense(feed_forward) => feed_forward.forward(x),
            Self::Mixture(mixture) => mixture.forward(x),
        }
    }

    /// Returns the products that an adapter may change with their names within a layer.
    pub(super) fn projections(&mut self) -> Vec<(String, &mut Projection<B>)> {
        let mut parts: Vec<(String, &mut FeedForward<B>)> = Vec::new();
        match self {
            Self::Dense(feed_forward) => parts.push(("mlp".to_owned(), feed_forward)),
            Self::Mixture(mixture) => {
                let experts = mixture.experts.iter_mut().enumerate();
                parts.extend(experts.map(|(index, expert)| (format!("mlp.experts.{index}"), expert)));
                parts.extend(mixture.shared_expert.iter_mut().map(|expert| ("mlp.shared_expert".to_owned(), expert)));
            }
        }
        let mut all = Vec::new();
        for (name, part) in parts {
            all.push((format!("{name}.gate_proj"), &mut part.gate_proj));
            all.push((format!("{name}.up_proj"), &mut part.up_proj));
            all.push((format!("{name}.down_proj"), &mut part.down_proj));
        }
        all
    }
}

/// A mixture of experts ([Shazeer et al.](https://arxiv.org/abs/1701.06538);
/// [Mixtral](https://arxiv.org/abs/2401.04088); [Qwen](https://arxiv.org/abs/2505.09388)): the feed-forwards that a
/// router prefers for a token count for it, each with its share. All of them are computed for every token.
#[derive(Module, Debug)]
pub struct Mixture<B: Backend> {
    /// The router, `[width, experts]`.
    pub gate: Projection<B>,
    /// The feed-forwards among which the router chooses.
    pub experts: Vec<FeedForward<B>>,
    /// A feed-forward that counts for every token.
    pub shared_expert: Option<FeedForward<B>>,
    /// How much that one counts, `[width, 1]`.
    pub shared_expert_gate: Option<Projection<B>>,
    per_token: usize,
    normalised: bool,
}

impl<B: Backend> Mixture<B> {
    /// Creates a mixture with random weights.
    pub fn new(config: &Config, experts: &Experts, device: &B::Device) -> Self {
        let width = config.width;
        Self {
            gate: Projection::new(width, experts.count, false, device),
            experts: (0..experts.count).map(|_| FeedForward::new(config, experts.feed_forward, device)).collect(),
            shared_expert: experts.shared.map(|hidden| FeedForward::new(config, hidden, device)),
            shared_expert_gate: experts.shared.map(|_| Projection::new(width, 1, false, device)),
            per_token: experts.per_token,
            normalised: experts.normalised,
        }
    }

    /// Maps `[batch, length, width]` to the same shape.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let shares = self.shares(x.clone());
        let mut sum = x.zeros_like();
        for (index, expert) in self.experts.iter().enumerate() {
            sum = sum + expert.forward(x.clone()) * shares.clone().slice_dim(2, index..index + 1);
        }
        match (&self.shared_expert, &self.shared_expert_gate) {
            (Some(expert), Some(gate)) => sum + expert.forward(x.clone()) * sigmoid(gate.forward(x)),
            _ => sum,
        }
    }

    /// Returns how much each expert counts for each token, `[batch, length, experts]`: 0 for those that are not chosen.
    /// Of experts that the router likes equally, the first ones are chosen.
    fn shares(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let (dtype, device) = (x.dtype(), x.device());
        let likings = softmax(self.gate.forward(x).cast(DType::F32), 2);
        let [batch, length, experts] = likings.dims();
        let shape = [batch, length, experts, experts];
        let own = likings.clone().unsqueeze_dim::<4>(3).expand(shape);
        let other = likings.clone().unsqueeze_dim::<4>(2).expand(shape);
        let index = Tensor::<B, 1, Int>::arange(0..experts as i64, &device);
        let square = [experts, experts];
        let earlier = index.clone().unsqueeze::<2>().expand(square).lower(index.unsqueeze_dim::<2>(1).expand(square));
        let equal = other.clone().equal(own.clone()).bool_and(earlier.unsqueeze::<4>().expand(shape));
        let before = other.greater(own).bool_or(equal).int().sum_dim(3).squeeze_dim::<3>(3);
        let chosen = likings.mask_fill(before.greater_equal_elem(self.per_token as i64), 0.0);
        let shares = if self.normalised { chosen.clone() / chosen.sum_dim(2) } else { chosen };
        shares.cast(dtype)
    }
}
