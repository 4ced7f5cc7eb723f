//! Convolutions, transposed convolutions and the gradients of both: one `stablehlo.convolution` each.
//!
//! Four uses of one correspondence between an input position `i`, an output position `o` and a kernel position `k` of a
//! spatial dim: `i = o * stride + k * dilation - padding`.
//! - A convolution sums over `k` for each `o`. It is also the input gradient of a transposed convolution.
//! - A transposed convolution sums over `k` for each `i`: it runs over `o` spread by `stride`, kernel reversed. It is also
//!   the input gradient of a convolution.
//! - The kernel gradient sums over `o` (and the batch) for each `k`: batch and feature dims change roles, `stride` and
//!   `dilation` change places. Groups of features become groups of the batch, so no group needs a convolution of its own.
//!
//! Layout is Burn's: `[batch, features, spatial...]`, kernels `[out, in / groups, spatial...]`, and for transposed ones
//! `[in, out / groups, spatial...]`, which is the kernel of the convolution that they transpose.

use super::operands::{expect_gradient, expect_spatial, record_biased};
use crate::Tensor;
use crate::ops::broken_rule;
use crate::trace::record;
use burn_tpu_graph::op::{Combine, ConvAttrs, ConvDims};
use burn_tpu_graph::{Builder, Dims, NodeId, Result};
use smallvec::SmallVec;

type Padding = SmallVec<[(isize, isize); 3]>;

/// How a kernel walks over an input; one entry per spatial dim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvOptions {
    /// Elements from one kernel position to the next.
    pub stride: Dims,
    /// Zeros before and after the input.
    pub padding: Dims,
    /// Elements from one kernel element to the next.
    pub dilation: Dims,
    /// Groups of features that do not see each other.
    pub groups: usize,
    /// Positions added at the end of the output; only transposed convolutions have them, others ignore them.
    pub padding_out: Dims,
}

impl ConvOptions {
    /// The number of spatial dims.
    pub fn rank(&self) -> usize {
        self.stride.len()
    }
}

/// `conv1d`, `conv2d`, `conv3d`.
pub fn conv(op: &'static str, x: &Tensor, kernel: &Tensor, bias: Option<&Tensor>, walk: &ConvOptions) -> Tensor {
    let padding = walk.padding.iter().map(|&p| (p as isize, p as isize)).collect();
    record_biased(op, [x, kernel], bias, 1, |r, x, kernel| {
        expect_spatial(r, "convolution", &[x, kernel], walk.rank())?;
        expect_room(r, x, kernel, walk)?;
        forward(r, x, kernel, walk, padding)
    })
}

/// Refuses a kernel that is larger than the padded input.
fn expect_room(g: &impl Builder, x: NodeId, kernel: NodeId, walk: &ConvOptions) -> Result<()> {
    let (sizes, taps) = (spatial(&g.dims(x)), spatial(&g.dims(kernel)));
    let fits = |i: usize| spread(taps[i], walk.dilation[i]) <= signed(sizes[i] + 2 * walk.padding[i]);
    if (0..taps.len()).all(fits) {
        return Ok(());
    }
    let ConvOptions { padding, dilation, .. } = walk;
    let rule = format!("the kernel does not fit, with padding {padding:?} and dilation {dilation:?}");
    Err(broken_rule(g, "convolution", &[x, kernel], rule))
}

/// Gradient of a convolution for its input, whose sizes `x` gives.
pub fn conv_x_backward(op: &'static str, x: &Tensor, kernel: &Tensor, grad: &Tensor, walk: &ConvOptions) -> Tensor {
    let sizes = spatial(x.dims());
    record(op, [grad, kernel], |r, [grad, kernel]| {
        expect_gradient(r, "convolution", &[grad, kernel], x.dims(), walk.rank())?;
        let (out, taps) = (spatial(&r.dims(grad)), spatial(&r.dims(kernel)));
        let fit = |i: usize| {
            let span = spread(taps[i], walk.dilation[i]);
            padding_to_fit(span - 1 - signed(walk.padding[i]), spread(out[i], walk.stride[i]), span, 1, sizes[i])
        };
        let padding = (0..walk.rank()).map(fit).collect();
        transposed(r, grad, kernel, walk, padding)
    })
}

/// Gradient of a convolution for its kernel, whose sizes `kernel` gives.
pub fn conv_weight_backward(
    op: &'static str,
    x: &Tensor,
    kernel: &Tensor,
    grad: &Tensor,
    walk: &ConvOptions,
) -> Tensor {
    let taps = spatial(kernel.dims());
    record(op, [x, grad], |r, [x, grad]| {
        expect_gradient(r, "convolution", &[x, grad], kernel.dims(), walk.rank())?;
        kernel_gradient(r, x, grad, walk, &taps)
    })
}

/// Gradient for the bias: the sum over batch and space.
pub fn bias_backward(op: &'static str, grad: &Tensor) -> Tensor {
    record(op, [grad], |r, [grad]| sum_but_features(r, grad))
}

/// The sum over every dim but the features'.
pub(super) fn sum_but_features(g: &mut impl Builder, x: NodeId) -> Result<NodeId> {
    let dims: Dims = (0..g.rank(x)).filter(|&d| d != 1).collect();
    g.accumulate(Combine::Sum, x, &dims)
}

/// `conv_transpose1d`, `conv_transpose2d`, `conv_transpose3d`.
pub fn conv_transpose(
    op: &'static str,
    x: &Tensor,
    kernel: &Tensor,
    bias: Option<&Tensor>,
    walk: &ConvOptions,
) -> Tensor {
    let taps = spatial(kernel.dims());
    record_biased(op, [x, kernel], bias, 1, |r, x, kernel| {
        expect_spatial(r, "convolution", &[x, kernel], walk.rank())?;
        let padding = (0..walk.rank()).map(|i| {
            let low = spread(taps[i], walk.dilation[i]) - 1 - signed(walk.padding[i]);
            (low, low + signed(walk.padding_out[i]))
        });
        transposed(r, x, kernel, walk, padding.collect())
    })
}

/// Gradient of a transposed convolution for its input.
pub fn conv_transpose_x_backward(op: &'static str, kernel: &Tensor, grad: &Tensor, walk: &ConvOptions) -> Tensor {
    // The output padding saw no input: it is cropped, so that as many positions come out as went in.
    let high = |i: usize| signed(walk.padding[i]) - signed(walk.padding_out[i]);
    let padding = (0..walk.rank()).map(|i| (signed(walk.padding[i]), high(i))).collect();
    record(op, [grad, kernel], |r, [grad, kernel]| forward(r, grad, kernel, walk, padding))
}

/// Gradient of a transposed convolution for its kernel: that of the convolution which it transposes, whose input is the
/// output here.
pub fn conv_transpose_weight_backward(
    op: &'static str,
    x: &Tensor,
    kernel: &Tensor,
    grad: &Tensor,
    walk: &ConvOptions,
) -> Tensor {
    let taps = spatial(kernel.dims());
    record(op, [grad, x], |r, [grad, x]| {
        expect_gradient(r, "convolution", &[grad, x], kernel.dims(), walk.rank())?;
        kernel_gradient(r, grad, x, walk, &taps)
    })
}

/// Sums over the kernel for each output position.
fn forward(g: &mut impl Builder, x: NodeId, kernel: NodeId, walk: &ConvOptions, padding: Padding) -> Result<NodeId> {
    let rank = g.rank(x);
    let attrs = ConvAttrs {
        strides: walk.stride.clone(),
        rhs_dilation: walk.dilation.clone(),
        feature_groups: walk.groups,
        ..plain(rank, padding)
    };
    convolve(g, x, kernel, attrs)
}

/// Sums over the kernel for each input position: the adjoint of [`forward`]. `y` has the kernel's `out` features.
///
/// The kernel is reversed by an op of its own: XLA's CPU compiler overlooks `window_reversal` where one feature meets a
/// kernel of two elements that covers its whole input.
fn transposed(g: &mut impl Builder, y: NodeId, kernel: NodeId, walk: &ConvOptions, padding: Padding) -> Result<NodeId> {
    let rank = g.rank(y);
    let kernel = swap_groups(g, kernel, walk.groups)?;
    let kernel = g.reverse(kernel, &(2..rank).collect::<Dims>())?;
    let attrs = ConvAttrs {
        lhs_dilation: walk.stride.clone(),
        rhs_dilation: walk.dilation.clone(),
        kernel: roles(1, 0, rank),
        feature_groups: walk.groups,
        ..plain(rank, padding)
    };
    convolve(g, y, kernel, attrs)
}

/// Sums over batch and output positions for each kernel position. `x` is the convolution's input, `grad` the gradient of
/// its output.
fn kernel_gradient(
    g: &mut impl Builder,
    x: NodeId,
    grad: NodeId,
    walk: &ConvOptions,
    taps: &[usize],
) -> Result<NodeId> {
    let rank = g.rank(x);
    let (size, out) = (spatial(&g.dims(x)), spatial(&g.dims(grad)));
    let fit = |i: usize| {
        let span = spread(out[i], walk.stride[i]);
        padding_to_fit(signed(walk.padding[i]), signed(size[i]), span, walk.dilation[i], taps[i])
    };
    let attrs = ConvAttrs {
        strides: walk.dilation.clone(),
        rhs_dilation: walk.stride.clone(),
        input: roles(1, 0, rank),
        kernel: roles(1, 0, rank),
        output: roles(1, 0, rank),
        batch_groups: walk.groups,
        ..plain(rank, (0..taps.len()).map(fit).collect())
    };
    convolve(g, x, grad, attrs)
}

/// 16-bit floats accumulate in f32 and round once.
fn convolve(g: &mut impl Builder, x: NodeId, kernel: NodeId, attrs: ConvAttrs) -> Result<NodeId> {
    let dtype = g.dtype(x);
    let y = g.convolution(x, kernel, ConvAttrs { result: dtype.accumulator(), ..attrs })?;
    g.convert(y, dtype)
}

/// A kernel `[out, in / groups, ...]` as `[out / groups, in, ...]`: what its transposed convolution expects of the side
/// that it sums over.
fn swap_groups(g: &mut impl Builder, kernel: NodeId, groups: usize) -> Result<NodeId> {
    if groups == 1 {
        return Ok(kernel);
    }
    let dims = g.dims(kernel);
    let (out, per_group, taps) = (dims[0], dims[1], &dims[2..]);
    if groups == 0 || !out.is_multiple_of(groups) {
        return Err(broken_rule(g, "convolution", &[kernel], format!("groups {groups} do not divide {out} features")));
    }
    let split: Dims = [groups, out / groups, per_group].into_iter().chain(taps.iter().copied()).collect();
    let joined: Dims = [out / groups, groups * per_group].into_iter().chain(taps.iter().copied()).collect();
    let permutation: Dims = [1, 0].into_iter().chain(2..split.len()).collect();
    let kernel = g.reshape(kernel, &split)?;
    let kernel = g.transpose(kernel, &permutation)?;
    g.reshape(kernel, &joined)
}

/// Attributes of a convolution that neither strides nor dilates, in Burn's layout.
fn plain(rank: usize, padding: Padding) -> ConvAttrs {
    let ones = Dims::from_elem(1, padding.len());
    ConvAttrs {
        strides: ones.clone(),
        lhs_dilation: ones.clone(),
        rhs_dilation: ones,
        padding,
        input: roles(0, 1, rank),
        kernel: roles(0, 1, rank),
        output: roles(0, 1, rank),
        feature_groups: 1,
        batch_groups: 1,
        result: burn_tpu_graph::DType::F32,
    }
}

fn roles(batch: usize, feature: usize, rank: usize) -> ConvDims {
    ConvDims { batch, feature, spatial: (2..rank).collect() }
}

fn spatial(dims: &[usize]) -> Dims {
    dims.iter().skip(2).copied().collect()
}

fn signed(size: usize) -> isize {
    size as isize
}

/// The extent of `count` elements that stand `distance` apart.
fn spread(count: usize, distance: usize) -> isize {
    if count == 0 { 0 } else { signed((count - 1) * distance + 1) }
}

/// The padding, `low` before, with which a window of extent `span` has exactly `positions` positions, `step` apart, on
/// `size` elements. The end is cropped where the walk left elements untouched.
fn padding_to_fit(low: isize, size: isize, span: isize, step: usize, positions: usize) -> (isize, isize) {
    (low, (signed(positions) - 1) * signed(step) + span - size - low)
}
