//! Finding the op that made a NaN or an infinity.
//!
//! Owns: the flag that a program computes beside its results ([`flag`]), the program that computes the class of every value
//! ([`probes`]), the search for the op that made the first one ([`culprit`]), the report ([`report`]), and what loses
//! precision in 16-bit floats ([`precision`]). May not know: when programs run, buffers, engines (`runtime::numerics`).
//!
//! A value has a *class*: finite, infinite (an infinity and no NaN), or NaN. It is the largest magnitude of its elements,
//! compared as bits: without its sign, an infinity is larger than every number, and a NaN is larger than an infinity.
//!
//! Without [`TpuOptions::check_numerics`](crate::TpuOptions::check_numerics), nothing here runs.

mod culprit;
mod flag;
mod precision;
mod probes;

pub(crate) use culprit::{Culprit, Diagnosis, Origin};
pub(crate) use flag::{flag_of, flagged};
pub(crate) use precision::{LostCounts, Update, long_sums, loss_gradients, updates};
pub(crate) use probes::Probes;

use burn_tpu_graph::op::{Combine, UnaryOp};
use burn_tpu_graph::{Builder, DType, NodeId, Result};

/// The label of the nodes that are added to programs.
const LABEL: &str = "check_numerics";

/// What the elements of a value are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// All are finite, or they are no floats.
    #[default]
    Finite,
    /// At least one is infinite, and none is a NaN.
    Infinite,
    Nan,
}

impl Class {
    /// Returns the class of a value with this largest magnitude.
    fn of(bits: u64, dtype: DType) -> Self {
        match bits.cmp(&infinity(dtype)) {
            std::cmp::Ordering::Less => Self::Finite,
            std::cmp::Ordering::Equal => Self::Infinite,
            std::cmp::Ordering::Greater => Self::Nan,
        }
    }
}

/// Returns the bits of the infinity of a type of float.
fn infinity(dtype: DType) -> u64 {
    match dtype {
        DType::BF16 => 0x7f80,
        DType::F16 => 0x7c00,
        DType::F64 => 0x7ff0_0000_0000_0000,
        _ => 0x7f80_0000,
    }
}

/// Returns the unsigned integer that is as wide as a type of float.
fn bits_of(dtype: DType) -> DType {
    match dtype {
        DType::BF16 | DType::F16 => DType::U16,
        DType::F64 => DType::U64,
        _ => DType::U32,
    }
}

/// Adds the largest magnitude of a float value, as the bits of its type: `[1]`. The last dim is reduced first, since XLA's
/// CPU compiler neither divides nor vectorises a reduction to one number.
fn magnitude(graph: &mut impl Builder, x: NodeId) -> Result<NodeId> {
    let dtype = graph.dtype(x);
    let magnitudes = graph.unary(UnaryOp::Abs, x)?;
    let bits = graph.bitcast_convert(magnitudes, bits_of(dtype))?;
    let dims: Vec<usize> = (0..graph.rank(bits)).collect();
    let (rows, columns) = dims.split_at(dims.len().saturating_sub(1));
    let largest_of_rows = graph.reduce(Combine::Max, bits, columns)?;
    let largest = graph.reduce(Combine::Max, largest_of_rows, rows)?;
    graph.reshape(largest, &[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_are_ordered_as_bits() {
        let class = |x: f32| Class::of(x.abs().to_bits().into(), DType::F32);
        assert_eq!([0.0, f32::MAX, -1e-45].map(class), [Class::Finite; 3]);
        assert_eq!([f32::INFINITY, f32::NEG_INFINITY].map(class), [Class::Infinite; 2]);
        assert_eq!([f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001)].map(class), [Class::Nan; 3]);
        let wide = |x: f64| Class::of(x.abs().to_bits(), DType::F64);
        assert_eq!([1e300, f64::INFINITY, f64::NAN].map(wide), [Class::Finite, Class::Infinite, Class::Nan]);
        assert_eq!([0x7bff, 0x7c00, 0x7e00].map(|bits| Class::of(bits, DType::F16) as u8), [0, 1, 2]);
        assert_eq!([0x7f7f, 0x7f80, 0x7fc0].map(|bits| Class::of(bits, DType::BF16) as u8), [0, 1, 2]);
    }
}
