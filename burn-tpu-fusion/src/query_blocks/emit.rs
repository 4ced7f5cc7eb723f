//! The program with regions in blocks.

use super::cut::Block;
use super::part::{Part, Parts, whole, with_dims};
use super::region::{Axes, Member, Regions};
use burn_tpu_graph::op::{BinaryOp, DotAttrs};
use burn_tpu_graph::{Builder, Graph, GraphError, NodeId, Number, Op, Program, Rebuild, TensorType};
use std::collections::HashMap;
use std::ops::Range;

/// Returns the program. `blocks` are those of each member whose region is computed in blocks.
pub(super) fn emit(
    program: &Program,
    regions: &Regions,
    blocks: &HashMap<NodeId, &[Block]>,
) -> Result<Program, GraphError> {
    let parts = Parts::new(program);
    let mut emit = Emit { old: program.graph(), regions, parts, rows: HashMap::new() };
    program.rebuild(|new, id| match (regions.member(id), blocks.get(&id)) {
        // The new node of rows which are only read in blocks is the first block.
        (Some(member), Some(blocks)) => emit.member(new, id, member, blocks),
        _ => new.copy(id),
    })
}

struct Emit<'a> {
    old: &'a Graph,
    regions: &'a Regions<'a>,
    parts: Parts<'a>,
    /// The blocks of each member with rows.
    rows: HashMap<NodeId, Vec<NodeId>>,
}

impl Emit<'_> {
    /// Adds a member in blocks, and the whole of it if that is read.
    fn member(
        &mut self,
        new: &mut Rebuild,
        id: NodeId,
        member: Member,
        blocks: &[Block],
    ) -> Result<NodeId, GraphError> {
        let mut each = Vec::with_capacity(blocks.len());
        for block in blocks.iter().enumerate() {
            each.push(self.block(new, id, member, block)?);
        }
        let graph = &mut new.graph;
        let is_read = self.regions.is_read_outside(id);
        let (Member::Sum { key } | Member::Rows { axes: Axes { key, .. }, .. }) = member;
        let mut all = Vec::with_capacity(each.len());
        for (&value, block) in each.iter().zip(blocks).filter(|_| is_read) {
            all.push(padded(graph, value, key, block, &self.old.node(id).ty)?);
        }
        let first = each[0];
        self.rows.insert(id, each);
        match (member, &all[..]) {
            (_, []) => Ok(first),
            (Member::Rows { axes, .. }, all) => graph.concatenate(all, axes.query),
            (Member::Sum { .. }, [first, others @ ..]) => {
                others.iter().try_fold(*first, |sum, &part| graph.binary(BinaryOp::Add, sum, part))
            }
        }
    }

    /// Adds a block of a member.
    fn block(
        &mut self,
        new: &mut Rebuild,
        id: NodeId,
        member: Member,
        (index, block): (usize, &Block),
    ) -> Result<NodeId, GraphError> {
        let (old, regions) = (self.old, self.regions);
        let node = old.node(id);
        let (parts, op) = match (&node.op, member) {
            (Op::DotGeneral(attrs), _) => (self.factors(id, attrs, block), node.op.clone()),
            (Op::ArgReduce { .. }, _) => {
                // The places are cut like the scores.
                let dims = &old.ty(node.operands[0]).dims;
                let axes = self.axes_read(id, node.operands[0]);
                let part = axes.map_or_else(|| whole(dims), |axes| block.part(dims, axes));
                (vec![part; 2], node.op.clone())
            }
            (op, Member::Rows { axes, .. }) => {
                let part = block.part(&node.ty.dims, axes);
                let sizes: Vec<_> = part.iter().map(Range::len).collect();
                (vec![part; node.operands.len()], with_dims(op, &sizes))
            }
            // Its operand has rows.
            (op, Member::Sum { .. }) => (vec![Part::new()], op.clone()),
        };
        let graph = &mut new.graph;
        let mut operands = Vec::with_capacity(node.operands.len());
        for (&operand, part) in node.operands.iter().zip(parts) {
            operands.push(match regions.reads_rows(id, operand) {
                true => self.rows[&operand][index],
                false => self.parts.add(graph, &new.renamed, operand, part)?,
            });
        }
        if let Op::Scatter(_) = op {
            // The place of a row's largest score among the block's keys.
            operands[1] = graph.binary_const(BinaryOp::Sub, operands[1], block.keys.start as i64)?;
        }
        graph.add(op, &operands)
    }

    /// Returns the axes of an operand whose rows a node reads one by one.
    fn axes_read(&self, id: NodeId, operand: NodeId) -> Option<Axes> {
        match self.regions.member(operand) {
            Some(Member::Rows { axes, .. }) if self.regions.reads_rows(id, operand) => Some(axes),
            _ => None,
        }
    }

    /// Returns the parts of a product's factors that a block needs. (That of a factor with rows is its block.)
    fn factors(&self, id: NodeId, attrs: &DotAttrs, block: &Block) -> Vec<Part> {
        let operands = &self.old.node(id).operands;
        let mut parts: Vec<Part> = operands.iter().map(|&id| whole(&self.old.ty(id).dims)).collect();
        let axes = |side: usize| self.axes_read(id, operands[side]);
        let contracted = attrs.lhs_contract.iter().copied().zip(attrs.rhs_contract.iter().copied());
        match (axes(0), axes(1)) {
            (Some(axes), _) => {
                for (left, right) in contracted {
                    parts[1][right] = block.range(axes, left).unwrap_or(parts[1][right].clone());
                }
            }
            (_, Some(axes)) => {
                for (left, right) in contracted {
                    parts[0][left] = block.range(axes, right).unwrap_or(parts[0][left].clone());
                }
            }
            // A region begins with the product of queries and keys.
            (None, None) => {
                let free = |side: usize, batch: &[usize], contracted: &[usize]| {
                    (0..parts[side].len()).find(|dim| !batch.contains(dim) && !contracted.contains(dim))
                };
                let query = free(0, &attrs.lhs_batch, &attrs.lhs_contract);
                let key = free(1, &attrs.rhs_batch, &attrs.rhs_contract);
                query.into_iter().for_each(|dim| parts[0][dim] = block.queries.clone());
                key.into_iter().for_each(|dim| parts[1][dim] = block.keys.clone());
            }
        }
        parts
    }
}

/// Adds a block's value with zeros for the keys that it leaves out. `whole` is the value without blocks.
fn padded(
    graph: &mut Graph,
    value: NodeId,
    key: Option<usize>,
    block: &Block,
    whole: &TensorType,
) -> Result<NodeId, GraphError> {
    let Some(key) = key else { return Ok(value) };
    let zero = graph.scalar(whole.dtype, Number::Int(0))?;
    let at = |size: usize| {
        let mut edge = vec![0; whole.rank()];
        edge[key] = size as isize;
        edge
    };
    let (low, high) = (at(block.keys.start), at(whole.dims[key] - block.keys.end));
    graph.pad(value, zero, &low, &high, &vec![0; whole.rank()])
}
