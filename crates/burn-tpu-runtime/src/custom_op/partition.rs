//! How a mesh divides a custom op.

use crate::error::Result;
use crate::ops::sharding::{DimNames, axes_of, named, names};
use crate::{Device, Mesh, Tensor};
use burn_tpu_graph::{Partition, Sharding};

/// How a mesh divides a custom op: which axes split which dims of its operands and results. Every chip then runs the op on
/// its parts of the operands, which gives its parts of the results; it sees nothing that another chip has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomPartition {
    operands: Vec<Vec<DimNames>>,
    results: Vec<Vec<DimNames>>,
}

impl CustomPartition {
    /// Returns the partition of an op without operands and results. Add all of them, in their order.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operand with the axis of each dim, `None` for one that every chip has whole; several axes of one dim are
    /// joined with `+`, outermost first.
    pub fn operand(mut self, dims: &[Option<&str>]) -> Self {
        self.operands.push(dims.iter().copied().map(names).collect());
        self
    }

    /// Adds a result, as [`CustomPartition::operand`] does an operand.
    pub fn result(mut self, dims: &[Option<&str>]) -> Self {
        self.results.push(dims.iter().copied().map(names).collect());
        self
    }
}

/// What divides an op: a partition for operands on a mesh of several chips; `None` if the op is not divided there.
pub type PartitionOf = dyn Fn(&Mesh, &[Tensor]) -> Result<Option<CustomPartition>> + Send + Sync;

/// Returns how the mesh of a device divides an op; `None` on a device of one chip.
///
/// # Errors
/// [`TpuError::Mesh`](crate::TpuError::Mesh) for an axis that does not exist; those of `of`.
pub(super) fn partition(device: Device, operands: &[Tensor], of: &PartitionOf) -> Result<Option<Partition>> {
    let (Some(description), Some(mesh)) = (device.as_mesh(), axes_of(device)) else { return Ok(None) };
    if mesh.devices() == 1 {
        return Ok(None);
    }
    let Some(partition) = of(&description, operands)? else { return Ok(None) };
    let all =
        |dims: &[Vec<DimNames>]| dims.iter().map(|dims| named(&description, dims)).collect::<Result<Vec<Sharding>>>();
    Ok(Some(Partition { operands: all(&partition.operands)?, results: all(&partition.results)?, mesh }))
}
