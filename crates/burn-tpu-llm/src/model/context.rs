//! Sequences that are split over the chips of a mesh, for contexts that are too long for one chip.
//!
//! Owns: which axis splits what, the order of the tokens that gives every chip the same work, and which lengths divide.
//! May not know: what attention computes, which is in `attention` and in `ring`.

use super::ring::{Ring, RingBackend};
use crate::error::{LlmError, Result};
use burn::prelude::*;
use burn_tpu::{TpuDevice, shard};

/// How queries come to the keys and values of other chips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextForm {
    /// Each chip gathers the keys and values of a layer, and computes its queries' scores of all of them at once.
    Gathered,
    /// Keys and values go round the chips, and no scores are kept ([Liu et al.](https://arxiv.org/abs/2310.01889)). Each
    /// chip has a block of tokens of a sequence's first half and one of its second half, so that all chips have the same
    /// share of the scores that a causal mask leaves, and none computes the others.
    #[default]
    Ring,
}

/// An axis of a mesh that splits the sequences of a training step. All but attention is computed token by token, so each
/// chip has its part of the tokens.
#[derive(Clone, Debug)]
pub struct Context<B: Backend> {
    axis: String,
    parts: usize,
    /// The axes that split batches, joined with `+`.
    batch: Option<String>,
    /// The axis that splits heads.
    heads: Option<String>,
    form: ContextForm,
    // What only a backend with meshes can do, so that attention needs no other bound than its backend.
    shard_3: Shard<B, 3>,
    shard_4: Shard<B, 4>,
    ring: RingAttention<B>,
}

/// [`shard`] of a backend.
type Shard<B, const D: usize> = fn(Tensor<B, D>, [Option<&str>; D]) -> Tensor<B, D>;

/// [`RingBackend::ring_attention`] of a backend.
type RingAttention<B> = fn(&Ring, [Tensor<B, 4>; 3], Option<Tensor<B, 2, Int>>) -> Tensor<B, 4>;

impl<B: RingBackend> Context<B> {
    /// Returns the context that an axis of a mesh splits. Batches are split over the axes that
    /// [`burn_tpu::Mesh::batch_axes`] says. On a device of one chip, there is one part.
    ///
    /// # Errors
    /// [`LlmError::Loop`](crate::LlmError::Loop) for an axis that the mesh does not have.
    pub fn new(device: &TpuDevice, axis: &str, form: ContextForm) -> Result<Self> {
        let parts = device.axis_size(axis)?;
        let mesh = device.as_mesh();
        let batch = mesh.as_ref().map(|mesh| mesh.batch_names().join("+")).filter(|names| !names.is_empty());
        Ok(Self {
            axis: axis.to_owned(),
            parts,
            batch,
            heads: None,
            form,
            shard_3: shard::<B, 3>,
            shard_4: shard::<B, 4>,
            ring: B::ring_attention,
        })
    }

    /// Divides the context into this number of parts, whatever the mesh: on one chip, for tests of what many compute.
    pub fn with_parts(self, parts: usize) -> Self {
        Self { parts, ..self }
    }
}

impl<B: Backend> Context<B> {
    /// Names the axis that splits the heads of attention, if there is one.
    pub fn with_heads(self, axis: Option<&str>) -> Self {
        Self { heads: axis.map(str::to_owned), ..self }
    }

    pub(super) fn form(&self) -> ContextForm {
        self.form
    }

    /// Checks that a sequence of so many tokens divides.
    ///
    /// # Errors
    /// [`LlmError::Context`] with the next length that does.
    pub fn check(&self, length: usize) -> Result<()> {
        let blocks = self.blocks();
        if length > 0 && length.is_multiple_of(blocks) {
            return Ok(());
        }
        Err(LlmError::Context { length, blocks, axis: self.axis.clone(), next: length.max(1).next_multiple_of(blocks) })
    }

    /// Returns into how many blocks a sequence is divided.
    fn blocks(&self) -> usize {
        match self.form {
            ContextForm::Gathered => self.parts,
            ContextForm::Ring => 2 * self.parts,
        }
    }

    /// Puts `[batch, length]` into the order of the chips: those of a ring have a block of the first half and one of the
    /// second half each, the outermost ones together.
    pub(super) fn ordered(&self, x: Tensor<B, 2, Int>) -> Tensor<B, 2, Int> {
        let [batch, length] = x.dims();
        if self.form == ContextForm::Gathered {
            return x;
        }
        let (parts, block) = (self.parts, length / self.blocks());
        let blocks = x.reshape([batch, 2 * parts, block]);
        let first = blocks.clone().slice_dim(1, 0..parts).unsqueeze_dim::<4>(2);
        let second = blocks.slice_dim(1, parts..2 * parts).flip([1]).unsqueeze_dim::<4>(2);
        Tensor::cat(vec![first, second], 2).reshape([batch, length])
    }

    /// Puts `[batch, length]` in the order of the chips into that of the tokens.
    pub(super) fn restored(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [batch, length] = x.dims();
        if self.form == ContextForm::Gathered {
            return x;
        }
        let (parts, block) = (self.parts, length / self.blocks());
        let pairs = x.reshape([batch, parts, 2, block]);
        let half = |half: usize| pairs.clone().slice_dim(2, half..half + 1).reshape([batch, parts, block]);
        Tensor::cat(vec![half(0), half(1).flip([1])], 1).reshape([batch, length])
    }

    /// Splits the tokens of `[batch, length, width]`.
    pub(super) fn split(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        (self.shard_3)(x, [self.batch.as_deref(), Some(&self.axis), None])
    }

    /// Returns queries, keys and values `[batch, heads, length, head]` with the queries split, and with all keys and values
    /// on each chip.
    pub(super) fn gathered(&self, [query, key, value]: [Tensor<B, 4>; 3]) -> [Tensor<B, 4>; 3] {
        let (batch, heads) = (self.batch.as_deref(), self.heads.as_deref());
        let query = (self.shard_4)(query, [batch, heads, Some(&self.axis), None]);
        // Each chip's own part first: else the products that make it would be computed for all tokens on each chip.
        let whole = |x| {
            let part = (self.shard_4)(x, [batch, heads, Some(&self.axis), None]);
            (self.shard_4)(part, [batch, heads, None, None])
        };
        [query, whole(key), whole(value)]
    }

    /// Returns attention's result `[batch, heads, length, head]`, of queries of that shape and of keys and values `[batch,
    /// kv_heads, length, head]`. `starts` is where the text of each query begins, `[batch, length]`.
    pub(super) fn ring_attention(
        &self,
        operands: [Tensor<B, 4>; 3],
        starts: Option<Tensor<B, 2, Int>>,
        window: Option<usize>,
        (scale, cap): (f64, f64),
    ) -> Tensor<B, 4> {
        let ring = Ring {
            parts: self.parts,
            axes: [self.batch.clone(), self.heads.clone(), Some(self.axis.clone())],
            window,
            scale,
            cap,
        };
        (self.ring)(&ring, operands, starts)
    }
}
