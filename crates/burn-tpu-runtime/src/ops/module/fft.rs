//! Real Fourier transforms along any dim, in f32 for any float type of the tensor: XLA transforms the last dim of f32.

use crate::Tensor;
use crate::ops::{broken_rule, expect_dim};
use crate::trace::{record, record_many};
use burn_tpu_graph::op::FftKind;
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

/// Returns the real and the imaginary part of the `length / 2 + 1` lowest frequencies. The signal is truncated or
/// padded with zeros to `length`.
pub fn rfft(signal: &Tensor, dim: usize, length: Option<usize>) -> [Tensor; 2] {
    record_many("rfft", &[signal], |r, nodes| {
        expect_dim(r, "fft", nodes[0], dim)?;
        let dtype = r.dtype(nodes[0]);
        let length = length.unwrap_or(r.dims(nodes[0])[dim]);
        let signal = prepare(r, nodes[0], dim, length)?;
        let spectrum = r.fft(signal, FftKind::Rfft, length)?;
        let (real, imag) = (r.real(spectrum)?, r.imag(spectrum)?);
        Ok([restore(r, real, dim, dtype)?, restore(r, imag, dim, dtype)?])
    })
}

/// Returns the signal of `length` samples for a spectrum. The spectrum is truncated or padded with zeros to `length / 2
/// + 1`. Without a length the signal has `2 * (bins - 1)` samples.
pub fn irfft(real: &Tensor, imag: &Tensor, dim: usize, length: Option<usize>) -> Tensor {
    record("irfft", [real, imag], |r, [real, imag]| {
        expect_dim(r, "fft", real, dim)?;
        if r.dims(real) != r.dims(imag) {
            return Err(broken_rule(r, "fft", &[real, imag], "both parts must have the same dims"));
        }
        let dtype = r.dtype(real);
        let length = length.unwrap_or(2 * r.dims(real)[dim].saturating_sub(1));
        let real = prepare(r, real, dim, length / 2 + 1)?;
        let imag = prepare(r, imag, dim, length / 2 + 1)?;
        let spectrum = r.complex(real, imag)?;
        let signal = r.fft(spectrum, FftKind::Irfft, length)?;
        restore(r, signal, dim, dtype)
    })
}

/// Returns `x` in f32, with `dim` as the last dim and size `length`.
fn prepare(g: &mut impl Builder, x: NodeId, dim: usize, length: usize) -> Result<NodeId> {
    let x = g.convert(x, DType::F32)?;
    let x = swap_with_last(g, x, dim)?;
    let (rank, last) = (g.rank(x), g.rank(x) - 1);
    let missing = length as isize - g.dims(x)[last] as isize;
    let high: Vec<isize> = (0..rank).map(|d| if d == last { missing } else { 0 }).collect();
    let zero = g.scalar(DType::F32, 0.0)?;
    g.pad(x, zero, &vec![0; rank], &high, &vec![0; rank])
}

fn restore(g: &mut impl Builder, x: NodeId, dim: usize, dtype: DType) -> Result<NodeId> {
    let x = swap_with_last(g, x, dim)?;
    g.convert(x, dtype)
}

fn swap_with_last(g: &mut impl Builder, x: NodeId, dim: usize) -> Result<NodeId> {
    let mut permutation: Dims = (0..g.rank(x)).collect();
    let last = permutation.len() - 1;
    permutation.swap(dim, last);
    g.transpose(x, &permutation)
}
