//! Burn's module operations: convolutions, pools, interpolation, attention, linear layers, norms, Fourier transforms.
//!
//! Each method names the op and passes its operands to the runtime.

use super::options::{conv_options, conv_transpose_options, deform_conv_options, inner};
use crate::backend::{Tpu, TpuFloat, TpuInt};
use crate::{TpuTensor, version};
use burn_backend::ops::*;
use burn_tpu_runtime::ops::index;
use burn_tpu_runtime::ops::module::{self as layers, Rounding, Window};

impl<F: TpuFloat, I: TpuInt> ModuleOps<Self> for Tpu<F, I> {
    fn embedding(weights: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::embedding(weights.0, indices.0).into()
    }

    fn embedding_backward(weights: TpuTensor, output_grad: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::embedding_backward(weights.0, output_grad.0, indices.0).into()
    }

    fn linear(x: TpuTensor, weight: TpuTensor, bias: Option<TpuTensor>) -> TpuTensor {
        layers::linear(&x.0, &weight.0, inner(&bias)).into()
    }

    fn linear_x_backward(weight: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        layers::linear_x_backward(&weight.0, &output_grad.0).into()
    }

    fn linear_weight_backward(x: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        layers::linear_weight_backward(&x.0, &output_grad.0).into()
    }

    fn linear_bias_backward(output_grad: TpuTensor) -> TpuTensor {
        layers::linear_bias_backward(&output_grad.0).into()
    }

    fn conv1d(x: TpuTensor, weight: TpuTensor, bias: Option<TpuTensor>, options: ConvOptions<1>) -> TpuTensor {
        layers::conv("conv1d", &x.0, &weight.0, inner(&bias), &conv_options(&options)).into()
    }

    fn conv1d_x_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<1>) -> TpuTensor {
        layers::conv_x_backward("conv1d_x_backward", &x.0, &weight.0, &grad.0, &conv_options(&options)).into()
    }

    fn conv1d_weight_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<1>) -> TpuTensor {
        layers::conv_weight_backward("conv1d_weight_backward", &x.0, &weight.0, &grad.0, &conv_options(&options)).into()
    }

    fn conv1d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        layers::bias_backward("conv1d_bias_backward", &output_grad.0).into()
    }

    fn conv2d(x: TpuTensor, weight: TpuTensor, bias: Option<TpuTensor>, options: ConvOptions<2>) -> TpuTensor {
        layers::conv("conv2d", &x.0, &weight.0, inner(&bias), &conv_options(&options)).into()
    }

    fn conv2d_x_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<2>) -> TpuTensor {
        layers::conv_x_backward("conv2d_x_backward", &x.0, &weight.0, &grad.0, &conv_options(&options)).into()
    }

    fn conv2d_weight_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<2>) -> TpuTensor {
        layers::conv_weight_backward("conv2d_weight_backward", &x.0, &weight.0, &grad.0, &conv_options(&options)).into()
    }

    fn conv2d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        layers::bias_backward("conv2d_bias_backward", &output_grad.0).into()
    }

    fn conv3d(x: TpuTensor, weight: TpuTensor, bias: Option<TpuTensor>, options: ConvOptions<3>) -> TpuTensor {
        layers::conv("conv3d", &x.0, &weight.0, inner(&bias), &conv_options(&options)).into()
    }

    fn conv3d_x_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<3>) -> TpuTensor {
        layers::conv_x_backward("conv3d_x_backward", &x.0, &weight.0, &grad.0, &conv_options(&options)).into()
    }

    fn conv3d_weight_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<3>) -> TpuTensor {
        layers::conv_weight_backward("conv3d_weight_backward", &x.0, &weight.0, &grad.0, &conv_options(&options)).into()
    }

    fn conv3d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        layers::bias_backward("conv3d_bias_backward", &output_grad.0).into()
    }

    fn conv_transpose1d(
        x: TpuTensor,
        weight: TpuTensor,
        bias: Option<TpuTensor>,
        options: ConvTransposeOptions<1>,
    ) -> TpuTensor {
        layers::conv_transpose("conv_transpose1d", &x.0, &weight.0, inner(&bias), &conv_transpose_options(&options))
            .into()
    }

    fn conv_transpose1d_x_backward(
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<1>,
    ) -> TpuTensor {
        layers::conv_transpose_x_backward(
            "conv_transpose1d_x_backward",
            &weight.0,
            &output_grad.0,
            &conv_transpose_options(&options),
        )
        .into()
    }

    fn conv_transpose1d_weight_backward(
        x: TpuTensor,
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<1>,
    ) -> TpuTensor {
        layers::conv_transpose_weight_backward(
            "conv_transpose1d_weight_backward",
            &x.0,
            &weight.0,
            &output_grad.0,
            &conv_transpose_options(&options),
        )
        .into()
    }

    fn conv_transpose1d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        layers::bias_backward("conv_transpose1d_bias_backward", &output_grad.0).into()
    }

    fn conv_transpose2d(
        x: TpuTensor,
        weight: TpuTensor,
        bias: Option<TpuTensor>,
        options: ConvTransposeOptions<2>,
    ) -> TpuTensor {
        layers::conv_transpose("conv_transpose2d", &x.0, &weight.0, inner(&bias), &conv_transpose_options(&options))
            .into()
    }

    fn conv_transpose2d_x_backward(
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<2>,
    ) -> TpuTensor {
        layers::conv_transpose_x_backward(
            "conv_transpose2d_x_backward",
            &weight.0,
            &output_grad.0,
            &conv_transpose_options(&options),
        )
        .into()
    }

    fn conv_transpose2d_weight_backward(
        x: TpuTensor,
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<2>,
    ) -> TpuTensor {
        layers::conv_transpose_weight_backward(
            "conv_transpose2d_weight_backward",
            &x.0,
            &weight.0,
            &output_grad.0,
            &conv_transpose_options(&options),
        )
        .into()
    }

    fn conv_transpose2d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        layers::bias_backward("conv_transpose2d_bias_backward", &output_grad.0).into()
    }

    fn conv_transpose3d(
        x: TpuTensor,
        weight: TpuTensor,
        bias: Option<TpuTensor>,
        options: ConvTransposeOptions<3>,
    ) -> TpuTensor {
        layers::conv_transpose("conv_transpose3d", &x.0, &weight.0, inner(&bias), &conv_transpose_options(&options))
            .into()
    }

    fn conv_transpose3d_x_backward(
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<3>,
    ) -> TpuTensor {
        layers::conv_transpose_x_backward(
            "conv_transpose3d_x_backward",
            &weight.0,
            &output_grad.0,
            &conv_transpose_options(&options),
        )
        .into()
    }

    fn conv_transpose3d_weight_backward(
        x: TpuTensor,
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<3>,
    ) -> TpuTensor {
        layers::conv_transpose_weight_backward(
            "conv_transpose3d_weight_backward",
            &x.0,
            &weight.0,
            &output_grad.0,
            &conv_transpose_options(&options),
        )
        .into()
    }

    fn conv_transpose3d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        layers::bias_backward("conv_transpose3d_bias_backward", &output_grad.0).into()
    }

    fn deform_conv2d(
        x: TpuTensor,
        offset: TpuTensor,
        weight: TpuTensor,
        mask: Option<TpuTensor>,
        bias: Option<TpuTensor>,
        options: DeformConvOptions<2>,
    ) -> TpuTensor {
        let (mask, bias) = (inner(&mask), inner(&bias));
        let operands = layers::Operands { x: &x.0, offset: &offset.0, weight: &weight.0, mask, bias };
        layers::deform_conv2d(&operands, &deform_conv_options(&options)).into()
    }

    fn deform_conv2d_backward(
        x: TpuTensor,
        offset: TpuTensor,
        weight: TpuTensor,
        mask: Option<TpuTensor>,
        bias: Option<TpuTensor>,
        output_grad: TpuTensor,
        options: DeformConvOptions<2>,
    ) -> DeformConv2dBackward<Self> {
        let (mask, bias) = (inner(&mask), inner(&bias));
        let operands = layers::Operands { x: &x.0, offset: &offset.0, weight: &weight.0, mask, bias };
        let grads = layers::deform_conv2d_backward(&operands, &output_grad.0, &deform_conv_options(&options));
        let (mask, bias) = (grads.mask.map(Into::into), grads.bias.map(Into::into));
        DeformConv2dBackward::new(grads.x.into(), grads.offset.into(), grads.weight.into(), mask, bias)
    }

    fn unfold4d(x: TpuTensor, kernel_size: [usize; 2], options: UnfoldOptions) -> TpuTensor {
        let window = Window::dilated(kernel_size, options.stride, options.padding, options.dilation, Rounding::Floor);
        layers::unfold4d(&x.0, &window).into()
    }

    fn adaptive_avg_pool1d(x: TpuTensor, output_size: usize) -> TpuTensor {
        layers::adaptive_avg_pool("adaptive_avg_pool1d", &x.0, &[output_size]).into()
    }

    fn adaptive_avg_pool1d_backward(x: TpuTensor, grad: TpuTensor) -> TpuTensor {
        layers::adaptive_avg_pool_backward("adaptive_avg_pool1d_backward", &x.0, &grad.0).into()
    }

    fn adaptive_avg_pool2d(x: TpuTensor, output_size: [usize; 2]) -> TpuTensor {
        layers::adaptive_avg_pool("adaptive_avg_pool2d", &x.0, &output_size).into()
    }

    fn adaptive_avg_pool2d_backward(x: TpuTensor, grad: TpuTensor) -> TpuTensor {
        layers::adaptive_avg_pool_backward("adaptive_avg_pool2d_backward", &x.0, &grad.0).into()
    }

    fn max_pool1d(
        x: TpuTensor,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
    ) -> TpuTensor {
        let window = Window::dilated([kernel_size], [stride], [padding], [dilation], version::rounding(ceil_mode));
        layers::max_pool("max_pool1d", &x.0, &window).into()
    }

    fn max_pool1d_with_indices_backward(
        x: TpuTensor,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
        output_grad: TpuTensor,
        indices: TpuTensor,
    ) -> MaxPool1dBackward<Self> {
        let window = Window::dilated([kernel_size], [stride], [padding], [dilation], version::rounding(ceil_mode));
        let name = "max_pool1d_with_indices_backward";
        MaxPool1dBackward::new(layers::max_pool_backward(name, &x.0, &output_grad.0, &indices.0, &window).into())
    }

    fn max_pool2d(
        x: TpuTensor,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
    ) -> TpuTensor {
        let window = Window::dilated(kernel_size, stride, padding, dilation, version::rounding(ceil_mode));
        layers::max_pool("max_pool2d", &x.0, &window).into()
    }

    fn max_pool2d_with_indices_backward(
        x: TpuTensor,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
        output_grad: TpuTensor,
        indices: TpuTensor,
    ) -> MaxPool2dBackward<Self> {
        let window = Window::dilated(kernel_size, stride, padding, dilation, version::rounding(ceil_mode));
        let name = "max_pool2d_with_indices_backward";
        MaxPool2dBackward::new(layers::max_pool_backward(name, &x.0, &output_grad.0, &indices.0, &window).into())
    }

    fn interpolate(x: TpuTensor, output_size: [usize; 2], options: InterpolateOptions) -> TpuTensor {
        layers::interpolate(&x.0, output_size, &version::interpolate_options(&options)).into()
    }

    fn interpolate_backward(
        x: TpuTensor,
        grad: TpuTensor,
        _output_size: [usize; 2],
        options: InterpolateOptions,
    ) -> TpuTensor {
        layers::interpolate_backward(&x.0, &grad.0, &version::interpolate_options(&options)).into()
    }

    fn attention(
        query: TpuTensor,
        key: TpuTensor,
        value: TpuTensor,
        mask: Option<TpuTensor>,
        attn_bias: Option<TpuTensor>,
        options: AttentionModuleOptions,
    ) -> TpuTensor {
        layers::attention(
            [&query.0, &key.0, &value.0],
            inner(&mask),
            inner(&attn_bias),
            version::attention_options(&options),
        )
        .into()
    }

    fn layer_norm(tensor: TpuTensor, gamma: TpuTensor, beta: Option<TpuTensor>, epsilon: f64) -> TpuTensor {
        layers::layer_norm(&tensor.0, &gamma.0, inner(&beta), epsilon).into()
    }

    fn ctc_loss(
        log_probs: TpuTensor,
        targets: TpuTensor,
        input_lengths: TpuTensor,
        target_lengths: TpuTensor,
        blank: usize,
    ) -> TpuTensor {
        layers::ctc_loss([&log_probs.0, &targets.0, &input_lengths.0, &target_lengths.0], blank).into()
    }

    fn has_ctc_loss_backward() -> bool {
        true
    }

    fn ctc_loss_backward(
        log_probs: TpuTensor,
        targets: TpuTensor,
        input_lengths: TpuTensor,
        target_lengths: TpuTensor,
        grad_loss: TpuTensor,
        blank: usize,
    ) -> TpuTensor {
        layers::ctc_loss_backward([&log_probs.0, &targets.0, &input_lengths.0, &target_lengths.0, &grad_loss.0], blank)
            .into()
    }

    version::module_methods! {}
}
