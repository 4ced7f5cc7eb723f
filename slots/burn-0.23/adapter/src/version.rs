//! What Burn 0.23 has that other versions lack, for the sources in `burn-tpu/src/ops`, which the adapters of all versions
//! compile. What it has in common with 0.22 is in `since_0_22.rs`.
//!
//! Owns: the methods that this version alone has, or has with another signature or body, a macro for each trait; and what
//! has one name in every version's file, where its types differ. The file of 0.21 is `burn-tpu/src/version.rs`, that of 0.22
//! `crates/burn-tpu-0-22/src/version.rs`.

use crate::since_0_22;
use burn_backend::ops as burn;
use burn_tpu_runtime::graph::op::{Combine, ScatterMode};
use burn_tpu_runtime::ops::module::{
    AttentionOptions, CausalAlignment, Coordinates, Cubic, InterpolateOptions, NearestRounding,
};

pub(crate) use crate::host_elements::HostCopy;
pub(crate) use since_0_22::*;

/// The methods of `Backend`.
macro_rules! backend_methods {
    () => {
        /// Returns the bytes that the device's allocator may use, as its plugin states it; `None` for plugins that do
        /// not, and for a device that no tensor was on.
        fn memory_capacity(device: &TpuDevice) -> Option<u64> {
            device.memory().plugin.and_then(|plugin| plugin.limit)
        }
    };
}
pub(crate) use backend_methods;

/// The methods of `FloatTensorOps`.
macro_rules! float_methods {
    () => {
        $crate::since_0_22::float_methods! {}

        fn float_fmod(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
            binary("float_fmod", BinaryOp::Rem, lhs.0, rhs.0).into()
        }

        fn float_fmod_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
            binary_scalar("float_fmod_scalar", BinaryOp::Rem, lhs.0, number(rhs)).into()
        }
    };
}
pub(crate) use float_methods;

/// The methods of `BoolTensorOps`.
macro_rules! bool_methods {
    () => {
        $crate::since_0_22::bool_methods! {}

        fn bool_scatter(
            dim: usize,
            tensor: TpuTensor,
            indices: TpuTensor,
            value: TpuTensor,
            update: $crate::version::IndexingUpdateOp,
        ) -> TpuTensor {
            index::scatter(tensor.0, dim, indices.0, value.0, $crate::version::bool_mode(update)).into()
        }

        fn bool_scatter_nd(
            data: TpuTensor,
            indices: TpuTensor,
            values: TpuTensor,
            reduction: $crate::version::IndexingUpdateOp,
        ) -> TpuTensor {
            index::scatter_nd(data.0, indices.0, values.0, $crate::version::bool_mode(reduction)).into()
        }

        fn bool_gather_nd(data: TpuTensor, indices: TpuTensor) -> TpuTensor {
            index::gather_nd(data.0, indices.0).into()
        }

        fn bool_select_assign(
            tensor: TpuTensor,
            dim: usize,
            indices: TpuTensor,
            value: TpuTensor,
            update: $crate::version::IndexingUpdateOp,
        ) -> TpuTensor {
            index::select_assign(tensor.0, dim, indices.0, value.0, $crate::version::bool_mode(update)).into()
        }
    };
}
pub(crate) use bool_methods;

/// The methods of `ModuleOps`.
macro_rules! module_methods {
    () => {
        $crate::since_0_22::module_methods! {}

        fn avg_pool1d(
            x: TpuTensor,
            kernel_size: usize,
            stride: usize,
            padding: usize,
            dilation: usize,
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::dilated([kernel_size], [stride], [padding], [dilation], version::rounding(ceil_mode));
            layers::avg_pool("avg_pool1d", &x.0, &window, count_include_pad).into()
        }

        fn avg_pool1d_backward(
            x: TpuTensor,
            grad: TpuTensor,
            kernel_size: usize,
            stride: usize,
            padding: usize,
            dilation: usize,
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::dilated([kernel_size], [stride], [padding], [dilation], version::rounding(ceil_mode));
            layers::avg_pool_backward("avg_pool1d_backward", &x.0, &grad.0, &window, count_include_pad).into()
        }

        fn avg_pool2d(
            x: TpuTensor,
            kernel_size: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            dilation: [usize; 2],
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::dilated(kernel_size, stride, padding, dilation, version::rounding(ceil_mode));
            layers::avg_pool("avg_pool2d", &x.0, &window, count_include_pad).into()
        }

        fn avg_pool2d_backward(
            x: TpuTensor,
            grad: TpuTensor,
            kernel_size: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            dilation: [usize; 2],
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::dilated(kernel_size, stride, padding, dilation, version::rounding(ceil_mode));
            layers::avg_pool_backward("avg_pool2d_backward", &x.0, &grad.0, &window, count_include_pad).into()
        }

        fn avg_pool3d(
            x: TpuTensor,
            kernel_size: [usize; 3],
            stride: [usize; 3],
            padding: [usize; 3],
            dilation: [usize; 3],
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::dilated(kernel_size, stride, padding, dilation, version::rounding(ceil_mode));
            layers::avg_pool("avg_pool3d", &x.0, &window, count_include_pad).into()
        }

        fn avg_pool3d_backward(
            x: TpuTensor,
            grad: TpuTensor,
            kernel_size: [usize; 3],
            stride: [usize; 3],
            padding: [usize; 3],
            dilation: [usize; 3],
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::dilated(kernel_size, stride, padding, dilation, version::rounding(ceil_mode));
            layers::avg_pool_backward("avg_pool3d_backward", &x.0, &grad.0, &window, count_include_pad).into()
        }

        fn max_pool3d(
            x: TpuTensor,
            kernel_size: [usize; 3],
            stride: [usize; 3],
            padding: [usize; 3],
            dilation: [usize; 3],
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::dilated(kernel_size, stride, padding, dilation, version::rounding(ceil_mode));
            layers::max_pool("max_pool3d", &x.0, &window).into()
        }

        fn max_pool3d_with_indices(
            x: TpuTensor,
            kernel_size: [usize; 3],
            stride: [usize; 3],
            padding: [usize; 3],
            dilation: [usize; 3],
            ceil_mode: bool,
            indices_dtype: burn_std::IntDType,
        ) -> MaxPool3dWithIndices<Self> {
            let window = Window::dilated(kernel_size, stride, padding, dilation, version::rounding(ceil_mode));
            let index = $crate::dtype::from_int(indices_dtype);
            let [output, indices] = layers::max_pool_with_indices("max_pool3d_with_indices", &x.0, &window, index);
            MaxPool3dWithIndices::new(output.into(), indices.into())
        }

        fn max_pool3d_with_indices_backward(
            x: TpuTensor,
            kernel_size: [usize; 3],
            stride: [usize; 3],
            padding: [usize; 3],
            dilation: [usize; 3],
            ceil_mode: bool,
            output_grad: TpuTensor,
            indices: TpuTensor,
        ) -> MaxPool3dBackward<Self> {
            let window = Window::dilated(kernel_size, stride, padding, dilation, version::rounding(ceil_mode));
            let name = "max_pool3d_with_indices_backward";
            MaxPool3dBackward::new(layers::max_pool_backward(name, &x.0, &output_grad.0, &indices.0, &window).into())
        }

        fn has_attention_backward() -> bool {
            true
        }

        fn attention_with_logsumexp(
            query: TpuTensor,
            key: TpuTensor,
            value: TpuTensor,
            options: AttentionModuleOptions,
        ) -> (TpuTensor, TpuTensor) {
            let options = version::attention_options(&options);
            let [output, logsumexp] = layers::attention_with_logsumexp([&query.0, &key.0, &value.0], options);
            (output.into(), logsumexp.into())
        }

        fn attention_backward(
            query: TpuTensor,
            key: TpuTensor,
            value: TpuTensor,
            out: TpuTensor,
            logsumexp: TpuTensor,
            out_grad: TpuTensor,
            options: AttentionModuleOptions,
        ) -> AttentionBackward<Self> {
            let operands = layers::AttentionGradient {
                query: &query.0,
                key: &key.0,
                value: &value.0,
                output: &out.0,
                logsumexp: &logsumexp.0,
                output_gradient: &out_grad.0,
            };
            let [query, key, value] = layers::attention_backward(&operands, version::attention_options(&options));
            AttentionBackward::new(query.into(), key.into(), value.into())
        }
    };
}
pub(crate) use module_methods;

/// How a bool scatter or select writes: sums and maxima are true if any is, products and minima if all are.
pub(crate) fn bool_mode(update: IndexingUpdateOp) -> ScatterMode {
    match update {
        IndexingUpdateOp::Assign => ScatterMode::Assign,
        IndexingUpdateOp::Add | IndexingUpdateOp::Max => ScatterMode::Combine(Combine::Or),
        IndexingUpdateOp::Mul | IndexingUpdateOp::Min => ScatterMode::Combine(Combine::And),
    }
}

pub(crate) fn interpolate_options(options: &burn::InterpolateOptions) -> InterpolateOptions {
    let rounding = match options.nearest_mode {
        burn::NearestRoundingMode::Floor => NearestRounding::Floor,
        burn::NearestRoundingMode::Ceil => NearestRounding::Ceil,
        burn::NearestRoundingMode::RoundPreferFloor => NearestRounding::HalfDown,
        burn::NearestRoundingMode::RoundPreferCeil => NearestRounding::HalfUp,
    };
    let cubic = options.cubic_options;
    InterpolateOptions {
        mode: interpolate_mode(&options.mode),
        coordinates: coordinates(options.coordinate_transform),
        rounding,
        cubic: Cubic { a: cubic.a.into(), excludes_outside: cubic.exclude_outside },
        scale: options.scale_factor.map(|scale| scale.map(f64::from)),
    }
}

fn coordinates(transform: burn::CoordinateTransformMode) -> Coordinates {
    match transform {
        burn::CoordinateTransformMode::HalfPixel => Coordinates::HalfPixel,
        burn::CoordinateTransformMode::AlignCorners => Coordinates::AlignCorners,
        burn::CoordinateTransformMode::Asymmetric => Coordinates::Asymmetric,
        burn::CoordinateTransformMode::PytorchHalfPixel => Coordinates::HalfPixelPytorch,
        burn::CoordinateTransformMode::HalfPixelSymmetric => Coordinates::HalfPixelSymmetric,
        burn::CoordinateTransformMode::TfCropAndResize { roi, extrapolation_value } => {
            Coordinates::Region { region: roi.map(|edges| edges.map(f64::from)), outside: extrapolation_value.into() }
        }
    }
}

pub(crate) fn attention_options(options: &burn::AttentionModuleOptions) -> AttentionOptions {
    let alignment = match options.causal_alignment {
        burn::CausalAlignment::BottomRight => CausalAlignment::Ends,
        burn::CausalAlignment::TopLeft => CausalAlignment::Starts,
    };
    AttentionOptions { scale: options.scale, softcap: options.softcap, is_causal: options.is_causal, alignment }
}
