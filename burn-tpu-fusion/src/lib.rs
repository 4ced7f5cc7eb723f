//! Graph rewrites for burn-tpu: one pass per pattern, each with its legality and its measured gain.
//!
//! XLA already fuses loops well. A pass belongs here only if XLA cannot know or may not do what it does, and only
//! with a measurement under `docs/decisions`. Owns: the [`Pass`] trait, the pipeline, the passes. May not know: PJRT, Burn.
//!
//! Where to begin: `pass.rs` (what a pass promises), `rewrite.rs` (the list and the levels), `pipeline.rs` (how they run),
//! and `linear_activation.rs` (the smallest pass). The passes of the default level are beside this file, in the order in
//! which they run: [`LinearActivation`], [`GatherFirst`], [`ScatterSum`], [`ProductSum`], [`SoftmaxGradient`],
//! [`QueryBlocks`], [`RoundOnce`], [`Roll`], [`Depthwise`],
//! [`FewBits`], [`FewRows`].
//! `aggressive/` has those that no TPU has run yet. `docs/adding-a-rewrite.md` adds one.
#![forbid(unsafe_code)]

mod aggressive;
mod depthwise;
#[cfg(test)]
mod exactness;
mod few_bits;
mod few_rows;
mod gather_first;
mod linear_activation;
mod number;
mod pass;
mod pipeline;
mod product_sum;
mod query_blocks;
mod readers;
mod rewrite;
mod roll;
mod round_once;
mod scatter_sum;
mod softmax_gradient;

pub use aggressive::{FlashAttention, RowBlocks, kernel_call};
pub use depthwise::Depthwise;
pub use few_bits::FewBits;
pub use few_rows::FewRows;
pub use gather_first::GatherFirst;
pub use linear_activation::LinearActivation;
pub use pass::{Pass, Rewritten};
pub use pipeline::{FusionError, Optimization, Optimized, Pipeline, Result, Stage, Target};
pub use product_sum::ProductSum;
pub use query_blocks::QueryBlocks;
pub use rewrite::{Rewrite, UnknownRewrite};
pub use roll::Roll;
pub use round_once::RoundOnce;
pub use scatter_sum::ScatterSum;
pub use softmax_gradient::SoftmaxGradient;
