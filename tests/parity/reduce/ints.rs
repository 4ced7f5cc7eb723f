//! Reductions, running reductions and sorts of integers and bools.

use super::{factors, some, some_dim, sorts};
use crate::compare::Class::Exact;
use crate::feed::Feed;
use crate::harness::{Row, row};
use crate::run;
use crate::strategies::*;
use burn_backend::ops::{BoolTensorOps, IntTensorOps};
use burn_backend::{Backend, BoolDType, IntDType};

const NATIVE: BoolDType = BoolDType::Native;

pub fn rows() -> Vec<Row> {
    [int_sums(), int_extremes(), int_scans(), int_order(), bools()].into_iter().flatten().collect()
}

#[rustfmt::skip]
fn int_sums() -> Vec<Row> {
    let any = below_31_bits;
    vec![
        row("int_sum", Exact, one(any()), run!(|t| t.int(B::int_sum(t.i(0))))),
        row("int_sum_dim", Exact, one_dim(any(), shape(1)), run!(|t| t.int(B::int_sum_dim(t.i(0), t.attr)))),
        row("int_prod", Exact, factors(digits()), run!(
            |t| t.int(B::int_prod(t.i(0))),
            = |u| {
                // Wraps; burn-ndarray would panic in a debug build.
                let product = u.wholes(0).into_iter().fold(1i128, |a, b| i128::from((a as i64).wrapping_mul(b as i64)));
                u.int(u.load_int(&[product], &[1]));
            }
        )),
        row("int_prod_dim", Exact, some_dim(digits()), run!(|t| t.int(B::int_prod_dim(t.i(0), t.attr)))),
        row("int_mean", Exact, some(digits()), run!(|t| t.int(B::int_mean(t.i(0))))),
        row("int_mean_dim", Exact, some_dim(digits()), run!(|t| t.int(B::int_mean_dim(t.i(0), t.attr)))),
        row("int_any", Exact, one(any()), run!(|t| t.bool(B::int_any(t.i(0), NATIVE)))),
        row("int_all", Exact, one(any()), run!(|t| t.bool(B::int_all(t.i(0), NATIVE)))),
        row("int_any_dim", Exact, some_dim(any()), run!(|t| t.bool(B::int_any_dim(t.i(0), t.attr, NATIVE)))),
        row("int_all_dim", Exact, some_dim(any()), run!(|t| t.bool(B::int_all_dim(t.i(0), t.attr, NATIVE)))),
    ]
}

/// Returns the type in which our integer ops return indices.
fn place_type(own: IntDType) -> IntDType {
    match own {
        IntDType::I8 | IntDType::I16 | IntDType::U8 | IntDType::U16 => IntDType::I32,
        IntDType::I32 | IntDType::I64 | IntDType::U32 | IntDType::U64 => own,
    }
}

impl<B: Backend, A: Clone> Feed<'_, B, A> {
    fn place(&mut self, place: burn_backend::tensor::IntTensor<B>) {
        self.int_as(place_type(self.case_int()), place);
    }
}

#[rustfmt::skip]
fn int_extremes() -> Vec<Row> {
    let any = any_whole;
    vec![
        row("int_max", Exact, some(any()), run!(|t| t.int(B::int_max(t.i(0))))),
        row("int_min", Exact, some(any()), run!(|t| t.int(B::int_min(t.i(0))))),
        row("int_max_dim", Exact, some_dim(any()), run!(|t| t.int(B::int_max_dim(t.i(0), t.attr)))),
        row("int_min_dim", Exact, some_dim(any()), run!(|t| t.int(B::int_min_dim(t.i(0), t.attr)))),
        row("int_max_abs", Exact, some(digits()), run!(|t| t.int(B::int_max_abs(t.i(0))))),
        row("int_max_abs_dim", Exact, some_dim(digits()), run!(|t| t.int(B::int_max_abs_dim(t.i(0), t.attr)))),
        row("int_argmax", Exact, some_dim(any()), run!(|t| t.place(B::int_argmax(t.i(0), t.attr)))),
        row("int_argmin", Exact, some_dim(any()), run!(|t| t.place(B::int_argmin(t.i(0), t.attr)))),
        row("int_max_dim_with_indices", Exact, some_dim(any()), run!(|t| {
            let (x, at) = B::int_max_dim_with_indices(t.i(0), t.attr);
            t.int(x);
            t.place(at);
        })),
        row("int_min_dim_with_indices", Exact, some_dim(any()), run!(|t| {
            let (x, at) = B::int_min_dim_with_indices(t.i(0), t.attr);
            t.int(x);
            t.place(at);
        })),
    ]
}

#[rustfmt::skip]
fn int_scans() -> Vec<Row> {
    vec![
        row("int_cumsum", Exact, some_dim(below_31_bits()), run!(|t| t.int(B::int_cumsum(t.i(0), t.attr)))),
        row("int_cumprod", Exact, some_dim(digits()), run!(|t| t.int(B::int_cumprod(t.i(0), t.attr)))),
        row("int_cummin", Exact, some_dim(any_whole()), run!(|t| t.int(B::int_cummin(t.i(0), t.attr)))),
        row("int_cummax", Exact, some_dim(any_whole()), run!(|t| t.int(B::int_cummax(t.i(0), t.attr)))),
    ]
}

#[rustfmt::skip]
fn int_order() -> Vec<Row> {
    let any = || sorts(below_31_bits());
    vec![
        row("int_sort", Exact, sorts(any_whole()), run!(|t| t.int(B::int_sort(t.i(0), t.attr.0, t.attr.1)))),
        row("int_sort_with_indices", Exact, any(), run!(
            |t| {
                let (x, at) = B::int_sort_with_indices(t.i(0), t.attr.0, t.attr.1);
                t.int(x);
                t.place(at);
            },
            = |u| {
                u.law_sorted(u.attr.0, u.attr.1, usize::MAX);
                u.law_sorted_places(IntDType::I32, u.attr.0, u.attr.1, usize::MAX);
            }
        )),
        row("int_argsort", Exact, any(), run!(
            |t| t.place(B::int_argsort(t.i(0), t.attr.0, t.attr.1)),
            = |u| u.law_sorted_places(IntDType::I32, u.attr.0, u.attr.1, usize::MAX)
        )),
        row("int_topk", Exact, any(), run!(
            |t| t.int(B::int_topk(t.i(0), t.attr.0, t.attr.2)),
            = |u| u.law_sorted(u.attr.0, true, u.attr.2)
        )),
        row("int_argtopk", Exact, any(), run!(
            |t| t.place(B::int_argtopk(t.i(0), t.attr.0, t.attr.2)),
            = |u| u.law_sorted_places(IntDType::I32, u.attr.0, true, u.attr.2)
        )),
    ]
}

#[rustfmt::skip]
fn bools() -> Vec<Row> {
    let any = any_bool;
    vec![
        row("bool_any", Exact, one(any()), run!(|t| t.bool(B::bool_any(t.b(0))))),
        row("bool_all", Exact, one(any()), run!(|t| t.bool(B::bool_all(t.b(0))))),
        row("bool_any_dim", Exact, some_dim(any()), run!(|t| t.bool(B::bool_any_dim(t.b(0), t.attr)))),
        row("bool_all_dim", Exact, some_dim(any()), run!(|t| t.bool(B::bool_all_dim(t.b(0), t.attr)))),
    ]
}
