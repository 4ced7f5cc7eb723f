//! Applies a placement rule to the parameters of a module.

use super::shard::{constrained, constrained_integers};
use crate::TpuError;
use crate::tensors::{integers, value};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Int, Tensor};
use burn_tpu_runtime::placement::{Axes, PlacementRule, Plan};
use burn_tpu_runtime::{Device, Tensor as Value};

/// Places the float and integer parameters of a module on its mesh, by a rule. What training adds (gradients, moments,
/// master weights) follows its parameter. On any device but a mesh, the module is returned as it is.
///
/// Parameters that were only described so far are made in their place: none is on one chip as a whole first. All of it
/// is one program, which ends here.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Device;
/// use burn_tpu::{Fsdp, TpuDevice, place};
/// let model = LinearConfig::new(8, 4).init(&Device::from(TpuDevice::ndarray()));
/// let model = place(model, &Fsdp { axis: "data", min_bytes: 0 })?;
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
///
/// # Errors
/// [`TpuError::Mesh`] for an axis that does not exist; [`TpuError::Sharding`], with the parameter's path, for a size
/// that does not divide, a wrong number of dims, or a pattern that matches nothing. No parameter is moved then.
pub fn place<M: Module>(module: M, rule: &impl PlacementRule) -> Result<M, TpuError> {
    let mut visit = Visit { plan: Plan::new(rule), devices: Vec::new() };
    module.visit(&mut visit);
    let placed = visit.plan.finish()?;
    if placed.iter().all(Option::is_none) {
        return Ok(module);
    }
    let module = module.map(&mut Mover { placed: placed.into_iter() });
    visit.devices.into_iter().for_each(Device::mark_step);
    Ok(module)
}

/// Asks the rule for the axes of every parameter.
struct Visit<'r, R> {
    plan: Plan<'r, R>,
    devices: Vec<Device>,
}

impl<R: PlacementRule> Visit<'_, R> {
    /// Takes the parameter at the path; `None` is one of another backend.
    fn add(&mut self, parameter: Option<Value>) {
        self.plan.add(parameter.as_ref());
        let device = parameter.map(|value| value.device());
        self.devices.extend(device.filter(|device| !self.devices.contains(device)));
    }
}

impl<R: PlacementRule> ModuleVisitor for Visit<'_, R> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.plan.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.plan.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        self.add(value(parameter.val()));
    }

    fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<D, Int>>) {
        self.add(integers(parameter.val()));
    }
}

/// Constrains each parameter as planned.
struct Mover {
    placed: std::vec::IntoIter<Option<Axes>>,
}

impl ModuleMapper for Mover {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, whole, mapper) = parameter.consume();
        let Some(axes) = self.placed.next().flatten() else { return Param::from_mapped_value(id, whole, mapper) };
        let is_trained = whole.is_require_grad();
        // The placed value is a parameter, not the result of an op on one.
        let placed = constrained(whole, &axes).detach().set_require_grad(is_trained);
        Param::from_mapped_value(id, placed, mapper)
    }

    fn map_int<const D: usize>(&mut self, parameter: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let (id, whole, mapper) = parameter.consume();
        let placed = match self.placed.next().flatten() {
            Some(axes) => constrained_integers(whole, &axes),
            None => whole,
        };
        Param::from_mapped_value(id, placed, mapper)
    }
}
