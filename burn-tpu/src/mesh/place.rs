//! Applies a placement rule to the parameters of a module.

use super::rules::{Axes, Parameter, PlacementRule};
use super::shard::MeshBackend;
use crate::TpuDevice;
use crate::layers::ModulePath;
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::{Tensor, TensorPrimitive};
use burn_tpu_runtime::graph::TensorType;
use burn_tpu_runtime::ops::sharding::{DimNames, check_even};
use burn_tpu_runtime::{Result, TpuError};

/// Places the float parameters of a module on its mesh, by a rule. What training adds (gradients, moments, master weights)
/// follows its parameter. On any device but a mesh, the module is returned as it is.
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
/// [`TpuError::Mesh`] for an axis that does not exist; [`TpuError::Sharding`], with the parameter's path, for a size that
/// does not divide, a wrong number of dims, or a pattern that matches nothing. No parameter is moved then.
pub fn place<B: MeshBackend, M: Module<B>>(module: M, rule: &impl PlacementRule) -> Result<M> {
    let mut plan = Plan { rule, path: ModulePath::default(), paths: Vec::new(), placed: Vec::new(), error: None };
    module.visit(&mut plan);
    rule.check(&plan.paths)?;
    let Plan { placed, error, .. } = plan;
    if let Some(error) = error {
        return Err(error);
    }
    if placed.iter().all(Option::is_none) {
        return Ok(module);
    }
    let devices = module.devices();
    let module = module.map(&mut Mover { placed: placed.into_iter() });
    devices.into_iter().for_each(TpuDevice::mark_step);
    Ok(module)
}

/// Asks the rule for the axes of every parameter.
struct Plan<'r, R> {
    rule: &'r R,
    path: ModulePath,
    paths: Vec<String>,
    /// In the order of the visit; `None` for a parameter that is not on a mesh.
    placed: Vec<Option<Axes>>,
    error: Option<TpuError>,
}

impl<R: PlacementRule> Plan<'_, R> {
    fn axes<B: MeshBackend, const D: usize>(&self, path: &str, tensor: &Tensor<B, D>) -> Result<Option<Axes>> {
        let (device, dims) = (tensor.device(), tensor.dims());
        if burn_tpu_runtime::Device::from(device).as_mesh().is_none() {
            return Ok(None);
        }
        let element = crate::dtype::from_burn(tensor.dtype());
        let ty = element.map(|element| TensorType::new(element, dims)).ok_or_else(|| TpuError::DType {
            op: "place",
            dtype: format!("{:?}", tensor.dtype()),
            device: device.to_string(),
        })?;
        // Of stacked layers, the rule places one, and every chip has a part of each.
        let (layers, dims) = self.path.split(&dims);
        let bytes = ty.bytes() / layers.iter().product::<usize>().max(1);
        let mut axes = self.rule.axes(&Parameter { path, dims, bytes, device })?;
        layers.iter().for_each(|_| axes.insert(0, DimNames::new()));
        check_even(device.into(), path, &ty, &axes)?;
        Ok(Some(axes))
    }
}

impl<B: MeshBackend, R: PlacementRule> ModuleVisitor<B> for Plan<'_, R> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let path = self.path.joined();
        let axes = self.axes(&path, &param.val());
        self.paths.push(path);
        match axes {
            Ok(axes) => self.placed.push(axes),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
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
}
