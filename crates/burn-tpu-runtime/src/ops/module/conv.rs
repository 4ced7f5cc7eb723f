//! Convolutions, transposed convolutions and the gradients of both: one `stablehlo.convolution` each.
//!
//! There are four uses of one relation between an input position `i`, an output position `o` and a kernel position `k`
//! of a spatial dim: `i = o * stride + k * dilation - padding`.
//! - A convolution sums over `k` for each `o`. It is also the input gradient of a transposed convolution.
//! - A transposed convolution sums over `k` for each `i`: `o` is dilated by `stride`, and the kernel is reversed. It is
//!   also the input gradient of a convolution.
//! - The kernel gradient sums over `o` (and the batch) for each `k`: batch and feature dims swap their roles, and so do
//!   `stride` and `dilation`. Feature groups become batch groups, so no group needs a separate convolution.
//!
//! The layout is Burn's: `[batch, features, spatial...]`, with kernels `[out, in / groups, spatial...]`. Kernels of
//! transposed convolutions are `[in, out / groups, spatial...]`, which is the kernel of the convolution that they
//! transpose.

use super::operands::{expect_gradient, expect_spatial, record_biased};
use crate::Tensor;
use crate::ops::{broken_rule, mixed};
use crate::trace::record;
use burn_tpu_graph::op::{Combine, ConvAttrs, ConvDims, Precision};
use burn_tpu_graph::{Builder, Dims, NodeId, Result};
use smallvec::SmallVec;

type Padding = SmallVec<[(isize, isize); 3]>;

/// The options of a convolution, with one entry per spatial dim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvOptions {
    /// The distance between two positions of the kernel.
    pub stride: Dims,
    /// The numbers of zeros before and after the input.
    pub padding: SmallVec<[(usize, usize); 3]>,
    /// The distance between two kernel elements.
    pub dilation: Dims,
    /// The number of independent groups of features.
    pub groups: usize,
    /// The positions added at the end of the output. Only transposed convolutions use them.
    pub padding_out: Dims,
}

impl ConvOptions {
    /// Returns the number of spatial dims.
    pub fn rank(&self) -> usize {
        self.stride.len()
    }
}

/// Computes `conv1d`, `conv2d` and `conv3d`.
pub fn conv(op: &'static str, x: &Tensor, kernel: &Tensor, bias: Option<&Tensor>, options: &ConvOptions) -> Tensor {
    let padding = options.padding.iter().map(|&(low, high)| (signed(low), signed(high))).collect();
    record_biased(op, [x, kernel], bias, 1, |r, x, kernel| {
        expect_spatial(r, "convolution", &[x, kernel], options.rank())?;
        expect_room(r, x, kernel, options)?;
        forward(r, x, kernel, options, padding)
    })
}

/// Rejects a kernel that is larger than the padded input.
fn expect_room(g: &impl Builder, x: NodeId, kernel: NodeId, options: &ConvOptions) -> Result<()> {
    let (sizes, taps) = (spatial(&g.dims(x)), spatial(&g.dims(kernel)));
    let fits = |i: usize| {
        spread(taps[i], options.dilation[i]) <= signed(sizes[i] + options.padding[i].0 + options.padding[i].1)
    };
    if (0..taps.len()).all(fits) {
        return Ok(());
    }
    let ConvOptions { padding, dilation, .. } = options;
    let rule = format!("the kernel does not fit, with padding {padding:?} and dilation {dilation:?}");
    Err(broken_rule(g, "convolution", &[x, kernel], rule))
}

/// Computes the gradient of a convolution with respect to its input. `x` provides the sizes.
pub fn conv_x_backward(op: &'static str, x: &Tensor, kernel: &Tensor, grad: &Tensor, options: &ConvOptions) -> Tensor {
    let sizes = spatial(x.dims());
    record(op, [grad, kernel], |r, [grad, kernel]| {
        expect_gradient(r, "convolution", &[grad, kernel], x.dims(), options.rank())?;
        let (out, taps) = (spatial(&r.dims(grad)), spatial(&r.dims(kernel)));
        let fit = |i: usize| {
            let span = spread(taps[i], options.dilation[i]);
            padding_to_fit(
                span - 1 - signed(options.padding[i].0),
                spread(out[i], options.stride[i]),
                span,
                1,
                sizes[i],
            )
        };
        let padding = (0..options.rank()).map(fit).collect();
        transposed(r, grad, kernel, options, padding)
    })
}

/// Computes the gradient of a convolution with respect to its kernel. `kernel` provides the sizes.
pub fn conv_weight_backward(
    op: &'static str,
    x: &Tensor,
    kernel: &Tensor,
    grad: &Tensor,
    options: &ConvOptions,
) -> Tensor {
    let taps = spatial(kernel.dims());
    record(op, [x, grad], |r, [x, grad]| {
        expect_gradient(r, "convolution", &[x, grad], kernel.dims(), options.rank())?;
        kernel_gradient(r, x, grad, options, &taps)
    })
}

/// Computes the gradient with respect to the bias: the sum over batch and spatial dims.
pub fn bias_backward(op: &'static str, grad: &Tensor) -> Tensor {
    record(op, [grad], |r, [grad]| sum_but_features(r, grad))
}

/// Sums over every dim except the feature dim.
pub(super) fn sum_but_features(g: &mut impl Builder, x: NodeId) -> Result<NodeId> {
    let dims: Dims = (0..g.rank(x)).filter(|&d| d != 1).collect();
    g.accumulate(Combine::Sum, x, &dims)
}

/// Computes `conv_transpose1d`, `conv_transpose2d` and `conv_transpose3d`.
pub fn conv_transpose(
    op: &'static str,
    x: &Tensor,
    kernel: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvOptions,
) -> Tensor {
    let taps = spatial(kernel.dims());
    record_biased(op, [x, kernel], bias, 1, |r, x, kernel| {
        expect_spatial(r, "convolution", &[x, kernel], options.rank())?;
        let padding = (0..options.rank()).map(|i| {
            let (reach, (low, high)) = (spread(taps[i], options.dilation[i]) - 1, options.padding[i]);
            (reach - signed(low), reach - signed(high) + signed(options.padding_out[i]))
        });
        transposed(r, x, kernel, options, padding.collect())
    })
}

/// Computes the gradient of a transposed convolution with respect to its input.
pub fn conv_transpose_x_backward(op: &'static str, kernel: &Tensor, grad: &Tensor, options: &ConvOptions) -> Tensor {
    // The output padding does not depend on the input, so it is cropped and the result has the size of the input.
    let high = |i: usize| signed(options.padding[i].1) - signed(options.padding_out[i]);
    let padding = (0..options.rank()).map(|i| (signed(options.padding[i].0), high(i))).collect();
    record(op, [grad, kernel], |r, [grad, kernel]| forward(r, grad, kernel, options, padding))
}

/// Computes the gradient of a transposed convolution with respect to its kernel. It is the kernel gradient of the
/// convolution that it transposes, whose input is the output here.
pub fn conv_transpose_weight_backward(
    op: &'static str,
    x: &Tensor,
    kernel: &Tensor,
    grad: &Tensor,
    options: &ConvOptions,
) -> Tensor {
    let taps = spatial(kernel.dims());
    record(op, [grad, x], |r, [grad, x]| {
        expect_gradient(r, "convolution", &[grad, x], kernel.dims(), options.rank())?;
        kernel_gradient(r, grad, x, options, &taps)
    })
}

/// Sums over the kernel for each output position.
fn forward(g: &mut impl Builder, x: NodeId, kernel: NodeId, options: &ConvOptions, padding: Padding) -> Result<NodeId> {
    let rank = g.rank(x);
    let attrs = ConvAttrs {
        strides: options.stride.clone(),
        rhs_dilation: options.dilation.clone(),
        feature_groups: options.groups,
        ..plain(rank, padding)
    };
    convolve(g, x, kernel, attrs)
}

/// Sums over the kernel for each input position: the adjoint of [`forward`]. `y` has the kernel's `out` features.
///
/// A separate op reverses the kernel: XLA's CPU compiler ignores `window_reversal` for a single feature with a kernel
/// of two elements that covers its whole input.
fn transposed(
    g: &mut impl Builder,
    y: NodeId,
    kernel: NodeId,
    options: &ConvOptions,
    padding: Padding,
) -> Result<NodeId> {
    let rank = g.rank(y);
    let kernel = swap_groups(g, kernel, options.groups)?;
    let kernel = g.reverse(kernel, &(2..rank).collect::<Dims>())?;
    let attrs = ConvAttrs {
        lhs_dilation: options.stride.clone(),
        rhs_dilation: options.dilation.clone(),
        kernel: roles(1, 0, rank),
        feature_groups: options.groups,
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
    options: &ConvOptions,
    taps: &[usize],
) -> Result<NodeId> {
    let rank = g.rank(x);
    let (size, out) = (spatial(&g.dims(x)), spatial(&g.dims(grad)));
    let fit = |i: usize| {
        let span = spread(out[i], options.stride[i]);
        padding_to_fit(signed(options.padding[i].0), signed(size[i]), span, options.dilation[i], taps[i])
    };
    let attrs = ConvAttrs {
        strides: options.dilation.clone(),
        rhs_dilation: options.stride.clone(),
        input: roles(1, 0, rank),
        kernel: roles(1, 0, rank),
        output: roles(1, 0, rank),
        batch_groups: options.groups,
        ..plain(rank, (0..taps.len()).map(fit).collect())
    };
    convolve(g, x, grad, attrs)
}

/// Records a convolution. 16-bit floats accumulate in f32 and are rounded once.
fn convolve(g: &mut impl Builder, x: NodeId, kernel: NodeId, attrs: ConvAttrs) -> Result<NodeId> {
    let (x, kernel) = mixed::narrowed(g, x, kernel)?;
    let dtype = g.dtype(x);
    let y = g.convolution(x, kernel, ConvAttrs { result: dtype.accumulator(), ..attrs })?;
    g.convert(y, dtype)
}

/// Reorders a kernel `[out, in / groups, ...]` to `[out / groups, in, ...]`, the layout that its transposed convolution
/// sums over.
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

/// Returns the attributes of a convolution without stride and dilation, in Burn's layout.
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
        precision: Precision::Default,
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

/// Returns the extent of `count` elements with the given distance.
fn spread(count: usize, distance: usize) -> isize {
    if count == 0 { 0 } else { signed((count - 1) * distance + 1) }
}

/// Returns the padding, with `low` before, for which a window of extent `span` has exactly `positions` positions at
/// distance `step` on `size` elements. The end is cropped if the convolution left elements there unused.
fn padding_to_fit(low: isize, size: isize, span: isize, step: usize, positions: usize) -> (isize, isize) {
    (low, (signed(positions) - 1) * signed(step) + span - size - low)
}
