//! Applies a placement rule to the parameters of a module.

use super::shard::MeshBackend;
use crate::TpuDevice;
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::{Int, Tensor, TensorPrimitive};
use burn_tpu_runtime::Result;
use burn_tpu_runtime::placement::{Axes, PlacementRule, Plan};

/// Places the float and integer parameters of a module on its mesh, by a rule. What training adds (gradients, moments,
/// master weights) follows its parameter. On any device but a mesh, the module is returned as it is.
///
/// Of [`Layers`](crate::Layers), a rule places one layer's part, `blocks.*.attention.query.weight`, as it places the
/// block of a `Vec`; every chip has its part of each layer.
///
/// Parameters that were only described so far are made in their place: none is on one chip as a whole first. All of it is
/// one program, which ends here.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn_tpu::{Fsdp, Tpu, TpuDevice, place};
/// let model = LinearConfig::new(8, 4).init::<Tpu<f32>>(&TpuDevice::ndarray());
/// let model = place(model, &Fsdp { axis: "data", min_bytes: 0 })?;
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
///
/// # Errors
/// [`TpuError::Mesh`](crate::TpuError::Mesh) for an axis that does not exist;
/// [`TpuError::Sharding`](crate::TpuError::Sharding), with the parameter's path, for a size that does not divide, a
/// wrong number of dims, or a pattern that matches nothing. No parameter is moved then.
pub fn place<B: MeshBackend, M: Module<B>>(module: M, rule: &impl PlacementRule) -> Result<M> {
    let mut plan = Visit(Plan::new(rule));
    module.visit(&mut plan);
    let placed = plan.0.finish()?;
    if placed.iter().all(Option::is_none) {
        return Ok(module);
    }
    let devices = module.devices();
    let module = module.map(&mut Mover { placed: placed.into_iter() });
    devices.into_iter().for_each(TpuDevice::mark_step);
    Ok(module)
}

/// Asks the rule for the axes of every parameter.
struct Visit<'r, R>(Plan<'r, R>);

impl<B: MeshBackend, R: PlacementRule> ModuleVisitor<B> for Visit<'_, R> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.0.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.0.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.add(Some(&B::value_of(param.val().into_primitive().tensor())));
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.0.add(Some(&B::value_of_int(param.val().into_primitive())));
    }
}

/// Constrains each parameter as planned.
struct Mover {
    placed: std::vec::IntoIter<Option<Axes>>,
}

impl<B: MeshBackend> ModuleMapper<B> for Mover {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let Some(axes) = self.placed.next().flatten() else { return Param::from_mapped_value(id, tensor, mapper) };
        let is_trained = tensor.is_require_grad();
        let whole = tensor.into_primitive().tensor();
        let placed = Tensor::from_primitive(TensorPrimitive::Float(B::shard_float(whole, &axes)));
        // The placed value is a parameter, not the result of an op on one.
        Param::from_mapped_value(id, placed.detach().set_require_grad(is_trained), mapper)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        let (id, whole, mapper) = param.consume();
        let placed = match self.placed.next().flatten() {
            Some(axes) => Tensor::from_primitive(B::shard_int(whole.into_primitive(), &axes)),
            None => whole,
        };
        Param::from_mapped_value(id, placed, mapper)
    }
}
