//! The operands and results of a custom op: a tensor, or a tuple or array of tensors.

use crate::{Result, TpuError};
use backend::{Tpu, TpuTensor};
use burn::tensor::{Bool, Float, Int, Tensor};
use burn_dispatch::{BackendTensor, DispatchKindConversion, DispatchTensor};
use burn_tpu_runtime::Tensor as Value;
use burn_tpu_runtime::custom_op::{self, Kind};

/// A tensor, or a tuple of up to eight or an array of such: what a [`CustomOp`](super::CustomOp) takes and returns.
pub trait OpTensors: Sized {
    #[doc(hidden)]
    fn kinds(kinds: &mut Vec<Kind>);

    #[doc(hidden)]
    fn into_tensors(self, tensors: &mut Vec<DispatchTensor>);

    #[doc(hidden)]
    fn from_tensors(tensors: &mut impl Iterator<Item = DispatchTensor>) -> Option<Self>;
}

/// Returns what kind of tensor each one is.
pub(crate) fn kinds<T: OpTensors>() -> Vec<Kind> {
    let mut kinds = Vec::new();
    T::kinds(&mut kinds);
    kinds
}

/// Returns the runtime's tensors of those without autodiff.
///
/// # Errors
/// If one is quantized, on another backend, or with autodiff.
pub(super) fn into_values<T: OpTensors>(name: &str, tensors: T) -> Result<Vec<Value>> {
    let mut given = Vec::new();
    tensors.into_tensors(&mut given);
    let refused = || custom_op::error(name, "a form returns a tensor that is not made of its operands".into());
    given.into_iter().map(|tensor| value(tensor).ok_or_else(refused)).collect()
}

/// Returns what these tensors of the runtime are to Burn.
///
/// # Errors
/// Only a bug gives one: too few tensors.
pub(super) fn from_values<T: OpTensors>(values: Vec<Value>) -> Result<T> {
    let mut tensors = values.into_iter().zip(kinds::<T>()).map(|(value, kind)| plain(value, kind));
    let bug = || TpuError::Bug("a custom op has too few tensors".to_owned());
    T::from_tensors(&mut tensors).ok_or_else(bug)
}

/// Returns the runtime's tensor of one without autodiff; `None` for others, on other backends, and if it is quantized.
pub(crate) fn value(tensor: DispatchTensor) -> Option<Value> {
    match <DispatchTensor as DispatchKindConversion<Tpu>>::try_into_backend(tensor).ok()? {
        BackendTensor::Float(tensor) | BackendTensor::Int(tensor) | BackendTensor::Bool(tensor) => Some(tensor.into()),
        _ => None,
    }
}

/// Returns a tensor without autodiff.
pub(crate) fn plain(value: Value, kind: Kind) -> DispatchTensor {
    let tensor = TpuTensor::from(value);
    <DispatchTensor as DispatchKindConversion<Tpu>>::from_backend(match kind {
        Kind::Float => BackendTensor::Float(tensor),
        Kind::Int => BackendTensor::Int(tensor),
        Kind::Bool => BackendTensor::Bool(tensor),
    })
}

macro_rules! of_kind {
    ($($kind:ident),*) => {$(
        impl<const D: usize> OpTensors for Tensor<D, $kind> {
            fn kinds(kinds: &mut Vec<Kind>) {
                kinds.push(Kind::$kind);
            }

            fn into_tensors(self, tensors: &mut Vec<DispatchTensor>) {
                tensors.push(self.into_dispatch());
            }

            fn from_tensors(tensors: &mut impl Iterator<Item = DispatchTensor>) -> Option<Self> {
                tensors.next().map(Self::from_dispatch)
            }
        }
    )*};
}

of_kind!(Float, Int, Bool);

impl<T: OpTensors, const N: usize> OpTensors for [T; N] {
    fn kinds(kinds: &mut Vec<Kind>) {
        (0..N).for_each(|_| T::kinds(kinds));
    }

    fn into_tensors(self, tensors: &mut Vec<DispatchTensor>) {
        self.into_iter().for_each(|part| part.into_tensors(tensors));
    }

    fn from_tensors(tensors: &mut impl Iterator<Item = DispatchTensor>) -> Option<Self> {
        let all: Option<Vec<T>> = (0..N).map(|_| T::from_tensors(tensors)).collect();
        all?.try_into().ok()
    }
}

macro_rules! tuple {
    ($($part:ident)*) => {
        impl<$($part: OpTensors),*> OpTensors for ($($part,)*) {
            fn kinds(kinds: &mut Vec<Kind>) {
                $($part::kinds(kinds);)*
            }

            fn into_tensors(self, tensors: &mut Vec<DispatchTensor>) {
                #[allow(non_snake_case, reason = "named after the types")]
                let ($($part,)*) = self;
                $($part.into_tensors(tensors);)*
            }

            fn from_tensors(tensors: &mut impl Iterator<Item = DispatchTensor>) -> Option<Self> {
                Some(($($part::from_tensors(tensors)?,)*))
            }
        }
    };
}

tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
tuple!(A B C D E F G);
tuple!(A B C D E F G H);
