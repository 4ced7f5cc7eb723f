//! Gradients of ops that work element by element.

use super::{alike, along, inside, of, pair, positive, smooth};
use crate::compare::Class::Contraction;
use crate::harness::{Row, row};
use crate::run;
use crate::version::Autodiff;
use burn_backend::Scalar;
use burn_backend::ops::{ActivationOps, FloatTensorOps};

pub fn rows() -> Vec<Row> {
    [arithmetic(), functions(), activations()].into_iter().flatten().collect()
}

fn float(value: f64) -> Scalar {
    Scalar::Float(value)
}

#[rustfmt::skip]
fn arithmetic() -> Vec<Row> {
    let any = || pair(smooth(), smooth());
    vec![
        row("float_add", Contraction, any(), run!(|t| t.grad(|_, [x, y]| Autodiff::<B>::float_add(x, y)))),
        row("float_sub", Contraction, any(), run!(|t| t.grad(|_, [x, y]| Autodiff::<B>::float_sub(x, y)))),
        row("float_mul", Contraction, any(), run!(|t| t.grad(|_, [x, y]| Autodiff::<B>::float_mul(x, y)))),
        row("float_div", Contraction, any(), run!(|t| t.grad(|_, [x, y]| Autodiff::<B>::float_div(x, y)))),
        row("float_powf", Contraction, alike(positive(), smooth()), run!(|t| {
            t.grad(|_, [x, y]| Autodiff::<B>::float_powf(x, y));
        })),
        row("float_atan2", Contraction, any(), run!(|t| t.grad(|_, [x, y]| Autodiff::<B>::float_atan2(x, y)))),
        row("float_add_scalar", Contraction, of(smooth()), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::float_add_scalar(x, float(0.3)));
        })),
        row("float_mul_scalar", Contraction, of(smooth()), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::float_mul_scalar(x, float(0.3)));
        })),
        row("float_div_scalar", Contraction, of(smooth()), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::float_div_scalar(x, float(0.3)));
        })),
        row("float_remainder_scalar", Contraction, of(smooth()), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::float_remainder_scalar(x, float(0.7)));
        })),
        row("float_powf_scalar", Contraction, of(positive()), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::float_powf_scalar(x, float(1.7)));
        })),
        row("float_powi_scalar", Contraction, of(smooth()), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::float_powi_scalar(x, Scalar::Int(3)));
        })),
        row("float_sub_scalar", Contraction, of(smooth()), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::float_sub_scalar(x, float(0.3)));
        })),
        row("float_clamp_min", Contraction, of(smooth()), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::float_clamp_min(x, float(-1.0)));
        })),
        row("float_clamp_max", Contraction, of(smooth()), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::float_clamp_max(x, float(1.5)));
        })),
        row("float_clamp", Contraction, of(smooth()), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::float_clamp(x, float(-1.0), float(1.5)));
        })),
    ]
}

#[rustfmt::skip]
fn functions() -> Vec<Row> {
    let any = || of(smooth());
    vec![
        row("float_neg", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_neg(x)))),
        row("float_abs", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_abs(x)))),
        row("float_sign", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_sign(x)))),
        row("float_recip", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_recip(x)))),
        row("float_exp", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_exp(x)))),
        row("float_log", Contraction, of(positive()), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_log(x)))),
        row("float_log1p", Contraction, of(positive()), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_log1p(x)))),
        row("float_sqrt", Contraction, of(positive()), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_sqrt(x)))),
        row("float_cos", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_cos(x)))),
        row("float_sin", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_sin(x)))),
        row("float_tan", Contraction, of(inside()), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_tan(x)))),
        row("float_cosh", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_cosh(x)))),
        row("float_sinh", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_sinh(x)))),
        row("float_tanh", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_tanh(x)))),
        row("float_acos", Contraction, of(inside()), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_acos(x)))),
        row("float_asin", Contraction, of(inside()), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_asin(x)))),
        row("float_atan", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_atan(x)))),
        row("float_asinh", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_asinh(x)))),
        row("float_acosh", Contraction, of(positive()), run!(|t| t.grad(|_, [x]| {
            Autodiff::<B>::float_acosh(Autodiff::<B>::float_add_scalar(x, float(1.0)))
        }))),
        row("float_atanh", Contraction, of(inside()), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_atanh(x)))),
        row("float_erf", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_erf(x)))),
    ]
}

#[rustfmt::skip]
fn activations() -> Vec<Row> {
    let any = || of(smooth());
    vec![
        row("relu", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::relu(x)))),
        row("prelu", Contraction, alike(smooth(), smooth()), run!(|t| t.grad(|_, [x, y]| Autodiff::<B>::prelu(x, y)))),
        row("sigmoid", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::sigmoid(x)))),
        row("log_sigmoid", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::log_sigmoid(x)))),
        row("leaky_relu", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::leaky_relu(x, float(0.1))))),
        row("hard_sigmoid", Contraction, any(), run!(|t| {
            t.grad(|_, [x]| Autodiff::<B>::hard_sigmoid(x, float(0.2), float(0.5)));
        })),
        row("softmax", Contraction, along(), run!(|t| t.grad(|t, [x]| Autodiff::<B>::softmax(x, t.attr)))),
        row("softmin", Contraction, along(), run!(|t| t.grad(|t, [x]| Autodiff::<B>::softmin(x, t.attr)))),
        row("log_softmax", Contraction, along(), run!(|t| t.grad(|t, [x]| Autodiff::<B>::log_softmax(x, t.attr)))),
    ]
}
