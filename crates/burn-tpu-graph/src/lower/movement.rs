//! Lowering of ops that create, move, repeat or drop whole dims.

use super::printer::{Statement, Value, array};
use crate::op::{FftKind, PadAttrs, SliceAttrs};

pub(super) fn iota(dim: usize) -> Statement {
    Statement::new("stablehlo.iota", []).attr("iota_dimension", format!("{dim} : i64"))
}

pub(super) fn broadcast_in_dim(operands: Vec<Value>, mapping: &[usize]) -> Statement {
    Statement::new("stablehlo.broadcast_in_dim", operands).attr("broadcast_dimensions", array(mapping))
}

pub(super) fn transpose(operands: Vec<Value>, permutation: &[usize]) -> Statement {
    Statement::new("stablehlo.transpose", operands).attr("permutation", array(permutation))
}

pub(super) fn reverse(operands: Vec<Value>, dims: &[usize]) -> Statement {
    Statement::new("stablehlo.reverse", operands).attr("dimensions", array(dims))
}

pub(super) fn slice(operands: Vec<Value>, attrs: &SliceAttrs) -> Statement {
    Statement::new("stablehlo.slice", operands)
        .attr("start_indices", array(&attrs.start))
        .attr("limit_indices", array(&attrs.limit))
        .attr("strides", array(&attrs.stride))
}

pub(super) fn pad(operands: Vec<Value>, attrs: &PadAttrs) -> Statement {
    Statement::new("stablehlo.pad", operands)
        .attr("edge_padding_low", array(&attrs.low))
        .attr("edge_padding_high", array(&attrs.high))
        .attr("interior_padding", array(&attrs.interior))
}

pub(super) fn concatenate(operands: Vec<Value>, dim: usize) -> Statement {
    Statement::new("stablehlo.concatenate", operands).attr("dimension", format!("{dim} : i64"))
}

pub(super) fn fft(operands: Vec<Value>, kind: FftKind, length: usize) -> Statement {
    let kind = match kind {
        FftKind::Fft => "FFT",
        FftKind::Ifft => "IFFT",
        FftKind::Rfft => "RFFT",
        FftKind::Irfft => "IRFFT",
    };
    Statement::new("stablehlo.fft", operands)
        .attr("fft_type", format!("#stablehlo<fft_type {kind}>"))
        .attr("fft_length", array([length]))
}

/// Selects Threefry by name, since the default algorithm differs between platforms.
pub(super) fn rng_bit_generator(operands: Vec<Value>) -> Statement {
    Statement::new("stablehlo.rng_bit_generator", operands).attr("rng_algorithm", "#stablehlo<rng_algorithm THREE_FRY>")
}
