//! What Burn has since 0.22 and 0.21 lacks, for the sources in `burn-tpu/src/ops`. The adapters of 0.22 and 0.23 compile it.
//!
//! Owns: the methods that these versions alone have, or have with another signature or body, a macro for each trait; and
//! what has one name in every version, where the types of 0.21 differ. The `version.rs` of each version includes it.

use crate::{TpuDevice, TpuTensor};
use burn_backend::ops as burn;
use burn_backend::{Element, ExecutionError, TensorData};
use burn_std::quantization::{BlockSize, QuantScheme, QuantizedBytes, ScaleDtype};
use burn_std::{DType as BurnDType, Shape};
use burn_tpu_runtime::graph::Number;
use burn_tpu_runtime::leaves;
use burn_tpu_runtime::ops::data;
use burn_tpu_runtime::ops::module::{InterpolateMode, Rounding};
use burn_tpu_runtime::ops::pad::Padding;
use burn_tpu_runtime::ops::quantized::Blocks;

pub(crate) use crate::tickets::{collected, supplied};
pub(crate) use burn_std::IndexingUpdateOp;

/// The methods of `FloatTensorOps`.
macro_rules! float_methods {
    () => {
        fn float_hypot(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
            arithmetic::hypot(lhs.0, rhs.0).into()
        }

        fn float_pad(tensor: TpuTensor, padding: &[(usize, usize)], mode: burn_backend::ops::PadMode) -> TpuTensor {
            burn_tpu_runtime::ops::pad::pad(tensor.0, padding, $crate::version::padding_of(mode)).into()
        }

        fn float_scatter(
            dim: usize,
            tensor: TpuTensor,
            indices: TpuTensor,
            value: TpuTensor,
            update: $crate::version::IndexingUpdateOp,
        ) -> TpuTensor {
            index::scatter(tensor.0, dim, indices.0, value.0, scatter_mode(update)).into()
        }

        fn float_select_assign(
            tensor: TpuTensor,
            dim: usize,
            indices: TpuTensor,
            value: TpuTensor,
            update: $crate::version::IndexingUpdateOp,
        ) -> TpuTensor {
            index::select_assign(tensor.0, dim, indices.0, value.0, scatter_mode(update)).into()
        }

        async fn float_mask_select(tensor: TpuTensor, mask: TpuTensor) -> TpuTensor {
            burn_tpu_runtime::ops::places::mask_select(tensor.0, mask.0).into()
        }

        fn float_sum_dims(tensor: TpuTensor, dims: &[usize]) -> TpuTensor {
            reduce::sum_dims(tensor.0, dims).into()
        }

        fn float_topk_with_indices(tensor: TpuTensor, dim: usize, k: usize, dtype: IntDType) -> (TpuTensor, TpuTensor) {
            pair(sort::topk_with_indices(tensor.0, dim, k, from_int(dtype)))
        }
    };
}
pub(crate) use float_methods;

/// The methods of `IntTensorOps`.
macro_rules! int_methods {
    () => {
        fn int_square(tensor: TpuTensor) -> TpuTensor {
            arithmetic::power_scalar("int_square", tensor.0, burn_tpu_runtime::graph::Number::Int(2)).into()
        }

        fn int_pad(tensor: TpuTensor, padding: &[(usize, usize)], mode: burn_backend::ops::PadMode) -> TpuTensor {
            burn_tpu_runtime::ops::pad::pad(tensor.0, padding, $crate::version::padding_of(mode)).into()
        }

        fn int_scatter(
            dim: usize,
            tensor: TpuTensor,
            indices: TpuTensor,
            value: TpuTensor,
            update: $crate::version::IndexingUpdateOp,
        ) -> TpuTensor {
            index::scatter(tensor.0, dim, indices.0, value.0, scatter_mode(update)).into()
        }

        fn int_select_assign(
            tensor: TpuTensor,
            dim: usize,
            indices: TpuTensor,
            value: TpuTensor,
            update: $crate::version::IndexingUpdateOp,
        ) -> TpuTensor {
            index::select_assign(tensor.0, dim, indices.0, value.0, scatter_mode(update)).into()
        }

        async fn int_mask_select(tensor: TpuTensor, mask: TpuTensor) -> TpuTensor {
            burn_tpu_runtime::ops::places::mask_select(tensor.0, mask.0).into()
        }

        fn int_topk_with_indices(tensor: TpuTensor, dim: usize, k: usize) -> (TpuTensor, TpuTensor) {
            let index = position_type(&tensor.0);
            pair(sort::topk_with_indices(tensor.0, dim, k, index))
        }
    };
}
pub(crate) use int_methods;

/// The methods of `BoolTensorOps`.
macro_rules! bool_methods {
    () => {
        async fn bool_mask_select(tensor: TpuTensor, mask: TpuTensor) -> TpuTensor {
            burn_tpu_runtime::ops::places::mask_select(tensor.0, mask.0).into()
        }
    };
}
pub(crate) use bool_methods;

/// The methods of `ModuleOps`.
macro_rules! module_methods {
    () => {
        fn fold4d(x: TpuTensor, output_size: [usize; 2], kernel_size: [usize; 2], options: UnfoldOptions) -> TpuTensor {
            let window =
                Window::dilated(kernel_size, options.stride, options.padding, options.dilation, Rounding::Floor);
            layers::fold4d(&x.0, output_size, &window).into()
        }

        fn adaptive_avg_pool3d(x: TpuTensor, output_size: [usize; 3]) -> TpuTensor {
            layers::adaptive_avg_pool("adaptive_avg_pool3d", &x.0, &output_size).into()
        }

        fn adaptive_avg_pool3d_backward(x: TpuTensor, grad: TpuTensor) -> TpuTensor {
            layers::adaptive_avg_pool_backward("adaptive_avg_pool3d_backward", &x.0, &grad.0).into()
        }

        fn max_pool1d_with_indices(
            x: TpuTensor,
            kernel_size: usize,
            stride: usize,
            padding: usize,
            dilation: usize,
            ceil_mode: bool,
            indices_dtype: burn_std::IntDType,
        ) -> MaxPool1dWithIndices<Self> {
            let window =
                Window::dilated([kernel_size], [stride], [padding], [dilation], $crate::version::rounding(ceil_mode));
            let index = $crate::dtype::from_int(indices_dtype);
            let [output, indices] = layers::max_pool_with_indices("max_pool1d_with_indices", &x.0, &window, index);
            MaxPool1dWithIndices::new(output.into(), indices.into())
        }

        fn max_pool2d_with_indices(
            x: TpuTensor,
            kernel_size: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            dilation: [usize; 2],
            ceil_mode: bool,
            indices_dtype: burn_std::IntDType,
        ) -> MaxPool2dWithIndices<Self> {
            let window = Window::dilated(kernel_size, stride, padding, dilation, $crate::version::rounding(ceil_mode));
            let index = $crate::dtype::from_int(indices_dtype);
            let [output, indices] = layers::max_pool_with_indices("max_pool2d_with_indices", &x.0, &window, index);
            MaxPool2dWithIndices::new(output.into(), indices.into())
        }

        fn batch_norm(
            x: TpuTensor,
            gamma: TpuTensor,
            beta: TpuTensor,
            mean: TpuTensor,
            variance: TpuTensor,
            epsilon: f64,
        ) -> TpuTensor {
            layers::batch_norm([&x.0, &gamma.0, &beta.0, &mean.0, &variance.0], epsilon).into()
        }

        fn batch_norm_train(x: TpuTensor, gamma: TpuTensor, beta: TpuTensor, epsilon: f64) -> BatchNormTrain<Self> {
            let [output, mean, variance] = layers::batch_norm_train([&x.0, &gamma.0, &beta.0], epsilon);
            BatchNormTrain::new(output.into(), mean.into(), variance.into())
        }

        fn batch_norm_train_backward(
            x: TpuTensor,
            gamma: TpuTensor,
            mean: TpuTensor,
            variance: TpuTensor,
            epsilon: f64,
            output_grad: TpuTensor,
        ) -> BatchNormTrainBackward<Self> {
            let operands = [&x.0, &gamma.0, &mean.0, &variance.0, &output_grad.0];
            let [x, gamma, beta] = layers::batch_norm_train_backward(operands, epsilon);
            BatchNormTrainBackward::new(x.into(), gamma.into(), beta.into())
        }
    };
}
pub(crate) use module_methods;

/// The methods of `QTensorOps`.
macro_rules! q_methods {
    () => {
        fn q_reshape(x: TpuQTensor, shape: Shape) -> TpuQTensor {
            moved(x, |x| movement::reshape(x, &shape))
        }

        fn q_topk_with_indices(x: TpuQTensor, dim: usize, k: usize, index: IntDType) -> (TpuQTensor, TpuTensor) {
            let places = Self::q_argtopk(x.clone(), dim, k, index);
            (Self::q_topk(x, dim, k), places)
        }
    };
}
pub(crate) use q_methods;

pub(crate) fn padding_of(mode: burn::PadMode) -> Padding {
    match mode {
        burn::PadMode::Constant(value) => Padding::Constant(Number::Float(value.into())),
        burn::PadMode::Reflect => Padding::Reflect,
        burn::PadMode::Edge => Padding::Edge,
    }
}

/// Moves a tensor to a device, unless a module's tensors are being replaced.
pub(crate) fn to_device(tensor: TpuTensor, device: &TpuDevice) -> TpuTensor {
    leaves::replaced(tensor.0, |tensor| data::to_device(tensor, &device.0)).into()
}

pub(crate) fn dtype(data: &TensorData) -> BurnDType {
    data.dtype()
}

pub(crate) fn shape(data: &TensorData) -> &Shape {
    data.shape()
}

/// Returns the padding of a convolution before and after each dim.
pub(crate) fn padding<const N: usize>(sizes: &[(usize, usize); N]) -> impl Iterator<Item = (usize, usize)> {
    sizes.iter().copied()
}

/// Returns which windows ceil mode of a pool adds.
pub(crate) fn rounding(ceil_mode: bool) -> Rounding {
    if ceil_mode { Rounding::CeilInside } else { Rounding::Floor }
}

pub(crate) fn interpolate_mode(mode: &burn::InterpolateMode) -> InterpolateMode {
    match mode {
        burn::InterpolateMode::Nearest => InterpolateMode::Nearest,
        burn::InterpolateMode::NearestExact => InterpolateMode::NearestExact,
        burn::InterpolateMode::Bilinear => InterpolateMode::Bilinear,
        burn::InterpolateMode::Bicubic => InterpolateMode::Bicubic,
        burn::InterpolateMode::Lanczos3 => InterpolateMode::Lanczos3,
    }
}

/// Returns the values and the scales of quantized data.
pub(crate) fn unpacked(data: TensorData, scheme: QuantScheme) -> (Vec<i8>, Vec<f32>) {
    let shape = data.shape().clone();
    let (values, scales) = QuantizedBytes { bytes: data.into_bytes(), scheme, shape }.into_vec_i8();
    (values, scales.block)
}

pub(crate) fn quantized(values: Vec<i8>, shape: Shape, scheme: QuantScheme, scales: &[f32]) -> TensorData {
    TensorData::quantized(values, shape, scheme, scales, None)
}

pub(crate) fn elements<E: Element>(data: TensorData) -> Result<Vec<E>, ExecutionError> {
    let unread = |error| ExecutionError::WithContext { reason: format!("q_into_data: {error:?}") };
    data.try_into_vec().map_err(unread)
}

/// Returns the parts of a tensor that have a scale: rectangles.
pub(crate) fn blocks(scheme: &QuantScheme) -> Blocks {
    let tile = |size: BlockSize| Blocks::Tiles(size.iter().map(|&size| usize::from(size)).collect());
    scheme.block_size().map_or(Blocks::Whole, tile)
}

/// Returns whether the scales are f32 of one level.
pub(crate) fn has_plain_scales(scheme: &QuantScheme) -> bool {
    scheme.num_levels() == 1 && scheme.scale_dtype() == ScaleDtype::F32
}

/// Returns the scheme after two dims are swapped.
pub(crate) fn swapped(mut scheme: QuantScheme, rank: usize, dim1: usize, dim2: usize) -> QuantScheme {
    scheme.swap_block_dims(rank, dim1, dim2);
    scheme
}

/// Returns the scheme after the dims are permuted.
pub(crate) fn permuted(mut scheme: QuantScheme, rank: usize, axes: &[usize]) -> QuantScheme {
    scheme.permute_block_dims(rank, axes);
    scheme
}
