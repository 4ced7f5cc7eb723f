//! The rows of methods that Burn has since 0.22 and 0.21 has not, or had in another form. Those of 0.23 are among them.

use crate::case::{Case, Values};
use crate::compare::Class::{Contraction, Elementwise, Exact, Quantized};
use crate::feed::Feed;
use crate::harness::{Row, row};
use crate::host::lanes;
use crate::index::{UPDATES, gathers, masks, selects};
use crate::movement::flips;
use crate::reduce::sorts;
use crate::run;
use crate::strategies::*;
use burn_backend::ops::*;
use burn_backend::tensor::{FloatTensor, IndexingUpdateOp};
use burn_backend::{Backend, IntDType, TensorMetadata, read_sync};
use burn_flex::Flex;
use proptest::prelude::*;
use proptest::sample::select;

pub fn rows() -> Vec<Row> {
    [elements(), moves(), updates(), order(), layers()].into_iter().flatten().collect()
}

#[rustfmt::skip]
fn elements() -> Vec<Row> {
    vec![
        row("float_hypot", Elementwise, two(sides(), sides()), run!(
            |t| t.float(B::float_hypot(t.x(0), t.x(1))),
            = |u| u.map2(f64::hypot)
        )),
        row("int_square", Exact, one(below_31_bits()), run!(
            |t| t.int(B::int_square(t.i(0))),
            = |u| u.map_int(|v| v * v)
        )),
        row("float_sum_dims", Contraction, flips(summable()), run!(|t| t.float(B::float_sum_dims(t.x(0), &t.attr)))),
    ]
}

/// Sides of a triangle: everyday numbers, magnitudes whose squares overflow or vanish, and special values.
fn sides() -> Gen<f64> {
    let special = vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    prop_oneof![
        6 => moderate(),
        2 => (any::<bool>(), -80.0..80.0f64).prop_map(|(sign, power)| if sign { -power.exp() } else { power.exp() }),
        1 => select(special),
    ]
    .sboxed()
}

/// Sizes before and after each dim, and a mode, by its number.
type Padding = (Vec<(usize, usize)>, u8);

/// An operand with a padding that each mode allows for its dims.
fn paddings<P: Pool>(value: Gen<P>) -> Cases<Padding> {
    one_shaped(value, full_shape(1), (prop::array::uniform4((0..4usize, 0..4usize)), 0..3u8))
        .prop_map(|case| {
            let (sizes, mode) = case.attr;
            let dims = case.operands[0].dims.clone();
            let allowed = |size: usize, dim: usize| if mode == 1 { size.min(dim - 1) } else { size };
            let sizes = sizes.iter().zip(&dims).map(|(&(low, high), &dim)| (allowed(low, dim), allowed(high, dim)));
            let sizes = sizes.collect();
            case.with((sizes, mode))
        })
        .sboxed()
}

fn mode(number: u8) -> PadMode {
    [PadMode::Constant(2.0), PadMode::Reflect, PadMode::Edge][usize::from(number)]
}

/// Adds what a mask takes, of any kind of tensor.
macro_rules! taken {
    ($add:ident, $select:ident, $load:ident) => {
        run!(|t| t.$add(read_sync(B::$select(t.$load(0), t.b(1)))))
    };
}

#[rustfmt::skip]
fn moves() -> Vec<Row> {
    vec![
        row("float_pad", Exact, paddings(any_float()), run!(|t| {
            t.float(B::float_pad(t.x(0), &t.attr.0, mode(t.attr.1)));
        })),
        row("int_pad", Exact, paddings(any_whole()), run!(|t| t.int(B::int_pad(t.i(0), &t.attr.0, mode(t.attr.1))))),
        row("float_mask_select", Exact, full(masks(any_float())), taken!(float, float_mask_select, x)),
        row("int_mask_select", Exact, full(masks(any_whole())), taken!(int, int_mask_select, i)),
        row("bool_mask_select", Exact, full(masks(any_bool())), taken!(bool, bool_mask_select, b)),
    ]
}

/// Cases with an update. Where the order of updates would matter, the indices of a lane are distinct.
pub fn updated(cases: Cases<usize>, of_slices: bool) -> Cases<(usize, IndexingUpdateOp)> {
    (cases, select(UPDATES))
        .prop_map(move |(case, update)| {
            let dim = case.attr;
            let update = if distinct(&case, dim, of_slices) { update } else { IndexingUpdateOp::Add };
            let mut case = case.with((dim, update));
            if matches!(update, IndexingUpdateOp::Assign) {
                spread(&mut case, dim, of_slices);
            }
            case
        })
        .sboxed()
}

/// Returns whether there are as many places as indices.
fn distinct(case: &Case<usize>, dim: usize, of_slices: bool) -> bool {
    let indices = &case.operands[1].dims;
    indices[if of_slices { 0 } else { dim }] <= case.operands[0].dims[dim]
}

fn spread<A>(case: &mut Case<A>, dim: usize, of_slices: bool) {
    let size = case.operands[0].dims[dim];
    let indices = &mut case.operands[1];
    let along = if of_slices { 0 } else { dim };
    let Values::Int(values) = &mut indices.values else { return };
    for lane in lanes(&indices.dims, along) {
        for (k, place) in lane.into_iter().enumerate() {
            values[place] = ((3 + k) % size) as i128;
        }
    }
}

#[rustfmt::skip]
fn updates() -> Vec<Row> {
    vec![
        row("float_scatter", Contraction, updated(gathers(moderate()), false), run!(|t| {
            t.float(B::float_scatter(t.attr.0, t.x(0), t.at(1), t.x(2), t.attr.1));
        })),
        row("float_select_assign", Contraction, updated(selects(moderate()), true), run!(|t| {
            t.float(B::float_select_assign(t.x(0), t.attr.0, t.at(1), t.x(2), t.attr.1));
        })),
        row("int_scatter", Exact, updated(gathers(digits()), false), run!(|t| {
            t.int(B::int_scatter(t.attr.0, t.i(0), t.at(1), t.i(2), t.attr.1));
        })),
        row("int_select_assign", Exact, updated(selects(digits()), true), run!(|t| {
            t.int(B::int_select_assign(t.i(0), t.attr.0, t.at(1), t.i(2), t.attr.1));
        })),
    ]
}

#[rustfmt::skip]
fn order() -> Vec<Row> {
    vec![
        row("float_topk_with_indices", Exact, sorts(any_float()), run!(
            |t| {
                let (x, at) = B::float_topk_with_indices(t.x(0), t.attr.0, t.attr.2, IntDType::I64);
                t.float(x);
                t.int_as(IntDType::I64, at);
            },
            = |u| {
                u.law_sorted(u.attr.0, true, u.attr.2);
                u.law_sorted_places(IntDType::I64, u.attr.0, true, u.attr.2);
            }
        )),
        row("int_topk_with_indices", Exact, sorts(digits()), run!(
            |t| {
                let (x, at) = B::int_topk_with_indices(t.i(0), t.attr.0, t.attr.2);
                t.int(x);
                t.int_as(position(t.case_int()), at);
            },
            = |u| {
                u.law_sorted(u.attr.0, true, u.attr.2);
                u.law_sorted_places(position(u.case_int()), u.attr.0, true, u.attr.2);
            }
        )),
        row("q_topk_with_indices", Quantized, single(sorts(moderate())), run!(
            |t| {
                let (x, at) = B::q_topk_with_indices(t.q(0), t.attr.0, t.attr.2, IntDType::I32);
                t.quantized(x);
                t.int_as(IntDType::I32, at);
            },
            = |u| {
                u.law_sorted(u.attr.0, true, u.attr.2);
                u.law_sorted_places(IntDType::I32, u.attr.0, true, u.attr.2);
            }
        )),
    ]
}

/// The type of positions in an integer tensor: its own, unless that is narrow.
fn position(own: IntDType) -> IntDType {
    match own {
        IntDType::I8 | IntDType::I16 | IntDType::U8 | IntDType::U16 => IntDType::I32,
        wide => wide,
    }
}

/// Dims of `[batch, channels, spatial..]`.
fn images() -> Cases<Vec<usize>> {
    let dims = prop::collection::vec(1..5usize, 2..=4);
    (types(), dims).prop_map(|(types, dims)| case(types, vec![], dims)).sboxed()
}

/// Sizes of `[batch, channels, depth, height, width]`, and of the pool's output.
type Pooled = ([usize; 5], [usize; 3]);

fn pooled() -> Cases<Pooled> {
    let attr = ([1..3usize, 1..3usize, 1..6usize, 1..6usize, 1..6usize], [1..4usize, 1..4usize, 1..4usize]);
    (types(), attr).prop_map(|(types, attr)| case(types, vec![], attr)).sboxed()
}

/// Height and width, the kernel's, and strides, paddings and dilations.
type Folding = [[usize; 2]; 5];

fn foldings() -> Cases<Folding> {
    let two = |range: std::ops::Range<usize>| [range.clone(), range];
    let attr = [two(0..4), two(1..4), two(1..4), two(0..2), two(1..3)];
    (types(), attr)
        .prop_map(|(types, [extra, kernel, stride, padding, dilation])| {
            let size = |i: usize| (kernel[i] - 1) * dilation[i] + 1 + extra[i];
            case(types, vec![], [[size(0), size(1)], kernel, stride, padding, dilation])
        })
        .sboxed()
}

impl<B: Backend> Feed<'_, B, Vec<usize>> {
    /// Returns x, gamma, beta, mean and a variance above 0.
    fn normalised(&mut self) -> [FloatTensor<B>; 5] {
        let dims = self.attr.clone();
        let channels = [dims[1]];
        let x = self.eighths(&dims);
        let [gamma, beta, mean, root] = std::array::from_fn(|_| self.eighths(&channels));
        let square = B::float_mul(root.clone(), root);
        [x, gamma, beta, mean, B::float_add_scalar(square, 0.5f64.into())]
    }
}

const EPSILON: f64 = 1e-2;

#[rustfmt::skip]
fn layers() -> Vec<Row> {
    vec![
        row("batch_norm", Contraction, images(), run!(|t| {
            let [x, gamma, beta, mean, variance] = t.normalised();
            t.float(B::batch_norm(x, gamma, beta, mean, variance, EPSILON));
        })),
        row("batch_norm_train", Contraction, images(), run!(|t| {
            let [x, gamma, beta, ..] = t.normalised();
            let BatchNormTrain { output, mean, variance } = B::batch_norm_train(x, gamma, beta, EPSILON);
            t.float(output);
            t.float(mean);
            t.float(variance);
        })),
        row("batch_norm_train_backward", Contraction, images(), run!(|t| {
            let [x, gamma, _, mean, variance] = t.normalised();
            let grad = t.eighths(&x.shape().to_vec());
            let grads = B::batch_norm_train_backward(x, gamma, mean, variance, EPSILON, grad);
            t.float(grads.x_grad);
            t.float(grads.gamma_grad);
            t.float(grads.beta_grad);
        })),
        row("adaptive_avg_pool3d", Contraction, pooled(), run!(Flex: |t| {
            let x = t.eighths(&t.attr.0.clone());
            t.float(B::adaptive_avg_pool3d(x, t.attr.1));
        })),
        row("adaptive_avg_pool3d_backward", Contraction, pooled(), run!(Flex: |t| {
            let ([n, c, ..], [depth, height, width]) = t.attr;
            let (x, grad) = (t.eighths(&t.attr.0.clone()), t.eighths(&[n, c, depth, height, width]));
            t.float(B::adaptive_avg_pool3d_backward(x, grad));
        })),
        row("fold4d", Contraction, foldings(), run!(Flex: |t| {
            let [size, kernel, stride, padding, dilation] = t.attr;
            let windows = |i: usize| (size[i] + 2 * padding[i] - (kernel[i] - 1) * dilation[i] - 1) / stride[i] + 1;
            let x = t.eighths(&[2, 2 * kernel[0] * kernel[1], windows(0) * windows(1)]);
            t.float(B::fold4d(x, size, kernel, UnfoldOptions::new(stride, padding, dilation)));
        })),
    ]
}
