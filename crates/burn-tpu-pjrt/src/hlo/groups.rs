//! The devices that exchange values with each other, of which a compiled program names groups in four forms: written out, as
//! pairs, as a transposed range, and as the axes of a mesh.
//!
//! Owns: the first group of each form. The messages are those of XLA's `xla_data.proto`.

use super::{bytes, number, numbers, walk};

/// The largest number of devices that is read.
const MOST_DEVICES: u64 = 1 << 20;

/// Reads a `ReplicaGroup`.
pub(super) fn read_group(message: &[u8], group: &mut Vec<u64>) -> Option<()> {
    walk(message, |number, field| if number == 1 { numbers(field, group) } else { Some(()) })
}

/// Reads a `SourceTarget`, except of a device that gives to itself.
pub(super) fn read_pair(message: &[u8], group: &mut Vec<u64>) -> Option<()> {
    let (source, target) = two_numbers(message)?;
    if source != target {
        *group = vec![source, target];
    }
    Some(())
}

/// Reads the numbers of fields 1 and 2.
fn two_numbers(message: &[u8]) -> Option<(u64, u64)> {
    let (mut first, mut second) = (0, 0);
    walk(message, |field_number, field| {
        match field_number {
            1 => first = number(field)?,
            2 => second = number(field)?,
            _ => {}
        }
        Some(())
    })?;
    Some((first, second))
}

/// Reads the first group of a `CollectiveDeviceListProto`: written out, or as a transposed range.
pub(super) fn read_device_list(message: &[u8], group: &mut Vec<u64>) -> Option<()> {
    walk(message, |field_number, field| {
        match field_number {
            1 if group.is_empty() => read_group(bytes(field)?, group)?,
            2 => *group = read_range(bytes(field)?)?,
            _ => {}
        }
        Some(())
    })
}

/// Reads an `IotaReplicaGroupListProto`: the numbers from 0 in these dims, transposed, in rows of `size`.
pub(super) fn read_range(message: &[u8]) -> Option<Vec<u64>> {
    let (mut size, mut dims, mut order) = (0, Vec::new(), Vec::new());
    walk(message, |field_number, field| {
        match field_number {
            2 => size = number(field)?,
            3 => numbers(field, &mut dims)?,
            4 => numbers(field, &mut order)?,
            _ => {}
        }
        Some(())
    })?;
    (0..size.min(MOST_DEVICES)).map(|position| transposed(&dims, &order, position)).collect()
}

/// Returns the number at a position of the numbers from 0 in these dims, transposed in this order.
fn transposed(dims: &[u64], order: &[u64], position: u64) -> Option<u64> {
    let (mut rest, mut number) = (position, 0);
    for &dim in order.iter().rev() {
        let length = (*dims.get(dim as usize)?).max(1);
        number += rest % length * product(&dims[dim as usize + 1..])?;
        rest /= length;
    }
    Some(number)
}

fn product(sizes: &[u64]) -> Option<u64> {
    sizes.iter().try_fold(1, |product: u64, &size| product.checked_mul(size)).filter(|&product| product <= MOST_DEVICES)
}

/// Reads the first group of a `MeshAxesReplicaGroupListProto`: the devices along some axes of a mesh.
pub(super) fn read_mesh_group(message: &[u8]) -> Option<Vec<u64>> {
    let (mut mesh, mut axes) = (HloMesh::default(), Vec::new());
    walk(message, |field_number, field| {
        match field_number {
            1 => mesh = read_mesh(bytes(field)?)?,
            2 => axes.push(read_axis(bytes(field)?)?),
            _ => {}
        }
        Some(())
    })?;
    let mut group = vec![0];
    for (axis, part) in axes {
        let size = *mesh.sizes.get(axis as usize)?;
        // A part of an axis is the middle one of three dims that the axis is divided into.
        let (before, length) = part.unwrap_or((1, size));
        let inner = size.checked_div(before.checked_mul(length)?).filter(|&inner| inner > 0)?;
        let stride = inner.checked_mul(product(&mesh.sizes[axis as usize + 1..])?)?;
        product(&[group.len() as u64, length, stride])?;
        group = group.iter().flat_map(|&first| (0..length).map(move |place| first + place * stride)).collect();
    }
    group.into_iter().map(|position| mesh.device(position)).collect()
}

/// A `MeshProto`.
#[derive(Default)]
struct HloMesh {
    sizes: Vec<u64>,
    /// The devices by position, if they are written out.
    ids: Vec<u64>,
    /// Else the dims and the order of the transposed range that they are; empty for the positions themselves.
    dims: Vec<u64>,
    order: Vec<u64>,
}

impl HloMesh {
    fn device(&self, position: u64) -> Option<u64> {
        match (self.ids.is_empty(), self.dims.is_empty()) {
            (false, _) => self.ids.get(position as usize).copied(),
            (true, false) => transposed(&self.dims, &self.order, position),
            (true, true) => Some(position),
        }
    }
}

fn read_mesh(message: &[u8]) -> Option<HloMesh> {
    let mut mesh = HloMesh::default();
    walk(message, |field_number, field| match field_number {
        1 => walk(bytes(field)?, |field_number, field| {
            if field_number == 2 {
                mesh.sizes.push(number(field)?.max(1));
            }
            Some(())
        }),
        2 => numbers(field, &mut mesh.ids),
        3 => walk(bytes(field)?, |field_number, field| match field_number {
            1 => numbers(field, &mut mesh.dims),
            2 => numbers(field, &mut mesh.order),
            _ => Some(()),
        }),
        _ => Some(()),
    })?;
    Some(mesh)
}

/// Reads an `AxisRefProto`: the index of an axis, and the sizes before and of the part of it, if it is not all of it.
fn read_axis(message: &[u8]) -> Option<(u64, Option<(u64, u64)>)> {
    let (mut axis, mut part) = (0, None);
    walk(message, |field_number, field| {
        match field_number {
            1 => axis = number(field)?,
            2 => part = Some(two_numbers(bytes(field)?)?),
            _ => {}
        }
        Some(())
    })?;
    Some((axis, part))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{field, packed};
    use super::*;

    /// Encodes a mesh with axes of these sizes, and the group along some of them.
    fn group(sizes: &[u64], rest: &[u8], axes: &[(u8, Option<(u8, u8)>)]) -> Option<Vec<u64>> {
        let axis = |&size: &u64| field(1, &[field(1, b"x"), vec![2 << 3], packed(&[size])].concat());
        let mesh = [sizes.iter().flat_map(axis).collect(), rest.to_vec()].concat();
        let named = |&(index, part): &(u8, Option<(u8, u8)>)| {
            let part = part.map(|(before, size)| field(2, &[1 << 3, before, 2 << 3, size]));
            field(2, &[vec![1 << 3, index], part.unwrap_or_default()].concat())
        };
        read_mesh_group(&[field(1, &mesh), axes.iter().flat_map(named).collect()].concat())
    }

    #[test]
    fn a_group_along_axes_of_a_mesh_is_read() {
        assert_eq!(group(&[4, 3], &[], &[(1, None)]), Some(vec![0, 1, 2]));
        assert_eq!(group(&[4, 3], &[], &[(0, None)]), Some(vec![0, 3, 6, 9]));
        assert_eq!(group(&[2, 3], &[], &[(0, None), (1, None)]), Some(vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(group(&[2, 3], &[], &[]), Some(vec![0]));
        // An axis of 8 as 2 x 2 x 2: the part in the middle, and the last one.
        assert_eq!(group(&[8, 3], &[], &[(0, Some((2, 2)))]), Some(vec![0, 6]));
        assert_eq!(group(&[8, 3], &[], &[(0, Some((4, 2)))]), Some(vec![0, 3]));
    }

    #[test]
    fn the_devices_of_a_mesh_may_be_in_another_order() {
        let ids = field(2, &packed(&[5, 4, 3, 2, 1, 0]));
        assert_eq!(group(&[2, 3], &ids, &[(0, None)]), Some(vec![5, 2]));
        let turned = field(3, &[field(1, &packed(&[3, 2])), field(2, &packed(&[1, 0]))].concat());
        assert_eq!(group(&[2, 3], &turned, &[(1, None)]), Some(vec![0, 2, 4]));
    }

    #[test]
    fn a_group_that_cannot_be_is_not_read() {
        assert_eq!(group(&[2, 3], &[], &[(2, None)]), None);
        assert_eq!(group(&[2, 3], &[], &[(0, Some((0, 2)))]), None);
        assert_eq!(group(&[2, 3], &[], &[(0, Some((1, 127)))]), None);
        assert_eq!(group(&[2, 3], &field(2, &packed(&[7])), &[(0, None)]), None);
        assert_eq!(group(&[16_000, 16_000], &[], &[(0, None), (1, None)]), None);
    }
}
