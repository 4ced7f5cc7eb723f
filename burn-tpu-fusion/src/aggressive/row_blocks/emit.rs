//! The program with a region in a loop over blocks of rows.

use super::region::{Member, Region, factor};
use super::split::{Divided, Split, before};
use crate::query_blocks::{is_elementwise, with_dims};
use crate::readers::Readers;
use burn_tpu_graph::op::{BinaryOp, Combine, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, GraphError, Literal, LiteralData, NodeId, Op, Program, TensorType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Result<T> = std::result::Result<T, GraphError>;

/// Returns the program. What the region does not need comes after the loop.
pub(super) fn emit(program: &Program, region: &Region) -> Result<Program> {
    let old = program.graph();
    let mut graph = Graph::new();
    let mut renamed: Vec<Option<NodeId>> = vec![None; old.len()];
    let ids = (0..old.len() as u32).map(NodeId).filter(|id| !region.members.contains_key(id));
    let (after, first): (Vec<_>, Vec<_>) = ids.partition(|id| region.follows[id.index()]);
    for id in first {
        copy(old, &mut graph, &mut renamed, id)?;
    }
    add_loop(program, region, &mut graph, &mut renamed)?;
    for id in after {
        copy(old, &mut graph, &mut renamed, id)?;
    }
    let outputs = program.outputs().iter().map(|&id| new(&renamed, id)).collect::<Result<Vec<_>>>()?;
    let rewritten = Program::extract(&graph, &outputs)?;
    Ok(match program.placement() {
        Some(placement) => rewritten.placed(placement.clone()),
        None => rewritten,
    })
}

fn copy(old: &Graph, graph: &mut Graph, renamed: &mut [Option<NodeId>], id: NodeId) -> Result<()> {
    let node = old.node(id);
    graph.set_label(old.label(id));
    let operands = node.operands.iter().map(|&operand| new(renamed, operand)).collect::<Result<Vec<_>>>()?;
    renamed[id.index()] = Some(graph.add(node.op.clone(), &operands)?);
    Ok(())
}

/// Returns the new node of an old one.
fn new(renamed: &[Option<NodeId>], id: NodeId) -> Result<NodeId> {
    let rule = || format!("nothing returns the value of {id}");
    renamed[id.index()].ok_or_else(|| GraphError { op: "graph.for", operands: String::new(), rule: rule() })
}

/// Adds the loop. Its carries are what it returns, and then what it is given.
fn add_loop(program: &Program, region: &Region, graph: &mut Graph, renamed: &mut [Option<NodeId>]) -> Result<()> {
    let old = program.graph();
    let returned = returned(program, region);
    let given = Given::of(old, region);
    let mut carries = Vec::with_capacity(returned.len() + given.len());
    for &id in &returned {
        graph.set_label(old.label(id));
        let ty = old.ty(id);
        carries.push(graph.splat(carried_dtype(region, id, ty), &ty.dims, 0i64)?);
    }
    for &id in &given {
        carries.push(new(renamed, id)?);
    }
    let types: Vec<TensorType> = carries.iter().map(|&id| graph.ty(id).clone()).collect();
    let body = Body { rounded: rounded_member(program, region), ..Body::new(old, region, &types)? };
    let body = Arc::new(body.trip(&returned, &given)?);
    let last = graph.add(Op::For { trips: region.blocks, body }, &carries)?;
    for (i, &id) in returned.iter().enumerate() {
        graph.set_label(old.label(id));
        let result = graph.get_result(last, i)?;
        renamed[id.index()] = Some(graph.convert(result, old.dtype(id))?);
    }
    Ok(())
}

/// Returns the logits and their type: the product of 16-bit factors, after bias and cap, that several ops read. Each reads
/// it from main memory, so it is kept in 16 bits there.
fn rounded_member(program: &Program, region: &Region) -> Option<(NodeId, DType)> {
    let (old, readers) = (program.graph(), Readers::all(program));
    let mut rounded = *region.members.keys().next()?;
    let (factor, mut read) = (old.dtype(old.node(rounded).operands[0]), rounded);
    while let Readers::One(reader) = readers[read.index()] {
        match old.node(reader).op {
            Op::Binary(_) | Op::Unary(UnaryOp::Tanh) => rounded = reader,
            Op::Reshape { .. } => {}
            _ => return None,
        }
        read = reader;
    }
    (factor.is_half() && old.dtype(read) == DType::F32).then_some((rounded, factor))
}

/// Returns the members that something outside the region reads.
fn returned(program: &Program, region: &Region) -> Vec<NodeId> {
    let nodes = program.graph().nodes().iter().zip(&region.follows);
    let read = nodes.filter(|(_, follows)| **follows).flat_map(|(node, _)| &node.operands);
    let read: BTreeSet<_> = read.chain(program.outputs()).copied().collect();
    read.into_iter().filter(|id| region.members.contains_key(id)).collect()
}

/// Returns the type in which a result is carried: sums are f32 or wider.
fn carried_dtype(region: &Region, id: NodeId, ty: &TensorType) -> DType {
    let is_sum = region.members.get(&id) == Some(&Member::Sum);
    if is_sum && ty.dtype.size_bytes() < 4 { DType::F32 } else { ty.dtype }
}

/// Returns how a member's operands are divided.
fn splits(old: &Graph, region: &Region, id: NodeId) -> Vec<Split> {
    let operands = &old.node(id).operands;
    let of_sum = |i: usize| {
        let own = region.rows(operands[i]);
        let other = || {
            let Op::DotGeneral(attrs) = &old.node(id).op else { return None };
            factor(attrs, 1 - i, region.rows(operands[1 - i])?)
        };
        own.cloned().or_else(other).unwrap_or_default()
    };
    let split = |i: usize| match region.rows(id) {
        Some(split) => before(old, id, i, split).unwrap_or_default(),
        None => of_sum(i),
    };
    (0..operands.len()).map(split).collect()
}

/// Returns whether a trip computes a value that is no member, rather than reading a part of it.
fn is_computed(old: &Graph, region: &Region, id: NodeId, split: &Split) -> bool {
    let node = old.node(id);
    let is_cheap = match &node.op {
        Op::Constant(literal) => return matches!(literal.data, LiteralData::Splat(_)),
        Op::Iota { .. } => return true,
        Op::BroadcastInDim { .. } => true,
        // What is the same in each trip is computed once, before the loop.
        op => !split.0.is_empty() && region.is_wide(old, id) && (is_elementwise(op) || is_moved(op)),
    };
    is_cheap && (0..node.operands.len()).all(|i| before(old, id, i, split).is_some())
}

fn is_moved(op: &Op) -> bool {
    matches!(op, Op::Reshape { .. } | Op::Transpose { .. } | Op::Scatter(_))
}

/// The values that a loop is given.
struct Given<'a> {
    old: &'a Graph,
    region: &'a Region,
    seen: BTreeSet<(NodeId, Split)>,
    values: BTreeSet<NodeId>,
}

impl<'a> Given<'a> {
    fn of(old: &'a Graph, region: &'a Region) -> Vec<NodeId> {
        let mut given = Self { old, region, seen: BTreeSet::new(), values: BTreeSet::new() };
        for &id in region.members.keys() {
            for (&operand, split) in old.node(id).operands.iter().zip(splits(old, region, id)) {
                given.collect(operand, split);
            }
        }
        given.values.into_iter().collect()
    }

    fn collect(&mut self, id: NodeId, split: Split) {
        if self.region.members.contains_key(&id) || !self.seen.insert((id, split.clone())) {
            return;
        }
        if !is_computed(self.old, self.region, id, &split) {
            self.values.insert(id);
            return;
        }
        for (i, &operand) in self.old.node(id).operands.iter().enumerate() {
            self.collect(operand, before(self.old, id, i, &split).unwrap_or_default());
        }
    }
}

/// The program of one trip under construction.
struct Body<'a> {
    old: &'a Graph,
    region: &'a Region,
    graph: Graph,
    /// The parameters: the carries and the number of the trip.
    parameters: Vec<NodeId>,
    /// The blocks of members.
    members: BTreeMap<NodeId, NodeId>,
    /// The blocks of other values.
    others: BTreeMap<(NodeId, Split), NodeId>,
    /// The parameter of each value that is given.
    given: BTreeMap<NodeId, NodeId>,
    /// The member that is rounded, and to which type.
    rounded: Option<(NodeId, DType)>,
    /// The 16-bit blocks of the rounded member and of its reshapes.
    narrow: BTreeMap<NodeId, NodeId>,
}

impl<'a> Body<'a> {
    fn new(old: &'a Graph, region: &'a Region, types: &[TensorType]) -> Result<Self> {
        let mut graph = Graph::new();
        let types = types.iter().cloned().chain([TensorType::scalar(DType::I32)]).enumerate();
        let parameters = types.map(|(index, ty)| graph.add(Op::Parameter { index: index as u32, ty }, &[]));
        let parameters = parameters.collect::<Result<Vec<_>>>()?;
        let (members, others, given, narrow) = Default::default();
        Ok(Self { old, region, graph, parameters, members, others, given, rounded: None, narrow })
    }

    /// Returns the program, with the carries of the next trip.
    fn trip(mut self, returned: &[NodeId], given: &[NodeId]) -> Result<Program> {
        self.given = given.iter().copied().zip(self.parameters[returned.len()..].iter().copied()).collect();
        for &id in self.region.members.keys() {
            let block = match self.narrow_member(id)? {
                Some(block) => block,
                None => self.member(id)?,
            };
            let block = self.round(id, block)?;
            self.members.insert(id, block);
        }
        let mut next = self.parameters[..self.parameters.len() - 1].to_vec();
        for (&id, carry) in returned.iter().zip(&mut next) {
            self.graph.set_label(self.old.label(id));
            let block = self.members[&id];
            *carry = match self.region.rows(id) {
                Some(split) => {
                    let starts = self.starts(split, self.old.dims(id).as_slice())?;
                    self.graph.dynamic_update_slice(*carry, block, &starts)?
                }
                None => self.graph.binary(BinaryOp::Add, *carry, block)?,
            };
        }
        Program::extract(&self.graph, &next)
    }

    /// Rounds the block if it is that of the rounded member.
    fn round(&mut self, id: NodeId, block: NodeId) -> Result<NodeId> {
        let Some((_, dtype)) = self.rounded.filter(|(rounded, _)| *rounded == id) else { return Ok(block) };
        let narrow = self.graph.convert(block, dtype)?;
        self.narrow.insert(id, narrow);
        self.graph.convert(narrow, DType::F32)
    }

    /// Returns the block of a member that chooses among the elements of a rounded one, whose numbers are the same in either
    /// type. It reads 16 bits: XLA leaves out a rounding whose result is only widened.
    fn narrow_member(&mut self, id: NodeId) -> Result<Option<NodeId>> {
        let (node, split) = (self.old.node(id), self.region.rows(id));
        let narrow = node.operands.first().and_then(|operand| self.narrow.get(operand).copied());
        let (Some(narrow), Some(split)) = (narrow, split) else { return Ok(None) };
        let operands = match &node.op {
            Op::Reshape { .. } | Op::Reduce { combine: Combine::Max | Combine::Min, .. } => vec![narrow],
            Op::Gather(_) => vec![narrow, self.value(node.operands[1], splits(self.old, self.region, id)[1].clone())?],
            _ => return Ok(None),
        };
        self.graph.set_label(self.old.label(id));
        let block = self.graph.add(with_dims(&node.op, &split.block(&node.ty.dims)), &operands)?;
        if matches!(node.op, Op::Reshape { .. }) {
            self.narrow.insert(id, block);
        }
        self.graph.convert(block, DType::F32).map(Some)
    }

    fn member(&mut self, id: NodeId) -> Result<NodeId> {
        let node = self.old.node(id);
        let operands = node.operands.iter().zip(splits(self.old, self.region, id));
        let mut operands = operands.map(|(&operand, split)| self.value(operand, split)).collect::<Result<Vec<_>>>()?;
        self.graph.set_label(self.old.label(id));
        if let Some(split) = self.region.rows(id) {
            return self.graph.add(with_dims(&node.op, &split.block(&node.ty.dims)), &operands);
        }
        let wide = carried_dtype(self.region, id, &node.ty);
        let mut op = node.op.clone();
        match &mut op {
            Op::DotGeneral(attrs) => attrs.result = wide,
            _ => operands[0] = self.graph.convert(operands[0], wide)?,
        }
        self.graph.add(op, &operands)
    }

    /// Returns a block of a value.
    fn value(&mut self, id: NodeId, split: Split) -> Result<NodeId> {
        let known = self.members.get(&id).or_else(|| self.others.get(&(id, split.clone())));
        if let Some(&known) = known {
            return Ok(known);
        }
        let block = match self.given.get(&id) {
            Some(&given) if !is_computed(self.old, self.region, id, &split) => self.part(given, &split)?,
            _ => self.computed(id, &split)?,
        };
        self.others.insert((id, split), block);
        Ok(block)
    }

    fn part(&mut self, given: NodeId, split: &Split) -> Result<NodeId> {
        if split.0.is_empty() {
            return Ok(given);
        }
        let dims = self.graph.dims(given);
        let starts = self.starts(split, &dims)?;
        self.graph.dynamic_slice(given, &starts, &split.block(&dims))
    }

    fn computed(&mut self, id: NodeId, split: &Split) -> Result<NodeId> {
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
                let before = |i: usize| before(self.old, id, i, split).unwrap_or_default();
                let splits: Vec<_> = (0..node.operands.len()).map(before).collect();
                let operands = node.operands.iter().zip(splits).map(|(&operand, split)| self.value(operand, split));
                let operands = operands.collect::<Result<Vec<_>>>()?;
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
        let mut part = self.parameters[self.parameters.len() - 1];
        if inner > 1 {
            part = self.graph.binary_const(BinaryOp::Div, part, inner as i64)?;
        }
        if inner * parts < self.region.blocks {
            part = self.graph.binary_const(BinaryOp::Rem, part, parts as i64)?;
        }
        self.graph.binary_const(BinaryOp::Mul, part, size as i64)
    }
}
