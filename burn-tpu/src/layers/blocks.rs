//! The parameters of a block: finding them, taking them out, and setting them.

use super::refused;
use crate::Result;
use crate::custom_op::tensors::{AnyTensor, OpTensors};
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn_core::tensor::backend::Backend;
use burn_core::tensor::{DType, Int, Shape, Tensor, TensorMetadata, TensorPrimitive};
use burn_tpu_runtime::leaves;

/// A parameter of a block, of floats or integers.
pub(super) struct Found<B: Backend> {
    /// The names of the modules that it is in and its own, each with the type that contains it.
    pub(super) path: Vec<(String, String)>,
    pub(super) id: ParamId,
    pub(super) value: AnyTensor<B>,
    pub(super) is_trained: bool,
}

impl<B: Backend> Found<B> {
    pub(super) fn shape(&self) -> Shape {
        match &self.value {
            AnyTensor::Float(value) => value.shape(),
            AnyTensor::Int(value) => value.shape(),
            AnyTensor::Bool(value) => value.shape(),
        }
    }

    fn dtype(&self) -> DType {
        match &self.value {
            AnyTensor::Float(value) => value.dtype(),
            AnyTensor::Int(value) => value.dtype(),
            AnyTensor::Bool(value) => value.dtype(),
        }
    }

    pub(super) fn device(&self) -> B::Device {
        match &self.value {
            AnyTensor::Float(value) => B::float_device(value),
            AnyTensor::Int(value) => B::int_device(value),
            AnyTensor::Bool(value) => B::bool_device(value),
        }
    }

    /// Returns whether the parameter of another block is the same but for its value.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.path, self.shape(), self.dtype(), self.is_trained)
            == (&other.path, other.shape(), other.dtype(), other.is_trained)
            && self.device() == other.device()
    }
}

impl<B: Backend> std::fmt::Display for Found<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        write!(f, "`{}` ({:?} {:?} on {:?}", names.join("."), self.dtype(), self.shape().as_slice(), self.device())?;
        f.write_str(if self.is_trained { ")" } else { ", not trained)" })
    }
}

/// Returns the parameters of a block, in the order in which it is visited.
pub(super) fn find<B: Backend, M: Module<B>>(block: &M) -> Result<Vec<Found<B>>> {
    let mut find = Find { path: Vec::new(), found: Vec::new(), quantized: None };
    block.visit(&mut find);
    match find.quantized {
        Some(name) => Err(refused(format!("the parameter `{name}` is quantized"))),
        None => Ok(find.found),
    }
}

struct Find<B: Backend> {
    path: Vec<(String, String)>,
    found: Vec<Found<B>>,
    quantized: Option<String>,
}

impl<B: Backend> ModuleVisitor<B> for Find<B> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push((name.to_owned(), container.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
        let value = parameter.val();
        let is_trained = value.is_require_grad();
        match value.into_primitive() {
            TensorPrimitive::Float(value) => {
                let value = AnyTensor::Float(value);
                self.found.push(Found { path: self.path.clone(), id: parameter.id, value, is_trained });
            }
            TensorPrimitive::QFloat(_) => self.quantized = self.path.last().map(|(name, _)| name.clone()),
        }
    }

    fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<B, D, Int>>) {
        let value = AnyTensor::Int(parameter.val().into_primitive());
        self.found.push(Found { path: self.path.clone(), id: parameter.id, value, is_trained: false });
    }
}

/// Takes the parameters out of a block: what stays in their place has no elements, and an id that says its number.
#[derive(Default)]
pub(super) struct Hollow {
    next: u64,
}

impl Hollow {
    fn id(&mut self) -> ParamId {
        self.next += 1;
        ParamId::from(self.next - 1)
    }
}

impl<B: Backend> ModuleMapper<B> for Hollow {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let device = parameter.lazy_device();
        let (_, value, mapper) = parameter.consume();
        Param::from_mapped_value(self.id(), Tensor::empty([0; D], (&device, value.dtype())), mapper)
    }

    fn map_int<const D: usize>(&mut self, parameter: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        let device = parameter.lazy_device();
        let (_, value, mapper) = parameter.consume();
        Param::from_mapped_value(self.id(), Tensor::empty([0; D], (&device, value.dtype())), mapper)
    }
}

/// Gives a block its parameters, in the order in which it is visited.
pub(super) struct SetParameters<P>(pub(super) P);

impl<B: Backend, P: Iterator<Item = AnyTensor<B>>> ModuleMapper<B> for SetParameters<P> {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, hollow, mapper) = parameter.consume();
        Param::from_mapped_value(id, Tensor::from_values(&mut self.0).unwrap_or(hollow), mapper)
    }

    fn map_int<const D: usize>(&mut self, parameter: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        let (id, hollow, mapper) = parameter.consume();
        Param::from_mapped_value(id, Tensor::from_values(&mut self.0).unwrap_or(hollow), mapper)
    }
}

/// Makes the parameters of a block leaves of Burn's graph, with these ids, which are trained or not.
pub(super) struct Separate<P>(pub(super) P);

impl<B: Backend, P: Iterator<Item = (ParamId, bool)>> ModuleMapper<B> for Separate<P> {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, value, mapper) = parameter.consume();
        let (id, is_trained) = self.0.next().unwrap_or((id, false));
        Param::from_mapped_value(id, value.detach().set_require_grad(is_trained), mapper)
    }

    fn map_int<const D: usize>(&mut self, parameter: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        let (id, value, mapper) = parameter.consume();
        Param::from_mapped_value(self.0.next().map_or(id, |(id, _)| id), value, mapper)
    }
}

/// Returns what `Debug` shows of a block beside its tensors, without the numbers of the nodes of Burn's graph.
pub(super) fn structure(block: &impl std::fmt::Debug) -> String {
    leaves::shown_without(block, &["NodeId { value: "])
}
