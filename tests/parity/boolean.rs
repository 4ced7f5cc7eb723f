//! Bool ops, element by element.

use crate::case::Values;
use crate::compare::Class::Exact;
use crate::harness::{Row, row};
use crate::host::coordinates;
use crate::run;
use crate::strategies::*;
use burn_backend::ops::BoolTensorOps;
use burn_backend::{BoolDType, IntDType, Scalar, Shape, read_sync};
use proptest::prelude::*;

const NATIVE: BoolDType = BoolDType::Native;

/// A shape.
fn shaped() -> Cases<Vec<usize>> {
    (types(), shape(0)).prop_map(|(types, dims)| case(types, vec![], dims)).sboxed()
}

pub fn rows() -> Vec<Row> {
    let pair = || two(any_bool(), any_bool());
    let scalar = || one_shaped(any_bool(), shape(0), any::<bool>());
    vec![
        row("bool_from_data", Exact, one(any_bool()), run!(|t| t.bool(t.b(0)))),
        row("bool_into_data", Exact, one(any_bool()), run!(|t| t.bool(t.b(0)))),
        row("bool_to_device", Exact, one(any_bool()), run!(|t| t.bool(B::bool_to_device(t.b(0), &t.device)))),
        row(
            "bool_empty",
            Exact,
            shaped(),
            run!(|t| {
                let x = B::bool_empty(Shape::from(t.attr.clone()), &t.device, NATIVE);
                // Only shape and type of the result are defined.
                t.bool(B::bool_equal(x.clone(), x));
            }),
        ),
        row(
            "bool_zeros",
            Exact,
            shaped(),
            run!(|t| {
                t.bool(B::bool_zeros(Shape::from(t.attr.clone()), &t.device, NATIVE));
            }),
        ),
        row(
            "bool_ones",
            Exact,
            shaped(),
            run!(|t| {
                t.bool(B::bool_ones(Shape::from(t.attr.clone()), &t.device, NATIVE));
            }),
        ),
        row("bool_not", Exact, one(any_bool()), run!(|t| t.bool(B::bool_not(t.b(0))))),
        row("bool_and", Exact, pair(), run!(|t| t.bool(B::bool_and(t.b(0), t.b(1))))),
        row("bool_or", Exact, pair(), run!(|t| t.bool(B::bool_or(t.b(0), t.b(1))))),
        row("bool_xor", Exact, pair(), run!(|t| t.bool(B::bool_xor(t.b(0), t.b(1))))),
        row("bool_equal", Exact, pair(), run!(|t| t.bool(B::bool_equal(t.b(0), t.b(1))))),
        row("bool_not_equal", Exact, pair(), run!(|t| t.bool(B::bool_not_equal(t.b(0), t.b(1))))),
        row("bool_equal_elem", Exact, scalar(), run!(|t| t.bool(B::bool_equal_elem(t.b(0), Scalar::Bool(t.attr))))),
        row(
            "bool_not_equal_elem",
            Exact,
            scalar(),
            run!(|t| {
                t.bool(B::bool_not_equal_elem(t.b(0), Scalar::Bool(t.attr)));
            }),
        ),
        row(
            "bool_argwhere",
            Exact,
            one_shaped(any_bool(), shape(1), Just(())),
            run!(
                |t| {
                    let found = B::bool_argwhere(t.b(0), IntDType::I32);
                    t.int_as(IntDType::I32, read_sync(found));
                },
                = |u| {
                    let Values::Bool(values) = u.values(0) else { panic!("a bool operand") };
                    let places = (0..values.len()).filter(|&k| values[k]);
                    let places: Vec<_> = places.flat_map(|k| coordinates(k, u.dims(0))).collect();
                    let dims = [places.len() / u.dims(0).len(), u.dims(0).len()];
                    u.int_as(IntDType::I32, u.load_int(&places, &dims));
                }
            ),
        ),
    ]
}
