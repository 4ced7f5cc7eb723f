//! Ops that create, move, repeat or drop whole dims, and Fourier transforms.

use super::{Built, Operands, call, operand};
use burn_tpu_runtime::graph::Node;
use burn_tpu_runtime::graph::op::{FftKind, PadAttrs, SliceAttrs};
use xla::{XlaBuilder, XlaOp};

/// The builder slices one dim at a time; XLA merges the slices.
pub(super) fn slice(operands: &Operands, attrs: &SliceAttrs) -> Built<XlaOp> {
    let (x, ty) = operand(operands, 0)?;
    let mut sliced = x.clone();
    for (dim, &size) in ty.dims.iter().enumerate() {
        let (start, limit, stride) = (attrs.start[dim], attrs.limit[dim], attrs.stride[dim]);
        if (start, limit, stride) != (0, size, 1) {
            sliced = sliced.slice_in_dim(start as i64, limit as i64, stride as i64, dim as i64)?;
        }
    }
    Ok(sliced)
}

pub(super) fn pad(operands: &Operands, attrs: &PadAttrs) -> Built<XlaOp> {
    let edges = attrs.low.iter().zip(&attrs.high).zip(&attrs.interior);
    let config: Vec<_> = edges.map(|((&low, &high), &interior)| (low as i64, high as i64, interior as i64)).collect();
    operand(operands, 0)?.0.pad(operand(operands, 1)?.0, &config)
}

pub(super) fn concatenate(operands: &Operands, dim: usize) -> Built<XlaOp> {
    let (first, _) = operand(operands, 0)?;
    let rest: Vec<&XlaOp> = operands.iter().skip(1).map(|(value, _)| *value).collect();
    first.concat_in_dim(&rest, dim as i64)
}

pub(super) fn fft(
    builder: &XlaBuilder,
    operands: &Operands,
    node: &Node,
    kind: FftKind,
    length: usize,
) -> Built<Vec<XlaOp>> {
    let kind = match kind {
        FftKind::Fft => "FFT",
        FftKind::Ifft => "IFFT",
        FftKind::Rfft => "RFFT",
        FftKind::Irfft => "IRFFT",
    };
    let attributes = format!(", fft_type={kind}, fft_length={{{length}}}");
    call::one_op(builder, operands, node, "fft", &attributes)
}
