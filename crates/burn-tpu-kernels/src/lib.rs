//! TPU kernels written in Rust.
//!
//! A kernel is what a program runs where XLA's own fusions are not enough: it says which blocks of its operands are in
//! vector memory (VMEM) at each step of a grid, and computes with them. [`KernelBuilder`] writes one and checks every type;
//! [`Kernel::custom_call`] returns the `tpu_custom_call` that libtpu compiles, as text, without MLIR; [`interpret`] runs the
//! same kernel on the host, which is how its arithmetic is tested where there is no TPU. [`kernels`] has those of attention.
//!
//! Owns: the IR of kernels, its text, its interpreter, the kernels. May not know: graphs, StableHLO, plugins, Burn.
#![forbid(unsafe_code)]

mod array_type;
mod builder;
mod cost;
mod custom_call;
mod error;
mod index;
mod interpret;
mod kernel;
pub mod kernels;
mod op;
mod print;
mod vmem;

pub use array_type::{ArrayType, Element};
pub use builder::KernelBuilder;
pub use cost::Cost;
pub use custom_call::CustomCall;
pub use error::{KernelError, Result};
pub use index::Index;
pub use interpret::{Array, interpret};
pub use kernel::{Axis, Kernel, Semantics, Space, Window};
pub use op::{Binary, Comparison, Reduction, Ref, Unary, Value};
pub use vmem::Vmem;
