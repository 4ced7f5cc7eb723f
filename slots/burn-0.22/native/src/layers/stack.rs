//! A stacked parameter: the values of one parameter in all layers, `[layers, ..]`.

use super::blocks::{Found, is_never_trained, is_trained};
use super::module::Change;
use super::refused;
use crate::Result;
use crate::tensors::{integers, value};
use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Float, Int, Tensor};
use burn_dispatch::DispatchTensor;
use burn_tpu_runtime::custom_op::Kind;
use burn_tpu_runtime::layers::ALL_LAYERS;

/// A parameter of equal blocks.
#[derive(Clone)]
pub(super) struct Stack {
    /// As in [`Found`].
    path: Vec<(String, String)>,
    /// The parameter's id in each layer. The first is the stack's own.
    ids: Vec<ParamId>,
    value: Value,
}

/// Defines [`Value`] and what is done with each rank: of the stack, and of a layer's part.
macro_rules! ranks {
    ($($variant:ident $rank:literal $part:literal $kind:ident $value:ident $is_trained:ident),*) => {
        /// A parameter by its rank and by what its elements are.
        #[derive(Clone, Debug)]
        enum Value {
            $($variant(Param<Tensor<$rank, $kind>>),)*
        }

        impl Value {
            /// Returns the stack of these parts, of this parameter in each layer.
            fn stack(of: &Found, parts: Vec<DispatchTensor>) -> Option<Self> {
                let (id, is_trained) = (of.id, of.is_trained);
                match (of.kind, of.shape.num_dims()) {
                    $((Kind::$kind, $part) => {
                        let parts = parts.into_iter().map(Tensor::<$part, $kind>::from_dispatch).collect();
                        let stack = Tensor::stack::<$rank>(parts, 0).without_gradient();
                        Some(Self::$variant(Param::initialized(id, stack).set_require_grad(is_trained)))
                    })*
                    _ => None,
                }
            }

            fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
                match self {
                    $(Self::$variant(parameter) => parameter.visit(visitor),)*
                }
            }

            fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
                match self {
                    $(Self::$variant(parameter) => Self::$variant(Module::map(parameter, mapper)),)*
                }
            }

            /// Returns the stack's part of a layer.
            fn layer(&self, index: usize) -> DispatchTensor {
                match self {
                    $(Self::$variant(parameter) => {
                        let part = parameter.val().slice_dim(0, index..index + 1);
                        part.squeeze_dim::<$part>(0).into_dispatch()
                    })*
                }
            }

            fn tensor(&self) -> DispatchTensor {
                match self {
                    $(Self::$variant(parameter) => parameter.val().into_dispatch(),)*
                }
            }

            fn is_ours(&self) -> bool {
                match self {
                    $(Self::$variant(parameter) => $value(parameter.val()).is_some(),)*
                }
            }

            fn is_trained(&self) -> bool {
                match self {
                    $(Self::$variant(parameter) => $is_trained(parameter),)*
                }
            }

            fn changed(self, change: &Change<'_>) -> Self {
                match self {
                    $(Self::$variant(parameter) => Self::$variant(change.of(parameter)),)*
                }
            }

            fn collect_devices(&self, devices: Devices) -> Devices {
                match self {
                    $(Self::$variant(parameter) => parameter.collect_devices(devices),)*
                }
            }

            fn shape(&self) -> Vec<usize> {
                match self {
                    $(Self::$variant(parameter) => parameter.lazy_shape().to_vec(),)*
                }
            }
        }
    };
}

ranks!(
    Two 2 1 Float value is_trained,
    Three 3 2 Float value is_trained,
    Four 4 3 Float value is_trained,
    Five 5 4 Float value is_trained,
    Six 6 5 Float value is_trained,
    IntTwo 2 1 Int integers is_never_trained,
    IntThree 3 2 Int integers is_never_trained,
    IntFour 4 3 Int integers is_never_trained,
    IntFive 5 4 Int integers is_never_trained,
    IntSix 6 5 Int integers is_never_trained
);

/// A tensor of any kind, of which floats alone can have a gradient.
trait WithoutGradient {
    /// Returns the tensor as a leaf of Burn's graph.
    fn without_gradient(self) -> Self;
}

impl<const D: usize> WithoutGradient for Tensor<D> {
    fn without_gradient(self) -> Self {
        self.detach()
    }
}

impl<const D: usize> WithoutGradient for Tensor<D, Int> {
    fn without_gradient(self) -> Self {
        self
    }
}

impl Stack {
    /// Returns the stack of one parameter of all layers.
    pub(super) fn of<'f>(layers: impl Iterator<Item = &'f Found> + Clone) -> Result<Self> {
        let ids: Vec<ParamId> = layers.clone().map(|found| found.id).collect();
        let parts: Vec<DispatchTensor> = layers.clone().map(|found| found.value.clone()).collect();
        let Some(first) = layers.into_iter().next() else { return Err(refused("there are none".into())) };
        let too_many = || refused(format!("the parameter {first} has {} dims", first.shape.num_dims()));
        let value = Value::stack(first, parts).ok_or_else(too_many)?;
        Ok(Self { path: first.path.clone(), ids, value })
    }

    /// Returns the id of the parameter in a layer.
    pub(super) fn id(&self, layer: usize) -> ParamId {
        self.ids[layer]
    }

    /// Returns a layer's part of the stack.
    pub(super) fn layer(&self, index: usize) -> DispatchTensor {
        self.value.layer(index)
    }

    pub(super) fn tensor(&self) -> DispatchTensor {
        self.value.tensor()
    }

    pub(super) fn is_ours(&self) -> bool {
        self.value.is_ours()
    }

    pub(super) fn is_trained(&self) -> bool {
        self.value.is_trained()
    }

    /// Returns whether it belongs to a reparameterization of a weight, such as LoRA.
    pub(super) fn is_of_reparameterization(&self) -> bool {
        self.path.iter().any(|(_, container)| container == "Reparameterization")
    }

    pub(super) fn name(&self) -> String {
        self.path.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(".")
    }

    pub(super) fn shape(&self) -> Vec<usize> {
        self.value.shape()
    }

    pub(super) fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.names().for_each(|(name, container)| visitor.enter_module(name, container));
        self.value.visit(visitor);
        self.names().rev().for_each(|(name, container)| visitor.exit_module(name, container));
    }

    pub(super) fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        self.names().for_each(|(name, container)| mapper.enter_module(name, container));
        let value = self.value.clone().map(mapper);
        self.names().rev().for_each(|(name, container)| mapper.exit_module(name, container));
        Self { value, ..self }
    }

    /// Returns the names of the modules around the parameter and its own, with their containers: `*` for all layers first.
    fn names(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> {
        let own = self.path.iter().map(|(name, container)| (name.as_str(), container.as_str()));
        std::iter::once(ALL_LAYERS).chain(own)
    }

    pub(super) fn changed(self, change: &Change<'_>) -> Self {
        Self { value: self.value.changed(change), ..self }
    }

    pub(super) fn collect_devices(&self, devices: Devices) -> Devices {
        self.value.collect_devices(devices)
    }
}

/// Without the ids that the parameter has in each layer: layers of layers are equal but for those.
impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stack {{ {}: {:?} }}", self.name(), self.value)
    }
}
