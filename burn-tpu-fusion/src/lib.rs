//! Graph rewrites for burn-tpu: one pass per pattern, each with its legality and its measured gain.
//!
//! XLA already fuses loops well. A pass belongs here only if XLA cannot know or may not do what it does, and only
//! with a measurement under `docs/decisions`. Owns: the [`Pass`] trait, the pipeline, the passes. May not know: PJRT, Burn.
#![forbid(unsafe_code)]

mod flash_attention;
mod gather_first;
mod kernel_call;
mod linear_activation;
mod pass;
mod pipeline;
mod query_blocks;
mod readers;
mod rewrite;
mod roll;
mod round_once;
mod row_blocks;
mod scatter_sum;
mod softmax_gradient;

pub use flash_attention::FlashAttention;
pub use gather_first::GatherFirst;
pub use kernel_call::kernel_call;
pub use linear_activation::LinearActivation;
pub use pass::{Pass, Rewritten};
pub use pipeline::{FusionError, Optimization, Optimized, Pipeline, Result, Stage, Target};
pub use query_blocks::QueryBlocks;
pub use rewrite::{Rewrite, UnknownRewrite};
pub use roll::Roll;
pub use round_once::RoundOnce;
pub use row_blocks::RowBlocks;
pub use scatter_sum::ScatterSum;
pub use softmax_gradient::SoftmaxGradient;
