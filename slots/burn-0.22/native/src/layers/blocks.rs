//! The parameters of a block: finding them, taking them out, and setting them.

use super::refused;
use crate::Result;
use crate::custom_op::tensors::OpTensors;
use crate::tensors::{integers, value};
use burn::module::{Flag, Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Device, Int, Shape, Tensor};
use burn_dispatch::DispatchTensor;
use burn_tpu_runtime::custom_op::Kind;
use burn_tpu_runtime::leaves;

/// A parameter of a block, of floats or integers.
pub(super) struct Found {
    /// The names of the modules that it is in and its own, each with the type that contains it.
    pub(super) path: Vec<(String, String)>,
    pub(super) id: ParamId,
    pub(super) shape: Shape,
    pub(super) is_trained: bool,
    /// Whether it is on a `TpuDevice`.
    pub(super) is_ours: bool,
    pub(super) kind: Kind,
    pub(super) value: DispatchTensor,
    dtype: DType,
    device: Device,
}

impl Found {
    /// Returns whether the parameter of another block is the same but for its value.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.path, &self.shape, self.dtype, self.is_trained)
            == (&other.path, &other.shape, other.dtype, other.is_trained)
            && self.device == other.device
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        write!(f, "`{}` ({:?} {:?} on {:?}", names.join("."), self.dtype, self.shape.as_slice(), self.device)?;
        f.write_str(if self.is_trained { ")" } else { ", not trained)" })
    }
}

/// Returns the parameters of a block, in the order in which it is visited.
pub(super) fn find<M: Module>(block: &M) -> Result<Vec<Found>> {
    let mut find = Find::default();
    block.visit(&mut find);
    match find.quantized {
        Some(name) => Err(refused(format!("the parameter `{name}` is quantized"))),
        None => Ok(find.found),
    }
}

#[derive(Default)]
struct Find {
    path: Vec<(String, String)>,
    found: Vec<Found>,
    quantized: Option<String>,
}

impl ModuleVisitor for Find {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push((name.to_owned(), container.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let tensor = parameter.base();
        let dtype = tensor.dtype();
        if matches!(dtype, DType::QFloat(_)) {
            self.quantized = self.path.last().map(|(name, _)| name.clone());
            return;
        }
        self.found.push(Found {
            path: self.path.clone(),
            id: parameter.id,
            shape: tensor.shape(),
            is_trained: is_trained(parameter),
            is_ours: value(tensor.clone()).is_some(),
            dtype,
            device: tensor.device(),
            kind: Kind::Float,
            value: tensor.into_dispatch(),
        });
    }

    fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<D, Int>>) {
        let tensor = parameter.val();
        self.found.push(Found {
            path: self.path.clone(),
            id: parameter.id,
            shape: tensor.shape(),
            is_trained: false,
            is_ours: integers(tensor.clone()).is_some(),
            dtype: tensor.dtype(),
            device: tensor.device(),
            kind: Kind::Int,
            value: tensor.into_dispatch(),
        });
    }
}

/// Returns whether a parameter is trained, in validation too: Burn tells only what it is after `train`.
pub(super) fn is_trained<const D: usize>(parameter: &Param<Tensor<D>>) -> bool {
    let value = parameter.base();
    value.is_require_grad() || (!value.is_autodiff() && parameter.clone().train().base().is_require_grad())
}

/// Returns that integers are not trained.
pub(super) fn is_never_trained<const D: usize>(_: &Param<Tensor<D, Int>>) -> bool {
    false
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

impl ModuleMapper for Hollow {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let device = parameter.lazy_device();
        let (_, value, mapper) = parameter.consume();
        Param::from_mapped_value(self.id(), Tensor::empty([0; D], (&device, value.dtype())), mapper)
    }

    fn map_int<const D: usize>(&mut self, parameter: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let device = parameter.lazy_device();
        let (_, value, mapper) = parameter.consume();
        Param::from_mapped_value(self.id(), Tensor::empty([0; D], (&device, value.dtype())), mapper)
    }
}

/// Gives a block its parameters, in the order in which it is visited.
pub(super) struct SetParameters<P>(pub(super) P);

impl<P: Iterator<Item = DispatchTensor>> ModuleMapper for SetParameters<P> {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, hollow, mapper) = parameter.consume();
        Param::from_mapped_value(id, Tensor::from_tensors(&mut self.0).unwrap_or(hollow), mapper)
    }

    fn map_int<const D: usize>(&mut self, parameter: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let (id, hollow, mapper) = parameter.consume();
        Param::from_mapped_value(id, Tensor::from_tensors(&mut self.0).unwrap_or(hollow), mapper)
    }
}

/// Makes the parameters of a block leaves of Burn's graph, with these ids, which are trained or not.
pub(super) struct Separate<P>(pub(super) P);

impl<P: Iterator<Item = (ParamId, bool)>> ModuleMapper for Separate<P> {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = parameter.consume();
        let (id, is_trained) = self.0.next().unwrap_or((id, false));
        Param::from_mapped_value(id, value.detach(), mapper).set_require_grad(is_trained)
    }

    fn map_int<const D: usize>(&mut self, parameter: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let (id, value, mapper) = parameter.consume();
        Param::from_mapped_value(self.0.next().map_or(id, |(id, _)| id), value, mapper)
    }
}

/// Returns what `Debug` shows of a block beside its tensors, and its flags; without the ids of its parameters and the
/// numbers of the nodes of Burn's graph.
pub(super) fn structure<M: Module>(block: &M) -> (String, Vec<bool>) {
    let mut flags = Flags(Vec::new());
    block.visit(&mut flags);
    (leaves::shown_without(block, &["NodeId { value: ", "Param: "]), flags.0)
}

struct Flags(Vec<bool>);

impl ModuleVisitor for Flags {
    fn visit_flag(&mut self, flag: &Param<Flag>) {
        self.0.push(flag.is_enabled());
    }
}
