//! Burn's tensors as the runtime's, and back; and parameters that have no values yet.

use backend::{Tpu, TpuDevice, TpuTensor};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, Device, Int, Tensor};
use burn_dispatch::GradientCheckpointingStrategy;
use burn_tpu_runtime::Tensor as Value;

/// Returns a tensor without autodiff; `None` for one of another backend, and for a quantized one.
pub(crate) fn value<const D: usize>(tensor: Tensor<D>) -> Option<Value> {
    tensor.without_autodiff().try_into_primitive::<Tpu>().ok().map(Value::from)
}

/// Returns the integers of a tensor; `None` for one of another backend.
pub(crate) fn integers<const D: usize>(tensor: Tensor<D, Int>) -> Option<Value> {
    tensor.without_autodiff().try_into_primitive::<Tpu>().ok().map(Value::from)
}

/// Returns the truth values of a tensor; `None` for one of another backend.
pub(crate) fn bits<const D: usize>(tensor: Tensor<D, Bool>) -> Option<Value> {
    tensor.without_autodiff().try_into_primitive::<Tpu>().ok().map(Value::from)
}

/// Returns a tensor without autodiff, which ops with others take as a constant.
pub(crate) fn tensor<const D: usize>(value: Value) -> Tensor<D> {
    Tensor::from_primitive::<Tpu>(TpuTensor::from(value))
}

/// Returns an integer tensor, with autodiff of this strategy if there is one: tensors that meet in an op have the same.
pub(crate) fn integer_tensor<const D: usize>(
    value: Value,
    strategy: Option<GradientCheckpointingStrategy>,
) -> Tensor<D, Int> {
    let tensor = Tensor::from_primitive::<Tpu>(TpuTensor::from(value));
    match strategy {
        Some(strategy) => tensor.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => tensor,
    }
}

/// Returns a bool tensor.
pub(crate) fn bools<const D: usize>(value: Value) -> Tensor<D, Bool> {
    Tensor::from_primitive::<Tpu>(TpuTensor::from(value))
}

/// Returns Burn's name of a device.
pub(crate) fn device(device: burn_tpu_runtime::Device) -> Device {
    Device::from(TpuDevice::from(device))
}

/// Initialises the parameters of a module that Burn has only described so far.
pub(crate) fn initialise<M: Module>(module: &M) {
    module.visit(&mut Initialise);
}

/// A value initialises itself when it is first asked for.
struct Initialise;

impl ModuleVisitor for Initialise {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        drop(parameter.val());
    }

    fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<D, Int>>) {
        drop(parameter.val());
    }

    fn visit_bool<const D: usize>(&mut self, parameter: &Param<Tensor<D, Bool>>) {
        drop(parameter.val());
    }
}
