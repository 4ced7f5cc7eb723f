//! The parameters of a module by path, and their replacement.
//!
//! They are taken as Burn's recorders save them: through the mapper that a module may have for saving and loading.

use crate::by_path::{Parameter, Replace, Visit};
use crate::error::Result;
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::backend::Backend;
use burn_core::tensor::{Bool, Int, Tensor};
use burn_tpu::{TpuDevice, TpuTensor, tickets};

/// Returns the parameters of a module in the order of a visit. Those that Burn has not initialised yet are initialised.
///
/// # Errors
/// For a quantized one.
pub(crate) fn parameters<B, M>(module: &M) -> Result<Vec<Parameter>>
where
    B: Backend<Device = TpuDevice>,
    M: Module<B>,
{
    // The clone shares running statistics. Making a record of it brings them up to date, which a visit does not.
    drop(module.clone().into_record());
    let mut visit = Visit::default();
    let ((), tensors) = tickets::collect(|| module.visit(&mut visit));
    visit.parameters(&tensors)
}

impl<B: Backend> ModuleVisitor<B> for Visit {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.note(param.id, param.transform_for_save().val().into_data());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.note(param.id, param.transform_for_save().val().into_data());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.note(param.id, param.transform_for_save().val().into_data());
    }
}

/// Returns the module with other values for the parameters at some paths. Ids, and whether they are trained, stay.
pub(crate) fn replaced<B, M>(module: M, values: Vec<(String, TpuTensor)>) -> M
where
    B: Backend<Device = TpuDevice>,
    M: Module<B>,
{
    let (mut replace, tensors) = Replace::of(values);
    tickets::supply(tensors, || module.map(&mut replace))
}

impl<B: Backend> ModuleMapper<B> for Replace {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (Some(ticket), id, device) = (self.ticket(D), param.id, param.lazy_device()) else { return param };
        param.transform_for_load(Tensor::from_data(ticket, &device), id)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        let (Some(ticket), id, device) = (self.ticket(D), param.id, param.lazy_device()) else { return param };
        param.transform_for_load(Tensor::from_data(ticket, &device), id)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<B, D, Bool>>) -> Param<Tensor<B, D, Bool>> {
        let (Some(ticket), id, device) = (self.ticket(D), param.id, param.lazy_device()) else { return param };
        param.transform_for_load(Tensor::from_data(ticket, &device), id)
    }
}
