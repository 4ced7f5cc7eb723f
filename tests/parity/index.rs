//! Elements and slices addressed by integer tensors, and masks, for all three kinds of tensors.
//!
//! Indices are in range: Burn's other backends panic on others, ours clamps or drops them (`ops/index.rs` tests it).

use crate::case::{Operand, Values};
use crate::compare::Class::{Contraction, Exact};
use crate::harness::{Row, row};
use crate::run;
use crate::strategies::*;
use burn_backend::Scalar;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::tensor::IndexingUpdateOp;
use proptest::prelude::*;

pub fn rows() -> Vec<Row> {
    [floats(), ints(), bools()].into_iter().flatten().collect()
}

/// Returns indices below `end`, by repeating a pool.
fn below(end: usize, dims: &[usize], pool: &[usize]) -> Operand {
    let values = pool.iter().cycle().take(count(dims)).map(|&n| (n % end) as i128).collect();
    Operand { dims: dims.to_vec(), values: Values::Int(values) }
}

fn numbers() -> Gen<Vec<usize>> {
    pool((0..100usize).sboxed())
}

/// An operand, indices with its dims except for the size of one, and values with the indices' dims.
pub fn gathers<P: Pool>(value: Gen<P>) -> Cases<usize> {
    let attr = (0..4usize, 0..=5usize, numbers());
    (one_shaped(value.clone(), full_shape(1), attr), pool(value))
        .prop_map(|(case, values)| {
            let (dim, size, numbers) = case.attr.clone();
            let x = &case.operands[0];
            let dim = dim % x.dims.len();
            let mut dims = x.dims.clone();
            dims[dim] = size;
            let indices = below(x.dims[dim], &dims, &numbers);
            let values = operand((case.float, case.int), &dims, &values);
            let mut case = case.with(dim);
            case.operands.extend([indices, values]);
            case
        })
        .sboxed()
}

/// An operand, `[n]` indices of a dim, and values for the slices that they select.
pub fn selects<P: Pool>(value: Gen<P>) -> Cases<usize> {
    gathers(value)
        .prop_map(|mut case| {
            let (dim, n) = (case.attr, case.operands[1].dims[case.attr]);
            let Values::Int(places) = &case.operands[1].values else { return case };
            let places = if n == 0 { Vec::new() } else { places.iter().copied().cycle().take(n).collect() };
            case.operands[1] = Operand { dims: vec![n], values: Values::Int(places) };
            case.operands[2] = case.operands[0].resized(dim, n);
            case
        })
        .sboxed()
}

/// An operand, `[n, k]` indices of its first k dims, values for the slices that they select, and the op that combines them.
/// Indices are distinct where their order would matter.
pub fn nd<P: Pool>(value: Gen<P>, updates: &'static [IndexingUpdateOp]) -> Cases<IndexingUpdateOp> {
    let attr = (1..=4usize, 1..=5usize, numbers(), proptest::sample::select(updates));
    (one_shaped(value.clone(), full_shape(1), attr), pool(value))
        .prop_map(|(case, values)| {
            let (k, n, numbers, update) = case.attr.clone();
            let x = &case.operands[0];
            let k = 1 + k % x.dims.len();
            let slices = count(&x.dims[..k]);
            let distinct = matches!(update, IndexingUpdateOp::Assign);
            let n = if distinct { n.min(slices) } else { n };
            let flat = (0..n).map(|i| if distinct { i + numbers[0] } else { numbers[i % numbers.len()] } % slices);
            let places = flat.flat_map(|mut place| {
                let mut at = vec![0; k];
                for d in (0..k).rev() {
                    at[d] = (place % x.dims[d]) as i128;
                    place /= x.dims[d];
                }
                at
            });
            let indices = Operand { dims: vec![n, k], values: Values::Int(places.collect()) };
            let dims: Vec<_> = [n].into_iter().chain(x.dims[k..].iter().copied()).collect();
            let values = operand((case.float, case.int), &dims, &values);
            let mut case = case.with(update);
            case.operands.extend([indices, values]);
            case
        })
        .sboxed()
}

pub const UPDATES: &[IndexingUpdateOp] = &[
    IndexingUpdateOp::Assign,
    IndexingUpdateOp::Add,
    IndexingUpdateOp::Mul,
    IndexingUpdateOp::Min,
    IndexingUpdateOp::Max,
];

/// An operand, a mask with its dims, and another operand to select from.
pub fn masks<P: Pool>(value: Gen<P>) -> Cases<()> {
    (one(value.clone()), pool(any_bool()), pool(value))
        .prop_map(|(mut case, mask, other)| {
            let (types, dims) = ((case.float, case.int), case.operands[0].dims.clone());
            case.operands.extend([operand(types, &dims, &mask), operand(types, &dims, &other)]);
            case
        })
        .sboxed()
}

/// An operand and a mask that broadcasts to its dims.
pub fn fills<P: Pool>(value: Gen<P>) -> Cases<[bool; 4]> {
    let attr = prop_oneof![2 => Just([false; 4]), 1 => prop::array::uniform4(any::<bool>())];
    (one_shaped(value, shape(0), attr), pool(any_bool()))
        .prop_map(|(mut case, mask)| {
            let dims = case.operands[0].dims.iter().zip(case.attr).map(|(&size, one)| if one { 1 } else { size });
            let mask = operand((case.float, case.int), &dims.collect::<Vec<_>>(), &mask);
            case.operands.push(mask);
            case
        })
        .sboxed()
}

#[rustfmt::skip]
fn floats() -> Vec<Row> {
    vec![
        row("float_gather", Exact, gathers(any_float()), run!(|t| t.float(B::float_gather(t.attr, t.x(0), t.at(1))))),
        row("float_select", Exact, selects(any_float()), run!(|t| t.float(B::float_select(t.x(0), t.attr, t.at(1))))),
        row("float_gather_nd", Exact, nd(any_float(), &UPDATES[..2]), run!(|t| {
            t.float(B::float_gather_nd(t.x(0), t.at(1)));
        })),
        row("float_scatter_nd", Contraction, nd(moderate(), UPDATES), run!(|t| {
            t.float(B::float_scatter_nd(t.x(0), t.at(1), t.x(2), t.attr));
        })),
        row("float_mask_where", Exact, masks(any_float()), run!(|t| {
            t.float(B::float_mask_where(t.x(0), t.b(1), t.x(2)));
        })),
        row("float_mask_fill", Exact, fills(any_float()), run!(|t| {
            t.float(B::float_mask_fill(t.x(0), t.b(1), Scalar::Float(f64::NEG_INFINITY)));
        })),
    ]
}

#[rustfmt::skip]
fn ints() -> Vec<Row> {
    vec![
        row("int_gather", Exact, gathers(any_whole()), run!(|t| t.int(B::int_gather(t.attr, t.i(0), t.at(1))))),
        row("int_select", Exact, selects(any_whole()), run!(|t| t.int(B::int_select(t.i(0), t.attr, t.at(1))))),
        row("int_gather_nd", Exact, nd(any_whole(), &UPDATES[..2]), run!(|t| {
            t.int(B::int_gather_nd(t.i(0), t.at(1)));
        })),
        row("int_scatter_nd", Exact, nd(digits(), UPDATES), run!(|t| {
            t.int(B::int_scatter_nd(t.i(0), t.at(1), t.i(2), t.attr));
        })),
        row("int_mask_where", Exact, masks(any_whole()), run!(|t| {
            t.int(B::int_mask_where(t.i(0), t.b(1), t.i(2)));
        })),
        row("int_mask_fill", Exact, fills(any_whole()), run!(|t| {
            t.int(B::int_mask_fill(t.i(0), t.b(1), Scalar::Int(7)));
        })),
    ]
}

#[rustfmt::skip]
fn bools() -> Vec<Row> {
    let any = any_bool;
    vec![
        row("bool_gather", Exact, gathers(any()), run!(|t| t.bool(B::bool_gather(t.attr, t.b(0), t.at(1))))),
        row("bool_select", Exact, selects(any()), run!(|t| t.bool(B::bool_select(t.b(0), t.attr, t.at(1))))),
        row("bool_mask_where", Exact, masks(any()), run!(|t| t.bool(B::bool_mask_where(t.b(0), t.b(1), t.b(2))))),
        row("bool_mask_fill", Exact, fills(any()), run!(|t| {
            t.bool(B::bool_mask_fill(t.b(0), t.b(1), Scalar::Bool(true)));
        })),
    ]
}
