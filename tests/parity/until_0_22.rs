//! The rows of methods that Burn 0.23 has not, or has in another form.

use crate::compare::Class::Exact;
use crate::harness::{Row, row};
use crate::index::{gathers, selects};
use crate::run;
use crate::strategies::any_bool;
use burn_backend::ops::BoolTensorOps;

#[rustfmt::skip]
pub fn rows() -> Vec<Row> {
    vec![
        row("bool_scatter_or", Exact, gathers(any_bool()), run!(|t| {
            t.bool(B::bool_scatter_or(t.attr, t.b(0), t.at(1), t.b(2)));
        })),
        row("bool_select_or", Exact, selects(any_bool()), run!(|t| {
            t.bool(B::bool_select_or(t.b(0), t.attr, t.at(1), t.b(2)));
        })),
    ]
}
