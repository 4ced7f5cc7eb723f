//! Kernels that are ready to use. Each file says what its kernel computes, on which shapes, and where that is from.

pub mod attention;
mod int8_matmul;
mod softmax;

pub use int8_matmul::int8_matmul;
pub use softmax::softmax;
