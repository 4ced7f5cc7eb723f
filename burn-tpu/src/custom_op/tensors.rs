//! The operands and results of a custom op: a tensor, or a tuple or array of tensors.

use super::TpuBackend;
use crate::{Result, TpuError};
use burn_core::tensor::backend::Backend;
use burn_core::tensor::{Bool, Float, Int, Tensor, TensorPrimitive};
use burn_tpu_runtime::Tensor as Recorded;
use burn_tpu_runtime::custom_op::Kind;

/// A tensor without its rank.
#[derive(Clone)]
pub enum AnyTensor<B: Backend> {
    Float(B::FloatTensorPrimitive),
    Int(B::IntTensorPrimitive),
    Bool(B::BoolTensorPrimitive),
}

impl<B: Backend> AnyTensor<B> {
    /// Returns what the elements are.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Float(_) => Kind::Float,
            Self::Int(_) => Kind::Int,
            Self::Bool(_) => Kind::Bool,
        }
    }
}

/// A tensor, or a tuple of up to eight or an array of such: what a [`CustomOp`](super::CustomOp) takes and returns.
pub trait OpTensors: Sized {
    /// The backend of the tensors.
    type Backend: Backend;
    /// The same on another backend.
    type On<B: Backend>: OpTensors<Backend = B>;

    #[doc(hidden)]
    fn kinds(kinds: &mut Vec<Kind>);

    #[doc(hidden)]
    fn into_values(self, values: &mut Vec<AnyTensor<Self::Backend>>);

    #[doc(hidden)]
    fn from_values(values: &mut impl Iterator<Item = AnyTensor<Self::Backend>>) -> Option<Self>;
}

/// Returns what kind of tensor each one is.
pub(crate) fn kinds<T: OpTensors>() -> Vec<Kind> {
    let mut kinds = Vec::new();
    T::kinds(&mut kinds);
    kinds
}

/// Returns the runtime's tensors.
pub(super) fn to_tensors<T: OpTensors<Backend: TpuBackend>>(tensors: T) -> Vec<Recorded> {
    let mut values = Vec::new();
    tensors.into_values(&mut values);
    values.into_iter().map(T::Backend::to_tensor).collect()
}

/// Returns what these tensors of the runtime are to Burn.
///
/// # Errors
/// Only a bug gives one: too few tensors.
pub(super) fn from_tensors<T: OpTensors<Backend: TpuBackend>>(tensors: Vec<Recorded>) -> Result<T> {
    let values = tensors.into_iter().zip(kinds::<T>()).map(|(tensor, kind)| T::Backend::to_value(tensor, kind));
    let bug = || TpuError::Bug("a custom op has too few tensors".to_owned());
    T::from_values(&mut values.into_iter()).ok_or_else(bug)
}

impl<B: Backend, const D: usize> From<Tensor<B, D, Float>> for AnyTensor<B> {
    fn from(tensor: Tensor<B, D, Float>) -> Self {
        Self::Float(tensor.into_primitive().tensor())
    }
}

impl<B0: Backend, const D: usize> OpTensors for Tensor<B0, D, Float> {
    type Backend = B0;
    type On<B: Backend> = Tensor<B, D, Float>;

    fn kinds(kinds: &mut Vec<Kind>) {
        kinds.push(Kind::Float);
    }

    fn into_values(self, values: &mut Vec<AnyTensor<B0>>) {
        values.push(self.into());
    }

    fn from_values(values: &mut impl Iterator<Item = AnyTensor<B0>>) -> Option<Self> {
        let AnyTensor::Float(tensor) = values.next()? else { return None };
        Some(Self::from_primitive(TensorPrimitive::Float(tensor)))
    }
}

/// The same for kinds whose primitive is the backend's own.
macro_rules! plain_kind {
    ($($kind:ident),*) => {$(
        impl<B: Backend, const D: usize> From<Tensor<B, D, $kind>> for AnyTensor<B> {
            fn from(tensor: Tensor<B, D, $kind>) -> Self {
                Self::$kind(tensor.into_primitive())
            }
        }

        impl<B0: Backend, const D: usize> OpTensors for Tensor<B0, D, $kind> {
            type Backend = B0;
            type On<B: Backend> = Tensor<B, D, $kind>;

            fn kinds(kinds: &mut Vec<Kind>) {
                kinds.push(Kind::$kind);
            }

            fn into_values(self, values: &mut Vec<AnyTensor<B0>>) {
                values.push(self.into());
            }

            fn from_values(values: &mut impl Iterator<Item = AnyTensor<B0>>) -> Option<Self> {
                let AnyTensor::$kind(tensor) = values.next()? else { return None };
                Some(Self::from_primitive(tensor))
            }
        }
    )*};
}

plain_kind!(Int, Bool);

impl<T: OpTensors, const N: usize> OpTensors for [T; N] {
    type Backend = T::Backend;
    type On<B: Backend> = [T::On<B>; N];

    fn kinds(kinds: &mut Vec<Kind>) {
        (0..N).for_each(|_| T::kinds(kinds));
    }

    fn into_values(self, values: &mut Vec<AnyTensor<T::Backend>>) {
        self.into_iter().for_each(|tensors| tensors.into_values(values));
    }

    fn from_values(values: &mut impl Iterator<Item = AnyTensor<T::Backend>>) -> Option<Self> {
        let all: Option<Vec<T>> = (0..N).map(|_| T::from_values(values)).collect();
        all?.try_into().ok()
    }
}

macro_rules! tuple {
    ($first:ident $($other:ident)*) => {
        impl<$first: OpTensors, $($other: OpTensors<Backend = $first::Backend>),*> OpTensors for ($first, $($other,)*) {
            type Backend = $first::Backend;
            type On<Other: Backend> = ($first::On<Other>, $($other::On<Other>,)*);

            fn kinds(kinds: &mut Vec<Kind>) {
                $first::kinds(kinds);
                $($other::kinds(kinds);)*
            }

            fn into_values(self, values: &mut Vec<AnyTensor<$first::Backend>>) {
                #[allow(non_snake_case, reason = "named after the types")]
                let ($first, $($other,)*) = self;
                $first.into_values(values);
                $($other.into_values(values);)*
            }

            fn from_values(values: &mut impl Iterator<Item = AnyTensor<$first::Backend>>) -> Option<Self> {
                Some(($first::from_values(values)?, $($other::from_values(values)?,)*))
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
