//! The body of the loop: the program of one trip, which computes a block of rows.
//!
//! Owns: the block of each value in a trip. May not know: what is around the loop.

use super::region::{Region, operand_splits};
use super::split::{Divided, Split, operand_split};
use crate::query_blocks::{is_elementwise, with_dims};
use burn_tpu_graph::op::{BinaryOp, Combine};
use burn_tpu_graph::{Builder, DType, Graph, GraphError, Literal, LiteralData, NodeId, Op, Program, TensorType};
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, GraphError>;

/// The program of one trip under construction.
pub(super) struct Body<'a> {
    old: &'a Graph,
    region: &'a Region,
    graph: Graph,
    /// The parameters of the carries.
    carries: Vec<NodeId>,
    /// The number of the trip.
    counter: NodeId,
    /// The parameter of each input of the loop.
    inputs: BTreeMap<NodeId, NodeId>,
    /// The blocks of the region's nodes so far.
    blocks: BTreeMap<NodeId, NodeId>,
    /// The blocks of values from outside of the region, by how they are divided.
    outside: BTreeMap<(NodeId, Split), NodeId>,
    /// The logits that are rounded, and to which type.
    rounded: Option<(NodeId, DType)>,
    /// The blocks in 16 bits of the rounded logits and of their reshapes.
    half_blocks: BTreeMap<NodeId, NodeId>,
}

impl<'a> Body<'a> {
    /// Creates a body without nodes. `types` are those of the carries.
    pub(super) fn new(
        old: &'a Graph,
        region: &'a Region,
        rounded: Option<(NodeId, DType)>,
        types: &[TensorType],
    ) -> Result<Self> {
        let mut graph = Graph::new();
        let mut carries = Vec::with_capacity(types.len());
        for (index, ty) in (0..).zip(types) {
            carries.push(graph.add(Op::Parameter { index, ty: ty.clone() }, &[])?);
        }
        let counter = Op::Parameter { index: types.len() as u32, ty: TensorType::scalar(DType::I32) };
        let counter = graph.add(counter, &[])?;
        let (inputs, blocks, outside, half_blocks) = Default::default();
        Ok(Self { old, region, graph, carries, counter, inputs, blocks, outside, rounded, half_blocks })
    }

    /// Returns the program of a loop with these results and inputs.
    pub(super) fn trip(mut self, results: &[NodeId], inputs: &[NodeId]) -> Result<Program> {
        self.inputs = inputs.iter().copied().zip(self.carries[results.len()..].iter().copied()).collect();
        for &id in self.region.nodes.keys() {
            let block = match self.selection(id)? {
                Some(block) => block,
                None => self.node(id)?,
            };
            let block = self.round(id, block)?;
            self.blocks.insert(id, block);
        }
        let mut next = self.carries.clone();
        for (carry, &id) in next.iter_mut().zip(results) {
            *carry = self.next_result(id, *carry)?;
        }
        Program::extract(&self.graph, &next)
    }

    /// Returns a result with this trip's block written into it, or added to it.
    fn next_result(&mut self, id: NodeId, carry: NodeId) -> Result<NodeId> {
        self.graph.set_label(self.old.label(id));
        let block = self.blocks[&id];
        match self.region.split(id) {
            Some(split) => {
                let starts = self.starts(split, &self.old.dims(id))?;
                self.graph.dynamic_update_slice(carry, block, &starts)
            }
            None => self.graph.binary(BinaryOp::Add, carry, block),
        }
    }

    /// Adds the block of a node of the region.
    fn node(&mut self, id: NodeId) -> Result<NodeId> {
        let node = self.old.node(id);
        let mut operands = Vec::with_capacity(node.operands.len());
        for (&operand, split) in node.operands.iter().zip(self.region.operand_splits(self.old, id)) {
            operands.push(self.value(operand, split)?);
        }
        self.graph.set_label(self.old.label(id));
        if let Some(split) = self.region.split(id) {
            return self.graph.add(with_dims(&node.op, &split.block(&node.ty.dims)), &operands);
        }
        let carried = self.region.carried_dtype(self.old, id);
        let mut op = node.op.clone();
        match &mut op {
            Op::DotGeneral(attrs) => attrs.result = carried,
            _ => operands[0] = self.graph.convert(operands[0], carried)?,
        }
        self.graph.add(op, &operands)
    }

    /// Rounds the block if it is that of the logits, and widens it again.
    fn round(&mut self, id: NodeId, block: NodeId) -> Result<NodeId> {
        match self.rounded {
            Some((logits, dtype)) if logits == id => {
                let half = self.graph.convert(block, dtype)?;
                self.half_blocks.insert(id, half);
                self.graph.convert(half, DType::F32)
            }
            _ => Ok(block),
        }
    }

    /// Adds the block of a node that selects elements of the rounded logits, whose numbers are the same in either type;
    /// returns `None` for any other node. It reads 16 bits: XLA leaves out a rounding whose result is only widened.
    fn selection(&mut self, id: NodeId) -> Result<Option<NodeId>> {
        let node = self.old.node(id);
        let half = node.operands.first().and_then(|operand| self.half_blocks.get(operand).copied());
        let (Some(half), Some(split)) = (half, self.region.split(id)) else { return Ok(None) };
        let mut operands = vec![half];
        match &node.op {
            Op::Reshape { .. } | Op::Reduce { combine: Combine::Max | Combine::Min, .. } => {}
            Op::Gather(_) => {
                let indices = self.region.operand_splits(self.old, id)[1].clone();
                operands.push(self.value(node.operands[1], indices)?);
            }
            _ => return Ok(None),
        }
        self.graph.set_label(self.old.label(id));
        let block = self.graph.add(with_dims(&node.op, &split.block(&node.ty.dims)), &operands)?;
        if matches!(node.op, Op::Reshape { .. }) {
            self.half_blocks.insert(id, block);
        }
        self.graph.convert(block, DType::F32).map(Some)
    }

    /// Returns the block of a value, which is added if it is from outside of the region.
    fn value(&mut self, id: NodeId, split: Split) -> Result<NodeId> {
        if let Some(&block) = self.blocks.get(&id) {
            return Ok(block);
        }
        let key = (id, split);
        if let Some(&block) = self.outside.get(&key) {
            return Ok(block);
        }
        let block = match self.inputs.get(&id) {
            Some(&input) if !is_recomputed(self.old, self.region, id, &key.1) => self.slice(input, &key.1)?,
            _ => self.recompute(id, &key.1)?,
        };
        self.outside.insert(key, block);
        Ok(block)
    }

    /// Adds the slice of an input that is this trip's block.
    fn slice(&mut self, input: NodeId, split: &Split) -> Result<NodeId> {
        if split.0.is_empty() {
            return Ok(input);
        }
        let dims = self.graph.dims(input);
        let starts = self.starts(split, &dims)?;
        self.graph.dynamic_slice(input, &starts, &split.block(&dims))
    }

    /// Adds the ops that compute the block of a value from outside of the region.
    fn recompute(&mut self, id: NodeId, split: &Split) -> Result<NodeId> {
        let node = self.old.node(id);
        let dims = split.block(&node.ty.dims);
        match &node.op {
            Op::Constant(Literal { ty, data }) => {
                self.graph.constant(Literal { ty: TensorType::new(ty.dtype, &dims), data: data.clone() })
            }
            Op::Iota { ty, dim } => {
                let iota = self.graph.iota(ty.dtype, &dims, *dim)?;
                let Some(&divided) = split.0.iter().find(|divided| divided.dim == *dim) else { return Ok(iota) };
                let start = self.start(divided, dims[*dim])?;
                let start = self.graph.convert(start, ty.dtype)?;
                let start = self.graph.broadcast_in_dim(start, &dims, &[])?;
                self.graph.binary(BinaryOp::Add, iota, start)
            }
            op => {
                let mut operands = Vec::with_capacity(node.operands.len());
                for (&operand, split) in node.operands.iter().zip(operand_splits(self.old, id, split)) {
                    operands.push(self.value(operand, split)?);
                }
                self.graph.set_label(self.old.label(id));
                self.graph.add(with_dims(op, &dims), &operands)
            }
        }
    }

    /// Returns where this trip's block of a value with these dims starts.
    fn starts(&mut self, split: &Split, dims: &[usize]) -> Result<Vec<NodeId>> {
        let mut starts = vec![self.graph.scalar(DType::I32, 0i64)?; dims.len()];
        for &divided in &split.0 {
            starts[divided.dim] = self.start(divided, dims[divided.dim] / divided.parts)?;
        }
        Ok(starts)
    }

    /// Returns the first index of this trip's part, of `size` elements, of a dim.
    fn start(&mut self, Divided { parts, inner, .. }: Divided, size: usize) -> Result<NodeId> {
        let mut part = self.counter;
        if inner > 1 {
            part = self.graph.binary_const(BinaryOp::Div, part, inner as i64)?;
        }
        if inner * parts < self.region.blocks {
            part = self.graph.binary_const(BinaryOp::Rem, part, parts as i64)?;
        }
        self.graph.binary_const(BinaryOp::Mul, part, size as i64)
    }
}

/// Returns whether each trip computes its block of a value from outside of the region, rather than slicing the whole of it.
pub(super) fn is_recomputed(old: &Graph, region: &Region, id: NodeId, split: &Split) -> bool {
    let node = old.node(id);
    let is_cheap = match &node.op {
        Op::Constant(literal) => return matches!(literal.data, LiteralData::Splat(_)),
        Op::Iota { .. } => return true,
        Op::BroadcastInDim { .. } => true,
        // What is the same in each trip is computed once, before the loop.
        _ if split.0.is_empty() => false,
        Op::Reshape { .. } | Op::Transpose { .. } | Op::Scatter(_) => region.is_large(old, id),
        op => region.is_large(old, id) && is_elementwise(op),
    };
    is_cheap && (0..node.operands.len()).all(|operand| operand_split(old, id, operand, split).is_some())
}
