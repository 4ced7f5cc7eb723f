//! The interpreter: runs programs on the host without a plugin, with the products of the crate `ndarray`.
//!
//! Owns: values on the host ([`HostTensor`]) and the meaning of every op on them, one file per family. May not know:
//! devices, recording, engines. Edge cases (integer division by zero, NaN, out-of-range indices) give the results
//! of XLA's CPU client; 16-bit floats are computed in f32 and rounded once per op.
#![forbid(unsafe_code)]

#[cfg(test)]
mod axis_tests;
mod binary;
mod buffer;
mod contract;
mod convert;
mod convolution;
mod elementwise;
mod error;
mod exponential;
#[cfg(test)]
mod family_tests;
mod fft;
mod index;
mod interpret;
mod inverse_erf;
mod movement;
mod numeric;
mod reduce;
mod rng;
mod sort;
mod subnormal;
mod tensor;
#[cfg(test)]
mod testing;
mod unary;
mod vector;
mod walk;
mod window;

pub use error::HostError;
pub use interpret::{interpret, interpret_graph};
pub use tensor::HostTensor;
