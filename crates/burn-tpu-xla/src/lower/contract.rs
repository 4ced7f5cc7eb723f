//! Contractions and convolutions.

use super::{Built, Operands, operand, reduce};
use crate::types::{element, i64s};
use burn_tpu_runtime::graph::op::{Combine, ConvAttrs, DotAttrs};
use burn_tpu_runtime::graph::{Dims, TensorType};
use xla::{XlaBuilder, XlaOp};

pub(super) fn dot_general(
    builder: &XlaBuilder,
    operands: &Operands,
    attrs: &DotAttrs,
    result: &TensorType,
) -> Built<XlaOp> {
    if result.dtype.is_int() && result.dtype.size_bytes() == 8 {
        return wide_integer_dot(builder, operands, attrs, result);
    }
    operand(operands, 0)?.0.dot_general_with_type(
        operand(operands, 1)?.0,
        &i64s(&attrs.lhs_contract),
        &i64s(&attrs.rhs_contract),
        &i64s(&attrs.lhs_batch),
        &i64s(&attrs.rhs_batch),
        element(result.dtype).primitive_type(),
    )
}

/// TPUs from v5e on have no 64-bit integer dot. This multiplies over `[batch, free of lhs, free of rhs, contracted]` and
/// sums, which XLA fuses into one loop.
fn wide_integer_dot(builder: &XlaBuilder, operands: &Operands, attrs: &DotAttrs, result: &TensorType) -> Built<XlaOp> {
    let ((lhs, lhs_ty), (rhs, rhs_ty)) = (operand(operands, 0)?, operand(operands, 1)?);
    let batch = attrs.lhs_batch.len();
    let contracted: Dims = attrs.lhs_contract.iter().map(|&dim| lhs_ty.dims[dim]).collect();
    let lhs_free = lhs_ty.rank() - batch - contracted.len();
    let space = TensorType::new(result.dtype, [result.dims.as_slice(), contracted.as_slice()].concat());
    let spread = |value: &XlaOp, rank: usize, batch_dims: &[usize], contract: &[usize], free_at: usize| {
        let mut free = free_at..;
        let place = |dim: usize| {
            let named = |dims: &[usize], at: usize| dims.iter().position(|&d| d == dim).map(|i| at + i);
            named(batch_dims, 0).or_else(|| named(contract, result.rank())).or_else(|| free.next()).unwrap_or(dim)
        };
        let mapping: Vec<usize> = (0..rank).map(place).collect();
        let wide = value.convert(element(space.dtype).primitive_type())?;
        in_order(&wide, &mapping, &space)
    };
    let lhs = spread(lhs, lhs_ty.rank(), &attrs.lhs_batch, &attrs.lhs_contract, batch)?;
    let rhs = spread(rhs, rhs_ty.rank(), &attrs.rhs_batch, &attrs.rhs_contract, batch + lhs_free)?;
    let summed: Dims = (result.rank()..space.rank()).collect();
    reduce::reduce(builder, &[(&lhs.mul_(&rhs)?, &space)], Combine::Sum, &summed)
}

/// Broadcasts to dims that need not increase: the builder wants them in order.
fn in_order(value: &XlaOp, mapping: &[usize], space: &TensorType) -> Built<XlaOp> {
    let mut order: Vec<usize> = (0..mapping.len()).collect();
    order.sort_by_key(|&dim| mapping[dim]);
    let sorted: Vec<usize> = order.iter().map(|&dim| mapping[dim]).collect();
    value.transpose(&i64s(&order))?.broadcast_in_dim(&i64s(&space.dims), &i64s(&sorted))
}

/// The builder's convolution has the element type of its operands, so 16-bit floats are widened first, which is exact.
pub(super) fn convolution(operands: &Operands, attrs: &ConvAttrs, result: &TensorType) -> Built<XlaOp> {
    let widened = |place: usize| -> Built<XlaOp> {
        let (value, ty) = operand(operands, place)?;
        if ty.dtype == result.dtype { Ok(value.clone()) } else { value.convert(element(result.dtype).primitive_type()) }
    };
    let padding: Vec<_> = attrs.padding.iter().map(|&(low, high)| (low as i64, high as i64)).collect();
    let (input, kernel, output) = (&attrs.input, &attrs.kernel, &attrs.output);
    widened(0)?.conv_general_dilated(
        &widened(1)?,
        &i64s(&attrs.strides),
        &padding,
        &i64s(&attrs.lhs_dilation),
        &i64s(&attrs.rhs_dilation),
        input.batch as i64,
        input.feature as i64,
        &i64s(&input.spatial),
        output.batch as i64,
        output.feature as i64,
        &i64s(&output.spatial),
        kernel.feature as i64,
        kernel.batch as i64,
        &i64s(&kernel.spatial),
        attrs.feature_groups as i64,
        attrs.batch_groups as i64,
        false,
    )
}
