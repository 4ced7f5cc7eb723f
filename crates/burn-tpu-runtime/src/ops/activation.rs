//! Activation functions. Each is one recorded op.
//!
//! Formulas of several steps on 16-bit floats run in f32 and round once at the end; f64 stays f64. NaN gives NaN.

use crate::Tensor;
use crate::trace::{Recorder, record};
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, UnaryOp};
use burn_tpu_graph::{Builder, NodeId, Number, Result};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Returns `x`, times a slope where it is negative.
pub fn leaky_relu(x: Tensor, negative_slope: Number) -> Tensor {
    in_wide("leaky_relu", [&x], |r, [x]| {
        let slope = r.slot_like(x, negative_slope)?;
        sloped(r, x, slope)
    })
}

/// Returns the larger of `x` and 0.
pub fn relu(x: Tensor) -> Tensor {
    record("relu", [&x], |r, [x]| r.binary_const(BinaryOp::Max, x, 0.0))
}

/// Returns the gradient where the output of [`relu`] is above 0, else 0.
pub fn relu_backward(output: Tensor, gradient: Tensor) -> Tensor {
    record("relu_backward", [&output, &gradient], |r, [output, gradient]| {
        let off = r.compare_const(Direction::Le, output, 0.0)?;
        let zero = r.splat_like(gradient, 0.0)?;
        r.select(off, zero, gradient)
    })
}

/// Returns `x`, times `alpha` where it is negative. `alpha` broadcasts.
pub fn prelu(x: Tensor, alpha: Tensor) -> Tensor {
    in_wide("prelu", [&x, &alpha], |r, [x, alpha]| sloped(r, x, alpha))
}

/// Returns x Φ(x), with the exact distribution function.
pub fn gelu(x: Tensor) -> Tensor {
    in_wide("gelu", [&x], |r, [x]| {
        let below = normal_cdf(r, x)?;
        r.binary(BinaryOp::Mul, x, below)
    })
}

/// Returns the gradient times Φ(x) + x φ(x), the exact derivative of [`gelu`]. (Burn's default differentiates the tanh
/// approximation, whose error is up to 8.7e-4.)
pub fn gelu_backward(x: Tensor, gradient: Tensor) -> Tensor {
    in_wide("gelu_backward", [&x, &gradient], |r, [x, gradient]| {
        let below = normal_cdf(r, x)?;
        let density = normal_density(r, x)?;
        let tail = r.binary(BinaryOp::Mul, x, density)?;
        let slope = r.binary(BinaryOp::Add, below, tail)?;
        r.binary(BinaryOp::Mul, slope, gradient)
    })
}

/// Returns 1 / (1 + e^-x).
pub fn sigmoid(x: Tensor) -> Tensor {
    in_wide("sigmoid", [&x], |r, [x]| r.unary(UnaryOp::Logistic, x))
}

/// Returns the gradient times y (1 - y), where y is the output of [`sigmoid`].
pub fn sigmoid_backward(output: Tensor, gradient: Tensor) -> Tensor {
    in_wide("sigmoid_backward", [&output, &gradient], |r, [output, gradient]| {
        let one = r.splat_like(output, 1.0)?;
        let rest = r.binary(BinaryOp::Sub, one, output)?;
        let slope = r.binary(BinaryOp::Mul, output, rest)?;
        r.binary(BinaryOp::Mul, slope, gradient)
    })
}

/// Returns `alpha * x + beta`, clamped to 0 and 1.
pub fn hard_sigmoid(x: Tensor, alpha: Number, beta: Number) -> Tensor {
    in_wide("hard_sigmoid", [&x], |r, [x]| {
        let (alpha, beta) = (r.slot_like(x, alpha)?, r.slot_like(x, beta)?);
        let scaled = r.binary(BinaryOp::Mul, x, alpha)?;
        let line = r.binary(BinaryOp::Add, scaled, beta)?;
        let (zero, one) = (r.splat_like(x, 0.0)?, r.splat_like(x, 1.0)?);
        r.clamp(zero, line, one)
    })
}

/// Returns the logarithm of the sigmoid as min(x, 0) - ln(1 + e^-|x|), which neither overflows nor cancels.
pub fn log_sigmoid(x: Tensor) -> Tensor {
    in_wide("log_sigmoid", [&x], |r, [x]| {
        let negative = r.binary_const(BinaryOp::Min, x, 0.0)?;
        let size = r.unary(UnaryOp::Abs, x)?;
        let size = r.unary(UnaryOp::Neg, size)?;
        let decay = r.unary(UnaryOp::Exp, size)?;
        let rest = r.unary(UnaryOp::Log1p, decay)?;
        r.binary(BinaryOp::Sub, negative, rest)
    })
}

/// Returns the gradient times the sigmoid of -x, the derivative of [`log_sigmoid`].
pub fn log_sigmoid_backward(x: Tensor, gradient: Tensor) -> Tensor {
    in_wide("log_sigmoid_backward", [&x, &gradient], |r, [x, gradient]| {
        let negative = r.unary(UnaryOp::Neg, x)?;
        let slope = r.unary(UnaryOp::Logistic, negative)?;
        r.binary(BinaryOp::Mul, slope, gradient)
    })
}

/// Returns the softmax along `dim`. No exponential overflows.
pub fn softmax(x: Tensor, dim: usize) -> Tensor {
    in_wide("softmax", [&x], |r, [x]| softmax_along(r, x, dim))
}

/// Returns the logarithm of the softmax along `dim`.
pub fn log_softmax(x: Tensor, dim: usize) -> Tensor {
    in_wide("log_softmax", [&x], |r, [x]| {
        let shifted = below_max(r, x, dim)?;
        let exp = r.unary(UnaryOp::Exp, shifted)?;
        let sum = r.accumulate_keepdim(Combine::Sum, exp, dim)?;
        let log = r.unary(UnaryOp::Log, sum)?;
        r.binary(BinaryOp::Sub, shifted, log)
    })
}

/// Returns the softmax of -x along `dim`.
pub fn softmin(x: Tensor, dim: usize) -> Tensor {
    in_wide("softmin", [&x], |r, [x]| {
        let negative = r.unary(UnaryOp::Neg, x)?;
        softmax_along(r, negative, dim)
    })
}

/// Records a formula that computes 16-bit floats in f32; the result has the first operand's type.
fn in_wide<const N: usize>(
    op: &'static str,
    operands: [&Tensor; N],
    formula: impl FnOnce(&mut Recorder, [NodeId; N]) -> Result<NodeId>,
) -> Tensor {
    record(op, operands, |r, mut nodes| {
        let dtype = r.dtype(nodes[0]);
        for node in &mut nodes {
            let wide = r.dtype(*node).accumulator();
            *node = r.convert(*node, wide)?;
        }
        let result = formula(r, nodes)?;
        r.convert(result, dtype)
    })
}

/// `x`, times `slope` where it is negative.
fn sloped(r: &mut Recorder, x: NodeId, slope: NodeId) -> Result<NodeId> {
    let negative = r.compare_const(Direction::Lt, x, 0.0)?;
    let scaled = r.binary(BinaryOp::Mul, x, slope)?;
    r.select(negative, scaled, x)
}

/// Φ(x) = (1 + erf(x / √2)) / 2.
fn normal_cdf(r: &mut Recorder, x: NodeId) -> Result<NodeId> {
    let scaled = r.binary_const(BinaryOp::Mul, x, FRAC_1_SQRT_2)?;
    let erf = r.unary(UnaryOp::Erf, scaled)?;
    let sum = r.binary_const(BinaryOp::Add, erf, 1.0)?;
    r.binary_const(BinaryOp::Mul, sum, 0.5)
}

/// φ(x) = e^(-x²/2) / √2π.
fn normal_density(r: &mut Recorder, x: NodeId) -> Result<NodeId> {
    let square = r.binary(BinaryOp::Mul, x, x)?;
    let exponent = r.binary_const(BinaryOp::Mul, square, -0.5)?;
    let exp = r.unary(UnaryOp::Exp, exponent)?;
    r.binary_const(BinaryOp::Mul, exp, 1.0 / (2.0 * PI).sqrt())
}

/// Returns `x` minus its largest element along `dim`, so that no exponential overflows.
fn below_max(r: &mut Recorder, x: NodeId, dim: usize) -> Result<NodeId> {
    let max = r.accumulate_keepdim(Combine::Max, x, dim)?;
    r.binary(BinaryOp::Sub, x, max)
}

/// Returns the softmax of `x`, in the type of `x`.
fn softmax_along(r: &mut Recorder, x: NodeId, dim: usize) -> Result<NodeId> {
    let shifted = below_max(r, x, dim)?;
    let exp = r.unary(UnaryOp::Exp, shifted)?;
    let sum = r.accumulate_keepdim(Combine::Sum, exp, dim)?;
    r.binary(BinaryOp::Div, exp, sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::data::to_device;
    use crate::ops::testing::{devices, tensor_of, values};
    use burn_tpu_graph::DType;

    const XS: [f64; 9] = [-30.0, -5.5, -1.0, -0.25, 0.0, 0.125, 1.5, 6.0, 40.0];

    /// Returns erf by its series where that converges well; ±1 elsewhere.
    fn erf(x: f64) -> f64 {
        if x.abs() > 4.0 {
            return x.signum();
        }
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / PI.sqrt()
    }

    /// Checks f32 within a relative 2e-6 and bf16 within a step; 1 + erf cancels far left of 0, which costs 1e-7 |x| more.
    fn check(name: &str, op: impl Fn(Tensor) -> Tensor, formula: impl Fn(f64) -> f64) {
        for device in devices() {
            for (dtype, tolerance) in [(DType::F32, 2e-6), (DType::BF16, 1.0 / 256.0)] {
                let x = to_device(tensor_of(dtype, &XS, &[9]), &device);
                for (x, y) in XS.into_iter().zip(values(op(x))) {
                    let wanted = formula(x);
                    let close = (y - wanted).abs() <= tolerance * wanted.abs() + 1e-7 * x.abs().max(1.0);
                    assert!(close, "{name}({x}) = {y}, not {wanted}, as {dtype:?} on {device}");
                }
            }
        }
    }

    fn logistic(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    #[test]
    fn formulas_are_those_of_the_reference() {
        check("relu", relu, |x| x.max(0.0));
        check("leaky_relu", |x| leaky_relu(x, Number::Float(0.01)), |x| if x < 0.0 { 0.01 * x } else { x });
        check("gelu", gelu, |x| 0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2)));
        check("sigmoid", sigmoid, logistic);
        check(
            "hard_sigmoid",
            |x| hard_sigmoid(x, Number::Float(0.2), Number::Float(0.5)),
            |x| (0.2 * x + 0.5).clamp(0.0, 1.0),
        );
        check("log_sigmoid", log_sigmoid, |x| x.min(0.0) - (-x.abs()).exp().ln_1p());
        check("prelu", |x| prelu(x.clone(), sigmoid(x)), |x| if x < 0.0 { x * logistic(x) } else { x });
    }

    #[test]
    fn gradients_are_those_of_the_formulas() {
        let one = |x: &Tensor| record("ones", [x], |r, [x]| r.splat_like(x, 1.0));
        check(
            "gelu_backward",
            |x| gelu_backward(x.clone(), one(&x)),
            |x| 0.5 * (1.0 + erf(x * FRAC_1_SQRT_2)) + x * (-0.5 * x * x).exp() / (2.0 * PI).sqrt(),
        );
        check("relu_backward", |x| relu_backward(relu(x.clone()), one(&x)), |x| f64::from(x > 0.0));
        check("log_sigmoid_backward", |x| log_sigmoid_backward(x.clone(), one(&x)), |x| logistic(-x));
        check("sigmoid_backward", |x| sigmoid_backward(x.clone(), one(&x)), |y| y * (1.0 - y));
    }

    #[test]
    fn softmax_neither_overflows_nor_loses_a_row() {
        for device in devices() {
            let x = to_device(tensor_of(DType::F32, &[1000.0, 999.0, 0.0, -5.0], &[2, 2]), &device);
            let (likely, rare) = (1.0 / (1.0 + (-1.0f64).exp()), 1.0 / (1.0 + 1.0f64.exp()));
            let near = |found: Vec<f64>, wanted: &[f64]| {
                let close = found.iter().zip(wanted).all(|(f, w)| (f - w).abs() < 1e-6 * w.abs().max(1.0));
                assert!(close && found.len() == wanted.len(), "{found:?} {wanted:?}");
            };
            let tail = 1.0 / (1.0 + 5.0f64.exp());
            near(values(softmax(x.clone(), 1)), &[likely, rare, 1.0 - tail, tail]);
            near(values(softmin(x.clone(), 1)), &[rare, likely, tail, 1.0 - tail]);
            near(values(log_softmax(x.clone(), 1)), &[likely.ln(), rare.ln(), (1.0 - tail).ln(), tail.ln()]);
            near(values(softmax(x, 0)), &[1.0, 1.0, 0.0, 0.0]);
        }
    }

    #[test]
    fn nan_gives_nan() {
        for device in devices() {
            let x = to_device(tensor_of(DType::F32, &[f64::NAN], &[1]), &device);
            let hard = hard_sigmoid(x.clone(), Number::Float(1.0), Number::Float(0.0));
            for y in [relu(x.clone()), gelu(x.clone()), leaky_relu(x.clone(), Number::Float(0.1)), log_sigmoid(x), hard]
            {
                assert!(values(y)[0].is_nan());
            }
        }
    }
}
