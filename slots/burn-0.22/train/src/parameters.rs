//! The parameters of a module by path, and their replacement.
//!
//! They are taken as Burn saves them: through the mapper that a module may have for saving and loading.

use crate::error::Result;
use crate::tensor_file::no_dtype;
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn_core::tensor::{Bool, Int, Tensor, TensorData};
use burn_tpu::TpuTensor;
use burn_tpu::tickets::{self, Ticket};
use std::collections::HashMap;

/// A parameter of a module; also running statistics, such as those of a batch norm.
pub(crate) struct Parameter {
    pub(crate) path: String,
    pub(crate) id: ParamId,
    pub(crate) tensor: TpuTensor,
}

/// Returns the parameters of a module in the order of a visit. Those that Burn has not initialised yet are initialised.
///
/// # Errors
/// For a quantized one.
pub(crate) fn parameters<M: Module>(module: &M) -> Result<Vec<Parameter>> {
    // Running statistics are brought up to date, which a visit does not do.
    drop(module.valid());
    let mut visit = Visit::default();
    let ((), tensors) = tickets::collect(|| module.visit(&mut visit));
    let parameter = |(path, id, data): (String, ParamId, TensorData)| {
        let ticket = Ticket::of(&data).and_then(|ticket| tensors.get(ticket.index()));
        let tensor = ticket.ok_or_else(|| no_dtype(&path, data.dtype()))?.clone();
        Ok(Parameter { path, id, tensor })
    };
    visit.found.into_iter().map(parameter).collect()
}

/// Notes the path, the id and the ticket of each parameter.
#[derive(Default)]
struct Visit {
    path: Path,
    found: Vec<(String, ParamId, TensorData)>,
}

/// The names of the modules that are being visited.
#[derive(Default)]
struct Path(Vec<String>);

impl Path {
    fn joined(&self) -> String {
        self.0.join(".")
    }
}

impl ModuleVisitor for Visit {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.0.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.0.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push((self.path.joined(), param.id, param.transform_for_save().val().into_data()));
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.found.push((self.path.joined(), param.id, param.transform_for_save().val().into_data()));
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.found.push((self.path.joined(), param.id, param.transform_for_save().val().into_data()));
    }
}

/// Returns the module with other values for the parameters at some paths. Ids, and whether they are trained, stay.
pub(crate) fn replaced<M: Module>(module: M, values: Vec<(String, TpuTensor)>) -> M {
    let (paths, tensors): (Vec<_>, Vec<_>) = values.into_iter().unzip();
    let places = paths.into_iter().enumerate().map(|(place, path)| (path, place as u32)).collect();
    let mut replace = Replace { path: Path::default(), places };
    tickets::supply(tensors, || module.map(&mut replace))
}

/// Loads the parameters that have a ticket.
struct Replace {
    path: Path,
    /// The tickets by path.
    places: HashMap<String, u32>,
}

impl Replace {
    /// Returns the data of the ticket of the parameter that is being visited.
    fn ticket(&self, rank: usize) -> Option<TensorData> {
        self.places.get(&self.path.joined()).map(|&place| Ticket::new(place).data(rank))
    }
}

impl ModuleMapper for Replace {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.0.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.0.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (Some(ticket), id, device) = (self.ticket(D), param.id, param.lazy_device()) else { return param };
        param.transform_for_load(Tensor::from_data(ticket, &device), id)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let (Some(ticket), id, device) = (self.ticket(D), param.id, param.lazy_device()) else { return param };
        param.transform_for_load(Tensor::from_data(ticket, &device), id)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        let (Some(ticket), id, device) = (self.ticket(D), param.id, param.lazy_device()) else { return param };
        param.transform_for_load(Tensor::from_data(ticket, &device), id)
    }
}
