//! Compares a recording with earlier ones: finds the most similar one and the first difference.

use super::RecompileCause;
use crate::program::{Recorded, SlotAssumptions};
use burn_tpu_graph::{DType, Graph, Node, NodeId, Op};

/// The first difference between two recordings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) cause: RecompileCause,
    /// The index of the node that differs in the new recording, if there is one.
    pub(crate) node: Option<usize>,
    /// The Burn op of the node.
    pub(crate) op: &'static str,
    /// The first dim that differs, if the shapes have the same rank.
    pub(crate) dim: Option<usize>,
    pub(crate) old: String,
    pub(crate) new: String,
}

impl Difference {
    /// Returns the difference for a program that was evicted and is needed again.
    pub(crate) fn evicted() -> Self {
        let (old, new) = ("evicted".into(), "needed again".into());
        Self { cause: RecompileCause::Evicted, node: None, op: "", dim: None, old, new }
    }
}

/// Returns the similarity of two recordings: the number of equal op kinds at the start and at the end, and the number
/// of equal nodes at the start. Returns `None` if less than half of the op kinds are equal: the recordings are unrelated.
pub(crate) fn likeness(old: &Graph, new: &Graph) -> Option<(usize, usize)> {
    let kinds = |(a, b): &(&Node, &Node)| a.op.mnemonic() == b.op.mnemonic();
    let (a, b) = (old.nodes(), new.nodes());
    let front = a.iter().zip(b).take_while(kinds).count();
    let rest = a.len().min(b.len()) - front;
    let back = a.iter().rev().zip(b.iter().rev()).take(rest).take_while(kinds).count();
    let equal = old.hashes().iter().zip(new.hashes()).take_while(|(a, b)| a == b).count();
    (2 * (front + back) >= a.len().max(b.len())).then_some((front + back, equal))
}

/// Returns where a recording first differs from another one.
pub(crate) fn of_recordings(old: &Recorded, new: &Recorded) -> Difference {
    let pairs = old.graph.nodes().iter().zip(new.graph.nodes());
    if let Some((node, (a, b))) = pairs.enumerate().find(|(_, (a, b))| a != b) {
        return of_nodes(node, new.graph.label(NodeId(node as u32)), a, b);
    }
    let (len, new_len) = (old.graph.len(), new.graph.len());
    if len == new_len {
        return of_outputs(old, new);
    }
    let text = |graph: &Graph| graph.nodes().get(len.min(new_len)).map_or("the end".into(), Node::to_string);
    let node = (new_len > len).then_some(len);
    let longer = if node.is_some() { &new.graph } else { &old.graph };
    let op = longer.label(NodeId(len.min(new_len) as u32));
    Difference { cause: RecompileCause::NewOp, node, op, dim: None, old: text(&old.graph), new: text(&new.graph) }
}

fn of_nodes(node: usize, op: &'static str, old: &Node, new: &Node) -> Difference {
    let same_kind = old.op.mnemonic() == new.op.mnemonic();
    let cause = match () {
        () if !same_kind => RecompileCause::NewOp,
        () if old.ty.dtype != new.ty.dtype => RecompileCause::DType,
        () if old.ty.dims != new.ty.dims => RecompileCause::Shape,
        () if old.op != new.op => RecompileCause::StructuralConstant,
        () => RecompileCause::NewOp,
    };
    let types = matches!(cause, RecompileCause::DType | RecompileCause::Shape);
    let text = |node: &Node| if types { node.ty.to_string() } else { node.to_string() };
    let same_rank = old.ty.rank() == new.ty.rank();
    let dim = old.ty.dims.iter().zip(&new.ty.dims).position(|(a, b)| a != b).filter(|_| same_rank);
    Difference { cause, node: Some(node), op, dim, old: text(old), new: text(new) }
}

/// Returns the difference between equal graphs with different outputs.
fn of_outputs(old: &Recorded, new: &Recorded) -> Difference {
    let only = |these: &[NodeId], those: &[NodeId]| these.iter().copied().find(|id| !those.contains(id));
    let (removed, added) = (only(&old.outputs, &new.outputs), only(&new.outputs, &old.outputs));
    let op = added.or(removed).map_or("", |id| new.graph.label(id));
    let text = |outputs: &[NodeId], own: Option<NodeId>| {
        let own = own.map_or_else(String::new, |id| format!(", among them {} {id}", new.graph.label(id)));
        format!("{} results{own}", outputs.len())
    };
    let (old, new) = (text(&old.outputs, removed), text(&new.outputs, added));
    Difference { cause: RecompileCause::LiveSet, node: None, op, dim: None, old, new }
}

/// Returns the first slot of a recording that breaks an assumption of its program. `slots` are the slots of the program.
pub(crate) fn broken(recorded: &Recorded, assumptions: &SlotAssumptions, slots: &[u64]) -> Option<Difference> {
    let bits = |index: u32| slots.get(index as usize).copied();
    let graph = recorded.program.graph();
    graph.nodes().iter().enumerate().find_map(|(node, of)| {
        let (cause, old, new) = match of.op {
            Op::Offset { index, dtype } => {
                let (old, new) = (assumptions.offset(index)?, bits(index)?);
                (old != new).then(|| (RecompileCause::Offset, integer(dtype, old), integer(dtype, new)))?
            }
            Op::Slot { index, .. } => {
                let input = assumptions.input_of(index);
                let differs = input != index && bits(index) != bits(input);
                differs.then(|| (RecompileCause::Scalar, format!("equal to slot {input}"), "another number".into()))?
            }
            _ => return None,
        };
        let op = graph.label(NodeId(node as u32));
        let recorded_node = recorded.bindings.nodes[node].index();
        Some(Difference { cause, node: Some(recorded_node), op, dim: None, old, new })
    })
}

fn integer(dtype: DType, bits: u64) -> String {
    if dtype.size_bytes() == 4 { (bits as i32).to_string() } else { (bits as i64).to_string() }
}
