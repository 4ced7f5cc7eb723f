//! How a mesh divides sorted tokens and the experts that compute them.
//!
//! Batches are groups of tokens, and experts are parts. Each chip has one group and one part: it gets all tokens of its group,
//! sorts the choices that are for its own experts, and computes those alone. Tokens of a group are gathered from the chips
//! that have its other parts, and what these compute for a token is added up; nothing else is exchanged.

use super::exchange::AXIS;
use burn::prelude::*;
use burn_tpu::{CustomPartition, Mesh, TpuDevice};
use std::any::Any;

/// The number of groups of tokens, and of parts of the experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) groups: usize,
    pub(super) parts: usize,
}

impl Division {
    /// One group and one part: that of a device of one chip.
    pub(super) const WHOLE: Self = Self { groups: 1, parts: 1 };

    /// Returns how a device divides so many rows of tokens and experts; `None` for a mesh that cannot: one with chips along an
    /// axis that splits neither batches nor experts, and sizes that do not divide.
    pub(super) fn of<B: Backend>(device: &B::Device, rows: usize, experts: usize) -> Option<Self> {
        let Some((device, mesh)) = mesh_of::<B>(device) else { return Some(Self::WHOLE) };
        let batch = mesh.batch_names();
        let (mut groups, mut parts) = (1, 1);
        for name in mesh.names() {
            match device.axis_size(name).ok()? {
                size if name == AXIS => parts *= size,
                size if batch.contains(&name) => groups *= size,
                1 => {}
                _ => return None,
            }
        }
        (rows.is_multiple_of(groups) && experts.is_multiple_of(parts)).then_some(Self { groups, parts })
    }

    /// Returns the partition of an op for which every chip has its group and its part of what has dims `[groups, parts, ..]`,
    /// and its experts of what has dims `[experts, ..]`.
    pub(super) fn partition(mesh: &Mesh, operands: &[Split], results: &[Split]) -> CustomPartition {
        let mut names = mesh.batch_names();
        names.retain(|name| *name != AXIS);
        let groups = (!names.is_empty()).then(|| names.join("+"));
        let (groups, part) = (groups.as_deref(), mesh.names().contains(&AXIS).then_some(AXIS));
        let partition = operands.iter().fold(CustomPartition::new(), |partition, operand| match operand {
            Split::Three => partition.operand([groups, part, None]),
            Split::Four => partition.operand([groups, part, None, None]),
            Split::Experts => partition.operand([part, None, None]),
            Split::Whole => partition.operand([None]),
        });
        results.iter().fold(partition, |partition, result| match result {
            Split::Three => partition.result([groups, part, None]),
            Split::Four => partition.result([groups, part, None, None]),
            Split::Experts => partition.result([part, None, None]),
            Split::Whole => partition.result([None]),
        })
    }
}

/// The dims of an operand or a result of which every chip has its part.
pub(super) enum Split {
    /// `[groups, parts, _]`
    Three,
    /// `[groups, parts, _, _]`, or `[groups, experts, _, _]`
    Four,
    /// `[experts, _, _]`
    Experts,
    /// `[_]`, which every chip has whole.
    Whole,
}

/// Returns a device of many chips with its mesh.
pub(super) fn mesh_of<B: Backend>(device: &B::Device) -> Option<(TpuDevice, Mesh)> {
    let device: &dyn Any = device;
    let device = device.downcast_ref::<TpuDevice>()?;
    Some((*device, device.as_mesh()?))
}
