//! Products of matrices and vectors.

use crate::compare::Class::{Contraction, Exact};
use crate::harness::{Row, row};
use crate::run;
use crate::strategies::*;
use burn_backend::ops::{FloatTensorOps, GridSampleOptions, GridSamplePaddingMode, IntTensorOps, InterpolateMode};
use burn_flex::Flex;
use proptest::prelude::*;

/// `[.., m, k]` and `[.., k, n]` whose batch dims broadcast. They are not empty: burn-ndarray divides by zero.
pub fn products<P: Pool>(value: Gen<P>) -> Cases<()> {
    let batch = prop::collection::vec((1..4usize, any::<[bool; 2]>()), 0..=2);
    (types(), batch, (1..6usize, 1..=6usize, 1..6usize), pool(value.clone()), pool(value))
        .prop_map(|(types, batch, (m, k, n), x, y)| {
            let dims = |side: usize, last: [usize; 2]| -> Vec<usize> {
                let batch = batch.iter().map(|(size, ones)| if ones[side] && !ones[1 - side] { 1 } else { *size });
                batch.chain(last).collect()
            };
            let operands = vec![operand(types, &dims(0, [m, k]), &x), operand(types, &dims(1, [k, n]), &y)];
            case(types, operands, ())
        })
        .sboxed()
}

/// Two operands with a dim of size 3.
pub fn vectors() -> Cases<usize> {
    (one_dim(moderate(), full_shape(1)), pool(moderate()))
        .prop_map(|(mut case, other)| {
            let x = case.operands[0].resized(case.attr, 3);
            case.operands = vec![x.clone(), operand((case.float, case.int), &x.dims, &other)];
            case
        })
        .sboxed()
}

type Sampling = ([usize; 4], [usize; 2], bool, u8, u8);

fn samplings() -> Cases<Sampling> {
    let attr = ([1..3usize, 1..3usize, 1..6usize, 1..6usize], [1..5usize, 1..5usize], any::<bool>(), 0..2u8, 0..3u8);
    (types(), attr).prop_map(|(types, attr)| case(types, vec![], attr)).sboxed()
}

#[rustfmt::skip]
pub fn rows() -> Vec<Row> {
    vec![
        row("float_matmul", Contraction, products(moderate()), run!(|t| t.float(B::float_matmul(t.x(0), t.x(1))))),
        row("int_matmul", Exact, products(digits()), run!(|t| t.int(B::int_matmul(t.i(0), t.i(1))))),
        row("float_cross", Contraction, vectors(), run!(|t| t.float(B::float_cross(t.x(0), t.x(1), t.attr)))),
        row("float_grid_sample_2d", Contraction, samplings(), run!(Flex: |t| {
            let ([n, c, height, width], [rows, columns], align, mode, padding) = t.attr;
            let mode = if mode == 0 { InterpolateMode::Bilinear } else { InterpolateMode::Nearest };
            let paddings =
                [GridSamplePaddingMode::Zeros, GridSamplePaddingMode::Border, GridSamplePaddingMode::Reflection];
            let options = GridSampleOptions::new(mode)
                .with_padding_mode(paddings[usize::from(padding)])
                .with_align_corners(align);
            let (x, grid) = (t.eighths(&[n, c, height, width]), t.offsets(&[n, rows, columns, 2]));
            t.float(B::float_grid_sample_2d(x, grid, options));
        })),
    ]
}
