//! Ops that move elements, for all three kinds of tensors.

use crate::compare::Class::Exact;
use crate::harness::{Row, row};
use crate::run;
use crate::strategies::*;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{Shape, Slice};
use proptest::prelude::*;

pub fn rows() -> Vec<Row> {
    [floats(), ints(), bools()].into_iter().flatten().collect()
}

/// An operand and other dims for the same elements.
pub fn reshapes<P: Pool>(value: Gen<P>) -> Cases<Vec<usize>> {
    one_shaped(value, shape(1), 0..5usize)
        .prop_map(|case| {
            let dims = case.operands[0].dims.clone();
            let to = match case.attr {
                0 => vec![count(&dims)],
                1 => dims.iter().rev().copied().collect(),
                2 => [1].into_iter().chain(dims).collect(),
                3 => dims.into_iter().chain([1, 1]).collect(),
                _ if dims.len() > 1 => [dims[0] * dims[1]].into_iter().chain(dims[2..].iter().copied()).collect(),
                _ => dims,
            };
            case.with(to)
        })
        .sboxed()
}

pub fn two_dims<P: Pool>(value: Gen<P>) -> Cases<[usize; 2]> {
    one_shaped(value, shape(1), [0..4usize, 0..4usize])
        .prop_map(|case| {
            let rank = case.operands[0].dims.len();
            let dims = case.attr.map(|dim| dim % rank);
            case.with(dims)
        })
        .sboxed()
}

pub fn permutations<P: Pool>(value: Gen<P>) -> Cases<Vec<usize>> {
    one_shaped(value, shape(0), Just(vec![0usize, 1, 2, 3]).prop_shuffle())
        .prop_map(|case| {
            let rank = case.operands[0].dims.len();
            let axes = case.attr.iter().copied().filter(|&axis| axis < rank).collect();
            case.with(axes)
        })
        .sboxed()
}

pub fn flips<P: Pool>(value: Gen<P>) -> Cases<Vec<usize>> {
    one_shaped(value, shape(0), prop::array::uniform4(any::<bool>()))
        .prop_map(|case| {
            let rank = case.operands[0].dims.len();
            let axes = (0..rank).filter(|&axis| case.attr[axis]).collect();
            case.with(axes)
        })
        .sboxed()
}

/// Size-1 dims to expand, and new leading dims.
pub fn expansions<P: Pool>(value: Gen<P>) -> Cases<Vec<usize>> {
    let grown = (prop::array::uniform4(dim()), prop::collection::vec(dim(), 0..=1));
    one_shaped(value, prop::collection::vec(prop_oneof![1 => dim(), 1 => Just(1)], 0..=3).sboxed(), grown)
        .prop_map(|case| {
            let (sizes, lead) = case.attr.clone();
            let own = case.operands[0].dims.iter().zip(sizes).map(|(&d, size)| if d == 1 { size } else { d });
            let to = lead.into_iter().chain(own).collect();
            case.with(to)
        })
        .sboxed()
}

pub fn repeats<P: Pool>(value: Gen<P>) -> Cases<[usize; 2]> {
    one_shaped(value, shape(1), [0..4usize, 1..4usize])
        .prop_map(|case| {
            let [dim, times] = case.attr;
            let dim = dim % case.operands[0].dims.len();
            case.with([dim, times])
        })
        .sboxed()
}

/// One to four operands that differ only along one dim.
pub fn joints<P: Pool>(value: Gen<P>) -> Cases<usize> {
    let sizes = prop::collection::vec(dim(), 1..=4);
    one_shaped(value, shape(1), (0..4usize, sizes))
        .prop_map(|case| {
            let (dim, sizes) = case.attr.clone();
            let dim = dim % case.operands[0].dims.len();
            let first = case.operands[0].clone();
            let mut joined = case.with(dim);
            joined.operands = sizes.iter().map(|&size| first.resized(dim, size)).collect();
            joined
        })
        .sboxed()
}

/// A slice of a dim: ends counted from either side, steps of either sign.
fn slice_of() -> Gen<(usize, usize, isize, bool)> {
    (0..6usize, 0..6usize, prop_oneof![4 => Just(1isize), 1 => 2..=3isize, 1 => -3..=-1isize], any::<bool>()).sboxed()
}

pub fn slices<P: Pool>(value: Gen<P>) -> Cases<Vec<Slice>> {
    let slices = (prop::array::uniform4(slice_of()), 0..=4usize);
    one_shaped(value, full_shape(1), slices)
        .prop_map(|case| {
            let (slices, used) = case.attr;
            let dims = case.operands[0].dims.clone();
            let cut = |((a, b, step, negative), &size): ((usize, usize, isize, bool), &usize)| {
                let (a, b) = (a % (size + 1), b % (size + 1));
                let (start, end) = (a.min(b) as isize, a.max(b) as isize);
                let end = if negative && end < size as isize { end - size as isize } else { end };
                Slice::new(start, Some(end), step)
            };
            case.with(slices.into_iter().zip(&dims).take(used.max(1)).map(cut).collect())
        })
        .sboxed()
}

/// An operand, a slice of it, and a value with the slice's dims.
pub fn assignments<P: Pool>(value: Gen<P>) -> Cases<Vec<Slice>> {
    (slices(value.clone()), pool(value))
        .prop_map(|(mut case, values)| {
            let dims = case.operands[0].dims.iter().enumerate();
            let dims: Vec<_> = dims.map(|(d, &size)| case.attr.get(d).map_or(size, |s| s.output_size(size))).collect();
            case.operands.push(operand((case.float, case.int), &dims, &values));
            case
        })
        .sboxed()
}

pub fn windows<P: Pool>(value: Gen<P>) -> Cases<[usize; 3]> {
    one_shaped(value, full_shape(1), [0..4usize, 1..5usize, 1..4usize])
        .prop_map(|case| {
            let [dim, size, step] = case.attr;
            let dim = dim % case.operands[0].dims.len();
            let size = size.min(case.operands[0].dims[dim]);
            case.with([dim, size, step])
        })
        .sboxed()
}

#[rustfmt::skip]
fn floats() -> Vec<Row> {
    let any = any_float;
    vec![
        row("float_reshape", Exact, reshapes(any()), run!(|t| {
            t.float(B::float_reshape(t.x(0), Shape::from(t.attr.clone())));
        })),
        row("float_swap_dims", Exact, two_dims(any()), run!(|t| {
            t.float(B::float_swap_dims(t.x(0), t.attr[0], t.attr[1]));
        })),
        row("float_transpose", Exact, one_shaped(any(), shape(2), Just(())), run!(|t| {
            t.float(B::float_transpose(t.x(0)));
        })),
        row("float_permute", Exact, permutations(any()), run!(|t| t.float(B::float_permute(t.x(0), &t.attr)))),
        row("float_flip", Exact, flips(any()), run!(|t| t.float(B::float_flip(t.x(0), &t.attr)))),
        row("float_expand", Exact, expansions(any()), run!(|t| {
            t.float(B::float_expand(t.x(0), Shape::from(t.attr.clone())));
        })),
        row("float_repeat_dim", Exact, repeats(any()), run!(|t| {
            t.float(B::float_repeat_dim(t.x(0), t.attr[0], t.attr[1]));
        })),
        row("float_cat", Exact, joints(any()), run!(|t| {
            let operands = (0..t.count()).map(|n| t.x(n)).collect();
            t.float(B::float_cat(operands, t.attr));
        })),
        row("float_slice", Exact, slices(any()), run!(|t| t.float(B::float_slice(t.x(0), &t.attr)))),
        row("float_slice_assign", Exact, assignments(any()), run!(|t| {
            t.float(B::float_slice_assign(t.x(0), &t.attr, t.x(1)));
        })),
        row("float_unfold", Exact, windows(any()), run!(|t| {
            let [dim, size, step] = t.attr;
            t.float(B::float_unfold(t.x(0), dim, size, step));
        })),
    ]
}

#[rustfmt::skip]
fn ints() -> Vec<Row> {
    let any = any_whole;
    vec![
        row("int_reshape", Exact, reshapes(any()), run!(|t| {
            t.int(B::int_reshape(t.i(0), Shape::from(t.attr.clone())));
        })),
        row("int_swap_dims", Exact, two_dims(any()), run!(|t| {
            t.int(B::int_swap_dims(t.i(0), t.attr[0], t.attr[1]));
        })),
        row("int_transpose", Exact, one_shaped(any(), shape(2), Just(())), run!(|t| {
            t.int(B::int_transpose(t.i(0)));
        })),
        row("int_permute", Exact, permutations(any()), run!(|t| t.int(B::int_permute(t.i(0), &t.attr)))),
        row("int_flip", Exact, flips(any()), run!(|t| t.int(B::int_flip(t.i(0), &t.attr)))),
        row("int_expand", Exact, expansions(any()), run!(|t| {
            t.int(B::int_expand(t.i(0), Shape::from(t.attr.clone())));
        })),
        row("int_repeat_dim", Exact, repeats(any()), run!(|t| {
            t.int(B::int_repeat_dim(t.i(0), t.attr[0], t.attr[1]));
        })),
        row("int_cat", Exact, joints(any()), run!(|t| {
            let operands = (0..t.count()).map(|n| t.i(n)).collect();
            t.int(B::int_cat(operands, t.attr));
        })),
        row("int_slice", Exact, slices(any()), run!(|t| t.int(B::int_slice(t.i(0), &t.attr)))),
        row("int_slice_assign", Exact, assignments(any()), run!(|t| {
            t.int(B::int_slice_assign(t.i(0), &t.attr, t.i(1)));
        })),
        row("int_unfold", Exact, windows(any()), run!(|t| {
            let [dim, size, step] = t.attr;
            t.int(B::int_unfold(t.i(0), dim, size, step));
        })),
    ]
}

#[rustfmt::skip]
fn bools() -> Vec<Row> {
    let any = any_bool;
    vec![
        row("bool_reshape", Exact, reshapes(any()), run!(|t| {
            t.bool(B::bool_reshape(t.b(0), Shape::from(t.attr.clone())));
        })),
        row("bool_swap_dims", Exact, two_dims(any()), run!(|t| {
            t.bool(B::bool_swap_dims(t.b(0), t.attr[0], t.attr[1]));
        })),
        row("bool_transpose", Exact, one_shaped(any(), shape(2), Just(())), run!(|t| {
            t.bool(B::bool_transpose(t.b(0)));
        })),
        row("bool_permute", Exact, permutations(any()), run!(|t| t.bool(B::bool_permute(t.b(0), &t.attr)))),
        row("bool_flip", Exact, flips(any()), run!(|t| t.bool(B::bool_flip(t.b(0), &t.attr)))),
        row("bool_expand", Exact, expansions(any()), run!(|t| {
            t.bool(B::bool_expand(t.b(0), Shape::from(t.attr.clone())));
        })),
        row("bool_repeat_dim", Exact, repeats(any()), run!(|t| {
            t.bool(B::bool_repeat_dim(t.b(0), t.attr[0], t.attr[1]));
        })),
        row("bool_cat", Exact, joints(any()), run!(|t| {
            let operands = (0..t.count()).map(|n| t.b(n)).collect();
            t.bool(B::bool_cat(operands, t.attr));
        })),
        row("bool_slice", Exact, slices(any()), run!(|t| t.bool(B::bool_slice(t.b(0), &t.attr)))),
        row("bool_slice_assign", Exact, assignments(any()), run!(|t| {
            t.bool(B::bool_slice_assign(t.b(0), &t.attr, t.b(1)));
        })),
        row("bool_unfold", Exact, windows(any()), run!(|t| {
            let [dim, size, step] = t.attr;
            t.bool(B::bool_unfold(t.b(0), dim, size, step));
        })),
    ]
}
