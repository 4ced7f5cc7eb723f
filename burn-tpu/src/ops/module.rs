//! Burn's module operations: convolutions, pools, interpolation, attention, linear layers, norms, Fourier transforms.
//!
//! The methods here only name the op and pass its operands on; the compositions stand in one file per family, written for
//! any number of spatial dims where Burn has a method per number. Layouts are Burn's: `[batch, channels, spatial...]`.

mod adaptive_pool;
mod attention;
mod avg_pool;
mod conv;
mod ctc_loss;
mod deform_conv;
mod fft;
mod interpolate;
mod linear;
mod max_pool;
mod norm;
mod operands;
mod resample;
mod sample;
mod unfold;
mod window;

use super::index;
use crate::backend::{TpuFloat, TpuInt};
use crate::dtype::from_int;
use crate::{Tpu, TpuTensor};
use burn_backend::get_device_settings;
use burn_backend::ops::*;
use burn_tpu_graph::DType;
use window::Window;

impl<F: TpuFloat, I: TpuInt> Tpu<F, I> {
    /// The type of indices that a pool makes: the device's default integer.
    fn index_type(x: &TpuTensor) -> DType {
        from_int(get_device_settings::<Self>(&x.device()).int_dtype)
    }
}

impl<F: TpuFloat, I: TpuInt> ModuleOps<Self> for Tpu<F, I> {
    fn embedding(weights: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::embedding(weights, indices)
    }

    fn embedding_backward(weights: TpuTensor, output_grad: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::embedding_backward(weights, output_grad, indices)
    }

    fn linear(x: TpuTensor, weight: TpuTensor, bias: Option<TpuTensor>) -> TpuTensor {
        linear::linear(&x, &weight, bias.as_ref())
    }

    fn linear_x_backward(weight: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        linear::linear_x_backward(&weight, &output_grad)
    }

    fn linear_weight_backward(x: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        linear::linear_weight_backward(&x, &output_grad)
    }

    fn linear_bias_backward(output_grad: TpuTensor) -> TpuTensor {
        linear::linear_bias_backward(&output_grad)
    }

    fn conv1d(x: TpuTensor, weight: TpuTensor, bias: Option<TpuTensor>, options: ConvOptions<1>) -> TpuTensor {
        conv::conv("conv1d", &x, &weight, bias.as_ref(), &options)
    }

    fn conv1d_x_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<1>) -> TpuTensor {
        conv::conv_x_backward("conv1d_x_backward", &x, &weight, &grad, &options)
    }

    fn conv1d_weight_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<1>) -> TpuTensor {
        conv::conv_weight_backward("conv1d_weight_backward", &x, &weight, &grad, &options)
    }

    fn conv1d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        conv::bias_backward("conv1d_bias_backward", &output_grad)
    }

    fn conv2d(x: TpuTensor, weight: TpuTensor, bias: Option<TpuTensor>, options: ConvOptions<2>) -> TpuTensor {
        conv::conv("conv2d", &x, &weight, bias.as_ref(), &options)
    }

    fn conv2d_x_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<2>) -> TpuTensor {
        conv::conv_x_backward("conv2d_x_backward", &x, &weight, &grad, &options)
    }

    fn conv2d_weight_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<2>) -> TpuTensor {
        conv::conv_weight_backward("conv2d_weight_backward", &x, &weight, &grad, &options)
    }

    fn conv2d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        conv::bias_backward("conv2d_bias_backward", &output_grad)
    }

    fn conv3d(x: TpuTensor, weight: TpuTensor, bias: Option<TpuTensor>, options: ConvOptions<3>) -> TpuTensor {
        conv::conv("conv3d", &x, &weight, bias.as_ref(), &options)
    }

    fn conv3d_x_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<3>) -> TpuTensor {
        conv::conv_x_backward("conv3d_x_backward", &x, &weight, &grad, &options)
    }

    fn conv3d_weight_backward(x: TpuTensor, weight: TpuTensor, grad: TpuTensor, options: ConvOptions<3>) -> TpuTensor {
        conv::conv_weight_backward("conv3d_weight_backward", &x, &weight, &grad, &options)
    }

    fn conv3d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        conv::bias_backward("conv3d_bias_backward", &output_grad)
    }

    fn conv_transpose1d(
        x: TpuTensor,
        weight: TpuTensor,
        bias: Option<TpuTensor>,
        options: ConvTransposeOptions<1>,
    ) -> TpuTensor {
        conv::conv_transpose("conv_transpose1d", &x, &weight, bias.as_ref(), &options)
    }

    fn conv_transpose1d_x_backward(
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<1>,
    ) -> TpuTensor {
        conv::conv_transpose_x_backward("conv_transpose1d_x_backward", &weight, &output_grad, &options)
    }

    fn conv_transpose1d_weight_backward(
        x: TpuTensor,
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<1>,
    ) -> TpuTensor {
        conv::conv_transpose_weight_backward("conv_transpose1d_weight_backward", &x, &weight, &output_grad, &options)
    }

    fn conv_transpose1d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        conv::bias_backward("conv_transpose1d_bias_backward", &output_grad)
    }

    fn conv_transpose2d(
        x: TpuTensor,
        weight: TpuTensor,
        bias: Option<TpuTensor>,
        options: ConvTransposeOptions<2>,
    ) -> TpuTensor {
        conv::conv_transpose("conv_transpose2d", &x, &weight, bias.as_ref(), &options)
    }

    fn conv_transpose2d_x_backward(
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<2>,
    ) -> TpuTensor {
        conv::conv_transpose_x_backward("conv_transpose2d_x_backward", &weight, &output_grad, &options)
    }

    fn conv_transpose2d_weight_backward(
        x: TpuTensor,
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<2>,
    ) -> TpuTensor {
        conv::conv_transpose_weight_backward("conv_transpose2d_weight_backward", &x, &weight, &output_grad, &options)
    }

    fn conv_transpose2d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        conv::bias_backward("conv_transpose2d_bias_backward", &output_grad)
    }

    fn conv_transpose3d(
        x: TpuTensor,
        weight: TpuTensor,
        bias: Option<TpuTensor>,
        options: ConvTransposeOptions<3>,
    ) -> TpuTensor {
        conv::conv_transpose("conv_transpose3d", &x, &weight, bias.as_ref(), &options)
    }

    fn conv_transpose3d_x_backward(
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<3>,
    ) -> TpuTensor {
        conv::conv_transpose_x_backward("conv_transpose3d_x_backward", &weight, &output_grad, &options)
    }

    fn conv_transpose3d_weight_backward(
        x: TpuTensor,
        weight: TpuTensor,
        output_grad: TpuTensor,
        options: ConvTransposeOptions<3>,
    ) -> TpuTensor {
        conv::conv_transpose_weight_backward("conv_transpose3d_weight_backward", &x, &weight, &output_grad, &options)
    }

    fn conv_transpose3d_bias_backward(_x: TpuTensor, _bias: TpuTensor, output_grad: TpuTensor) -> TpuTensor {
        conv::bias_backward("conv_transpose3d_bias_backward", &output_grad)
    }

    fn deform_conv2d(
        x: TpuTensor,
        offset: TpuTensor,
        weight: TpuTensor,
        mask: Option<TpuTensor>,
        bias: Option<TpuTensor>,
        options: DeformConvOptions<2>,
    ) -> TpuTensor {
        let (mask, bias) = (mask.as_ref(), bias.as_ref());
        let operands = deform_conv::Operands { x: &x, offset: &offset, weight: &weight, mask, bias };
        deform_conv::deform_conv2d(&operands, &options)
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
        let (mask, bias) = (mask.as_ref(), bias.as_ref());
        let operands = deform_conv::Operands { x: &x, offset: &offset, weight: &weight, mask, bias };
        let grads = deform_conv::deform_conv2d_backward(&operands, &output_grad, &options);
        DeformConv2dBackward::new(grads.x, grads.offset, grads.weight, grads.mask, grads.bias)
    }

    fn unfold4d(x: TpuTensor, kernel_size: [usize; 2], options: UnfoldOptions) -> TpuTensor {
        unfold::unfold4d(&x, kernel_size, &options)
    }

    fn avg_pool1d(
        x: TpuTensor,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        count_include_pad: bool,
        ceil_mode: bool,
    ) -> TpuTensor {
        let window = Window::new([kernel_size], [stride], [padding], ceil_mode);
        avg_pool::avg_pool("avg_pool1d", &x, &window, count_include_pad)
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
        let window = Window::new([kernel_size], [stride], [padding], ceil_mode);
        avg_pool::avg_pool_backward("avg_pool1d_backward", &x, &grad, &window, count_include_pad)
    }

    fn avg_pool2d(
        x: TpuTensor,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        count_include_pad: bool,
        ceil_mode: bool,
    ) -> TpuTensor {
        let window = Window::new(kernel_size, stride, padding, ceil_mode);
        avg_pool::avg_pool("avg_pool2d", &x, &window, count_include_pad)
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
        let window = Window::new(kernel_size, stride, padding, ceil_mode);
        avg_pool::avg_pool_backward("avg_pool2d_backward", &x, &grad, &window, count_include_pad)
    }

    fn adaptive_avg_pool1d(x: TpuTensor, output_size: usize) -> TpuTensor {
        adaptive_pool::adaptive_avg_pool("adaptive_avg_pool1d", &x, &[output_size])
    }

    fn adaptive_avg_pool1d_backward(x: TpuTensor, grad: TpuTensor) -> TpuTensor {
        adaptive_pool::adaptive_avg_pool_backward("adaptive_avg_pool1d_backward", &x, &grad)
    }

    fn adaptive_avg_pool2d(x: TpuTensor, output_size: [usize; 2]) -> TpuTensor {
        adaptive_pool::adaptive_avg_pool("adaptive_avg_pool2d", &x, &output_size)
    }

    fn adaptive_avg_pool2d_backward(x: TpuTensor, grad: TpuTensor) -> TpuTensor {
        adaptive_pool::adaptive_avg_pool_backward("adaptive_avg_pool2d_backward", &x, &grad)
    }

    fn max_pool1d(
        x: TpuTensor,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
    ) -> TpuTensor {
        let window = Window::dilated([kernel_size], [stride], [padding], [dilation], ceil_mode);
        max_pool::max_pool("max_pool1d", &x, &window)
    }

    fn max_pool1d_with_indices(
        x: TpuTensor,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
    ) -> MaxPool1dWithIndices<Self> {
        let window = Window::dilated([kernel_size], [stride], [padding], [dilation], ceil_mode);
        let index = Self::index_type(&x);
        let [output, indices] = max_pool::max_pool_with_indices("max_pool1d_with_indices", &x, &window, index);
        MaxPool1dWithIndices::new(output, indices)
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
        let window = Window::dilated([kernel_size], [stride], [padding], [dilation], ceil_mode);
        let name = "max_pool1d_with_indices_backward";
        MaxPool1dBackward::new(max_pool::max_pool_backward(name, &x, &output_grad, &indices, &window))
    }

    fn max_pool2d(
        x: TpuTensor,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
    ) -> TpuTensor {
        let window = Window::dilated(kernel_size, stride, padding, dilation, ceil_mode);
        max_pool::max_pool("max_pool2d", &x, &window)
    }

    fn max_pool2d_with_indices(
        x: TpuTensor,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
    ) -> MaxPool2dWithIndices<Self> {
        let window = Window::dilated(kernel_size, stride, padding, dilation, ceil_mode);
        let index = Self::index_type(&x);
        let [output, indices] = max_pool::max_pool_with_indices("max_pool2d_with_indices", &x, &window, index);
        MaxPool2dWithIndices::new(output, indices)
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
        let window = Window::dilated(kernel_size, stride, padding, dilation, ceil_mode);
        let name = "max_pool2d_with_indices_backward";
        MaxPool2dBackward::new(max_pool::max_pool_backward(name, &x, &output_grad, &indices, &window))
    }

    fn interpolate(x: TpuTensor, output_size: [usize; 2], options: InterpolateOptions) -> TpuTensor {
        interpolate::interpolate(&x, output_size, &options)
    }

    fn interpolate_backward(
        x: TpuTensor,
        grad: TpuTensor,
        _output_size: [usize; 2],
        options: InterpolateOptions,
    ) -> TpuTensor {
        interpolate::interpolate_backward(&x, &grad, &options)
    }

    fn attention(
        query: TpuTensor,
        key: TpuTensor,
        value: TpuTensor,
        mask: Option<TpuTensor>,
        attn_bias: Option<TpuTensor>,
        options: AttentionModuleOptions,
    ) -> TpuTensor {
        attention::attention([&query, &key, &value], mask.as_ref(), attn_bias.as_ref(), options)
    }

    fn layer_norm(tensor: TpuTensor, gamma: TpuTensor, beta: Option<TpuTensor>, epsilon: f64) -> TpuTensor {
        norm::layer_norm(&tensor, &gamma, beta.as_ref(), epsilon)
    }

    fn ctc_loss(
        log_probs: TpuTensor,
        targets: TpuTensor,
        input_lengths: TpuTensor,
        target_lengths: TpuTensor,
        blank: usize,
    ) -> TpuTensor {
        ctc_loss::ctc_loss([&log_probs, &targets, &input_lengths, &target_lengths], blank)
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
        ctc_loss::ctc_loss_backward([&log_probs, &targets, &input_lengths, &target_lengths, &grad_loss], blank)
    }

    fn rfft(signal: TpuTensor, dim: usize, n: Option<usize>) -> (TpuTensor, TpuTensor) {
        let [real, imag] = fft::rfft(&signal, dim, n);
        (real, imag)
    }

    fn irfft(spectrum_re: TpuTensor, spectrum_im: TpuTensor, dim: usize, n: Option<usize>) -> TpuTensor {
        fft::irfft(&spectrum_re, &spectrum_im, dim, n)
    }
}
