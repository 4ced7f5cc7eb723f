//! Attention with fewer heads of keys and values than of queries ([Ainslie et al.](https://arxiv.org/abs/2305.13245)).

use super::cache::KeysAndValues;
use super::kept::{ATTENTION, QKV};
use super::norm::RmsNorm;
use super::projection::Projection;
use super::view::{Sight, View};
use crate::config::{AttentionBias, Config};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::softmax;
use burn_tpu::keep;

/// The score of a position that must not be seen: far below any other, and finite in every type.
pub(super) const HIDDEN: f32 = -1e9;

/// Attention of a layer.
#[derive(Module, Debug)]
pub struct Attention<B: Backend> {
    /// `[width, heads * head]`
    pub q_proj: Projection<B>,
    /// `[width, kv_heads * head]`
    pub k_proj: Projection<B>,
    /// `[width, kv_heads * head]`
    pub v_proj: Projection<B>,
    /// `[heads * head, width]`
    pub o_proj: Projection<B>,
    /// The norm of each query, where the family has it.
    pub q_norm: Option<RmsNorm<B>>,
    /// The norm of each key.
    pub k_norm: Option<RmsNorm<B>>,
    heads: usize,
    head: usize,
    query_scale: f64,
    /// 0 for none.
    score_cap: f64,
}

impl<B: Backend> Attention<B> {
    /// Creates attention with random weights.
    pub fn new(config: &Config, device: &B::Device) -> Self {
        let (width, head) = (config.width, config.head);
        let (queries, keys) = (config.heads * head, config.kv_heads * head);
        let inputs = config.attention_bias != AttentionBias::None;
        let norm = || config.head_norms.then(|| RmsNorm::new(head, config.norm_epsilon, device));
        Self {
            q_proj: Projection::new(width, queries, inputs, device),
            k_proj: Projection::new(width, keys, inputs, device),
            v_proj: Projection::new(width, keys, inputs, device),
            o_proj: Projection::new(queries, width, config.attention_bias == AttentionBias::All, device),
            q_norm: norm(),
            k_norm: norm(),
            heads: config.heads,
            head,
            query_scale: config.query_scale,
            score_cap: config.score_cap.unwrap_or(0.0),
        }
    }

    /// Maps `[batch, length, width]` to the same shape; with the cache of this layer, the keys are all that it can
    /// hold.
    pub(super) fn forward(
        &self,
        x: Tensor<B, 3>,
        view: &View<B>,
        cache: Option<(&mut dyn KeysAndValues<B>, usize)>,
    ) -> Tensor<B, 3> {
        let query = normed(&self.q_norm, self.heads_of(self.q_proj.forward(x.clone())));
        let key = normed(&self.k_norm, self.heads_of(self.k_proj.forward(x.clone())));
        let value = self.heads_of(self.v_proj.forward(x));
        let (query, key) = (view.rotation.apply(query), view.rotation.apply(key));
        let [query, key, value] = [query, key, value].map(|x| keep(QKV, x));
        let seen = match (&view.sight, cache) {
            (Sight::Ring { context, window, starts }, _) => {
                let scores = (self.query_scale, self.score_cap);
                merged(context.ring_attention([query, key, value], starts.clone(), *window, scores))
            }
            (Sight::Scores { hidden, .. }, Some((cache, layer))) => {
                let [key, value] = cache.write(layer, [key, value]);
                self.attend([query, key, value], hidden.clone())
            }
            (Sight::Scores { hidden, context }, None) => {
                let operands = [query, key, value];
                let [query, key, value] = match context {
                    Some(context) => context.gathered(operands),
                    None => operands,
                };
                // A TPU computes whole sequences in blocks of queries, which are not to be mixed with heads.
                let [key, value] = [key, value].map(|x| self.for_each_query(x));
                self.attend([query, key, value], hidden.clone())
            }
        };
        self.o_proj.forward(keep(ATTENTION, seen))
    }

    /// Splits `[batch, length, heads * head]` into `[batch, heads, length, head]`.
    fn heads_of(&self, x: Tensor<B, 3>) -> Tensor<B, 4> {
        let [batch, length, width] = x.dims();
        x.reshape([batch, length, width / self.head, self.head]).swap_dims(1, 2)
    }

    /// Repeats keys or values `[batch, kv_heads, length, head]` for each head of queries, `[batch, heads, length, head]`.
    fn for_each_query(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let [batch, kv_heads, length, head] = x.dims();
        let shape = [batch, kv_heads, self.heads / kv_heads, length, head];
        x.unsqueeze_dim::<5>(2).expand(shape).reshape([batch, self.heads, length, head])
    }

    /// Returns `[batch, length, heads * head]`. The queries that share a head of keys are rows of one product.
    fn attend(&self, [query, key, value]: [Tensor<B, 4>; 3], hidden: Tensor<B, 4, Bool>) -> Tensor<B, 3> {
        let [batch, heads, length, head] = query.dims();
        let [_, kv_heads, keys, _] = key.dims();
        let group = heads / kv_heads;
        let dtype = query.dtype();
        let query = query.reshape([batch, kv_heads, group * length, head]);
        let scores = query.matmul(key.swap_dims(2, 3)).cast(DType::F32) * self.query_scale;
        let scores = capped(scores, self.score_cap).reshape([batch, heads, length, keys]);
        let hidden = hidden.expand([batch, heads, length, keys]);
        let weights = softmax(scores.mask_fill(hidden, HIDDEN), 3).cast(dtype);
        let seen = weights.reshape([batch, kv_heads, group * length, keys]).matmul(value);
        merged(seen.reshape([batch, heads, length, head]))
    }
}

/// Maps `[batch, heads, length, head]` to `[batch, length, heads * head]`.
fn merged<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 3> {
    let [batch, heads, length, head] = x.dims();
    x.swap_dims(1, 2).reshape([batch, length, heads * head])
}

fn normed<B: Backend>(norm: &Option<RmsNorm<B>>, x: Tensor<B, 4>) -> Tensor<B, 4> {
    match norm {
        Some(norm) => norm.forward(x),
        None => x,
    }
}

/// Returns `cap * tanh(x / cap)`; `x` itself for a cap of 0.
pub(super) fn capped<B: Backend, const D: usize>(x: Tensor<B, D>, cap: f64) -> Tensor<B, D> {
    if cap == 0.0 { x } else { (x / cap).tanh() * cap }
}
