//! Parameters by path: what a visit of a module found, and what a map of one replaces.
//!
//! Owns: paths, and the tickets that stand for values on the way. May not know: Burn's modules, whose traversals are
//! `parameters`'s, for each version.

use crate::error::Result;
use crate::tensor_file::no_dtype;
use crate::version;
use burn_core::module::ParamId;
use burn_core::tensor::TensorData;
use burn_tpu::TpuTensor;
use burn_tpu::tickets::Ticket;
use std::collections::HashMap;

/// A parameter of a module; also running statistics, such as those of a batch norm.
pub(crate) struct Parameter {
    pub(crate) path: String,
    pub(crate) id: ParamId,
    pub(crate) tensor: TpuTensor,
}

/// The names of the modules that are being traversed.
#[derive(Default)]
pub(crate) struct Path(Vec<String>);

impl Path {
    pub(crate) fn enter(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }

    pub(crate) fn exit(&mut self) {
        self.0.pop();
    }

    fn joined(&self) -> String {
        self.0.join(".")
    }
}

/// Notes the path, the id and the ticket of each parameter.
#[derive(Default)]
pub(crate) struct Visit {
    pub(crate) path: Path,
    found: Vec<(String, ParamId, TensorData)>,
}

impl Visit {
    pub(crate) fn note(&mut self, id: ParamId, ticket: TensorData) {
        self.found.push((self.path.joined(), id, ticket));
    }

    /// Returns the parameters, of which `tensors` are those that the tickets name.
    ///
    /// # Errors
    /// For one without a ticket, which is quantized.
    pub(crate) fn parameters(self, tensors: &[TpuTensor]) -> Result<Vec<Parameter>> {
        let parameter = |(path, id, data): (String, ParamId, TensorData)| {
            let ticket = Ticket::of(&data).and_then(|ticket| tensors.get(ticket.index()));
            let tensor = ticket.ok_or_else(|| no_dtype(&path, version::dtype(&data)))?.clone();
            Ok(Parameter { path, id, tensor })
        };
        self.found.into_iter().map(parameter).collect()
    }
}

/// Loads the parameters that have a ticket.
pub(crate) struct Replace {
    pub(crate) path: Path,
    /// The tickets by path.
    places: HashMap<String, u32>,
}

impl Replace {
    /// Returns the replacement of the values at some paths, and the tensors that its tickets name.
    pub(crate) fn of(values: Vec<(String, TpuTensor)>) -> (Self, Vec<TpuTensor>) {
        let (paths, tensors): (Vec<_>, Vec<_>) = values.into_iter().unzip();
        let places = paths.into_iter().enumerate().map(|(place, path)| (path, place as u32)).collect();
        (Self { path: Path::default(), places }, tensors)
    }

    /// Returns the data of the ticket of the parameter that is being traversed.
    pub(crate) fn ticket(&self, rank: usize) -> Option<TensorData> {
        self.places.get(&self.path.joined()).map(|&place| Ticket::new(place).data(rank))
    }
}
