//! Custom ops from generic code, and plain forms that compute one part after another.
//!
//! Decoders are generic over any backend, and custom ops are not: whether a backend is one of a TPU's is asked at run time.

use burn::backend::Autodiff;
use burn::prelude::*;
use burn::tensor::BasicOps;
use burn_tpu::{CustomOpBackend, Tpu, TpuDevice};
use half::bf16;
use std::any::{Any, TypeId};

/// A custom op of certain operands.
pub(super) trait Op {
    type Operands<B: Backend>: 'static;
    type Results<B: Backend>: 'static;

    fn call<B: CustomOpBackend>(operands: Self::Operands<B>) -> burn_tpu::Result<Self::Results<B>>;
}

/// Calls an op, if a backend is one of those that run on TPUs.
pub(super) fn on_tpu<O: Op, B: Backend>(operands: O::Operands<B>) -> Option<O::Results<B>> {
    let operands: Box<dyn Any> = Box::new(operands);
    let result = attempt::<O, Tpu<f32>>(operands)
        .or_else(attempt::<O, Tpu<bf16>>)
        .or_else(attempt::<O, Autodiff<Tpu<f32>>>)
        .or_else(attempt::<O, Autodiff<Tpu<bf16>>>);
    *result.ok()?.downcast::<Option<O::Results<B>>>().ok()?
}

/// Calls an op on operands of a backend; returns them if they are of another.
fn attempt<O: Op, T: CustomOpBackend>(operands: Box<dyn Any>) -> Result<Box<dyn Any>, Box<dyn Any>> {
    let operands = operands.downcast::<O::Operands<T>>()?;
    let results = O::call::<T>(*operands);
    // Its callers look first at what an op does not take, and have another way to compute the same.
    let results = results.inspect_err(|error| tracing::error!(%error, "a custom op is not used, which is a bug")).ok();
    Ok(Box::new(results))
}

/// Returns whether a backend is one of those for which there are custom ops.
pub(super) fn has_ops<B: Backend>() -> bool {
    let known = [
        TypeId::of::<Tpu<f32>>(),
        TypeId::of::<Tpu<bf16>>(),
        TypeId::of::<Autodiff<Tpu<f32>>>(),
        TypeId::of::<Autodiff<Tpu<bf16>>>(),
    ];
    known.contains(&TypeId::of::<B>())
}

/// Returns whether a device has TPUs, one or many, attached or not.
pub(super) fn is_native<B: Backend>(device: &B::Device) -> bool {
    let device: &dyn Any = device;
    device.downcast_ref::<TpuDevice>().is_some_and(|device| device.is_tpu())
}

/// Returns the parts of `[groups, parts, ..]`, the last dim of dims first.
pub(super) fn parts_of<B: Backend, K: BasicOps<B>, const D: usize, const E: usize>(
    x: Tensor<B, D, K>,
) -> Vec<Tensor<B, E, K>> {
    let dims = x.dims();
    let own: [usize; E] = std::array::from_fn(|dim| dims[dim + D - E]);
    let part = |group: usize, part: usize| {
        let x = x.clone().slice_dim(0, group..group + 1).slice_dim(1, part..part + 1);
        x.reshape(own)
    };
    (0..dims[0]).flat_map(|group| (0..dims[1]).map(move |at| (group, at))).map(|(group, at)| part(group, at)).collect()
}

/// Returns parts as one tensor of these dims.
pub(super) fn together<B: Backend, K: BasicOps<B>, const E: usize, const D: usize>(
    parts: Vec<Tensor<B, E, K>>,
    dims: [usize; D],
) -> Tensor<B, D, K> {
    Tensor::cat(parts, 0).reshape(dims)
}
