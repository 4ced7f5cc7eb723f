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

    /// Returns the partition of an op of which every chip has its part of each operand and result.
    pub(super) fn partition(mesh: &Mesh, operands: &[Split], results: &[Split]) -> CustomPartition {
        let mut names = mesh.batch_names();
        names.retain(|name| *name != AXIS);
        let groups = (!names.is_empty()).then(|| names.join("+"));
        let part = mesh.names().contains(&AXIS).then_some(AXIS);
        let dims = |split: &Split| match split {
            Split::Parts(rank) => [groups.as_deref(), part].into_iter().chain(vec![None; rank - 2]).collect::<Vec<_>>(),
            Split::Experts => vec![part, None, None],
            Split::Whole => vec![None],
        };
        let partition = operands.iter().fold(CustomPartition::new(), |all, operand| all.operand(&dims(operand)));
        results.iter().fold(partition, |all, result| all.result(&dims(result)))
    }
}

/// What has a part on every chip.
pub(super) enum Split {
    /// `[groups, parts, ..]` or `[groups, experts, ..]`, with so many dims.
    Parts(usize),
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
