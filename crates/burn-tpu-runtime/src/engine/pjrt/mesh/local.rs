//! The devices of a mesh that this process can use: all of them in one process, those of its host on many hosts.

use crate::error::{Result, TpuError};
use burn_tpu_graph::{Axis, DType, Mesh, Sharding, TensorType};
use burn_tpu_pjrt::Device;
use std::collections::BTreeSet;

/// This process's devices, in mesh order.
pub(super) struct Local {
    pub(super) devices: Box<[Device]>,
    /// Their positions in the mesh.
    pub(super) positions: Box<[usize]>,
    /// The process of each device of the mesh, as the plugin numbers them.
    pub(super) owners: Box<[usize]>,
}

/// This process's rows of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// The type of the batch.
    pub(super) whole: TensorType,
    /// The place of this process's first row in it.
    pub(super) first: usize,
}

impl Local {
    /// Returns the devices of this process among those of a mesh; `None` if it has none.
    pub(super) fn of(devices: Vec<Device>) -> Option<Self> {
        let process = |device: &Device| usize::try_from(device.description().process_index).unwrap_or(0);
        let owners = devices.iter().map(process).collect();
        let own = devices.into_iter().enumerate().filter(|(_, device)| device.is_addressable());
        let (positions, devices): (Vec<usize>, Vec<Device>) = own.unzip();
        Self::new(devices, positions, owners)
    }

    pub(super) fn new(devices: Vec<Device>, positions: Vec<usize>, owners: Vec<usize>) -> Option<Self> {
        let (positions, owners) = (positions.into(), owners.into());
        (!devices.is_empty()).then(|| Self { devices: devices.into(), positions, owners })
    }

    /// Returns each device with its position in the mesh.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Device, usize)> {
        self.devices.iter().zip(self.positions.iter().copied())
    }

    /// Returns whether all devices of the mesh are here.
    pub(super) fn is_whole(&self, mesh: &Mesh) -> bool {
        self.devices.len() == mesh.devices()
    }

    /// Returns whether every part of a value is on a device of this process.
    pub(super) fn has_all(&self, sharding: &Sharding, ty: &TensorType, mesh: &Mesh) -> bool {
        let parts: usize = sharding.dims().iter().map(|axes| mesh.parts(axes)).product();
        self.is_whole(mesh) || starts(&self.positions, sharding, ty, mesh).len() == parts
    }

    /// Returns which rows of a batch this process has, if it has as many as `own`.
    ///
    /// # Errors
    /// The broken rule in a sentence.
    pub(super) fn rows(&self, mesh: &Mesh, batch: &[Axis], own: &TensorType) -> Result<Rows, String> {
        let processes = self.owners.iter().collect::<BTreeSet<_>>().len();
        rows(&self.positions, processes, mesh, batch, own)
    }

    /// Checks that a program's own devices are these, in this order, which is that of its arguments.
    pub(super) fn check_order(&self, found: &[Device]) -> Result<()> {
        if found == &*self.devices {
            return Ok(());
        }
        Err(TpuError::Bug(format!("a program for {:?} was compiled for {found:?}", self.devices)))
    }
}

/// Returns where the parts of some devices begin, each once.
fn starts(positions: &[usize], sharding: &Sharding, ty: &TensorType, mesh: &Mesh) -> BTreeSet<Vec<usize>> {
    positions.iter().map(|&position| sharding.start(ty, mesh, position).to_vec()).collect()
}

fn rows(positions: &[usize], processes: usize, mesh: &Mesh, batch: &[Axis], own: &TensorType) -> Result<Rows, String> {
    let (Some(&count), all) = (own.dims.first(), mesh.parts(batch)) else {
        return Err("a single value has no rows".to_owned());
    };
    // The parts of a batch of as many rows as there are parts.
    let places = starts(positions, &Sharding::first_dim(1, batch), &TensorType::new(DType::Bool, [all]), mesh);
    let places: Vec<usize> = places.into_iter().flatten().collect();
    if places.len() * processes != all {
        return Err(format!(
            "the batch axes split a batch into {all} parts, of which this process has {}: {processes} processes need \
             different ones, as many each",
            places.len()
        ));
    }
    if places.windows(2).any(|pair| pair[0] + 1 != pair[1]) {
        return Err("its devices have rows that do not follow each other: order the axes so that they do".to_owned());
    }
    if count % places.len() != 0 {
        let even = count.next_multiple_of(places.len());
        return Err(format!(
            "{count} rows do not split over {} parts; the next number that does is {even}",
            places.len()
        ));
    }
    let each = count / places.len();
    let mut dims = own.dims.clone();
    dims[0] = each * all;
    Ok(Rows { whole: TensorType::new(own.dtype, dims), first: each * places[0] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(axes: &[(&str, usize)]) -> Mesh {
        Mesh::new(&axes.iter().map(|&(name, size)| (name.to_owned(), size)).collect::<Vec<_>>()).unwrap()
    }

    fn batch(rows: usize) -> TensorType {
        TensorType::new(DType::F32, [rows, 3])
    }

    #[test]
    fn each_process_has_rows_that_follow_each_other() {
        let mesh = mesh(&[("data", 4), ("model", 2)]);
        let of = |positions: &[usize]| rows(positions, 2, &mesh, &[0], &batch(6));
        let expected = |first| Ok(Rows { whole: batch(12), first });
        assert_eq!((of(&[0, 1, 2, 3]), of(&[4, 5, 6, 7])), (expected(0), expected(6)));
        // In one process, the rows are the batch.
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(rows(&all, 1, &mesh, &[0], &batch(4)), Ok(Rows { whole: batch(4), first: 0 }));
    }

    #[test]
    fn rows_that_cannot_be_a_part_are_refused() {
        let two = mesh(&[("model", 2), ("data", 2)]);
        let refused = [
            // The model is split over the processes, the batch is not.
            (rows(&[0, 1], 2, &two, &[1], &batch(4)), "different ones"),
            (rows(&[0, 1], 2, &two, &[], &batch(4)), "different ones"),
            (rows(&[0, 2], 2, &mesh(&[("data", 4)]), &[0], &batch(4)), "do not follow"),
            (rows(&[0, 1], 2, &mesh(&[("data", 4)]), &[0], &batch(3)), "next number that does is 4"),
            (rows(&[0, 1], 2, &mesh(&[("data", 4)]), &[0], &TensorType::new(DType::F32, [0; 0])), "no rows"),
        ];
        for (result, part) in refused {
            let error = result.unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_value_is_here_if_its_parts_are() {
        let mesh = mesh(&[("data", 2), ("model", 2)]);
        let (ty, positions) = (TensorType::new(DType::F32, [4, 4]), [0, 1]);
        let count = |axes: &[Axis]| starts(&positions, &Sharding::first_dim(2, axes), &ty, &mesh).len();
        // The second half of the batch is elsewhere, both halves of the model are here.
        assert_eq!((count(&[0]), count(&[1]), count(&[])), (1, 2, 1));
    }
}
