//! A stacked parameter: the values of one parameter in all layers, `[layers, ..]`.

use super::blocks::Found;
use super::refused;
use crate::Result;
use crate::custom_op::tensors::{AnyTensor, OpTensors};
use burn_core::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param, ParamId, Parameter};
use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_core::tensor::{DType, Float, Int, Tensor};
use burn_tpu_runtime::custom_op::Kind;
use burn_tpu_runtime::layers::ALL_LAYERS;

/// A parameter of equal blocks.
#[derive(Clone)]
pub(super) struct Stack<B: Backend> {
    /// As in [`Found`].
    path: Vec<(String, String)>,
    /// The parameter's id in each layer. The first is the stack's own.
    ids: Vec<ParamId>,
    value: Value<B>,
}

/// Defines [`Value`] and what is done with each rank: of the stack, and of a layer's part.
macro_rules! ranks {
    ($($variant:ident $rank:literal $part:literal $kind:ident $visit:ident $map:ident),*) => {
        /// A parameter by its rank and by what its elements are.
        #[derive(Clone, Debug)]
        enum Value<B: Backend> {
            $($variant(Param<Tensor<B, $rank, $kind>>),)*
        }

        impl<B: Backend> Value<B> {
            /// Returns the stack of these parts, of this parameter in each layer.
            fn stack(of: &Found<B>, parts: Vec<AnyTensor<B>>) -> Option<Self> {
                let (id, is_trained) = (of.id, of.is_trained);
                match (of.value.kind(), of.shape().num_dims()) {
                    $((Kind::$kind, $part) => {
                        let mut parts = parts.into_iter();
                        let part = || Tensor::<B, $part, $kind>::from_values(&mut parts);
                        let stack = Tensor::stack::<$rank>(std::iter::from_fn(part).collect(), 0).without_gradient();
                        Some(Self::$variant(Param::initialized(id, Parameter::set_require_grad(stack, is_trained))))
                    })*
                    _ => None,
                }
            }

            fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
                match self {
                    $(Self::$variant(parameter) => visitor.$visit(parameter),)*
                }
            }

            fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
                match self {
                    $(Self::$variant(parameter) => Self::$variant(mapper.$map(parameter)),)*
                }
            }

            /// Returns the stack's part of a layer.
            fn layer(&self, index: usize) -> AnyTensor<B> {
                match self {
                    $(Self::$variant(parameter) => {
                        let part = parameter.val().slice_dim(0, index..index + 1);
                        part.squeeze_dim::<$part>(0).into()
                    })*
                }
            }

            /// Returns the stack; `None` if it has been quantized.
            fn tensor(&self) -> Option<AnyTensor<B>> {
                match self {
                    $(Self::$variant(parameter) => {
                        let is_quantized = matches!(parameter.dtype(), DType::QFloat(_));
                        (!is_quantized).then(|| parameter.val().into())
                    })*
                }
            }

            fn is_trained(&self) -> bool {
                match self {
                    $(Self::$variant(parameter) => Parameter::is_require_grad(&parameter.val()),)*
                }
            }

            /// Returns the same with what `module` makes of the parameter, which is a module.
            fn with_module(self, module: impl Modules<B>) -> Self {
                match self {
                    $(Self::$variant(parameter) => Self::$variant(module.of(parameter)),)*
                }
            }

            fn collect_devices(&self, devices: Vec<B::Device>) -> Vec<B::Device> {
                match self {
                    $(Self::$variant(parameter) => parameter.collect_devices(devices),)*
                }
            }

            fn shape(&self) -> Vec<usize> {
                match self {
                    $(Self::$variant(parameter) => parameter.shape().to_vec(),)*
                }
            }
        }

        impl<B: AutodiffBackend> Value<B> {
            fn valid(&self) -> Value<B::InnerBackend> {
                match self {
                    $(Self::$variant(parameter) => Value::$variant(AutodiffModule::valid(parameter)),)*
                }
            }

            fn from_inner(value: Value<B::InnerBackend>) -> Self {
                match value {
                    $(Value::$variant(parameter) => Self::$variant(AutodiffModule::from_inner(parameter)),)*
                }
            }
        }
    };
}

ranks!(
    Two 2 1 Float visit_float map_float,
    Three 3 2 Float visit_float map_float,
    Four 4 3 Float visit_float map_float,
    Five 5 4 Float visit_float map_float,
    Six 6 5 Float visit_float map_float,
    IntTwo 2 1 Int visit_int map_int,
    IntThree 3 2 Int visit_int map_int,
    IntFour 4 3 Int visit_int map_int,
    IntFive 5 4 Int visit_int map_int,
    IntSix 6 5 Int visit_int map_int
);

/// A tensor of any kind, of which floats alone can have a gradient.
trait WithoutGradient {
    /// Returns the tensor as a leaf of Burn's graph.
    fn without_gradient(self) -> Self;
}

impl<B: Backend, const D: usize> WithoutGradient for Tensor<B, D> {
    fn without_gradient(self) -> Self {
        self.detach()
    }
}

impl<B: Backend, const D: usize> WithoutGradient for Tensor<B, D, Int> {
    fn without_gradient(self) -> Self {
        self
    }
}

/// What is done with a parameter as a module, whatever its rank.
pub(super) trait Modules<B: Backend> {
    fn of<M: Module<B>>(&self, module: M) -> M;
}

impl<B: Backend> Stack<B> {
    /// Returns the stack of one parameter of all layers.
    pub(super) fn of<'f>(layers: impl Iterator<Item = &'f Found<B>> + Clone) -> Result<Self>
    where
        B: 'f,
    {
        let ids: Vec<ParamId> = layers.clone().map(|found| found.id).collect();
        let parts: Vec<AnyTensor<B>> = layers.clone().map(|found| found.value.clone()).collect();
        let Some(first) = layers.into_iter().next() else { return Err(refused("there are none".into())) };
        let too_many = || refused(format!("the parameter {first} has {} dims", first.shape().num_dims()));
        let value = Value::stack(first, parts).ok_or_else(too_many)?;
        Ok(Self { path: first.path.clone(), ids, value })
    }

    /// Returns the id of the parameter in a layer.
    pub(super) fn id(&self, layer: usize) -> ParamId {
        self.ids[layer]
    }

    /// Returns a layer's part of the stack.
    pub(super) fn layer(&self, index: usize) -> AnyTensor<B> {
        self.value.layer(index)
    }

    pub(super) fn is_trained(&self) -> bool {
        self.value.is_trained()
    }

    /// Returns the stack as a tensor.
    pub(super) fn tensor(&self) -> Result<AnyTensor<B>> {
        self.value.tensor().ok_or_else(|| refused(format!("the parameter `{}` is quantized", self.name())))
    }

    pub(super) fn name(&self) -> String {
        self.path.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(".")
    }

    pub(super) fn shape(&self) -> Vec<usize> {
        self.value.shape()
    }

    pub(super) fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        self.names().for_each(|(name, container)| visitor.enter_module(name, container));
        self.value.visit(visitor);
        self.names().rev().for_each(|(name, container)| visitor.exit_module(name, container));
    }

    pub(super) fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
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

    pub(super) fn with_module(self, module: impl Modules<B>) -> Self {
        Self { value: self.value.with_module(module), ..self }
    }

    pub(super) fn collect_devices(&self, devices: Vec<B::Device>) -> Vec<B::Device> {
        self.value.collect_devices(devices)
    }
}

/// Without the ids that the parameter has in each layer: layers of layers are equal but for those.
impl<B: Backend> std::fmt::Debug for Stack<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stack {{ {}: {:?} }}", self.name(), self.value)
    }
}

impl<B: AutodiffBackend> Stack<B> {
    pub(super) fn valid(&self) -> Stack<B::InnerBackend> {
        Stack { path: self.path.clone(), ids: self.ids.clone(), value: self.value.valid() }
    }

    pub(super) fn from_inner(stack: Stack<B::InnerBackend>) -> Self {
        Self { path: stack.path, ids: stack.ids, value: Value::from_inner(stack.value) }
    }
}
