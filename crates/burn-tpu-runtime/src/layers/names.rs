//! What it costs to keep the named values of layers, and what it spares the backward pass.

use super::keep::{named, of_names};
use super::{LayerLoop, LayerValue};
use crate::device::NamedValues;
use burn_tpu_graph::NodeId;
use burn_tpu_graph::cost::cost_of;
use std::collections::BTreeSet;

/// Returns the named values of a loop that can be kept, in the order of their names.
pub(super) fn of(layer: &LayerLoop) -> Vec<NamedValues> {
    let names: BTreeSet<&'static str> = layer.recording.named.iter().map(|(name, _)| *name).collect();
    names.into_iter().map(|name| values_of(layer, name)).filter(|values| values.bytes > 0).collect()
}

fn values_of(layer: &LayerLoop, name: &'static str) -> NamedValues {
    let (names, stacked) = ([name], layer.forward_plan().stacked);
    let nodes: BTreeSet<NodeId> = of_names(layer, &names).collect();
    // A carry is kept or not for what it is, whatever its name.
    let can_be_kept = |value: &LayerValue| match value {
        LayerValue::Node(id) => nodes.contains(id),
        LayerValue::Argument(_) => stacked.contains(value),
    };
    let values: BTreeSet<LayerValue> = named(layer, &names).filter(can_be_kept).collect();
    let bytes = values.iter().map(|&value| layer.stack_type(layer.ty(value)).bytes() as u64).sum();
    let kept: [BTreeSet<NodeId>; 2] =
        [layer.kept.difference(&nodes).copied().collect(), layer.kept.union(&nodes).copied().collect()];
    let [without, with] = kept.map(|kept| layer.needed(layer.gradients.iter().copied().flatten(), &kept));
    // A kept node is read, and not computed.
    let spared = layer.graph.ids().filter(|id| without[id.index()] && (!with[id.index()] || nodes.contains(id)));
    let flops = cost_of(&layer.graph, spared).flops() * layer.layers as u64;
    NamedValues { name, bytes, flops, is_kept: values.iter().any(|value| stacked.contains(value)) }
}
