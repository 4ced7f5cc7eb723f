//! The rows of methods that Burn 0.23 has and 0.22 has not, or had in another form.

use crate::compare::Class::{Elementwise, Exact};
use crate::float::divisible;
use crate::harness::{Row, row};
use crate::index::{UPDATES, gathers, nd, selects};
use crate::run;
use crate::since_0_22::updated;
use crate::strategies::*;
use burn_backend::Scalar;
use burn_backend::ops::*;

pub fn rows() -> Vec<Row> {
    [remainders(), updates()].into_iter().flatten().collect()
}

#[rustfmt::skip]
fn remainders() -> Vec<Row> {
    vec![
        row("float_fmod", Elementwise, two(divisible(), divisible()), run!(
            |t| t.float(B::float_fmod(t.x(0), t.x(1))),
            = |u| u.map2(|x, y| x % y)
        )),
        row("float_fmod_scalar", Elementwise, with_float_scalar(divisible(), divisible()), run!(
            |t| t.float(B::float_fmod_scalar(t.x(0), Scalar::Float(t.attr))),
            = |u| u.map_with(|x, y| x % y)
        )),
    ]
}

#[rustfmt::skip]
fn updates() -> Vec<Row> {
    vec![
        row("bool_scatter", Exact, updated(gathers(any_bool()), false), run!(|t| {
            t.bool(B::bool_scatter(t.attr.0, t.b(0), t.at(1), t.b(2), t.attr.1));
        })),
        row("bool_select_assign", Exact, updated(selects(any_bool()), true), run!(|t| {
            t.bool(B::bool_select_assign(t.b(0), t.attr.0, t.at(1), t.b(2), t.attr.1));
        })),
        row("bool_gather_nd", Exact, nd(any_bool(), &UPDATES[..2]), run!(|t| {
            t.bool(B::bool_gather_nd(t.b(0), t.at(1)));
        })),
        row("bool_scatter_nd", Exact, nd(any_bool(), UPDATES), run!(|t| {
            t.bool(B::bool_scatter_nd(t.b(0), t.at(1), t.b(2), t.attr));
        })),
    ]
}
