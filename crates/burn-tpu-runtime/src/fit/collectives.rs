//! The communication of a step on a mesh: counts and bytes by operation and axes, and a bound for its time.

use super::Spec;
use super::report::Collective;
use burn_tpu_graph::{Axis, Mesh};
use burn_tpu_pjrt::HloCollective;

/// Returns the sums of the collectives with equal operation and axes, in the order of their first ones. The mesh covers
/// `slices` slices, one after the other.
pub(super) fn summary(found: &[HloCollective], mesh: &Mesh, slices: usize) -> Vec<Collective> {
    let mut summary: Vec<Collective> = Vec::new();
    for collective in found {
        let across_slices = collective.across_slices;
        let axes = if across_slices { axes_across(mesh, slices) } else { axes(&collective.group, mesh) };
        let devices = match collective.group.len() {
            _ if across_slices => slices,
            0 => mesh.devices(),
            devices => devices,
        };
        let runs = collective.runs;
        let operand_bytes = runs * collective.operand_bytes;
        let moved_bytes = runs * moved_bytes(collective.kind, collective.operand_bytes, devices as u64);
        let same = |known: &&mut Collective| {
            known.kind == collective.kind && known.across_slices == across_slices && known.axes == axes
        };
        match summary.iter_mut().find(same) {
            Some(known) => {
                known.count += runs as usize;
                known.operand_bytes += operand_bytes;
                known.moved_bytes += moved_bytes;
            }
            None => summary.push(Collective {
                kind: collective.kind.to_owned(),
                axes,
                across_slices,
                count: runs as usize,
                operand_bytes,
                moved_bytes,
            }),
        }
    }
    summary
}

/// Returns the names of the axes along which a group of devices differs, or of all axes for an empty group.
fn axes(group: &[u64], mesh: &Mesh) -> Vec<String> {
    let mut names = Vec::new();
    for axis in (0..mesh.axes().len()).map(|axis| axis as Axis) {
        let position = |device: &u64| mesh.coordinate(*device as usize % mesh.devices(), axis);
        let differs = group.iter().any(|device| position(device) != position(&group[0]));
        if mesh.size(axis) > 1 && (group.is_empty() || differs) {
            names.push(mesh.name(axis).to_owned());
        }
    }
    names
}

/// Returns the names of the axes along which devices are in different slices.
fn axes_across(mesh: &Mesh, slices: usize) -> Vec<String> {
    let devices_per_slice = (mesh.devices() / slices.max(1)).max(1);
    let axes = || (0..mesh.axes().len()).map(|axis| axis as Axis);
    let mut names = Vec::new();
    for axis in axes() {
        // The devices along this axis, from the first device of the mesh.
        let is_along = |device: usize| axes().all(|other| other == axis || mesh.coordinate(device, other) == 0);
        if (devices_per_slice..mesh.devices()).any(is_along) {
            names.push(mesh.name(axis).to_owned());
        }
    }
    names
}

/// Returns the bytes that each of `devices` must send at least.
fn moved_bytes(kind: &str, operand: u64, devices: u64) -> u64 {
    let others = devices.saturating_sub(1);
    match kind {
        // A reduction of the parts, then a gather of the sums.
        "all-reduce" => 2 * operand * others / devices.max(1),
        "all-gather" => operand * others,
        "collective-permute" => operand,
        // Each device keeps its own part.
        _ => operand * others / devices.max(1),
    }
}

/// Returns the least time of the collectives: all links of a chip busy in both directions, and beside them its part of the
/// data center's network, if its rate is known.
pub(super) fn seconds(collectives: &[Collective], spec: &Spec) -> f64 {
    let bytes = |across_slices: bool| {
        let on_network = collectives.iter().filter(|collective| collective.across_slices == across_slices);
        on_network.map(|collective| collective.moved_bytes).sum::<u64>() as f64
    };
    let network = spec.network_bytes_per_second().map_or(0.0, |rate| bytes(true) / rate);
    network.max(bytes(false) / spec.link_bytes_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_are_added_by_operation_and_axes() {
        let mesh = Mesh::new(&[("data".to_owned(), 2), ("model".to_owned(), 4)]).unwrap();
        let found = |kind, operand_bytes, group: &[u64]| HloCollective {
            kind,
            across_slices: false,
            operand_bytes,
            runs: 1,
            group: group.to_vec(),
        };
        let all = [
            found("all-reduce", 100, &[0, 4]),
            found("all-reduce", 60, &[0, 4]),
            found("all-reduce", 80, &[0, 1, 2, 3]),
            found("all-gather", 10, &[]),
            found("collective-permute", 7, &[0, 1, 2, 3]),
            HloCollective { across_slices: true, ..found("all-reduce", 50, &[]) },
            HloCollective { runs: 3, ..found("reduce-scatter", 8, &[0, 4]) },
        ];
        let summary: Vec<_> = summary(&all, &mesh, 2)
            .into_iter()
            .map(|c| (c.kind, c.axes.join("+"), c.across_slices, c.count, c.operand_bytes, c.moved_bytes))
            .collect();
        let expected = [
            ("all-reduce", "data", false, 2, 160, 160),
            ("all-reduce", "model", false, 1, 80, 120),
            ("all-gather", "data+model", false, 1, 10, 70),
            ("collective-permute", "model", false, 1, 7, 7),
            ("all-reduce", "data", true, 1, 50, 50),
            ("reduce-scatter", "data", false, 3, 24, 12),
        ];
        let expected = expected.map(|(kind, axes, a, n, o, m)| (kind.to_owned(), axes.to_owned(), a, n, o, m));
        assert_eq!(summary, expected);
    }
}
