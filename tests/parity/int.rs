//! Integer ops, element by element: creation, arithmetic, bits, comparisons.
//!
//! Arithmetic wraps: the reference computes in 64 bits and is wrapped to the type.

use crate::case::{Values, range};
use crate::compare::Class::Exact;
use crate::harness::{Row, row};
use crate::run;
use crate::strategies::*;
use burn_backend::ops::IntTensorOps;
use burn_backend::{BoolDType, Scalar, Shape};
use proptest::prelude::*;

const NATIVE: BoolDType = BoolDType::Native;

pub fn rows() -> Vec<Row> {
    [creation(), arithmetic(), bits(), comparisons()].into_iter().flatten().collect()
}

fn int(value: i128) -> Scalar {
    Scalar::Int(value as i64)
}

/// A shape and a value.
fn filled() -> Cases<(Vec<usize>, i128)> {
    (types(), shape(0), any_whole())
        .prop_map(|(types, dims, value)| {
            let value = value.of(types.1).min(i128::from(i64::MAX));
            case(types, vec![], (dims, value))
        })
        .sboxed()
}

/// An operand and a scalar of its type.
fn with_scalar(value: Gen<Whole>) -> Cases<i128> {
    one_shaped(value.clone(), shape(0), value)
        .prop_map(|case| {
            let scalar = case.attr.of(case.int).min(i128::from(i64::MAX));
            case.with(scalar)
        })
        .sboxed()
}

/// An operand and a scalar that is not zero.
fn divisible() -> Cases<i128> {
    with_scalar(below_31_bits())
        .prop_map(|case| {
            let scalar = if case.attr == 0 { 3 } else { case.attr };
            case.with(scalar)
        })
        .sboxed()
}

fn divisors() -> Cases<()> {
    two(below_31_bits(), below_31_bits())
        .prop_map(|mut case| {
            if let Values::Int(values) = &mut case.operands[1].values {
                values.iter_mut().filter(|v| **v == 0).for_each(|v| *v = 3);
            }
            case
        })
        .sboxed()
}

fn bounds() -> Cases<[i128; 2]> {
    one_shaped(any_whole(), shape(0), [digits(), digits()])
        .prop_map(|case| {
            let [a, b] = case.attr.map(|n| n.of(case.int));
            case.with([a.min(b), a.max(b)])
        })
        .sboxed()
}

/// Small counts, for exponents and shift distances. They exceed the width of every type.
fn counts() -> Gen<Whole> {
    prop_oneof![4 => 0..8i64, 2 => 0..70i64].prop_map(Whole::Small).sboxed()
}

fn with_count() -> Cases<i128> {
    one_shaped(any_whole(), shape(0), counts())
        .prop_map(|case| {
            let count = case.attr.of(case.int);
            case.with(count)
        })
        .sboxed()
}

/// An ascending range with a step, whose numbers the type can represent.
fn ranges() -> Cases<(std::ops::Range<i64>, usize)> {
    (types(), 0..40i64, 0..40i64, 1..6usize)
        .prop_map(|(types, start, length, step)| {
            let start = if range(types.1).0 < 0 { start - 20 } else { start };
            case(types, vec![], (start..start + length, step))
        })
        .sboxed()
}

#[rustfmt::skip]
fn creation() -> Vec<Row> {
    vec![
        row("int_from_data", Exact, one(any_whole()), run!(|t| t.int(t.i(0)))),
        row("int_into_data", Exact, one(any_whole()), run!(|t| t.int(t.i(0)))),
        row("int_to_device", Exact, one(any_whole()), run!(|t| t.int(B::int_to_device(t.i(0), &t.device)))),
        row("int_empty", Exact, filled(), run!(|t| {
            let x = B::int_empty(Shape::from(t.attr.0.clone()), &t.device, t.int_type());
            // Only shape and type of the result are defined.
            t.int(B::bitwise_and_scalar(x, Scalar::Int(0)));
        })),
        row("int_zeros", Exact, filled(), run!(|t| {
            t.int(B::int_zeros(Shape::from(t.attr.0.clone()), &t.device, t.int_type()));
        })),
        row("int_ones", Exact, filled(), run!(|t| {
            t.int(B::int_ones(Shape::from(t.attr.0.clone()), &t.device, t.int_type()));
        })),
        row("int_full", Exact, filled(), run!(|t| {
            t.int(B::int_full(Shape::from(t.attr.0.clone()), int(t.attr.1), &t.device, t.int_type()));
        })),
        row("int_arange", Exact, ranges(), run!(|t| t.int(B::int_arange(t.attr.0.clone(), &t.device, t.int_type())))),
        row("int_arange_step", Exact, ranges(), run!(|t| {
            t.int(B::int_arange_step(t.attr.0.clone(), t.attr.1, &t.device, t.int_type()));
        })),
    ]
}

#[rustfmt::skip]
fn arithmetic() -> Vec<Row> {
    let any = below_31_bits;
    vec![
        row("int_add", Exact, two(any(), any()), run!(|t| t.int(B::int_add(t.i(0), t.i(1))))),
        row("int_sub", Exact, two(any(), any()), run!(|t| t.int(B::int_sub(t.i(0), t.i(1))))),
        row("int_mul", Exact, two(any(), any()), run!(|t| t.int(B::int_mul(t.i(0), t.i(1))))),
        row("int_div", Exact, divisors(), run!(|t| t.int(B::int_div(t.i(0), t.i(1))))),
        row("int_remainder", Exact, divisors(), run!(
            |t| t.int(B::int_remainder(t.i(0), t.i(1))),
            // burn-ndarray's version does not broadcast.
            = |u| u.map2_int(|a, b| a - b * (a as f64 / b as f64).floor() as i128)
        )),
        row("int_add_scalar", Exact, with_scalar(any()), run!(|t| t.int(B::int_add_scalar(t.i(0), int(t.attr))))),
        row("int_sub_scalar", Exact, with_scalar(any()), run!(|t| t.int(B::int_sub_scalar(t.i(0), int(t.attr))))),
        row("int_mul_scalar", Exact, with_scalar(any()), run!(|t| t.int(B::int_mul_scalar(t.i(0), int(t.attr))))),
        row("int_div_scalar", Exact, divisible(), run!(|t| t.int(B::int_div_scalar(t.i(0), int(t.attr))))),
        row("int_remainder_scalar", Exact, divisible(), run!(|t| {
            t.int(B::int_remainder_scalar(t.i(0), int(t.attr)));
        })),
        row("int_neg", Exact, one(any()), run!(|t| t.int(B::int_neg(t.i(0))))),
        row("int_abs", Exact, one(any()), run!(|t| t.int(B::int_abs(t.i(0))))),
        row("int_sign", Exact, one(any()), run!(|t| t.int(B::int_sign(t.i(0))))),
        row("int_clamp", Exact, bounds(), run!(|t| t.int(B::int_clamp(t.i(0), int(t.attr[0]), int(t.attr[1]))))),
        row("int_clamp_min", Exact, bounds(), run!(|t| t.int(B::int_clamp_min(t.i(0), int(t.attr[0]))))),
        row("int_clamp_max", Exact, bounds(), run!(|t| t.int(B::int_clamp_max(t.i(0), int(t.attr[1]))))),
        // burn-ndarray panics in a debug build where a power overflows.
        row("int_powi", Exact, two(any_whole(), counts()), run!(
            |t| t.int(B::int_powi(t.i(0), t.i(1))),
            = |u| u.map2_int(|a, b| i128::from((a as i64).wrapping_pow(b as u32)))
        )),
        row("int_powi_scalar", Exact, with_count(), run!(
            |t| t.int(B::int_powi_scalar(t.i(0), int(t.attr))),
            = |u| u.map2_attr(|a, n| i128::from((a as i64).wrapping_pow(n as u32)))
        )),
        row("int_powi_scalar_impl", Exact, with_count(), run!(
            |t| t.int(B::int_powi_scalar_impl(t.i(0), int(t.attr))),
            = |u| u.map2_attr(|a, n| i128::from((a as i64).wrapping_pow(n as u32)))
        )),
    ]
}

/// A shift beyond the type's width leaves only the sign; burn-ndarray panics there.
fn left(value: i128, by: i128) -> i128 {
    if by < 64 { value << by } else { 0 }
}

/// Compared with plain loops, since burn-ndarray reads 64-bit integers as signed ones.
#[rustfmt::skip]
fn bits() -> Vec<Row> {
    let any = || two(any_whole(), any_whole());
    let scalar = || with_scalar(any_whole());
    vec![
        row("bitwise_and", Exact, any(), run!(
            |t| t.int(B::bitwise_and(t.i(0), t.i(1))),
            = |u| u.map2_int(|a, b| a & b)
        )),
        row("bitwise_or", Exact, any(), run!(
            |t| t.int(B::bitwise_or(t.i(0), t.i(1))),
            = |u| u.map2_int(|a, b| a | b)
        )),
        row("bitwise_xor", Exact, any(), run!(
            |t| t.int(B::bitwise_xor(t.i(0), t.i(1))),
            = |u| u.map2_int(|a, b| a ^ b)
        )),
        row("bitwise_not", Exact, one(any_whole()), run!(
            |t| t.int(B::bitwise_not(t.i(0))),
            = |u| u.map_int(|a| !a)
        )),
        row("bitwise_and_scalar", Exact, scalar(), run!(
            |t| t.int(B::bitwise_and_scalar(t.i(0), int(t.attr))),
            = |u| u.map2_attr(|a, b| a & b)
        )),
        row("bitwise_or_scalar", Exact, scalar(), run!(
            |t| t.int(B::bitwise_or_scalar(t.i(0), int(t.attr))),
            = |u| u.map2_attr(|a, b| a | b)
        )),
        row("bitwise_xor_scalar", Exact, scalar(), run!(
            |t| t.int(B::bitwise_xor_scalar(t.i(0), int(t.attr))),
            = |u| u.map2_attr(|a, b| a ^ b)
        )),
        row("bitwise_left_shift", Exact, two(any_whole(), counts()), run!(
            |t| t.int(B::bitwise_left_shift(t.i(0), t.i(1))),
            = |u| u.map2_int(left)
        )),
        row("bitwise_right_shift", Exact, two(any_whole(), counts()), run!(
            |t| t.int(B::bitwise_right_shift(t.i(0), t.i(1))),
            = |u| u.map2_int(|a, b| a >> b)
        )),
        row("bitwise_left_shift_scalar", Exact, with_count(), run!(
            |t| t.int(B::bitwise_left_shift_scalar(t.i(0), int(t.attr))),
            = |u| u.map2_attr(left)
        )),
        row("bitwise_right_shift_scalar", Exact, with_count(), run!(
            |t| t.int(B::bitwise_right_shift_scalar(t.i(0), int(t.attr))),
            = |u| u.map2_attr(|a, n| a >> n)
        )),
    ]
}

#[rustfmt::skip]
fn comparisons() -> Vec<Row> {
    let any = || two(any_whole(), any_whole());
    let scalar = || with_scalar(any_whole());
    vec![
        row("int_equal", Exact, any(), run!(|t| t.bool(B::int_equal(t.i(0), t.i(1), NATIVE)))),
        row("int_not_equal", Exact, any(), run!(|t| t.bool(B::int_not_equal(t.i(0), t.i(1), NATIVE)))),
        row("int_greater", Exact, any(), run!(|t| t.bool(B::int_greater(t.i(0), t.i(1), NATIVE)))),
        row("int_greater_equal", Exact, any(), run!(|t| t.bool(B::int_greater_equal(t.i(0), t.i(1), NATIVE)))),
        row("int_lower", Exact, any(), run!(|t| t.bool(B::int_lower(t.i(0), t.i(1), NATIVE)))),
        row("int_lower_equal", Exact, any(), run!(|t| t.bool(B::int_lower_equal(t.i(0), t.i(1), NATIVE)))),
        row("int_equal_elem", Exact, scalar(), run!(|t| t.bool(B::int_equal_elem(t.i(0), int(t.attr), NATIVE)))),
        row("int_not_equal_elem", Exact, scalar(), run!(|t| {
            t.bool(B::int_not_equal_elem(t.i(0), int(t.attr), NATIVE));
        })),
        row("int_greater_elem", Exact, scalar(), run!(|t| t.bool(B::int_greater_elem(t.i(0), int(t.attr), NATIVE)))),
        row("int_greater_equal_elem", Exact, scalar(), run!(|t| {
            t.bool(B::int_greater_equal_elem(t.i(0), int(t.attr), NATIVE));
        })),
        row("int_lower_elem", Exact, scalar(), run!(|t| t.bool(B::int_lower_elem(t.i(0), int(t.attr), NATIVE)))),
        row("int_lower_equal_elem", Exact, scalar(), run!(|t| {
            t.bool(B::int_lower_equal_elem(t.i(0), int(t.attr), NATIVE));
        })),
    ]
}
