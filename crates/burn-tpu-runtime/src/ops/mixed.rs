//! Operands of a 16-bit float type and of a wider one, as a model in mixed precision has them.
//!
//! Owns: the type in which such operands meet, and the type of the result.
//!
//! | op | computed in | result |
//! |---|---|---|
//! | arithmetic, scatters, masks, biases | the wider type | the type of the first operand |
//! | comparisons | the wider type | bool |
//! | products and convolutions | the 16-bit type, summed in f32 | the 16-bit type |
//!
//! So a norm with f32 parameters maps 16-bit activations to 16-bit activations, and a layer with 16-bit weights does not
//! compute in f32 since its input happens to be f32. All other operands of two types stay errors of the op: two 16-bit
//! types, f32 and f64, integers and floats.

use burn_tpu_graph::op::BinaryOp;
use burn_tpu_graph::{Builder, DType, NodeId, Result};

/// Returns whether one is a 16-bit float type and the other a wider one.
fn are_mixed(a: DType, b: DType) -> bool {
    a.is_float() && b.is_float() && a.is_half() != b.is_half()
}

/// Returns both operands in the wider type if they are mixed, else as they are.
pub(super) fn widened(g: &mut impl Builder, x: NodeId, y: NodeId) -> Result<(NodeId, NodeId)> {
    let (a, b) = (g.dtype(x), g.dtype(y));
    match are_mixed(a, b) {
        true if a.is_half() => Ok((g.convert(x, b)?, y)),
        true => Ok((x, g.convert(y, a)?)),
        false => Ok((x, y)),
    }
}

/// Returns both operands in the 16-bit type if they are mixed, else as they are.
pub(super) fn narrowed(g: &mut impl Builder, x: NodeId, y: NodeId) -> Result<(NodeId, NodeId)> {
    let (a, b) = (g.dtype(x), g.dtype(y));
    match are_mixed(a, b) {
        true if a.is_half() => Ok((x, g.convert(y, a)?)),
        true => Ok((g.convert(x, b)?, y)),
        false => Ok((x, y)),
    }
}

/// Returns `value` in the type of `x` if they are mixed, else as it is.
pub(super) fn alike(g: &mut impl Builder, x: NodeId, value: NodeId) -> Result<NodeId> {
    let dtype = g.dtype(x);
    if are_mixed(dtype, g.dtype(value)) { g.convert(value, dtype) } else { Ok(value) }
}

/// Computes a binary op; the result has the type of `x` also for mixed operands.
pub(super) fn binary(g: &mut impl Builder, op: BinaryOp, x: NodeId, y: NodeId) -> Result<NodeId> {
    let (dtype, other) = (g.dtype(x), g.dtype(y));
    if !are_mixed(dtype, other) {
        return g.binary(op, x, y);
    }
    let (x, y) = widened(g, x, y)?;
    let result = g.binary(op, x, y)?;
    g.convert(result, dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{tensor_of, values};
    use crate::ops::{arithmetic, matmul, module};
    use burn_tpu_graph::op::Direction;

    /// 1 + 2^-10 is 1 in bf16, so a factor that was rounded first would leave the other operand as it is.
    const FACTOR: f64 = 1.0 + 1.0 / 1024.0;

    #[test]
    fn arithmetic_is_wide_and_has_the_type_of_the_first_operand() {
        let (half, wide) = (|| tensor_of(DType::BF16, &[256.0], &[1]), || tensor_of(DType::F32, &[FACTOR], &[1]));
        let sum = arithmetic::binary("float_sub", BinaryOp::Sub, wide(), half());
        assert_eq!((sum.element(), values(sum)), (DType::F32, vec![FACTOR - 256.0]));
        let product = arithmetic::binary("float_mul", BinaryOp::Mul, half(), tensor_of(DType::F32, &[1.004], &[1]));
        // 257.02 lies between the bf16 numbers 256 and 258; with 1.004 rounded to 1.0 it would be 256.
        assert_eq!((product.element(), values(product)), (DType::BF16, vec![258.0]));
        let one = tensor_of(DType::BF16, &[1.0], &[1]);
        let less = arithmetic::compare("float_lower", Direction::Lt, one, wide());
        assert_eq!(crate::ops::testing::truths(less), [true]);
    }

    #[test]
    fn products_are_of_the_16_bit_type() {
        let (half, wide) = (tensor_of(DType::BF16, &[2.0], &[1, 1]), tensor_of(DType::F32, &[FACTOR], &[1, 1]));
        for product in [
            matmul::matmul("float_matmul", wide.clone(), half.clone()),
            matmul::matmul("float_matmul", half.clone(), wide.clone()),
            module::linear(&wide, &half, None),
            module::linear(&half, &wide, Some(&tensor_of(DType::F32, &[0.0], &[1]))),
        ] {
            assert_eq!((product.element(), values(product)), (DType::BF16, vec![2.0]));
        }
    }
}
