//! Compares a recording with earlier ones: finds the most similar one and the first difference.

use crate::metrics::{Recompile, RecompileCause};
use crate::program::{Earlier, ProgramCache, Provenance, Recorded, SlotAssumptions, similarity};
use burn_tpu_graph::{DType, Graph, Node, NodeId, Number, Op, Program};
use std::sync::Arc;

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
    /// Its sizes.
    pub(crate) sizes: Option<[usize; 2]>,
    /// Whether the recordings have the same ops, and differ in their dims alone.
    pub(crate) only_dims: bool,
    /// Whether the node is a parameter.
    pub(crate) input: bool,
    /// The earlier program.
    pub(crate) program: Option<Arc<Program>>,
    pub(crate) old: String,
    pub(crate) new: String,
}

impl Difference {
    /// Returns a difference without a node.
    fn new(cause: RecompileCause, op: &'static str, old: String, new: String) -> Self {
        let (node, dim, sizes, program) = (None, None, None, None);
        Self { cause, node, op, dim, sizes, only_dims: false, input: false, program, old, new }
    }

    /// Returns the difference for a program that was evicted and is needed again.
    fn evicted() -> Self {
        Self::new(RecompileCause::Evicted, "", "evicted".into(), "needed again".into())
    }

    /// Returns the event of a compile that is about to begin, of a recording of so many nodes.
    pub(crate) fn event(self, location: Option<String>, nodes: usize) -> Recompile {
        let Difference { cause, op, dim, sizes, only_dims, input, old, new, .. } = self;
        let (uploaded_at, family, seconds) = (None, None, 0.0);
        Recompile { cause, op, location, dim, sizes, only_dims, input, uploaded_at, family, old, new, nodes, seconds }
    }

    /// Fills in the op and the program where they are missing.
    fn completed(self, recorded: &Recorded) -> Self {
        let last = recorded.outputs.last().map_or("no op", |&id| named(&recorded.graph, id));
        let op = if self.op.is_empty() { last } else { self.op };
        Self { op, program: self.program.or_else(|| Some(Arc::clone(&recorded.program))), ..self }
    }
}

/// Returns how a recording that has to be compiled differs from the one most like it; `None` when none is like it.
pub(crate) fn explain(cache: &ProgramCache, new: &Recorded, slots: &[u64]) -> Option<Difference> {
    let difference = match cache.earlier(new)? {
        Earlier::Compiled(assumptions) => broken_assumption(new, &assumptions, slots)?,
        Earlier::Evicted => Difference::evicted(),
        Earlier::Like(old) => compare(&old, new),
    };
    Some(difference.completed(new))
}

/// Returns how a recording differs from the program that its trace followed longest, if it is like that one and its line is
/// known there. The program that is most like it may differ earlier.
pub(crate) fn from_followed(provenance: &Provenance, new: &Recorded) -> Option<Difference> {
    let left = provenance.left.as_ref()?;
    similarity(&left.graph, &new.graph)?;
    let difference = compare(left, new);
    provenance.lines.of(difference.node?).is_some().then_some(difference)
}

/// Returns the first difference between an earlier recording and a new one.
fn compare(old: &Recorded, new: &Recorded) -> Difference {
    let difference = first_difference(old, new);
    let kinds = |graph: &Graph| graph.nodes().iter().map(|node| node.op.mnemonic()).collect::<Vec<_>>();
    let only_dims = difference.cause == RecompileCause::Shape && kinds(&old.graph) == kinds(&new.graph);
    Difference { only_dims, program: Some(Arc::clone(&old.program)), ..difference }
}

fn first_difference(old: &Recorded, new: &Recorded) -> Difference {
    let pairs = old.graph.nodes().iter().zip(new.graph.nodes());
    if let Some((node, (a, b))) = pairs.enumerate().find(|(_, (a, b))| a != b) {
        return node_difference(node, named(&new.graph, NodeId(node as u32)), a, b);
    }
    let (len, new_len) = (old.graph.len(), new.graph.len());
    if len == new_len {
        return if old.outputs == new.outputs { placement_difference(old, new) } else { output_difference(old, new) };
    }
    let text = |graph: &Graph| graph.nodes().get(len.min(new_len)).map_or("the end".into(), Node::to_string);
    let node = (new_len > len).then_some(len);
    let longer = if node.is_some() { &new.graph } else { &old.graph };
    let op = named(longer, NodeId(len.min(new_len) as u32));
    Difference { node, ..Difference::new(RecompileCause::NewOp, op, text(&old.graph), text(&new.graph)) }
}

/// Returns the Burn op of a node, or its mnemonic if it has no label. A parameter belongs to the first op that takes it: its
/// own label may be that of an op in an earlier recording that begins alike.
fn named(graph: &Graph, id: NodeId) -> &'static str {
    let parameter = matches!(graph.nodes()[id.index()].op, Op::Parameter { .. });
    let takes = |node: &Node| node.operands.contains(&id);
    let taker = graph.nodes().iter().position(takes).filter(|_| parameter).map(|node| NodeId(node as u32));
    let labels = taker.into_iter().chain([id]).map(|id| graph.label(id));
    labels.into_iter().find(|label| !label.is_empty()).unwrap_or_else(|| graph.nodes()[id.index()].op.mnemonic())
}

fn node_difference(node: usize, op: &'static str, old: &Node, new: &Node) -> Difference {
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
    let sizes = dim.map(|dim| [old.ty.dims[dim], new.ty.dims[dim]]);
    let input = matches!(new.op, Op::Parameter { .. });
    Difference { node: Some(node), dim, sizes, input, ..Difference::new(cause, op, text(old), text(new)) }
}

/// Returns the difference between equal graphs with other outputs.
fn output_difference(old: &Recorded, new: &Recorded) -> Difference {
    let missing_in = |b: &[NodeId], a: &[NodeId]| a.iter().copied().find(|id| !b.contains(id));
    let (removed, added) = (missing_in(&new.outputs, &old.outputs), missing_in(&old.outputs, &new.outputs));
    let op = added.or(removed).map_or("no op", |id| named(&new.graph, id));
    let text = |outputs: &[NodeId], own: Option<NodeId>| {
        let own = own.map_or_else(String::new, |id| format!(", among them {} {id}", named(&new.graph, id)));
        format!("{} results{own}", outputs.len())
    };
    Difference::new(RecompileCause::LiveSet, op, text(&old.outputs, removed), text(&new.outputs, added))
}

/// Returns the difference at the first argument that is split over the mesh in another way.
fn placement_difference(old: &Recorded, new: &Recorded) -> Difference {
    let shardings = |of: &Recorded| of.program.placement().map(|p| (p.mesh.clone(), p.parameters.clone()));
    let (Some((mesh, before)), Some((_, after))) = (shardings(old), shardings(new)) else {
        return output_difference(old, new);
    };
    let index = before.iter().zip(&after).position(|(a, b)| a != b).unwrap_or_default();
    let node = new.bindings.parameters.get(index).and_then(|&recorded| {
        let is = |node: &Node| matches!(node.op, Op::Parameter { index, .. } if index == recorded);
        new.graph.nodes().iter().position(is)
    });
    let op = node.map_or("no op", |node| named(&new.graph, NodeId(node as u32)));
    let text = |all: &[burn_tpu_graph::Sharding]| all.get(index).map_or("".into(), |s| s.named(&mesh).to_string());
    let input = node.is_some();
    Difference { node, input, ..Difference::new(RecompileCause::Sharding, op, text(&before), text(&after)) }
}

/// Returns the difference at the first slot that breaks an assumption of its program. `slots` are the slots of the program.
fn broken_assumption(recorded: &Recorded, assumptions: &SlotAssumptions, slots: &[u64]) -> Option<Difference> {
    let bits = |index: u32| slots.get(index as usize).copied();
    let graph = recorded.program.graph();
    graph.nodes().iter().enumerate().find_map(|(node, of)| {
        let is_offset = matches!(of.op, Op::Offset { .. });
        let (Op::Offset { index, dtype } | Op::Slot { index, dtype }) = of.op else { return None };
        let input = assumptions.input_of(index);
        let (cause, old, new) = match assumptions.constant(index) {
            Some(old) => {
                let new = bits(index).filter(|new| *new != old)?;
                let cause = if is_offset { RecompileCause::Offset } else { RecompileCause::Scalar };
                (cause, number(dtype, old), number(dtype, new))
            }
            None if bits(index) == bits(input) => return None,
            None => (RecompileCause::Scalar, format!("equal to slot {input}"), "another number".into()),
        };
        let recorded_node = Some(recorded.bindings.nodes[node].index());
        let difference = Difference::new(cause, named(graph, NodeId(node as u32)), old, new);
        Some(Difference { node: recorded_node, program: Some(Arc::clone(&recorded.program)), ..difference })
    })
}

fn number(dtype: DType, bits: u64) -> String {
    match Number::of_bits(bits, dtype) {
        Number::Float(value) => value.to_string(),
        Number::Int(value) => value.to_string(),
        Number::UInt(value) => value.to_string(),
        Number::Bool(value) => value.to_string(),
    }
}
