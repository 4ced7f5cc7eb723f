//! Float ops, element by element: creation, arithmetic, functions, comparisons.

use crate::compare::Class::{Elementwise, Exact};
use crate::harness::{Row, row};
use crate::run;
use crate::strategies::*;
use burn_backend::ops::FloatTensorOps;
use burn_backend::{BoolDType, Scalar, Shape};
use proptest::prelude::*;

const NATIVE: BoolDType = BoolDType::Native;

pub fn rows() -> Vec<Row> {
    [creation(), arithmetic(), functions(), rounding(), comparisons()].into_iter().flatten().collect()
}

fn float(value: f64) -> Scalar {
    Scalar::Float(value)
}

/// A shape and a value of which only the types count.
fn filled() -> Cases<(Vec<usize>, f64)> {
    (types(), shape(0), any_float())
        .prop_map(|(types, dims, value)| {
            let value = crate::case::rounded(value, types.0);
            case(types, vec![], (dims, value))
        })
        .sboxed()
}

#[rustfmt::skip]
fn creation() -> Vec<Row> {
    vec![
        row("float_from_data", Exact, one(any_float()), run!(|t| t.float(t.x(0)))),
        row("float_into_data", Exact, one(any_float()), run!(|t| t.float(t.x(0)))),
        row("float_to_device", Exact, one(any_float()), run!(|t| t.float(B::float_to_device(t.x(0), &t.device)))),
        row("float_detach", Exact, one(any_float()), run!(|t| t.float(B::float_detach(t.x(0))))),
        row("float_set_require_grad", Exact, one(any_float()), run!(|t| {
            t.float(B::float_set_require_grad(t.x(0), true));
        })),
        row("float_is_require_grad", Exact, one(any_float()), run!(|t| {
            let x = t.x(0);
            assert!(!B::float_is_require_grad(&x));
            t.float(x);
        })),
        row("float_empty", Exact, filled(), run!(|t| {
            let x = B::float_empty(Shape::from(t.attr.0.clone()), &t.device, t.float_type());
            let zeros = B::float_zeros(Shape::from(t.attr.0.clone()), &t.device, t.float_type());
            // Only shape and type of the result are defined.
            t.float(B::float_mask_where(x.clone(), B::float_equal(zeros.clone(), zeros.clone(), NATIVE), zeros));
        })),
        row("float_zeros", Exact, filled(), run!(|t| {
            t.float(B::float_zeros(Shape::from(t.attr.0.clone()), &t.device, t.float_type()));
        })),
        row("float_ones", Exact, filled(), run!(|t| {
            t.float(B::float_ones(Shape::from(t.attr.0.clone()), &t.device, t.float_type()));
        })),
        row("float_full", Exact, filled(), run!(|t| {
            t.float(B::float_full(Shape::from(t.attr.0.clone()), float(t.attr.1), &t.device, t.float_type()));
        })),
    ]
}

/// An exponent: an integer, a half, or a special value.
fn exponent() -> Gen<f64> {
    prop_oneof![
        4 => (-6..=6i32).prop_map(f64::from),
        3 => (-12..=12i32).prop_map(|halves| f64::from(halves) / 2.0),
        2 => moderate(),
        1 => any_float(),
    ]
    .sboxed()
}

/// Integers that f32 represents exactly: as everywhere in Burn, the power is computed in floats.
fn powers() -> Gen<Whole> {
    prop_oneof![4 => -9..=9i64, 1 => -0x100_0000..=0x100_0000i64].prop_map(Whole::Small).sboxed()
}

fn whole_exponent() -> Gen<i64> {
    prop_oneof![6 => -5..=5i64, 1 => -40..=40i64].sboxed()
}

fn bounds() -> Cases<[f64; 2]> {
    one_shaped(any_float(), shape(0), [moderate(), moderate()])
        .prop_map(|case| {
            let [a, b] = case.attr;
            case.with([a.min(b), a.max(b)])
        })
        .sboxed()
}

/// Any float that is not subnormal: XLA's code does not compute with subnormals, and does not always treat them as zeros.
fn normal() -> Gen<f64> {
    at_least(f64::from(f32::MIN_POSITIVE))
}

/// Any float except those with a smaller magnitude.
fn at_least(size: f64) -> Gen<f64> {
    any_float().prop_map(move |x| if x.abs() < size { 0.0 } else { x }).sboxed()
}

/// Operands whose remainder is not subnormal.
pub fn divisible() -> Gen<f64> {
    at_least(1e-20)
}

/// Returns the remainder with the divisor's sign. It is exact; burn-ndarray's is `a - floor(a / b) * b` with its roundings.
fn remainder(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

#[rustfmt::skip]
fn arithmetic() -> Vec<Row> {
    let any = any_float;
    vec![
        row("float_add", Elementwise, two(any(), any()), run!(|t| t.float(B::float_add(t.x(0), t.x(1))))),
        row("float_sub", Elementwise, two(any(), any()), run!(|t| t.float(B::float_sub(t.x(0), t.x(1))))),
        row("float_mul", Elementwise, two(any(), any()), run!(|t| t.float(B::float_mul(t.x(0), t.x(1))))),
        row("float_div", Elementwise, two(any(), any()), run!(|t| t.float(B::float_div(t.x(0), t.x(1))))),
        row("float_remainder", Elementwise, two(divisible(), divisible()), run!(
            |t| t.float(B::float_remainder(t.x(0), t.x(1))),
            = |u| u.map2(remainder)
        )),
        row("float_add_scalar", Elementwise, with_float_scalar(any(), any()), run!(|t| {
            t.float(B::float_add_scalar(t.x(0), float(t.attr)));
        })),
        row("float_sub_scalar", Elementwise, with_float_scalar(any(), any()), run!(|t| {
            t.float(B::float_sub_scalar(t.x(0), float(t.attr)));
        })),
        row("float_mul_scalar", Elementwise, with_float_scalar(any(), any()), run!(|t| {
            t.float(B::float_mul_scalar(t.x(0), float(t.attr)));
        })),
        row("float_div_scalar", Elementwise, with_float_scalar(any(), any()), run!(|t| {
            t.float(B::float_div_scalar(t.x(0), float(t.attr)));
        })),
        row("float_remainder_scalar", Elementwise, with_float_scalar(divisible(), divisible()), run!(
            |t| t.float(B::float_remainder_scalar(t.x(0), float(t.attr))),
            = |u| u.map_with(remainder)
        )),
        row("float_neg", Exact, one(any()), run!(|t| t.float(B::float_neg(t.x(0))))),
        row("float_abs", Exact, one(any()), run!(|t| t.float(B::float_abs(t.x(0))))),
        row("float_sign", Exact, one(any()), run!(
            |t| t.float(B::float_sign(t.x(0))),
            = |u| u.map(|x| if x == 0.0 { x } else { x.signum() })
        )),
        row("float_recip", Elementwise, one(any()), run!(|t| t.float(B::float_recip(t.x(0))))),
        row("float_clamp", Exact, bounds(), run!(|t| {
            t.float(B::float_clamp(t.x(0), float(t.attr[0]), float(t.attr[1])));
        })),
        row("float_clamp_min", Exact, bounds(), run!(|t| t.float(B::float_clamp_min(t.x(0), float(t.attr[0]))))),
        row("float_clamp_max", Exact, bounds(), run!(|t| t.float(B::float_clamp_max(t.x(0), float(t.attr[1]))))),
        row("float_powf", Elementwise, two(normal(), exponent()), run!(
            |t| t.float(B::float_powf(t.x(0), t.x(1))),
            = |u| u.map2(f64::powf)
        )),
        row("float_powi", Elementwise, two(any(), powers()), run!(
            |t| t.float(B::float_powi(t.x(0), t.i(1))),
            = |u| u.map2(f64::powf)
        )),
        row("float_powf_scalar", Elementwise, with_float_scalar(normal(), exponent()), run!(
            |t| t.float(B::float_powf_scalar(t.x(0), float(t.attr))),
            = |u| u.map_with(f64::powf)
        )),
        row("float_powf_scalar_impl", Elementwise, with_float_scalar(normal(), exponent()), run!(
            |t| t.float(B::float_powf_scalar_impl(t.x(0), float(t.attr))),
            = |u| u.map_with(f64::powf)
        )),
        row("float_powi_scalar", Elementwise, one_shaped(any(), shape(0), whole_exponent()), run!(
            |t| t.float(B::float_powi_scalar(t.x(0), Scalar::Int(t.attr))),
            = |u| u.map_with(|x, n| x.powi(n as i32))
        )),
        row("float_powi_scalar_impl", Elementwise, one_shaped(any(), shape(0), whole_exponent()), run!(
            |t| t.float(B::float_powi_scalar_impl(t.x(0), Scalar::Int(t.attr))),
            = |u| u.map_with(|x, n| x.powi(n as i32))
        )),
        row("float_atan2", Elementwise, two(any(), any()), run!(
            |t| t.float(B::float_atan2(t.x(0), t.x(1))),
            = |u| u.map2(f64::atan2)
        )),
    ]
}

#[rustfmt::skip]
fn functions() -> Vec<Row> {
    let any = || one(any_float());
    vec![
        row("float_exp", Elementwise, any(), run!(|t| t.float(B::float_exp(t.x(0))))),
        row("float_log", Elementwise, one(normal()), run!(|t| t.float(B::float_log(t.x(0))))),
        row("float_log1p", Elementwise, any(), run!(|t| t.float(B::float_log1p(t.x(0))))),
        row("float_sqrt", Elementwise, any(), run!(|t| t.float(B::float_sqrt(t.x(0))))),
        row("float_cos", Elementwise, any(), run!(|t| t.float(B::float_cos(t.x(0))))),
        row("float_sin", Elementwise, any(), run!(|t| t.float(B::float_sin(t.x(0))))),
        row("float_tan", Elementwise, any(), run!(|t| t.float(B::float_tan(t.x(0))))),
        row("float_cosh", Elementwise, any(), run!(|t| t.float(B::float_cosh(t.x(0))))),
        row("float_sinh", Elementwise, any(), run!(|t| t.float(B::float_sinh(t.x(0))))),
        row("float_tanh", Elementwise, any(), run!(|t| t.float(B::float_tanh(t.x(0))))),
        row("float_acos", Elementwise, any(), run!(|t| t.float(B::float_acos(t.x(0))))),
        row("float_acosh", Elementwise, any(), run!(|t| t.float(B::float_acosh(t.x(0))))),
        row("float_asin", Elementwise, any(), run!(|t| t.float(B::float_asin(t.x(0))))),
        row("float_asinh", Elementwise, any(), run!(|t| t.float(B::float_asinh(t.x(0))))),
        row("float_atan", Elementwise, any(), run!(|t| t.float(B::float_atan(t.x(0))))),
        row("float_atanh", Elementwise, any(), run!(|t| t.float(B::float_atanh(t.x(0))))),
        row("float_erf", Elementwise, any(), run!(|t| t.float(B::float_erf(t.x(0))))),
    ]
}

#[rustfmt::skip]
fn rounding() -> Vec<Row> {
    let any = || one(any_float());
    vec![
        row("float_round", Exact, any(), run!(|t| t.float(B::float_round(t.x(0))))),
        row("float_floor", Exact, any(), run!(|t| t.float(B::float_floor(t.x(0))))),
        row("float_ceil", Exact, any(), run!(|t| t.float(B::float_ceil(t.x(0))))),
        row("float_trunc", Exact, any(), run!(|t| t.float(B::float_trunc(t.x(0))))),
    ]
}

#[rustfmt::skip]
fn comparisons() -> Vec<Row> {
    let any = || two(any_float(), any_float());
    let scalar = || with_float_scalar(any_float(), any_float());
    vec![
        row("float_equal", Exact, any(), run!(|t| t.bool(B::float_equal(t.x(0), t.x(1), NATIVE)))),
        row("float_not_equal", Exact, any(), run!(|t| t.bool(B::float_not_equal(t.x(0), t.x(1), NATIVE)))),
        row("float_greater", Exact, any(), run!(|t| t.bool(B::float_greater(t.x(0), t.x(1), NATIVE)))),
        row("float_greater_equal", Exact, any(), run!(|t| t.bool(B::float_greater_equal(t.x(0), t.x(1), NATIVE)))),
        row("float_lower", Exact, any(), run!(|t| t.bool(B::float_lower(t.x(0), t.x(1), NATIVE)))),
        row("float_lower_equal", Exact, any(), run!(|t| t.bool(B::float_lower_equal(t.x(0), t.x(1), NATIVE)))),
        row("float_equal_elem", Exact, scalar(), run!(|t| {
            t.bool(B::float_equal_elem(t.x(0), float(t.attr), NATIVE));
        })),
        row("float_not_equal_elem", Exact, scalar(), run!(|t| {
            t.bool(B::float_not_equal_elem(t.x(0), float(t.attr), NATIVE));
        })),
        row("float_greater_elem", Exact, scalar(), run!(|t| {
            t.bool(B::float_greater_elem(t.x(0), float(t.attr), NATIVE));
        })),
        row("float_greater_equal_elem", Exact, scalar(), run!(|t| {
            t.bool(B::float_greater_equal_elem(t.x(0), float(t.attr), NATIVE));
        })),
        row("float_lower_elem", Exact, scalar(), run!(|t| {
            t.bool(B::float_lower_elem(t.x(0), float(t.attr), NATIVE));
        })),
        row("float_lower_equal_elem", Exact, scalar(), run!(|t| {
            t.bool(B::float_lower_equal_elem(t.x(0), float(t.attr), NATIVE));
        })),
        row("float_is_nan", Exact, one(any_float()), run!(|t| t.bool(B::float_is_nan(t.x(0), NATIVE)))),
        row("float_is_inf", Exact, one(any_float()), run!(|t| t.bool(B::float_is_inf(t.x(0), NATIVE)))),
    ]
}
