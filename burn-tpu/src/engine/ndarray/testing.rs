//! What the tests of this folder share: values in, values out.

use super::buffer::Element;
use super::tensor::HostTensor;

pub(super) fn tensor<T: Element>(dims: &[usize], values: &[T]) -> HostTensor {
    HostTensor::new(dims, values.to_vec())
}

pub(super) fn scalar<T: Element>(value: T) -> HostTensor {
    tensor(&[], &[value])
}

pub(super) fn f32s(dims: &[usize], values: &[f32]) -> HostTensor {
    tensor(dims, values)
}

pub(super) fn i32s(dims: &[usize], values: &[i32]) -> HostTensor {
    tensor(dims, values)
}

pub(super) fn values<T: Element>(x: &HostTensor) -> Vec<T> {
    x.elements::<T>().expect("the element type").into_owned()
}
