//! What a forward loop keeps for the backward loop, which computes all other values again.

use super::{LayerLoop, LayerValue, Role};
use burn_tpu_graph::op::OpKind;
use burn_tpu_graph::{NodeId, Op};
use std::collections::BTreeSet;

/// The values of a layer that are kept for its gradient. The carries that a layer takes always are, if its gradient
/// reads them; what is not kept is computed again from what is. As the policies of `jax.checkpoint`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// The layer's carries alone: the least memory, and the whole forward pass once more.
    #[default]
    Nothing,
    /// The results of convolutions and of matrix products without batch dims, which are those with weights; attention's
    /// scores are computed again. As `dots_with_no_batch_dims_saveable` of JAX.
    Products,
    /// The values with these names.
    Names(Vec<&'static str>),
    /// The values with the names of both lists: those of `host` in the host's memory, from where the backward loop copies
    /// them back, one layer at a time. A carry, which is kept anyway, may be there too. As `save_and_offload_only_these_names` of JAX.
    Offload {
        /// What is kept in the host's memory (`pinned_host`).
        host: Vec<&'static str>,
        /// What is kept in the device's.
        device: Vec<&'static str>,
    },
    /// All that the gradient reads, but for what element-wise ops and changes of shape compute from the rest.
    Everything,
}

/// Returns the nodes that are kept.
pub(super) fn kept(layer: &LayerLoop, keep: &Keep) -> BTreeSet<NodeId> {
    let of_layer = forward_values(layer);
    let is_kept = |id: &NodeId| of_layer[id.index()];
    let graph = &layer.graph;
    match keep {
        Keep::Nothing => BTreeSet::new(),
        Keep::Products => {
            let is_product = |id: &NodeId| match &graph.node(*id).op {
                Op::DotGeneral(attrs) => attrs.lhs_batch.is_empty(),
                op => matches!(op, Op::Convolution(_)),
            };
            graph.ids().filter(|id| is_kept(id) && is_product(id)).map(|id| rounded(layer, &of_layer, id)).collect()
        }
        Keep::Names(names) => of_names(layer, names).collect(),
        Keep::Offload { host, device } => of_names(layer, host).chain(of_names(layer, device)).collect(),
        Keep::Everything => {
            let mut kept = BTreeSet::new();
            for id in crossing(layer, &of_layer) {
                let is_there = |id: NodeId| kept.contains(&id) || !of_layer[id.index()];
                if !is_cheap(layer, id, &is_there) {
                    kept.insert(stored(layer, id));
                }
            }
            kept.into_iter().filter(is_kept).collect()
        }
    }
}

/// Returns the values that are kept in the host's memory, if they are kept.
pub(super) fn on_host(layer: &LayerLoop, keep: &Keep) -> BTreeSet<LayerValue> {
    match keep {
        Keep::Offload { host, device: _ } => named(layer, host).collect(),
        _ => BTreeSet::new(),
    }
}

/// Returns the values with these names.
pub(super) fn named<'l>(layer: &'l LayerLoop, names: &'l [&'static str]) -> impl Iterator<Item = LayerValue> + 'l {
    let named = layer.recording.named.iter().filter(|(name, _)| names.contains(name));
    named.filter_map(|(_, source)| LayerValue::of(source).ok())
}

/// Returns the nodes with these names that differ between layers. What the gradient alone reads has a name too.
pub(super) fn of_names<'l>(layer: &'l LayerLoop, names: &'l [&'static str]) -> impl Iterator<Item = NodeId> + 'l {
    let varies = varying(layer);
    named(layer, names).filter_map(move |value| match value {
        LayerValue::Node(id) => varies[id.index()].then_some(id),
        LayerValue::Argument(_) => None,
    })
}

/// Returns whether element-wise ops and changes of shape compute a value from what is there.
fn is_cheap(layer: &LayerLoop, id: NodeId, is_there: &impl Fn(NodeId) -> bool) -> bool {
    let (mut left, mut seen) = (vec![id], BTreeSet::new());
    while let Some(id) = left.pop() {
        if is_there(id) || !seen.insert(id) {
            continue;
        }
        let node = layer.graph.node(id);
        match node.op.kind() {
            OpKind::Arithmetic | OpKind::Test | OpKind::Cast | OpKind::Marker | OpKind::View | OpKind::Part => {
                left.extend(&node.operands);
            }
            OpKind::Constant => {}
            _ => return false,
        }
    }
    true
}

/// Returns for each node whether it is computed from a carry, for what the layer gives.
fn forward_values(layer: &LayerLoop) -> Vec<bool> {
    let needed = layer.needed(layer.results.iter().copied(), &BTreeSet::new());
    needed.into_iter().zip(varying(layer)).map(|(needed, varies)| needed && varies).collect()
}

/// Returns for each node whether it differs between layers: it is computed from a carry, or drawn.
fn varying(layer: &LayerLoop) -> Vec<bool> {
    let mut varies = vec![false; layer.graph.len()];
    let arguments = layer.arguments(&vec![true; layer.graph.len()]);
    let is_carry =
        |id: &NodeId| arguments.get(id).is_some_and(|&argument| matches!(layer.role(argument), Role::Carry(_)));
    for id in layer.graph.ids() {
        let node = layer.graph.node(id);
        let computed = node.operands.iter().any(|operand| varies[operand.index()] || is_carry(operand));
        varies[id.index()] = computed || matches!(node.op, Op::RngBitGenerator { .. });
    }
    varies
}

/// Returns the values of the forward pass that the gradient reads.
fn crossing<'l>(layer: &'l LayerLoop, of_layer: &'l [bool]) -> impl Iterator<Item = NodeId> {
    let gradients = layer.gradients.iter().copied().flatten();
    let forward = layer.needed(layer.results.iter().copied(), &BTreeSet::new());
    let backward = layer.needed(gradients.clone(), &BTreeSet::new());
    let mut read: BTreeSet<NodeId> = gradients
        .filter_map(|gradient| match gradient {
            LayerValue::Node(id) => Some(id),
            LayerValue::Argument(_) => None,
        })
        .collect();
    for id in layer.graph.ids().filter(|id| backward[id.index()] && !forward[id.index()]) {
        read.extend(layer.graph.node(id).operands.iter().copied());
    }
    read.into_iter().filter(|id| of_layer[id.index()])
}

/// Returns the value that a changed layout, dtype or shape of it is made of.
fn stored(layer: &LayerLoop, mut id: NodeId) -> NodeId {
    loop {
        let node = layer.graph.node(id);
        let is_wider = |of: NodeId| layer.graph.ty(of).dtype.size_bytes() > node.ty.dtype.size_bytes();
        match (&node.op, &node.operands[..]) {
            (Op::Convert { .. }, &[of]) if is_wider(of) => return id,
            (Op::Reshape { .. } | Op::Transpose { .. } | Op::BroadcastInDim { .. } | Op::Convert { .. }, &[of]) => {
                id = of
            }
            _ => return id,
        }
    }
}

/// Returns the value to which a product is rounded at once, or the product itself.
fn rounded(layer: &LayerLoop, of_layer: &[bool], id: NodeId) -> NodeId {
    let graph = &layer.graph;
    let mut readers =
        graph.ids().filter(|reader| of_layer[reader.index()] && graph.node(*reader).operands.contains(&id));
    match (readers.next(), readers.next()) {
        (Some(only), None) if matches!(graph.node(only).op, Op::Convert { .. }) => only,
        _ => id,
    }
}
