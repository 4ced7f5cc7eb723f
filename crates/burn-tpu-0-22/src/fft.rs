//! Fourier transforms of real signals, which Burn 0.22 asks of each backend apart from its traits (burn-signal).

use crate::TpuTensor;
use burn_tpu_runtime::ops::module as layers;

/// Returns the real and the imaginary part of the transform along `dim`, of which the first half is not redundant. The signal
/// is cut or padded with zeros to `n` elements there.
///
/// # Panics
/// If the signal has no such dim or no float type.
pub fn rfft(signal: TpuTensor, dim: usize, n: Option<usize>) -> (TpuTensor, TpuTensor) {
    let [real, imaginary] = layers::rfft(&signal.0, dim, n);
    (real.into(), imaginary.into())
}

/// Returns the signal of `n` elements along `dim` whose transform this is, the inverse of [`rfft`].
///
/// # Panics
/// If the parts differ in their type, or have no such dim.
pub fn irfft(real: TpuTensor, imaginary: TpuTensor, dim: usize, n: Option<usize>) -> TpuTensor {
    layers::irfft(&real.0, &imaginary.0, dim, n).into()
}
