//! How values are split over a mesh. On any other device, all of this does nothing.

use crate::error::{Result, TpuError};
use crate::runtime::{default_chip, runtime};
use crate::trace::record;
use crate::{Device, Platform, Tensor};
use burn_tpu_graph::{Builder, DimAxes, Mesh, Sharding, TensorType};

/// The axes that split each dim of a tensor, by name and outermost first; a dim without axes is whole.
pub type DimNames = Vec<String>;

/// Returns the names of a dim's axes, which `+` joins.
pub fn names(dim: Option<&str>) -> DimNames {
    dim.map(|names| names.split('+').map(|name| name.trim().to_owned()).collect()).unwrap_or_default()
}

/// Returns whether the chips of a device are TPUs, attached or not. Of a mesh that names no platform, this looks for the
/// default one.
pub fn is_tpu(device: Device) -> bool {
    match device.platform() {
        Platform::Tpu | Platform::Topology => true,
        Platform::Mesh => {
            let named = device.as_mesh().and_then(|mesh| mesh.platform());
            named.unwrap_or_else(|| default_chip().platform()) == Platform::Tpu
        }
        Platform::Cuda | Platform::Cpu | Platform::NdArray | Platform::XlaRs => false,
    }
}

/// Returns a value that is split over its mesh so. On any other device, the value.
///
/// # Errors
/// [`TpuError::Mesh`] for an axis that does not exist, [`TpuError::Sharding`] for another number of dims or an axis that
/// splits two of them. Uneven parts are allowed: a result of a program that would have some is replicated.
pub fn constrain(x: Tensor, dims: &[DimNames]) -> Result<Tensor> {
    let device = x.device();
    let Some(description) = device.as_mesh() else { return Ok(x) };
    let sharding = named(&description, dims)?;
    if let Some(mesh) = axes_of(device) {
        let what = || format!("shard({})", x.ty());
        sharding.check_axes(x.ty().rank(), &mesh).map_err(|rule| TpuError::Sharding { what: what(), rule })?;
    }
    Ok(record("shard", [&x], |r, [x]| r.sharding_constraint(x, sharding)))
}

/// Returns the sharding with axes of these names.
///
/// # Errors
/// [`TpuError::Mesh`] for an axis that does not exist.
pub(crate) fn named(description: &crate::Mesh, dims: &[DimNames]) -> Result<Sharding> {
    let axes = |names: &DimNames| names.iter().map(|name| description.axis_named(name)).collect::<Result<DimAxes>>();
    Ok(Sharding::new(dims.iter().map(axes).collect::<Result<Vec<_>>>()?))
}

/// Returns a value of which this dim is split over the axes of batches, and no other. On a device that is no mesh, and if
/// the dim does not divide, the value.
pub fn split_batch(x: Tensor, dim: usize) -> Tensor {
    let device = x.device();
    let batch = device.as_mesh().and_then(|description| description.batch().ok());
    let (Some(batch), Some(mesh)) = (batch, axes_of(device)) else { return x };
    let axes = |place| if place == dim { batch.iter().copied().collect() } else { DimAxes::default() };
    let sharding = Sharding::new((0..x.dims().len()).map(axes).collect::<Vec<_>>());
    if sharding.check(x.ty(), &mesh).is_err() {
        return x;
    }
    record("shard", [&x], |r, [x]| r.sharding_constraint(x, sharding))
}

/// Checks that a value of this type can be placed so: as [`constrain`], and into equal parts.
///
/// # Errors
/// [`TpuError::Sharding`] with the nearest size that divides, under the name `what`; the errors of [`constrain`].
pub fn check_even(device: Device, what: &str, ty: &TensorType, dims: &[DimNames]) -> Result<()> {
    let (Some(description), Some(mesh)) = (device.as_mesh(), axes_of(device)) else { return Ok(()) };
    let sharding = named(&description, dims)?;
    sharding.check(ty, &mesh).map_err(|rule| TpuError::Sharding { what: what.to_owned(), rule })
}

/// Returns the number of devices along an axis of a mesh; 1 on any other device.
///
/// # Errors
/// [`TpuError::Mesh`] for an axis that does not exist.
pub fn axis_size(device: Device, name: &str) -> Result<usize> {
    let Some(description) = device.as_mesh() else { return Ok(1) };
    let axis = description.axis_named(name)?;
    Ok(axes_of(device).map_or(1, |mesh| mesh.size(axis)))
}

/// Returns the axes of a mesh, which starts now; `None` if it cannot, which its first read reports.
pub(crate) fn axes_of(device: Device) -> Option<Mesh> {
    runtime(device).open().engine().ok().and_then(|engine| engine.mesh()).map(|axes| axes.mesh.clone())
}
