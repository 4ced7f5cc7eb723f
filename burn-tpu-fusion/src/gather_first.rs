//! Elements are gathered before what is computed from them: a gather moves to before the element-wise ops it reads.
//!
//! Cross-entropy computes the log-softmax of all classes and gathers one of them for each row. Recorded op by op, the
//! whole log-softmax is written to memory for that gather: XLA does not fuse into a gather's operand. This pass gathers
//! first:
//!
//! ```text
//! gather(x - broadcast(a))          -> gather(x) - broadcast(a)
//! gather(exp(convert_f32(x)))       -> exp(convert_f32(gather(x)))
//! ```
//!
//! # Why it is exact
//! An element-wise op computes each element from the elements at its place, whatever they are, so the gathered elements
//! have the same bits, NaN and both zeros too. Of an op's operands, one is gathered. The others are the same for all
//! elements that a gather can choose between: equal constants, or broadcasts along the gathered dims. A gather copies
//! elements (out-of-range indices are clamped, to the same places before and after), so nothing is computed that was not
//! computed before.
//!
//! When it is no loss. The result has no more elements than the operand. An op is passed only if nothing else reads its
//! result, or if its own operand is in memory anyway, since several ops read it. A conversion to a wider type is always
//! passed, and one to a narrower type never: the narrow value is the one to keep.
//!
//! Gain: `docs/decisions/0027-the-loss-reads-its-logits-once.md`.

use crate::{Pass, Rewritten};
use burn_tpu_graph::op::GatherAttrs;
use burn_tpu_graph::{Builder, Dims, GraphError, Literal, LiteralData, NodeId, Op, Program, Rebuild, TensorType};

/// The pass that gathers before it computes. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct GatherFirst;

impl Pass for GatherFirst {
    fn name(&self) -> &'static str {
        "gather_first"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let mut state = State { program, uses: program.use_counts(), count: 0 };
        let rewritten = program.rebuild(|new, id| state.node(new, id))?;
        Ok(Rewritten { program: if state.count == 0 { program.clone() } else { rewritten }, count: state.count })
    }
}

struct State<'a> {
    program: &'a Program,
    uses: Vec<u32>,
    count: usize,
}

/// A gather whose result has the batching dims of its operand and nothing else of it.
struct Moved<'a> {
    dims: &'a Dims,
    /// For each batching dim of the operand, its dim in the result.
    batching: Vec<(usize, usize)>,
}

impl State<'_> {
    /// Adds the new node for an old one.
    fn node(&mut self, new: &mut Rebuild, id: NodeId) -> Result<NodeId, GraphError> {
        let old = self.program.graph();
        let node = old.node(id);
        let (Op::Gather(attrs), &[operand, indices]) = (&node.op, &node.operands[..]) else { return new.copy(id) };
        let moved = Moved { dims: &node.ty.dims, batching: batching(attrs, &node.ty.dims) };
        let passed = self.passed(operand, &moved);
        let first = passed.last().map_or(operand, |&(_, spine)| spine);
        let narrow = self.widened(first);
        let is_larger = node.ty.elements() > old.ty(operand).elements();
        if is_larger || first == operand && narrow.is_none() {
            return new.copy(id);
        }
        self.count += 1;
        let (source, indices) = (new.renamed.id(narrow.unwrap_or(first))?, new.renamed.id(indices)?);
        let source = new.graph.reshape(source, &old.ty(first).dims)?;
        let gathered = new.graph.gather(source, indices, attrs.as_ref().clone())?;
        let mut value = new.graph.convert(gathered, old.ty(first).dtype)?;
        for &(op, spine) in passed.iter().rev() {
            value = self.again(new, op, spine, value, &moved)?;
        }
        Ok(value)
    }

    /// Returns the ops that the gather of a value moves to before, last op first, each with its operand that is gathered.
    fn passed(&self, operand: NodeId, moved: &Moved) -> Vec<(NodeId, NodeId)> {
        let mut passed = Vec::new();
        let mut value = operand;
        while let Some(spine) = self.spine(value, moved) {
            passed.push((value, spine));
            value = spine;
        }
        passed
    }

    /// Returns the narrower value that a value is, with other dims. XLA would write the wide one to memory for the gather.
    fn widened(&self, id: NodeId) -> Option<NodeId> {
        let graph = self.program.graph();
        let node = graph.node(id);
        let (Op::Reshape { .. }, &[reshaped]) = (&node.op, &node.operands[..]) else { return None };
        let wide = graph.node(reshaped);
        let (Op::Convert { .. }, &[narrow]) = (&wide.op, &wide.operands[..]) else { return None };
        (graph.ty(narrow).dtype.size_bytes() < wide.ty.dtype.size_bytes()).then_some(narrow)
    }

    /// Returns the operand of an element-wise op that is gathered instead of its result.
    fn spine(&self, id: NodeId, moved: &Moved) -> Option<NodeId> {
        let graph = self.program.graph();
        let node = graph.node(id);
        let mut gathered = node.operands.iter().copied().filter(|&operand| !self.is_same_for_all(operand, moved));
        let spine = gathered.next()?;
        let is_free = self.uses[id.index()] == 1 || self.uses[spine.index()] > 1;
        let passes = match node.op {
            Op::Unary(_) | Op::Binary(_) => is_free,
            Op::Convert { dtype } if dtype.size_bytes() == graph.dtype(spine).size_bytes() => is_free,
            Op::Convert { dtype } => dtype.size_bytes() > graph.dtype(spine).size_bytes(),
            _ => false,
        };
        (passes && gathered.all(|other| other == spine)).then_some(spine)
    }

    /// Returns whether a value is the same for all elements that the gather can choose between.
    fn is_same_for_all(&self, id: NodeId, moved: &Moved) -> bool {
        let graph = self.program.graph();
        let node = graph.node(id);
        match (&node.op, &node.operands[..]) {
            (Op::Constant(literal), _) => matches!(literal.data, LiteralData::Splat(_)),
            (Op::BroadcastInDim { mapping, .. }, [x]) => moved.mapping(mapping, &graph.ty(*x).dims).is_some(),
            _ => false,
        }
    }

    /// Adds an op that the gather was moved before, on the gathered value `x`.
    fn again(
        &self,
        new: &mut Rebuild,
        op: NodeId,
        spine: NodeId,
        x: NodeId,
        moved: &Moved,
    ) -> Result<NodeId, GraphError> {
        let old = self.program.graph();
        let node = old.node(op);
        new.label(op);
        let mut operands = Vec::with_capacity(node.operands.len());
        for &id in &node.operands {
            operands.push(match &old.node(id).op {
                _ if id == spine => x,
                Op::Constant(Literal { ty, data }) => {
                    let ty = TensorType::new(ty.dtype, moved.dims.as_slice());
                    new.graph.constant(Literal { ty, data: data.clone() })?
                }
                Op::BroadcastInDim { mapping, .. } => {
                    let source = new.renamed.id(old.node(id).operands[0])?;
                    let (kept, mapping) = moved.mapping(mapping, &new.graph.dims(source)).unwrap_or_default();
                    let source = new.graph.reshape(source, &kept)?;
                    new.graph.broadcast_in_dim(source, moved.dims, &mapping)?
                }
                _ => new.renamed.id(id)?,
            });
        }
        new.graph.add(node.op.clone(), &operands)
    }
}

impl Moved<'_> {
    /// Returns how a broadcast to the operand becomes one to the result: the dims of its source without those of size 1 that
    /// are no batching dims, and the dim of the result for each. `None` if the source differs along a gathered dim.
    fn mapping(&self, mapping: &[usize], source: &[usize]) -> Option<(Dims, Dims)> {
        let (mut kept, mut mapped) = (Dims::new(), Dims::new());
        for (&dim, &size) in mapping.iter().zip(source) {
            match self.batching.iter().find(|(operand, _)| *operand == dim) {
                Some(&(_, result)) => {
                    kept.push(size);
                    mapped.push(result);
                }
                None if size == 1 => {}
                None => return None,
            }
        }
        mapped.is_sorted().then_some((kept, mapped))
    }
}

/// Returns the dim of the result for each batching dim of a gather's operand; none if slices have dims of their own.
fn batching(attrs: &GatherAttrs, result: &[usize]) -> Vec<(usize, usize)> {
    if !attrs.offset_dims.is_empty() {
        return Vec::new();
    }
    let dims = attrs.operand_batching_dims.iter().zip(&attrs.start_indices_batching_dims);
    // The result has the dims of the indices, without the one of the components.
    let pairs = dims.map(|(&operand, &index)| (operand, index - usize::from(index > attrs.index_vector_dim)));
    pairs.filter(|&(_, dim)| dim < result.len()).collect()
}

#[cfg(test)]
mod tests;
