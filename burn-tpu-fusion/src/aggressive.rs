//! The passes that only the level aggressive has: no TPU has run them yet.
//!
//! A reader of the default rewrites needs nothing of this folder, and no pass outside of it may use it. It is compiled into
//! every build: the level is an option of a run, not of a build
//! (`docs/decisions/0047-passes-no-tpu-has-run-are-in-a-folder.md`). A pass leaves the folder for the one above when a TPU
//! has run it and `balanced` has it.
//!
//! - [`FlashAttention`]: attention in kernels of `burn-tpu-kernels`, for TPUs alone.
//! - [`RowBlocks`]: a loss over many classes in blocks of rows, for one TPU alone.
//! - [`kernel_call`]: a kernel as an op of the graph, for custom ops of users too.

mod flash_attention;
mod kernel_call;
mod row_blocks;

pub use flash_attention::FlashAttention;
pub use kernel_call::kernel_call;
pub use row_blocks::RowBlocks;
