//! The parameters of a module by path, and their replacement.
//!
//! They are taken as Burn saves them: through the mapper that a module may have for saving and loading.

use crate::by_path::{Parameter, Replace, Visit};
use crate::error::Result;
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::{Bool, Int, Tensor};
use burn_tpu::{TpuTensor, tickets};

/// Returns the parameters of a module in the order of a visit. Those that Burn has not initialised yet are initialised.
///
/// # Errors
/// For a quantized one.
pub(crate) fn parameters<M: Module>(module: &M) -> Result<Vec<Parameter>> {
    // Running statistics are brought up to date, which a visit does not do.
    drop(module.valid());
    let mut visit = Visit::default();
    let ((), tensors) = tickets::collect(|| module.visit(&mut visit));
    visit.parameters(&tensors)
}

impl ModuleVisitor for Visit {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.note(param.id, param.transform_for_save().val().into_data());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.note(param.id, param.transform_for_save().val().into_data());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.note(param.id, param.transform_for_save().val().into_data());
    }
}

/// Returns the module with other values for the parameters at some paths. Ids, and whether they are trained, stay.
pub(crate) fn replaced<M: Module>(module: M, values: Vec<(String, TpuTensor)>) -> M {
    let (mut replace, tensors) = Replace::of(values);
    tickets::supply(tensors, || module.map(&mut replace))
}

impl ModuleMapper for Replace {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
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
