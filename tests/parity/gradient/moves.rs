//! Gradients of reductions, products, moves, indices and masks.

use super::{along, distinct, of, ranked, smooth};
use crate::compare::Class::Contraction;
use crate::harness::{Row, row};
use crate::index::{fills, gathers, masks, selects};
use crate::matmul::{products, vectors};
use crate::movement::*;
use crate::run;
use crate::strategies::*;
use crate::version::{self, Autodiff};
use burn_backend::ops::FloatTensorOps;
use burn_backend::{Scalar, Shape};

pub fn rows() -> Vec<Row> {
    [reductions(), moves(), indices()].into_iter().flatten().collect()
}

#[rustfmt::skip]
fn reductions() -> Vec<Row> {
    let any = || of(smooth());
    vec![
        row("float_sum", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_sum(x)))),
        row("float_mean", Contraction, any(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_mean(x)))),
        row("float_sum_dim", Contraction, along(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_sum_dim(x, t.attr));
        })),
        row("float_mean_dim", Contraction, along(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_mean_dim(x, t.attr));
        })),
        row("float_prod_dim", Contraction, along(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_prod_dim(x, t.attr));
        })),
        row("float_max", Contraction, distinct(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_max(x)))),
        row("float_min", Contraction, distinct(), run!(|t| t.grad(|_, [x]| Autodiff::<B>::float_min(x)))),
        row("float_cumsum", Contraction, along(), run!(|t| t.grad(|t, [x]| Autodiff::<B>::float_cumsum(x, t.attr)))),
        row("float_cumprod", Contraction, along(), run!(|t| t.grad(|t, [x]| Autodiff::<B>::float_cumprod(x, t.attr)))),
        row("float_max_dim", Contraction, distinct(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_max_dim(x, t.attr));
        })),
        row("float_min_dim", Contraction, distinct(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_min_dim(x, t.attr));
        })),
        row("float_sort", Contraction, distinct(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_sort(x, t.attr, true));
        })),
        row("float_cummax", Contraction, distinct(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_cummax(x, t.attr));
        })),
        row("float_cummin", Contraction, distinct(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_cummin(x, t.attr));
        })),
    ]
}

#[rustfmt::skip]
fn moves() -> Vec<Row> {
    vec![
        row("float_reshape", Contraction, of(smooth()), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_reshape(x, Shape::from([count(t.dims(0))])));
        })),
        row("float_flip", Contraction, along(), run!(|t| t.grad(|t, [x]| Autodiff::<B>::float_flip(x, &[t.attr])))),
        row("float_swap_dims", Contraction, along(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_swap_dims(x, 0, t.attr));
        })),
        row("float_permute", Contraction, ranked(permutations(smooth())), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_permute(x, &t.attr));
        })),
        row("float_repeat_dim", Contraction, along(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_repeat_dim(x, t.attr, 3));
        })),
        row("float_cat", Contraction, along(), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_cat(vec![x.clone(), x], t.attr));
        })),
        row("float_slice", Contraction, single(slices(smooth())), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_slice(x, &t.attr));
        })),
        row("float_slice_assign", Contraction, single(assignments(smooth())), run!(|t| {
            t.grad(|t, [x, value]| Autodiff::<B>::float_slice_assign(x, &t.attr, value));
        })),
        row("float_unfold", Contraction, single(windows(smooth())), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_unfold(x, t.attr[0], t.attr[1], t.attr[2]));
        })),
        row("float_expand", Contraction, of(smooth()), run!(|t| {
            t.grad(|t, [x]| {
                let to: Vec<_> = [3].into_iter().chain(t.dims(0).iter().copied()).collect();
                Autodiff::<B>::float_expand(x, Shape::from(to))
            });
        })),
        row("float_matmul", Contraction, single(products(smooth())), run!(|t| {
            t.grad(|_, [x, y]| Autodiff::<B>::float_matmul(x, y));
        })),
        row("float_cross", Contraction, single(vectors()), run!(|t| {
            t.grad(|t, [x, y]| Autodiff::<B>::float_cross(x, y, t.attr));
        })),
    ]
}

#[rustfmt::skip]
fn indices() -> Vec<Row> {
    vec![
        row("float_gather", Contraction, single(gathers(smooth())), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_gather(t.attr, x, t.at(1)));
        })),
        row("float_scatter_add", Contraction, single(gathers(smooth())), run!(|t| {
            t.grad_of([0, 2], |t, [x, value]| version::scatter_add::<Autodiff<B>>(t.attr, x, t.at(1), value));
        })),
        row("float_select", Contraction, single(selects(smooth())), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_select(x, t.attr, t.at(1)));
        })),
        row("float_select_add", Contraction, single(selects(smooth())), run!(|t| {
            t.grad_of([0, 2], |t, [x, value]| version::select_add::<Autodiff<B>>(x, t.attr, t.at(1), value));
        })),
        row("float_mask_where", Contraction, ranked(masks(smooth())), run!(|t| {
            t.grad_of([0, 2], |t, [x, value]| Autodiff::<B>::float_mask_where(x, t.b(1), value));
        })),
        row("float_mask_fill", Contraction, ranked(fills(smooth())), run!(|t| {
            t.grad(|t, [x]| Autodiff::<B>::float_mask_fill(x, t.b(1), Scalar::Float(2.0)));
        })),
    ]
}
