//! Conversions between all element types.
//!
//! Floats convert to integers as Rust's `as` does: they are truncated and saturate, and NaN becomes 0. Integers wrap.

use crate::case::{FLOATS, INTS, range};
use crate::compare::Class::{Elementwise, Exact};
use crate::harness::{Row, row};
use crate::run;
use crate::strategies::*;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{FloatDType, IntDType};
use proptest::sample::select;

fn to_float<P: Pool>(value: Gen<P>) -> Cases<FloatDType> {
    one_shaped(value, shape(0), select(FLOATS.to_vec()))
}

fn to_int<P: Pool>(value: Gen<P>) -> Cases<IntDType> {
    one_shaped(value, shape(0), select(INTS.to_vec()))
}

fn saturated(value: f64, dtype: IntDType) -> i128 {
    let (lowest, highest) = range(dtype);
    (value as i128).clamp(lowest, highest)
}

#[rustfmt::skip]
pub fn rows() -> Vec<Row> {
    vec![
        row("float_cast", Exact, to_float(any_float()), run!(
            |t| t.float_as(t.attr, B::float_cast(t.x(0), t.attr)),
            // In f64, from which every float type is rounded once.
            = |u| u.float_as(u.attr, u.load_as(FloatDType::F64, &u.floats(0), u.dims(0)))
        )),
        row("float_into_int", Exact, to_int(any_float()), run!(
            |t| t.int_as(t.attr, B::float_into_int(t.x(0), t.attr)),
            = |u| {
                let values: Vec<_> = u.floats(0).into_iter().map(|v| saturated(v, u.attr)).collect();
                u.int_as(u.attr, u.load_int_as(IntDType::U64, &values, u.dims(0)));
            }
        )),
        row("int_cast", Exact, to_int(any_whole()), run!(
            |t| t.int_as(t.attr, B::int_cast(t.i(0), t.attr)),
            = |u| u.int_as(u.attr, u.load_int_as(IntDType::U64, &u.wholes(0), u.dims(0)))
        )),
        row("int_into_float", Elementwise, to_float(any_whole()), run!(|t| {
            let dtype = t.float_type_for(t.attr);
            t.float_as(t.attr, B::int_into_float(t.i(0), dtype));
        })),
        row("bool_into_int", Exact, to_int(any_bool()), run!(|t| {
            let dtype = t.int_type_for(t.attr);
            t.int_as(t.attr, B::bool_into_int(t.b(0), dtype));
        })),
        row("bool_into_float", Exact, to_float(any_bool()), run!(|t| {
            let dtype = t.float_type_for(t.attr);
            t.float_as(t.attr, B::bool_into_float(t.b(0), dtype));
        })),
    ]
}
