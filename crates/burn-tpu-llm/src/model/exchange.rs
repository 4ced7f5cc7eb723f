//! How tokens get to the chips that have their experts, and back.
//!
//! The chips along the axis `expert` of a mesh have other tokens, and other experts. What is computed for tokens is split
//! by tokens, and what experts compute is split by experts. To go from one to the other, every chip gives a part to each of
//! the others, if each token has its place with an expert, which is an all-to-all; or all of its tokens to all others, and
//! gets the sums of what they compute for them. The partitioner writes it.

use burn::prelude::*;
use burn_tpu::{MeshBackend, TpuDevice, shard};

/// The axis of a mesh that splits experts.
pub(super) const AXIS: &str = "expert";

/// Where groups of tokens and their experts are on a mesh.
#[derive(Clone, Debug)]
pub(crate) struct Exchange<B: Backend> {
    shard: fn(Tensor<B, 4>, [Option<&str>; 4]) -> Tensor<B, 4>,
    /// The axes that split groups of tokens.
    tokens: String,
    /// Those that split them where experts are split too, if there are any.
    others: Option<String>,
}

impl<B: MeshBackend> Exchange<B> {
    /// Returns the exchange of a mesh; `None` for a device that has no axis `expert`.
    pub(super) fn new(device: &TpuDevice) -> Option<Self> {
        let mesh = device.as_mesh().filter(|mesh| mesh.names().contains(&AXIS))?;
        let mut names = mesh.batch_names();
        names.retain(|name| *name != AXIS);
        let others = (!names.is_empty()).then(|| names.join("+"));
        names.push(AXIS);
        Some(Self { shard: shard::<B, 4>, tokens: names.join("+"), others })
    }
}

impl<B: Backend> Exchange<B> {
    /// Splits `[groups, experts, rows, width]` by groups of tokens.
    pub(super) fn by_tokens(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        (self.shard)(x, [Some(&self.tokens), None, None, None])
    }

    /// Splits rows `[rows, width]`, which are those of tokens.
    pub(super) fn rows_by_tokens(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [rows, width] = x.dims();
        self.by_tokens(x.reshape([rows, 1, 1, width])).reshape([rows, width])
    }

    /// Splits `[groups, experts, rows, width]` or `[groups, parts of experts, ..]` by experts.
    pub(super) fn by_experts(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        (self.shard)(x, [self.others.as_deref(), Some(AXIS), None, None])
    }
}
