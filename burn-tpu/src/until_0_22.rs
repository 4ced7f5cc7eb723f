//! What Burn 0.21 and 0.22 have in common and later versions lack, for the sources in `ops/`.
//!
//! Owns: methods with a signature that Burn 0.23 changed. The `version.rs` of each of the two versions includes them.

use crate::version;
use burn_backend::ops as burn;
use burn_tpu_runtime::graph::op::{Combine, ScatterMode};
use burn_tpu_runtime::ops::module::{AttentionOptions, InterpolateOptions};

/// The methods of `BoolTensorOps`.
macro_rules! bool_methods {
    () => {
        fn bool_scatter_or(dim: usize, tensor: TpuTensor, indices: TpuTensor, value: TpuTensor) -> TpuTensor {
            index::scatter(tensor.0, dim, indices.0, value.0, $crate::until_0_22::OR).into()
        }

        fn bool_select_or(tensor: TpuTensor, dim: usize, indices: TpuTensor, value: TpuTensor) -> TpuTensor {
            index::select_assign(tensor.0, dim, indices.0, value.0, $crate::until_0_22::OR).into()
        }
    };
}
pub(crate) use bool_methods;

/// The methods of `ModuleOps`.
macro_rules! module_methods {
    () => {
        fn avg_pool1d(
            x: TpuTensor,
            kernel_size: usize,
            stride: usize,
            padding: usize,
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::new([kernel_size], [stride], [padding], $crate::version::rounding(ceil_mode));
            layers::avg_pool("avg_pool1d", &x.0, &window, count_include_pad).into()
        }

        fn avg_pool1d_backward(
            x: TpuTensor,
            grad: TpuTensor,
            kernel_size: usize,
            stride: usize,
            padding: usize,
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::new([kernel_size], [stride], [padding], $crate::version::rounding(ceil_mode));
            layers::avg_pool_backward("avg_pool1d_backward", &x.0, &grad.0, &window, count_include_pad).into()
        }

        fn avg_pool2d(
            x: TpuTensor,
            kernel_size: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::new(kernel_size, stride, padding, $crate::version::rounding(ceil_mode));
            layers::avg_pool("avg_pool2d", &x.0, &window, count_include_pad).into()
        }

        fn avg_pool2d_backward(
            x: TpuTensor,
            grad: TpuTensor,
            kernel_size: [usize; 2],
            stride: [usize; 2],
            padding: [usize; 2],
            count_include_pad: bool,
            ceil_mode: bool,
        ) -> TpuTensor {
            let window = Window::new(kernel_size, stride, padding, $crate::version::rounding(ceil_mode));
            layers::avg_pool_backward("avg_pool2d_backward", &x.0, &grad.0, &window, count_include_pad).into()
        }
    };
}
pub(crate) use module_methods;

/// How the bool scatters and selects of these versions write.
pub(crate) const OR: ScatterMode = ScatterMode::Combine(Combine::Or);

pub(crate) fn interpolate_options(options: &burn::InterpolateOptions) -> InterpolateOptions {
    InterpolateOptions::new(version::interpolate_mode(&options.mode), options.align_corners)
}

pub(crate) fn attention_options(options: &burn::AttentionModuleOptions) -> AttentionOptions {
    AttentionOptions {
        scale: options.scale,
        softcap: options.softcap,
        is_causal: options.is_causal,
        ..AttentionOptions::default()
    }
}
