//! The program with regions in blocks.

use super::cut::{Block, Rest};
use super::means::Means;
use super::part::{Part, Parts, whole, with_dims};
use super::region::{Axes, Member, Regions};
use super::rest::MeanKeyValue;
use burn_tpu_graph::op::{BinaryOp, Direction, DotAttrs};
use burn_tpu_graph::{Builder, DType, Graph, GraphError, Node, NodeId, Number, Op, Program, Rebuild};
use std::collections::HashMap;
use std::ops::Range;

/// Returns the program. `blocks` are those of each member whose region is computed in blocks.
pub(super) fn emit(
    program: &Program,
    regions: &Regions,
    blocks: &HashMap<NodeId, &[Block]>,
) -> Result<Program, GraphError> {
    let mut emit = Emit {
        old: program.graph(),
        regions,
        parts: Parts::new(program),
        means: Means::default(),
        rows: HashMap::new(),
        places: HashMap::new(),
    };
    program.rebuild(|new, id| match (regions.member(id), blocks.get(&id)) {
        // The new node of rows which are only read in blocks is the first block.
        (Some(member), Some(blocks)) => emit.member(new, id, member, blocks),
        _ => new.copy(id),
    })
}

/// A member in one block.
struct Cut {
    /// Its value at the keys that the block needs, or without a dim of keys.
    kept: NodeId,
    /// Its value at the mean key of each rest, where it has one.
    rests: Vec<Option<NodeId>>,
}

impl Cut {
    /// Returns the value at these keys, or that without a dim of keys.
    fn at(&self, keys: Keys) -> NodeId {
        match keys {
            Keys::Kept => self.kept,
            Keys::Mean(place, _) => self.rests.get(place).copied().flatten().unwrap_or(self.kept),
        }
    }
}

/// For which keys of which block a member is computed.
#[derive(Clone, Copy)]
struct At<'a> {
    index: usize,
    block: &'a Block,
    /// Where the rests of all blocks begin and end.
    ends: &'a [usize],
    keys: Keys<'a>,
}

/// The keys that the block needs, or the mean key of a rest.
#[derive(Clone, Copy)]
enum Keys<'a> {
    Kept,
    Mean(usize, &'a Rest),
}

impl At<'_> {
    /// Returns the part of a value of these dims that this is.
    fn part(self, dims: &[usize], axes: Axes) -> Part {
        let mut part = self.block.part(dims, axes);
        if let (Keys::Mean(_, rest), Some(key)) = (self.keys, axes.key) {
            // What is the same for all keys.
            part[key] = rest.keys.start..rest.keys.start + 1;
        }
        part
    }
}

struct Emit<'a> {
    old: &'a Graph,
    regions: &'a Regions<'a>,
    parts: Parts<'a>,
    means: Means,
    /// The blocks of each member with rows.
    rows: HashMap<NodeId, Vec<Cut>>,
    /// The places of the largest scores in each block.
    places: HashMap<NodeId, Vec<NodeId>>,
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
        let ends = ends(blocks);
        let mut each = Vec::with_capacity(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            let at = At { index, block, ends: &ends, keys: Keys::Kept };
            each.push(self.block(new, id, member, at)?);
        }
        let graph = &mut new.graph;
        let is_read = self.regions.is_read_outside(id);
        let (Member::Sum { key } | Member::Rows { axes: Axes { key, .. }, .. }) = member;
        let mut all = Vec::with_capacity(each.len());
        for (cut, block) in each.iter().zip(blocks).filter(|_| is_read) {
            all.push(whole_of(graph, cut, key, block)?);
        }
        let first = each[0].kept;
        self.rows.insert(id, each);
        match (member, &all[..]) {
            (_, []) => Ok(first),
            (Member::Rows { axes, .. }, all) => graph.concatenate(all, axes.query),
            (Member::Sum { .. }, [first, others @ ..]) => {
                others.iter().try_fold(*first, |sum, &part| graph.binary(BinaryOp::Add, sum, part))
            }
        }
    }

    /// Adds a member in one block.
    fn block(&mut self, new: &mut Rebuild, id: NodeId, member: Member, at: At) -> Result<Cut, GraphError> {
        let (node, block) = (self.old.node(id), at.block);
        if let Op::GetResult { index: 1.. } = node.op {
            return Ok(Cut { kept: self.places[&node.operands[0]][at.index], rests: Vec::new() });
        }
        let kept = self.add(new, id, member, at)?;
        let mut rests = Vec::with_capacity(block.rests.len());
        for (place, rest) in block.rests.iter().enumerate() {
            rests.push(self.at_rest(new, id, member, at, (place, rest))?);
        }
        if let Op::ArgReduce { .. } = node.op {
            return self.largest(&mut new.graph, id, kept, &rests, block);
        }
        if !self.combines_keys(id, node) {
            return Ok(Cut { kept, rests });
        }
        let mut combined = kept;
        for (rest, value) in block.rests.iter().zip(&rests) {
            let Some(value) = *value else { continue };
            combined = combine(&mut new.graph, &node.op, combined, value, rest)?;
        }
        Ok(Cut { kept: combined, rests: Vec::new() })
    }

    /// Returns whether a member combines its values at all keys.
    fn combines_keys(&self, id: NodeId, node: &Node) -> bool {
        let of_keys =
            |&operand: &NodeId| self.axes_read(id, operand).and_then(|axes| axes.key.map(|key| (operand, key)));
        let Some((operand, key)) = node.operands.iter().find_map(of_keys) else { return false };
        match &node.op {
            Op::Reduce { dims, .. } => dims.contains(&key),
            Op::DotGeneral(attrs) if operand == node.operands[0] => attrs.lhs_contract.contains(&key),
            Op::DotGeneral(attrs) => attrs.rhs_contract.contains(&key),
            _ => false,
        }
    }

    /// Adds a member at the mean key of a rest, or what it combines of that; `None` if it has no value there.
    fn at_rest(
        &mut self,
        new: &mut Rebuild,
        id: NodeId,
        member: Member,
        at: At,
        (place, rest): (usize, &Rest),
    ) -> Result<Option<NodeId>, GraphError> {
        let (node, at) = (self.old.node(id), At { keys: Keys::Mean(place, rest), ..at });
        let Some(value) = rest.values.get(&id) else {
            let operand = node.operands.iter().find(|&&operand| self.regions.reads_rows(id, operand));
            let read = operand.and_then(|operand| self.rows[operand][at.index].rests.get(place).copied().flatten());
            return match (&node.op, read) {
                (Op::ArgReduce { .. }, read) => Ok(read),
                (Op::Reduce { .. } | Op::DotGeneral(_), Some(_)) => self.add(new, id, member, at).map(Some),
                _ => Ok(None),
            };
        };
        match (value.form, value.operand) {
            (MeanKeyValue::Unknown, _) => Ok(None),
            (_, Some(operand)) => {
                let operand = node.operands[operand];
                if self.regions.reads_rows(id, operand) {
                    return Ok(self.rows[&operand][at.index].rests[place]);
                }
                let Member::Rows { axes, .. } = member else { return Ok(None) };
                let part = at.part(&node.ty.dims, axes);
                self.parts.add(&mut new.graph, &new.renamed, operand, part).map(Some)
            }
            (_, None) => self.add(new, id, member, at).map(Some),
        }
    }

    /// Adds the op of a member for the queries of a block and these keys.
    fn add(&mut self, new: &mut Rebuild, id: NodeId, member: Member, at: At) -> Result<NodeId, GraphError> {
        let (old, regions) = (self.old, self.regions);
        let node = old.node(id);
        let (operands, op) = match (&node.op, member) {
            (Op::DotGeneral(attrs), _) => (self.factors(new, id, attrs, at)?, node.op.clone()),
            (Op::ArgReduce { .. }, _) => {
                // The places are cut like the scores.
                let dims = &old.ty(node.operands[0]).dims;
                let axes = self.axes_read(id, node.operands[0]);
                let part = axes.map_or_else(|| whole(dims), |axes| at.part(dims, axes));
                (vec![Outside::Part(part); 2], node.op.clone())
            }
            (op, Member::Rows { axes, .. }) => {
                let part = at.part(&node.ty.dims, axes);
                let sizes: Vec<_> = part.iter().map(Range::len).collect();
                (vec![Outside::Part(part); node.operands.len()], with_dims(op, &sizes))
            }
            // Its operand has rows.
            (op, Member::Sum { .. }) => (vec![Outside::Part(Part::new())], op.clone()),
        };
        let mut added = Vec::with_capacity(node.operands.len());
        for (&operand, outside) in node.operands.iter().zip(operands) {
            added.push(match outside {
                _ if regions.reads_rows(id, operand) => self.rows[&operand][at.index].at(at.keys),
                Outside::Part(part) => self.parts.add(&mut new.graph, &new.renamed, operand, part)?,
                Outside::Added(mean) => mean,
            });
        }
        let graph = &mut new.graph;
        if let Op::Scatter(_) = op {
            // The place of a row's largest score among the block's keys. A place outside of them is out of range.
            added[1] = graph.binary_const(BinaryOp::Sub, added[1], at.block.keys.start as i64)?;
        }
        graph.add(op, &added)
    }

    /// Returns the largest score of each row and its place, given those among the keys that a block needs.
    fn largest(
        &mut self,
        graph: &mut Graph,
        id: NodeId,
        kept: NodeId,
        rests: &[Option<NodeId>],
        block: &Block,
    ) -> Result<Cut, GraphError> {
        let (mut largest, mut at) = (kept, graph.get_result(kept, 1)?);
        for (rest, value) in block.rests.iter().zip(rests) {
            let Some(value) = *value else { continue };
            let value = graph.reshape(value, &graph.dims(largest))?;
            // Of equal scores the one at the lowest place is taken.
            let is_before = rest.keys.end <= block.keys.start;
            let direction = if is_before { Direction::Ge } else { Direction::Gt };
            let is_larger = graph.compare(direction, value, largest)?;
            let first = graph.splat_like(at, rest.keys.start as i64)?;
            at = graph.select(is_larger, first, at)?;
            largest = graph.select(is_larger, value, largest)?;
        }
        self.places.entry(id).or_default().push(at);
        Ok(Cut { kept: largest, rests: Vec::new() })
    }

    /// Returns the axes of an operand whose rows a node reads one by one.
    fn axes_read(&self, id: NodeId, operand: NodeId) -> Option<Axes> {
        match self.regions.member(operand) {
            Some(Member::Rows { axes, .. }) if self.regions.reads_rows(id, operand) => Some(axes),
            _ => None,
        }
    }

    /// Returns the factors of a product for a block and these keys. (That of a factor with rows is its block.)
    fn factors(&mut self, new: &mut Rebuild, id: NodeId, attrs: &DotAttrs, at: At) -> Result<Vec<Outside>, GraphError> {
        let operands = &self.old.node(id).operands;
        let mut parts: Vec<Part> = operands.iter().map(|&id| whole(&self.old.ty(id).dims)).collect();
        // The dim of the keys in the factor without rows, by its side.
        let mut key_dim = None;
        let axes = |side: usize| self.axes_read(id, operands[side]);
        let sides = match (axes(0), axes(1)) {
            (Some(axes), _) => Some((axes, 1, &attrs.lhs_contract, &attrs.rhs_contract)),
            (_, Some(axes)) => Some((axes, 0, &attrs.rhs_contract, &attrs.lhs_contract)),
            (None, None) => None,
        };
        if let Some((axes, other, rows, others)) = sides {
            for (&dim, &of_other) in rows.iter().zip(others) {
                parts[other][of_other] = at.block.range(axes, dim).unwrap_or(parts[other][of_other].clone());
                if axes.key == Some(dim) {
                    key_dim = Some((other, of_other));
                }
            }
        } else {
            // A region begins with the product of queries and keys.
            let free = |side: usize, batch: &[usize], contracted: &[usize]| {
                (0..parts[side].len()).find(|dim| !batch.contains(dim) && !contracted.contains(dim))
            };
            let query = free(0, &attrs.lhs_batch, &attrs.lhs_contract);
            let key = free(1, &attrs.rhs_batch, &attrs.rhs_contract);
            query.into_iter().for_each(|dim| parts[0][dim] = at.block.queries.clone());
            key.into_iter().for_each(|dim| parts[1][dim] = at.block.keys.clone());
            key_dim = key.map(|dim| (1, dim));
        }
        let mut factors: Vec<Outside> = parts.into_iter().map(Outside::Part).collect();
        if let (Keys::Mean(_, rest), Some((side, dim))) = (at.keys, key_dim) {
            let mean = self.means.add(new, &mut self.parts, operands[side], dim, (&rest.keys, at.ends))?;
            factors[side] = Outside::Added(mean);
        }
        Ok(factors)
    }
}

/// An operand that is no member.
#[derive(Clone)]
enum Outside {
    /// A part of it.
    Part(Part),
    /// What was made of it.
    Added(NodeId),
}

/// Returns where the rests of blocks begin and end.
fn ends(blocks: &[Block]) -> Vec<usize> {
    let rests = blocks.iter().flat_map(|block| &block.rests);
    let mut ends: Vec<usize> = rests.flat_map(|rest| [rest.keys.start, rest.keys.end]).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Combines a reduction or a product over the keys that a block needs with the value at the mean key of a rest.
fn combine(graph: &mut Graph, op: &Op, kept: NodeId, value: NodeId, rest: &Rest) -> Result<NodeId, GraphError> {
    match op {
        Op::Reduce { combine, .. } if combine.op() != BinaryOp::Add => graph.binary(combine.op(), kept, value),
        _ => {
            let sum = graph.binary_const(BinaryOp::Mul, value, Number::Int(rest.keys.len() as i64))?;
            graph.binary(BinaryOp::Add, kept, sum)
        }
    }
}

/// Adds a block's value for all keys. A `select` by place costs no memory: it is part of what reads the value.
fn whole_of(graph: &mut Graph, cut: &Cut, key: Option<usize>, block: &Block) -> Result<NodeId, GraphError> {
    let Some(key) = key else { return Ok(cut.kept) };
    let mut whole = padded(graph, cut.kept, key, block)?;
    for (rest, value) in block.rests.iter().zip(&cut.rests) {
        let Some(value) = *value else { continue };
        let places = graph.iota(DType::I32, &graph.dims(whole), key)?;
        let is_rest = match rest.keys.start {
            0 => graph.compare_const(Direction::Lt, places, rest.keys.end as i64)?,
            start => graph.compare_const(Direction::Ge, places, start as i64)?,
        };
        let repeated = graph.broadcast_like(value, whole)?;
        whole = graph.select(is_rest, repeated, whole)?;
    }
    Ok(whole)
}

/// Adds a block's value with zeros for the keys that it leaves out.
fn padded(graph: &mut Graph, value: NodeId, key: usize, block: &Block) -> Result<NodeId, GraphError> {
    let zero = graph.scalar(graph.dtype(value), Number::Int(0))?;
    let rank = graph.rank(value);
    let edge = |size: usize| {
        let mut edge = vec![0; rank];
        edge[key] = size as isize;
        edge
    };
    let size_after =
        block.rests.iter().map(|rest| rest.keys.end).max().unwrap_or_default().saturating_sub(block.keys.end);
    graph.pad(value, zero, &edge(block.keys.start), &edge(size_after), &vec![0; rank])
}
