//! What Burn 0.21 and 0.22 have in common and later versions lack: pools of averages without dilation.

use burn_backend::Backend;
use burn_backend::ops::AttentionModuleOptions;
use burn_backend::tensor::FloatTensor;

pub fn avg_pool1d<B: Backend>(
    x: FloatTensor<B>,
    [kernel, stride, padding]: [usize; 3],
    include: bool,
    ceil: bool,
) -> FloatTensor<B> {
    B::avg_pool1d(x, kernel, stride, padding, include, ceil)
}

pub fn avg_pool1d_backward<B: Backend>(
    x: FloatTensor<B>,
    grad: FloatTensor<B>,
    [kernel, stride, padding]: [usize; 3],
    include: bool,
    ceil: bool,
) -> FloatTensor<B> {
    B::avg_pool1d_backward(x, grad, kernel, stride, padding, include, ceil)
}

pub fn avg_pool2d<B: Backend>(
    x: FloatTensor<B>,
    [kernel, stride, padding]: [[usize; 2]; 3],
    include: bool,
    ceil: bool,
) -> FloatTensor<B> {
    B::avg_pool2d(x, kernel, stride, padding, include, ceil)
}

pub fn avg_pool2d_backward<B: Backend>(
    x: FloatTensor<B>,
    grad: FloatTensor<B>,
    [kernel, stride, padding]: [[usize; 2]; 3],
    include: bool,
    ceil: bool,
) -> FloatTensor<B> {
    B::avg_pool2d_backward(x, grad, kernel, stride, padding, include, ceil)
}

pub fn attention_options(scale: Option<f64>, softcap: Option<f64>, is_causal: bool) -> AttentionModuleOptions {
    AttentionModuleOptions { scale, softcap, is_causal }
}
