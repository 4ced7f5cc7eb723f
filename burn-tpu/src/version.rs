//! What Burn 0.21 has that other versions lack, for the sources in `ops/`, which the adapters of all versions compile.
//!
//! Owns: the methods that this version alone has, or has with another signature or body, a macro for each trait; and what
//! has one name in every version's file, where its types differ. What 0.22 has in
//! common with it is in `until_0_22.rs`. The file of 0.22 is `crates/burn-tpu-0-22/src/version.rs`.

use crate::backend::{Tpu, TpuFloat, TpuInt};
use crate::dtype::{from_float, from_int};
use crate::ops::qtensor::{inner, plain};
use crate::{TpuDevice, TpuQTensor, TpuTensor};
use burn_backend::ops::{self as burn, FloatTensorOps, QTensorOps};
use burn_backend::quantization::QuantPropagation;
use burn_backend::{
    Backend, Element, ExecutionError, QTensorPrimitive, TensorData, TensorMetadata, TensorPrimitive,
    get_device_settings,
};
use burn_std::quantization::{QuantLevel, QuantScheme, QuantizedBytes};
use burn_std::{DType as BurnDType, Shape};
use burn_tpu_runtime::graph::DType;
use burn_tpu_runtime::graph::op::{Combine, ScatterMode};
use burn_tpu_runtime::ops::module::{InterpolateMode, Rounding};
use burn_tpu_runtime::ops::{
    data,
    quantized::{self, Blocks},
};

pub(crate) use crate::tickets::{collected, supplied};
pub(crate) use crate::until_0_22::{attention_options, interpolate_options};
pub(crate) use burn_backend::tensor::IndexingUpdateOp;

/// The methods of `FloatTensorOps`.
macro_rules! float_methods {
    () => {
        fn float_device(tensor: &TpuTensor) -> TpuDevice {
            burn_tpu_runtime::leaves::visited(&tensor.0);
            tensor.device()
        }

        fn float_scatter_add(dim: usize, tensor: TpuTensor, indices: TpuTensor, value: TpuTensor) -> TpuTensor {
            index::scatter(tensor.0, dim, indices.0, value.0, $crate::version::SUM).into()
        }

        fn float_select_add(tensor: TpuTensor, dim: usize, indices: TpuTensor, value: TpuTensor) -> TpuTensor {
            index::select_assign(tensor.0, dim, indices.0, value.0, $crate::version::SUM).into()
        }
    };
}
pub(crate) use float_methods;

/// The methods of `IntTensorOps`.
macro_rules! int_methods {
    () => {
        fn int_device(tensor: &TpuTensor) -> TpuDevice {
            burn_tpu_runtime::leaves::visited(&tensor.0);
            tensor.device()
        }

        fn int_scatter_add(dim: usize, tensor: TpuTensor, indices: TpuTensor, value: TpuTensor) -> TpuTensor {
            index::scatter(tensor.0, dim, indices.0, value.0, $crate::version::SUM).into()
        }

        fn int_select_add(tensor: TpuTensor, dim: usize, indices: TpuTensor, value: TpuTensor) -> TpuTensor {
            index::select_assign(tensor.0, dim, indices.0, value.0, $crate::version::SUM).into()
        }
    };
}
pub(crate) use int_methods;

/// The methods of `BoolTensorOps`.
macro_rules! bool_methods {
    () => {
        $crate::until_0_22::bool_methods! {}

        fn bool_device(tensor: &TpuTensor) -> TpuDevice {
            burn_tpu_runtime::leaves::visited(&tensor.0);
            tensor.device()
        }
    };
}
pub(crate) use bool_methods;

/// The methods of `ModuleOps`.
macro_rules! module_methods {
    () => {
        $crate::until_0_22::module_methods! {}

        fn max_pool1d_with_indices(
            x: TpuTensor,
            kernel_size: usize,
            stride: usize,
            padding: usize,
            dilation: usize,
            ceil_mode: bool,
        ) -> MaxPool1dWithIndices<Self> {
            let window =
                Window::dilated([kernel_size], [stride], [padding], [dilation], $crate::version::rounding(ceil_mode));
            let index = $crate::version::index_type::<Self>(&x);
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
        ) -> MaxPool2dWithIndices<Self> {
            let window = Window::dilated(kernel_size, stride, padding, dilation, $crate::version::rounding(ceil_mode));
            let index = $crate::version::index_type::<Self>(&x);
            let [output, indices] = layers::max_pool_with_indices("max_pool2d_with_indices", &x.0, &window, index);
            MaxPool2dWithIndices::new(output.into(), indices.into())
        }

        fn rfft(signal: TpuTensor, dim: usize, n: Option<usize>) -> (TpuTensor, TpuTensor) {
            let [real, imag] = layers::rfft(&signal.0, dim, n);
            (real.into(), imag.into())
        }

        fn irfft(spectrum_re: TpuTensor, spectrum_im: TpuTensor, dim: usize, n: Option<usize>) -> TpuTensor {
            layers::irfft(&spectrum_re.0, &spectrum_im.0, dim, n).into()
        }
    };
}
pub(crate) use module_methods;

/// The methods of `QTensorOps`.
macro_rules! q_methods {
    () => {
        fn q_device(x: &TpuQTensor) -> TpuDevice {
            burn_tpu_runtime::leaves::visited(&x.scales.0);
            burn_tpu_runtime::leaves::visited(&x.values.0);
            x.values.device()
        }

        /// Reshapes the integers. Blocks are ranges of row-major values, so a reshape keeps them.
        fn q_reshape(x: TpuQTensor, shape: Shape) -> TpuQTensor {
            TpuQTensor { values: movement::reshape(x.values.0, &shape).into(), ..x }
        }

        fn q_matmul(
            x: burn_backend::TensorPrimitive<Self>,
            y: burn_backend::TensorPrimitive<Self>,
        ) -> burn_backend::TensorPrimitive<Self> {
            $crate::version::q_matmul(x, y)
        }
    };
}
pub(crate) use q_methods;

/// How a scatter or a select of this version writes.
pub(crate) const SUM: ScatterMode = ScatterMode::Combine(Combine::Sum);

/// Moves a tensor to a device, unless a module's tensors are being replaced.
pub(crate) fn to_device(tensor: TpuTensor, device: &TpuDevice) -> TpuTensor {
    burn_tpu_runtime::leaves::replaced(tensor.0, |tensor| data::to_device(tensor, &device.0)).into()
}

pub(crate) fn dtype(data: &TensorData) -> BurnDType {
    data.dtype
}

pub(crate) fn shape(data: &TensorData) -> &Shape {
    &data.shape
}

/// Returns the type of a pool's indices: the device's default integer.
pub(crate) fn index_type<B: Backend<Device = TpuDevice>>(x: &TpuTensor) -> DType {
    from_int(get_device_settings::<B>(&x.device()).int_dtype)
}

/// Returns the padding of a convolution before and after each dim.
pub(crate) fn padding<const N: usize>(sizes: &[usize; N]) -> impl Iterator<Item = (usize, usize)> {
    sizes.iter().map(|&size| (size, size))
}

/// Returns which windows ceil mode of a pool adds.
pub(crate) fn rounding(ceil_mode: bool) -> Rounding {
    if ceil_mode { Rounding::Ceil } else { Rounding::Floor }
}

pub(crate) fn interpolate_mode(mode: &burn::InterpolateMode) -> InterpolateMode {
    match mode {
        burn::InterpolateMode::Nearest => InterpolateMode::Nearest,
        burn::InterpolateMode::Bilinear => InterpolateMode::Bilinear,
        burn::InterpolateMode::Bicubic => InterpolateMode::Bicubic,
        burn::InterpolateMode::Lanczos3 => InterpolateMode::Lanczos3,
    }
}

/// Returns the values and the scales of quantized data.
pub(crate) fn unpacked(data: TensorData, scheme: QuantScheme) -> (Vec<i8>, Vec<f32>) {
    let num_elements = data.num_elements();
    let (values, parameters) = QuantizedBytes { bytes: data.into_bytes(), scheme, num_elements }.into_vec_i8();
    (values, parameters.scales)
}

pub(crate) fn quantized(values: Vec<i8>, shape: Shape, scheme: QuantScheme, scales: &[f32]) -> TensorData {
    TensorData::quantized(values, shape, scheme, scales)
}

pub(crate) fn elements<E: Element>(data: TensorData) -> Result<Vec<E>, ExecutionError> {
    let unread = |error| ExecutionError::WithContext { reason: format!("q_into_data: {error:?}") };
    data.into_vec().map_err(unread)
}

/// Returns the parts of a tensor that have a scale: ranges of row-major values.
pub(crate) fn blocks(scheme: &QuantScheme) -> Blocks {
    match scheme.level {
        QuantLevel::Tensor => Blocks::Whole,
        QuantLevel::Block(size) => Blocks::Rows(size.num_elements()),
    }
}

/// Returns whether the scales are f32 of one level: there are no others.
pub(crate) fn has_plain_scales(_: &QuantScheme) -> bool {
    true
}

/// Returns the scheme after two dims are swapped.
pub(crate) fn swapped(scheme: QuantScheme, _rank: usize, _dim1: usize, _dim2: usize) -> QuantScheme {
    scheme
}

/// Returns the scheme after the dims are permuted.
pub(crate) fn permuted(scheme: QuantScheme, _rank: usize, _axes: &[usize]) -> QuantScheme {
    scheme
}

/// Multiplies integers on TPUs if both sides are quantized and the scales allow it, else the dequantized values.
pub(crate) fn q_matmul<F: TpuFloat, I: TpuInt>(
    x: TensorPrimitive<Tpu<F, I>>,
    y: TensorPrimitive<Tpu<F, I>>,
) -> TensorPrimitive<Tpu<F, I>> {
    use TensorPrimitive::{Float, QFloat};
    let (product, by) = match (x, y) {
        (Float(x), Float(y)) => return Float(Tpu::<F, I>::float_matmul(x, y)),
        (Float(x), QFloat(y)) => {
            let dtype = x.dtype().into();
            (Tpu::<F, I>::float_matmul(x, Tpu::<F, I>::dequantize(y.clone(), dtype)), y)
        }
        (QFloat(x), Float(y)) => {
            let dtype = y.dtype().into();
            (Tpu::<F, I>::float_matmul(Tpu::<F, I>::dequantize(x.clone(), dtype), y), x)
        }
        (QFloat(x), QFloat(y)) => (product::<F, I>(x, y.clone()), y),
    };
    match by.propagation() {
        QuantPropagation::Propagate => QFloat(Tpu::<F, I>::quantize_dynamic(product, by.scheme())),
        QuantPropagation::Inhibit => Float(product),
    }
}

/// Multiplies two quantized matrices; the product has the device's float type.
fn product<F: TpuFloat, I: TpuInt>(x: TpuQTensor, y: TpuQTensor) -> TpuTensor {
    let device = Tpu::<F, I>::q_device(&x);
    let dtype = get_device_settings::<Tpu<F, I>>(&device).float_dtype;
    let (schemes, integers) = ((plain(&x.scheme), plain(&y.scheme)), (inner(x.clone()), inner(y.clone())));
    let product = quantized::multiplies_integers(device.0)
        .then(|| quantized::matmul((&integers.0, &schemes.0), (&integers.1, &schemes.1), from_float(dtype)));
    match product.flatten() {
        Some(product) => product.into(),
        None => {
            let [x, y] = [x, y].map(|x| Tpu::<F, I>::dequantize(x, dtype));
            Tpu::<F, I>::float_matmul(x, y)
        }
    }
}
