//! Splitting a program in two: what is assembled from values on the host, and the rest, which runs on the device.
//!
//! Owns: which nodes the host computes, and how their values are packed for the transfer. May not know: which part has
//! run, and where values live; the caller says which parameters are on the host.
//!
//! A node belongs to the host if it is computed from host parameters, or assembles constants (a mask that is built row by
//! row), by ops that move, compare or combine elements, and if it does not grow what it is given, unless it puts small
//! values together. Constants, and what is computed from nothing else without assembling, are cheap to build again: either
//! part has its own.

use crate::op::OpKind;
use crate::{Bindings, Builder, DType, Graph, Node, NodeId, Op, Program, Rebuild, Result, TensorType};
use std::sync::Arc;

/// The largest host value in bytes that is packed into a transfer with others. A larger parameter stays one.
const MOST_PACKED_BYTES: usize = 64 << 10;

/// The largest number of elements that are assembled from constants on either side: the state of a random draw has two.
const FEW_ELEMENTS: usize = 16;

/// A program as two: the results of the host's part are parameters of the device's part.
#[derive(Clone, Debug)]
pub struct Split {
    /// The host's part, and what its inputs are in the whole program.
    pub host: (Program, Bindings),
    /// The device's part. A parameter that is bound to an index of at least `first_transfer` is a transfer.
    pub device: (Arc<Program>, Bindings),
    /// The index in `device`'s bindings of the first transfer; the others follow.
    pub first_transfer: u32,
    /// What is transferred from the host's results.
    pub transfers: Vec<Transfer>,
    /// Where each output of the whole program comes from.
    pub outputs: Vec<Source>,
    /// The number of ops that the host computes.
    pub host_ops: usize,
}

/// One transfer to the device: results of the host's part, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The type of the device's parameter.
    pub ty: TensorType,
    /// The results of the host's part that it consists of, by index.
    pub results: Vec<usize>,
}

/// Where an output of the whole program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The result of this index of the host's part.
    Host(usize),
    /// The result of this index of the device's part.
    Device(usize),
}

/// The side that a node belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Either,
    Host,
    Device,
}

impl Split {
    /// Returns the two parts of a program, or `None` if one of them has nothing to do. `is_host` tells
    /// whether the value of a parameter is on the host and waits for its transfer.
    ///
    /// # Errors
    /// Only a bug gives one: a part that breaks an op's rule.
    pub fn of(program: &Program, is_host: impl Fn(u32) -> bool) -> Result<Option<Self>> {
        Self::packed(program, is_host, MOST_PACKED_BYTES)
    }

    /// Returns the two parts of a program as [`Split::of`] does, with a transfer for each value: a packed one has a size
    /// that is a sum of others.
    ///
    /// # Errors
    /// Those of [`Split::of`].
    pub fn unpacked(program: &Program, is_host: impl Fn(u32) -> bool) -> Result<Option<Self>> {
        Self::packed(program, is_host, 0)
    }

    /// `most` is the size in bytes up to which values are packed.
    fn packed(program: &Program, is_host: impl Fn(u32) -> bool, most: usize) -> Result<Option<Self>> {
        let parts = assign(program, is_host);
        let is_read = device_reads(program, &parts);
        let crossing = crossing(program, &parts, &is_read, most);
        if crossing.is_empty() {
            return Ok(None);
        }
        let host = Program::canonical(program.graph(), &crossing)?;
        let (places, transfers) = pack(program.graph(), &crossing, most, |id| is_read[id.index()]);
        let first_transfer = program.parameters().map(|(index, _)| index + 1).max().unwrap_or(0);
        let rest = Rest { program, parts: &parts, crossing: &crossing, places: &places, transfers: &transfers };
        let rest = rest.build(first_transfer)?;
        let is_host = |id: &NodeId| parts[id.index()] == Side::Host && crossing.binary_search(id).is_ok();
        let on_device: Vec<NodeId> = program.outputs().iter().copied().filter(|id| !is_host(id)).collect();
        if on_device.is_empty() {
            return Ok(None);
        }
        let (device, inputs) = Program::canonical(&rest.graph, &rest.renamed.ids(&on_device)?)?;
        let mut next = 0..;
        let source = |id: &NodeId| match crossing.binary_search(id) {
            Ok(result) => Source::Host(result),
            Err(_) => Source::Device(next.next().unwrap_or_default()),
        };
        let outputs = program.outputs().iter().map(source).collect();
        let computes = |node: &&Node| !matches!(node.op, Op::Parameter { .. } | Op::Constant(_) | Op::Slot { .. });
        let host_ops = host.0.graph().nodes().iter().filter(computes).count();
        Ok(Some(Self { host, device: (Arc::new(device), inputs), first_transfer, transfers, outputs, host_ops }))
    }
}

/// Returns the part of each node.
fn assign(program: &Program, is_host: impl Fn(u32) -> bool) -> Vec<Side> {
    let graph = program.graph();
    let mut parts = Vec::with_capacity(graph.len());
    for node in graph.nodes() {
        let part = match node.op {
            Op::Parameter { index, .. } if is_host(index) => Side::Host,
            Op::Parameter { .. } => Side::Device,
            Op::Constant(_) | Op::Iota { .. } | Op::Slot { .. } | Op::Offset { .. } => Side::Either,
            ref op if !is_simple(op) => Side::Device,
            ref op => of_operands(graph, node, op, &parts),
        };
        parts.push(part);
    }
    parts
}

/// Returns the part of a node from those of its operands.
fn of_operands(graph: &Graph, node: &Node, op: &Op, parts: &[Side]) -> Side {
    let of = |id: &NodeId| parts[id.index()];
    if node.operands.iter().any(|id| of(id) == Side::Device) {
        return Side::Device;
    }
    let on_host = || node.operands.iter().filter(|id| of(id) == Side::Host);
    let given: usize = on_host().map(|id| graph.ty(*id).bytes()).sum();
    if on_host().next().is_none() {
        return if assembles(op) && node.ty.elements() > FEW_ELEMENTS { Side::Host } else { Side::Either };
    }
    // What grows is computed on the device: its operands are the smaller transfer. Rows that are written into a small
    // constant are one transfer instead of many.
    let is_small = assembles(op) && node.ty.bytes() <= MOST_PACKED_BYTES;
    if is_small || node.ty.bytes() <= given { Side::Host } else { Side::Device }
}

/// Returns whether an op of constants puts them together, so that the result depends on where each of them goes.
fn assembles(op: &Op) -> bool {
    matches!(op, Op::Concatenate { .. } | Op::DynamicUpdateSlice | Op::Pad(_))
}

/// Returns whether the interpreter computes an op about as fast as a compiled program: element by element.
fn is_simple(op: &Op) -> bool {
    use OpKind::{Arithmetic, Cast, Move, Part, Test, View};
    let each_alone = matches!(op.kind(), Arithmetic | Test | Cast | View | Move | Part);
    each_alone || matches!(op, Op::DynamicUpdateSlice | Op::Reduce { .. })
}

/// Returns the host's nodes that the device's part or the caller reads, ascending.
fn crossing(program: &Program, parts: &[Side], read_by_device: &[bool], most_packed: usize) -> Vec<NodeId> {
    let mut is_read = read_by_device.to_vec();
    program.outputs().iter().for_each(|id| is_read[id.index()] = true);
    let is_large_parameter = |node: &Node| matches!(node.op, Op::Parameter { .. }) && node.ty.bytes() > most_packed;
    let crosses = |id: &NodeId| {
        let node = program.graph().node(*id);
        parts[id.index()] == Side::Host && is_read[id.index()] && !is_large_parameter(node)
    };
    (0..program.graph().len() as u32).map(NodeId).filter(crosses).collect()
}

/// Returns for each node whether the device's part reads it.
fn device_reads(program: &Program, parts: &[Side]) -> Vec<bool> {
    let mut read = vec![false; program.graph().len()];
    let device = program.graph().nodes().iter().zip(parts).filter(|(_, part)| **part == Side::Device);
    device.flat_map(|(node, _)| &node.operands).for_each(|id| read[id.index()] = true);
    read
}

/// Where a host value is in the transfers.
#[derive(Clone, Copy)]
struct Place {
    transfer: usize,
    /// The index of its first element.
    start: usize,
}

/// The words that small values are packed as.
const WORDS: [DType; 3] = [DType::U32, DType::U16, DType::U8];

/// Returns the transfers of the results that the device reads, and the place of each. Small values of one element width
/// share a transfer.
fn pack(
    graph: &Graph,
    crossing: &[NodeId],
    most: usize,
    is_read: impl Fn(NodeId) -> bool,
) -> (Vec<Option<Place>>, Vec<Transfer>) {
    let ty = |result: usize| graph.ty(crossing[result]);
    let read = || (0..crossing.len()).filter(|&result| is_read(crossing[result]));
    let is_packed = |result: usize, word: DType| {
        let bytes = ty(result).bytes();
        (1..=most).contains(&bytes) && ty(result).dtype.size_bytes() == word.size_bytes()
    };
    let packed = WORDS.map(|word| Vec::from_iter(read().filter(|&result| is_packed(result, word))));
    let alone = read().filter(|&result| !WORDS.iter().any(|&word| is_packed(result, word))).map(|result| vec![result]);
    let (mut places, mut transfers) = (vec![None; crossing.len()], Vec::new());
    for results in packed.into_iter().filter(|results| !results.is_empty()).chain(alone) {
        let mut elements = 0;
        for &result in &results {
            places[result] = Some(Place { transfer: transfers.len(), start: elements });
            elements += ty(result).elements();
        }
        let word = WORDS.into_iter().find(|word| word.size_bytes() == ty(results[0]).dtype.size_bytes());
        let ty = match word.filter(|_| results.len() > 1) {
            Some(word) => TensorType::new(word, [elements]),
            None => ty(results[0]).clone(),
        };
        transfers.push(Transfer { ty, results });
    }
    (places, transfers)
}

/// The device's part while it is built.
struct Rest<'p> {
    program: &'p Program,
    parts: &'p [Side],
    crossing: &'p [NodeId],
    places: &'p [Option<Place>],
    transfers: &'p [Transfer],
}

impl Rest<'_> {
    /// Returns the graph of the device's part.
    fn build(&self, first_transfer: u32) -> Result<Rebuild<'_>> {
        let whole = self.program.graph();
        let mut new = Rebuild::new(whole);
        let mut transfers = Vec::with_capacity(self.transfers.len());
        for (index, transfer) in (first_transfer..).zip(self.transfers) {
            transfers.push(new.graph.add(Op::Parameter { index, ty: transfer.ty.clone() }, &[])?);
        }
        for (id, node) in whole.ids().zip(whole.nodes()) {
            let place = self.crossing.binary_search(&id).ok().and_then(|result| self.places[result]);
            if let Some(place) = place {
                new.label(id);
                let value = self.unpack(&mut new.graph, transfers[place.transfer], place, &node.ty)?;
                new.renamed.set(id, value);
            } else if self.parts[id.index()] != Side::Host || matches!(node.op, Op::Parameter { .. }) {
                new.copy(id)?;
            }
        }
        Ok(new)
    }

    /// Adds the nodes that take a value out of a transfer.
    fn unpack(&self, graph: &mut Graph, transfer: NodeId, place: Place, ty: &TensorType) -> Result<NodeId> {
        if self.transfers[place.transfer].results.len() == 1 {
            return Ok(transfer);
        }
        let words = graph.slice_dim(transfer, 0, place.start, place.start + ty.elements())?;
        let elements = match ty.dtype {
            // A bool is a byte, 0 or 1, but its type has another width.
            DType::Bool => graph.convert(words, DType::Bool)?,
            dtype if dtype == graph.dtype(words) => words,
            dtype => graph.add(Op::BitcastConvert { dtype }, &[words])?,
        };
        graph.reshape(elements, &ty.dims)
    }
}

#[cfg(test)]
mod tests;
