//! Reductions, running reductions and sorts of floats.

use super::{Over, factors, groups, some, some_dim, sorts};
use crate::compare::Class::{Contraction, Elementwise, Exact};
use crate::harness::{Row, row};
use crate::run;
use crate::strategies::*;
use burn_backend::ops::FloatTensorOps;
use burn_backend::{BoolDType, IntDType};

const NATIVE: BoolDType = BoolDType::Native;

pub fn rows() -> Vec<Row> {
    [float_sums(), float_extremes(), float_scans(), float_order()].into_iter().flatten().collect()
}

#[rustfmt::skip]
fn float_sums() -> Vec<Row> {
    let any = any_float;
    vec![
        row("float_sum", Contraction, one(summable()), run!(|t| t.float(B::float_sum(t.x(0))))),
        row("float_mean", Contraction, some(summable()), run!(|t| t.float(B::float_mean(t.x(0))))),
        row("float_prod", Contraction, factors(multipliable()), run!(
            |t| t.float(B::float_prod(t.x(0))),
            = |u| {
                // Burn's default is the exponential of a sum of logarithms.
                let product = u.floats(0).iter().product();
                u.float(u.load(&[product], &[1]));
            }
        )),
        row("float_sum_dim", Contraction, one_dim(summable(), shape(1)), run!(|t| {
            t.float(B::float_sum_dim(t.x(0), t.attr));
        })),
        row("float_mean_dim", Contraction, some_dim(summable()), run!(|t| t.float(B::float_mean_dim(t.x(0), t.attr)))),
        row("float_prod_dim", Elementwise, some_dim(multipliable()), run!(
            |t| t.float(B::float_prod_dim(t.x(0), t.attr)),
            = |u| {
                let (groups, dims) = groups(u.dims(0), Over::Dim(u.attr));
                let values = u.floats(0);
                let products: Vec<f64> = groups.iter().map(|g| g.iter().map(|&k| values[k]).product()).collect();
                u.float(u.load(&products, &dims));
            }
        )),
        row("float_any", Exact, one(any()), run!(|t| t.bool(B::float_any(t.x(0), NATIVE)))),
        row("float_all", Exact, one(any()), run!(|t| t.bool(B::float_all(t.x(0), NATIVE)))),
        row("float_any_dim", Exact, some_dim(any()), run!(|t| t.bool(B::float_any_dim(t.x(0), t.attr, NATIVE)))),
        row("float_all_dim", Exact, some_dim(any()), run!(|t| t.bool(B::float_all_dim(t.x(0), t.attr, NATIVE)))),
    ]
}

#[rustfmt::skip]
fn float_extremes() -> Vec<Row> {
    let any = any_float;
    vec![
        row("float_max", Exact, some(any()), run!(
            |t| t.float(B::float_max(t.x(0))),
            = |u| if u.has_nan(0) { u.law_extreme(Over::All, true) } else { u.float(B::float_max(u.x(0))) }
        )),
        row("float_min", Exact, some(any()), run!(
            |t| t.float(B::float_min(t.x(0))),
            = |u| if u.has_nan(0) { u.law_extreme(Over::All, false) } else { u.float(B::float_min(u.x(0))) }
        )),
        row("float_max_dim", Exact, some_dim(any()), run!(
            |t| t.float(B::float_max_dim(t.x(0), t.attr)),
            = |u| if u.has_nan(0) {
                u.law_extreme(Over::Dim(u.attr), true);
            } else {
                u.float(B::float_max_dim(u.x(0), u.attr));
            }
        )),
        row("float_min_dim", Exact, some_dim(any()), run!(
            |t| t.float(B::float_min_dim(t.x(0), t.attr)),
            = |u| if u.has_nan(0) {
                u.law_extreme(Over::Dim(u.attr), false);
            } else {
                u.float(B::float_min_dim(u.x(0), u.attr));
            }
        )),
        // Without NaN: the reference's result then depends on the position of the NaN.
        row("float_max_abs", Exact, some(moderate()), run!(|t| t.float(B::float_max_abs(t.x(0))))),
        row("float_max_abs_dim", Exact, some_dim(moderate()), run!(|t| {
            t.float(B::float_max_abs_dim(t.x(0), t.attr));
        })),
        row("float_argmax", Exact, some_dim(any()), run!(
            |t| t.int_as(IntDType::I32, B::float_argmax(t.x(0), t.attr, t.int_type_for(IntDType::I32))),
            = |u| u.law_place(IntDType::I32, u.attr, true)
        )),
        row("float_argmin", Exact, some_dim(any()), run!(
            |t| t.int_as(IntDType::I64, B::float_argmin(t.x(0), t.attr, t.int_type_for(IntDType::I64))),
            = |u| u.law_place(IntDType::I64, u.attr, false)
        )),
        row("float_max_dim_with_indices", Exact, some_dim(any()), run!(
            |t| {
                let (x, at) = B::float_max_dim_with_indices(t.x(0), t.attr, IntDType::I32);
                t.float(x);
                t.int_as(IntDType::I32, at);
            },
            = |u| {
                u.law_extreme(Over::Dim(u.attr), true);
                u.law_place(IntDType::I32, u.attr, true);
            }
        )),
        row("float_min_dim_with_indices", Exact, some_dim(any()), run!(
            |t| {
                let (x, at) = B::float_min_dim_with_indices(t.x(0), t.attr, IntDType::I32);
                t.float(x);
                t.int_as(IntDType::I32, at);
            },
            = |u| {
                u.law_extreme(Over::Dim(u.attr), false);
                u.law_place(IntDType::I32, u.attr, false);
            }
        )),
    ]
}

/// Returns the larger number, or NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// Returns the smaller number, or NaN.
fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

#[rustfmt::skip]
fn float_scans() -> Vec<Row> {
    vec![
        row("float_cumsum", Contraction, some_dim(summable()), run!(|t| t.float(B::float_cumsum(t.x(0), t.attr)))),
        row("float_cumprod", Elementwise, some_dim(multipliable()), run!(|t| {
            t.float(B::float_cumprod(t.x(0), t.attr));
        })),
        row("float_cummin", Exact, some_dim(any_float()), run!(
            |t| t.float(B::float_cummin(t.x(0), t.attr)),
            = |u| u.law_scan(u.attr, smaller)
        )),
        row("float_cummax", Exact, some_dim(any_float()), run!(
            |t| t.float(B::float_cummax(t.x(0), t.attr)),
            = |u| u.law_scan(u.attr, larger)
        )),
    ]
}

#[rustfmt::skip]
fn float_order() -> Vec<Row> {
    let any = || sorts(any_float());
    vec![
        row("float_sort", Exact, any(), run!(
            |t| t.float(B::float_sort(t.x(0), t.attr.0, t.attr.1)),
            = |u| u.law_sorted(u.attr.0, u.attr.1, usize::MAX)
        )),
        row("float_sort_with_indices", Exact, any(), run!(
            |t| {
                let (x, at) = B::float_sort_with_indices(t.x(0), t.attr.0, t.attr.1, IntDType::I32);
                t.float(x);
                t.int_as(IntDType::I32, at);
            },
            = |u| {
                u.law_sorted(u.attr.0, u.attr.1, usize::MAX);
                u.law_sorted_places(IntDType::I32, u.attr.0, u.attr.1, usize::MAX);
            }
        )),
        row("float_argsort", Exact, any(), run!(
            |t| t.int_as(IntDType::I64, B::float_argsort(t.x(0), t.attr.0, t.attr.1, IntDType::I64)),
            = |u| u.law_sorted_places(IntDType::I64, u.attr.0, u.attr.1, usize::MAX)
        )),
        row("float_topk", Exact, any(), run!(
            |t| t.float(B::float_topk(t.x(0), t.attr.0, t.attr.2)),
            = |u| u.law_sorted(u.attr.0, true, u.attr.2)
        )),
        row("float_argtopk", Exact, any(), run!(
            |t| t.int_as(IntDType::I32, B::float_argtopk(t.x(0), t.attr.0, t.attr.2, IntDType::I32)),
            = |u| u.law_sorted_places(IntDType::I32, u.attr.0, true, u.attr.2)
        )),
    ]
}
