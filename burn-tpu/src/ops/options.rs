//! Conversions of Burn's options to the runtime's plain ones.

use crate::TpuTensor;
use crate::version::{self, IndexingUpdateOp};
use burn_backend::Distribution;
use burn_backend::ops as burn;
use burn_std::Slice;
use burn_tpu_runtime::Tensor;
use burn_tpu_runtime::graph::Dims;
use burn_tpu_runtime::graph::op::{Combine, ScatterMode};
use burn_tpu_runtime::ops::grid_sample::{GridSampleOptions, GridSamplePadding};
use burn_tpu_runtime::ops::module::{ConvOptions, DeformConvOptions};
use burn_tpu_runtime::ops::{movement, random};
use smallvec::SmallVec;

/// Converts an optional operand.
pub(crate) fn inner(tensor: &Option<TpuTensor>) -> Option<&Tensor> {
    tensor.as_ref().map(|tensor| &tensor.0)
}

/// Converts two results.
pub(crate) fn pair((first, second): (Tensor, Tensor)) -> (TpuTensor, TpuTensor) {
    (first.into(), second.into())
}

/// Resolves Burn's slices within the tensor's dims: clamps them, and counts negative bounds from the end. A slice of a dim
/// that the tensor does not have is kept, and the op refuses it.
pub(crate) fn resolved(tensor: &TpuTensor, slices: &[Slice]) -> SmallVec<[movement::Slice; 4]> {
    let size = |dim: usize| tensor.0.dims().get(dim).copied().unwrap_or(0);
    let resolve =
        |(dim, slice): (usize, &Slice)| movement::Slice { range: slice.to_range(size(dim)), step: slice.step() };
    slices.iter().enumerate().map(resolve).collect()
}

pub(crate) fn plain_distribution(distribution: Distribution) -> random::Distribution {
    match distribution {
        Distribution::Default => random::Distribution::Default,
        Distribution::Bernoulli(chance) => random::Distribution::Bernoulli(chance),
        Distribution::Uniform(low, high) => random::Distribution::Uniform(low, high),
        Distribution::Normal(mean, deviation) => random::Distribution::Normal(mean, deviation),
    }
}

pub(crate) fn scatter_mode(update: IndexingUpdateOp) -> ScatterMode {
    match update {
        IndexingUpdateOp::Assign => ScatterMode::Assign,
        IndexingUpdateOp::Add => ScatterMode::Combine(Combine::Sum),
        IndexingUpdateOp::Mul => ScatterMode::Combine(Combine::Prod),
        IndexingUpdateOp::Min => ScatterMode::Combine(Combine::Min),
        IndexingUpdateOp::Max => ScatterMode::Combine(Combine::Max),
    }
}

pub(crate) fn grid_sample_options(options: burn::GridSampleOptions) -> GridSampleOptions {
    let padding = match options.padding_mode {
        burn::GridSamplePaddingMode::Zeros => GridSamplePadding::Zeros,
        burn::GridSamplePaddingMode::Border => GridSamplePadding::Border,
        burn::GridSamplePaddingMode::Reflection => GridSamplePadding::Reflection,
    };
    GridSampleOptions { mode: version::interpolate_mode(&options.mode), padding, align_corners: options.align_corners }
}

pub(crate) fn conv_options<const N: usize>(options: &burn::ConvOptions<N>) -> ConvOptions {
    ConvOptions {
        stride: Dims::from_slice(&options.stride),
        padding: version::padding(&options.padding).collect(),
        dilation: Dims::from_slice(&options.dilation),
        groups: options.groups,
        padding_out: Dims::from_elem(0, N),
    }
}

pub(crate) fn conv_transpose_options<const N: usize>(options: &burn::ConvTransposeOptions<N>) -> ConvOptions {
    ConvOptions {
        stride: Dims::from_slice(&options.stride),
        padding: options.padding.iter().map(|&size| (size, size)).collect(),
        dilation: Dims::from_slice(&options.dilation),
        groups: options.groups,
        padding_out: Dims::from_slice(&options.padding_out),
    }
}

pub(crate) fn deform_conv_options(options: &burn::DeformConvOptions<2>) -> DeformConvOptions {
    DeformConvOptions {
        stride: options.stride,
        padding: options.padding,
        dilation: options.dilation,
        weight_groups: options.weight_groups,
        offset_groups: options.offset_groups,
    }
}
