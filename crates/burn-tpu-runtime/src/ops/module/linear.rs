//! The linear layer and its gradients: one `dot_general` each, over any number of leading dims.
//!
//! The weight is `[d_input, d_output]`. The order is dot, convert, bias, which XLA recognises as the epilogue of a dot.

use super::operands::record_biased;
use crate::Tensor;
use crate::ops::mixed;
use crate::trace::record;
use burn_tpu_graph::op::{Combine, DotAttrs};
use burn_tpu_graph::{Builder, Dims, NodeId, Result};

/// Computes `x @ weight + bias`, with x `[..., d_input]`.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let last = x.dims().len().saturating_sub(1);
    record_biased("linear", [x, weight], bias, last, |r, x, weight| contract(r, (x, &[last]), (weight, &[0])))
}

/// Computes the gradient with respect to x: `grad @ weight^T`.
pub fn linear_x_backward(weight: &Tensor, grad: &Tensor) -> Tensor {
    let last = grad.dims().len().saturating_sub(1);
    record("linear_x_backward", [grad, weight], |r, [grad, weight]| contract(r, (grad, &[last]), (weight, &[1])))
}

/// Computes the gradient with respect to the weight: `x^T @ grad`, summed over all leading dims within one contraction.
pub fn linear_weight_backward(x: &Tensor, grad: &Tensor) -> Tensor {
    let leading = leading(x);
    record("linear_weight_backward", [x, grad], |r, [x, grad]| contract(r, (x, &leading), (grad, &leading)))
}

/// Computes the gradient with respect to the bias: the sum over all leading dims.
pub fn linear_bias_backward(grad: &Tensor) -> Tensor {
    let leading = leading(grad);
    record("linear_bias_backward", [grad], |r, [grad]| r.accumulate(Combine::Sum, grad, &leading))
}

fn leading(x: &Tensor) -> Dims {
    (0..x.dims().len().saturating_sub(1)).collect()
}

/// Records a dot without batch dims. 16-bit floats accumulate in f32 and are rounded once.
fn contract(g: &mut impl Builder, lhs: (NodeId, &[usize]), rhs: (NodeId, &[usize])) -> Result<NodeId> {
    let (x, y) = mixed::narrowed(g, lhs.0, rhs.0)?;
    let dtype = g.dtype(x);
    let attrs = DotAttrs::new([&[], &[]], [lhs.1, rhs.1], dtype.accumulator());
    let product = g.dot_general(x, y, attrs)?;
    g.convert(product, dtype)
}
