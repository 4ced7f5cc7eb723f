//! Burn's activation functions.

use crate::TpuTensor;
use crate::backend::{Tpu, TpuFloat, TpuInt};
use crate::dtype::number;
use burn_backend::Scalar;
use burn_backend::ops::ActivationOps;
use burn_tpu_runtime::ops::activation;

impl<F: TpuFloat, I: TpuInt> ActivationOps<Self> for Tpu<F, I> {
    fn leaky_relu(x: TpuTensor, negative_slope: Scalar) -> TpuTensor {
        activation::leaky_relu(x.0, number(negative_slope)).into()
    }

    fn relu(x: TpuTensor) -> TpuTensor {
        activation::relu(x.0).into()
    }

    fn relu_backward(output: TpuTensor, gradient: TpuTensor) -> TpuTensor {
        activation::relu_backward(output.0, gradient.0).into()
    }

    fn prelu(x: TpuTensor, alpha: TpuTensor) -> TpuTensor {
        activation::prelu(x.0, alpha.0).into()
    }

    fn gelu(x: TpuTensor) -> TpuTensor {
        activation::gelu(x.0).into()
    }

    fn gelu_backward(x: TpuTensor, gradient: TpuTensor) -> TpuTensor {
        activation::gelu_backward(x.0, gradient.0).into()
    }

    fn sigmoid(x: TpuTensor) -> TpuTensor {
        activation::sigmoid(x.0).into()
    }

    fn sigmoid_backward(output: TpuTensor, gradient: TpuTensor) -> TpuTensor {
        activation::sigmoid_backward(output.0, gradient.0).into()
    }

    fn hard_sigmoid(x: TpuTensor, alpha: Scalar, beta: Scalar) -> TpuTensor {
        activation::hard_sigmoid(x.0, number(alpha), number(beta)).into()
    }

    fn log_sigmoid(x: TpuTensor) -> TpuTensor {
        activation::log_sigmoid(x.0).into()
    }

    fn log_sigmoid_backward(x: TpuTensor, gradient: TpuTensor) -> TpuTensor {
        activation::log_sigmoid_backward(x.0, gradient.0).into()
    }

    fn softmax(x: TpuTensor, dim: usize) -> TpuTensor {
        activation::softmax(x.0, dim).into()
    }

    fn log_softmax(x: TpuTensor, dim: usize) -> TpuTensor {
        activation::log_softmax(x.0, dim).into()
    }

    fn softmin(x: TpuTensor, dim: usize) -> TpuTensor {
        activation::softmin(x.0, dim).into()
    }
}
