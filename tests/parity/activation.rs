//! Activations. The reference computes in f64: Burn's defaults lose digits in the tails, and its gradient of gelu is that
//! of the tanh approximation.

use crate::compare::Class::{Contraction, Elementwise, Exact};
use crate::feed::Feed;
use crate::harness::{Row, row};
use crate::run;
use crate::strategies::*;
use burn_backend::ops::{ActivationOps, FloatTensorOps};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, FloatDType, Scalar};
use proptest::prelude::*;
use proptest::sample::select;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

impl<B: Backend, A: Clone> Feed<'_, B, A> {
    /// Returns a float operand in f64.
    fn wide(&self, operand: usize) -> FloatTensor<B> {
        self.load_as(FloatDType::F64, &self.floats(operand), self.dims(operand))
    }
}

/// Eighths from -4 to 4, large magnitudes and special values.
fn inputs() -> Gen<f64> {
    prop_oneof![
        8 => moderate(),
        1 => select(vec![20.0, -20.0, 100.0, -100.0, 1e4, -1e4, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0]),
    ]
    .sboxed()
}

/// An operand and a gradient with its dims.
fn graded() -> Cases<()> {
    (one(inputs()), pool(moderate()))
        .prop_map(|(mut case, gradient)| {
            let gradient = operand((case.float, case.int), &case.operands[0].dims.clone(), &gradient);
            case.operands.push(gradient);
            case
        })
        .sboxed()
}

fn slopes() -> Cases<f64> {
    with_float_scalar(inputs(), moderate())
}

/// Returns `x * y`, which is 0 if y is 0, even for an infinite x.
fn product_or_zero(x: f64, y: f64) -> f64 {
    if y == 0.0 { 0.0 } else { x * y }
}

/// Lanes without an infinity: there softmax is NaN on every backend, but which elements are NaN differs.
fn lanes() -> Cases<usize> {
    let value = prop_oneof![20 => moderate(), 2 => select(vec![80.0, -80.0, 1e4, -1e4]), 1 => Just(f64::NAN)];
    one_dim(value.sboxed(), full_shape(1))
}

/// Returns the probability that a normal number is below each element.
fn normal_cdf<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let erf = B::float_erf(B::float_mul_scalar(x, Scalar::Float(FRAC_1_SQRT_2)));
    B::float_mul_scalar(B::float_add_scalar(erf, Scalar::Float(1.0)), Scalar::Float(0.5))
}

/// Returns the density of the normal distribution at each element.
fn normal_pdf<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let square = B::float_mul(x.clone(), x);
    let exp = B::float_exp(B::float_mul_scalar(square, Scalar::Float(-0.5)));
    B::float_mul_scalar(exp, Scalar::Float((2.0 * PI).sqrt().recip()))
}

fn sigmoid(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

fn log_sigmoid(x: f64) -> f64 {
    if x < 0.0 { x - x.exp().ln_1p() } else { -(-x).exp().ln_1p() }
}

#[rustfmt::skip]
pub fn rows() -> Vec<Row> {
    let any = || one(inputs());
    vec![
        row("relu", Exact, any(), run!(|t| t.float(B::relu(t.x(0))))),
        row("relu_backward", Exact, graded(), run!(|t| t.float(B::relu_backward(t.x(0), t.x(1))))),
        row("leaky_relu", Elementwise, slopes(), run!(|t| t.float(B::leaky_relu(t.x(0), Scalar::Float(t.attr))))),
        row("prelu", Elementwise, two(inputs(), moderate()), run!(
            |t| t.float(B::prelu(t.x(0), t.x(1))),
            = |u| u.map2(|x, slope| if x < 0.0 { x * slope } else { x })
        )),
        // 1 + erf cancels in the left tail on every backend.
        row("gelu", Contraction, one(moderate()), run!(
            |t| t.float(B::gelu(t.x(0))),
            = |u| u.float(B::float_mul(u.wide(0), normal_cdf::<B>(u.wide(0))))
        )),
        row("gelu_backward", Contraction, two(moderate(), moderate()), run!(
            |t| t.float(B::gelu_backward(t.x(0), t.x(1))),
            = |u| {
                let slope = B::float_mul(u.wide(0), normal_pdf::<B>(u.wide(0)));
                u.float(B::float_mul(B::float_add(normal_cdf::<B>(u.wide(0)), slope), u.wide(1)));
            }
        )),
        row("sigmoid", Elementwise, any(), run!(|t| t.float(B::sigmoid(t.x(0))), = |u| u.map(sigmoid))),
        row("sigmoid_backward", Elementwise, two(moderate(), moderate()), run!(|t| {
            t.float(B::sigmoid_backward(t.x(0), t.x(1)));
        }, = |u| u.map2(|y, gradient| y * (1.0 - y) * gradient))),
        row("hard_sigmoid", Contraction, slopes(), run!(|t| {
            t.float(B::hard_sigmoid(t.x(0), Scalar::Float(t.attr), Scalar::Float(0.5)));
        })),
        row("log_sigmoid", Elementwise, any(), run!(|t| t.float(B::log_sigmoid(t.x(0))), = |u| u.map(log_sigmoid))),
        row("log_sigmoid_backward", Elementwise, two(moderate(), moderate()), run!(
            |t| t.float(B::log_sigmoid_backward(t.x(0), t.x(1))),
            = |u| u.map2(|x, gradient| product_or_zero(gradient, sigmoid(-x)))
        )),
        row("softmax", Contraction, lanes(), run!(|t| t.float(B::softmax(t.x(0), t.attr)))),
        row("log_softmax", Contraction, lanes(), run!(|t| t.float(B::log_softmax(t.x(0), t.attr)))),
        row("softmin", Contraction, lanes(), run!(|t| t.float(B::softmin(t.x(0), t.attr)))),
    ]
}
