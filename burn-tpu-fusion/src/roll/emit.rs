//! The program with its loops.

use super::body::{body, stack_type};
use super::carries::{Carry, Reads};
use super::piece::{Loop, Loops, Position};
use super::sequence::Sequence;
use burn_tpu_graph::{Builder, Dims, Graph, GraphError, NodeId, Op, Program, TensorType};
use std::collections::BTreeMap;
use std::sync::Arc;

type Result<T> = std::result::Result<T, GraphError>;

/// Returns the program in which each loop replaces its members.
pub(super) fn emit(sequence: &Sequence, loops: &Loops) -> Result<Program> {
    let reads = Reads::new(sequence, loops);
    let renamed = vec![None; sequence.graph().len()];
    let mut emitter = Emitter { sequence, loops, graph: Graph::new(), renamed, stacks: BTreeMap::new() };
    // Leaves first: a loop may read one that the recording has after its first trips.
    for id in (0..sequence.graph().len() as u32).map(NodeId).filter(|&id| sequence.place(id).is_none()) {
        emitter.copy(id)?;
    }
    let mut place = 0;
    while place < sequence.len() {
        match loops.at(place) {
            Some((member, _)) => {
                let carries = reads.carries(sequence, loops, member.of);
                emitter.add_loop(member.of, &carries)?;
                place = loops[member.of].end();
            }
            None => {
                emitter.copy(sequence.id(place))?;
                place += 1;
            }
        }
    }
    let outputs = sequence.program.outputs().iter().map(|&output| emitter.value(output));
    let outputs = outputs.collect::<Result<Vec<_>>>()?;
    Program::extract(&emitter.graph, &outputs)
}

struct Emitter<'a> {
    sequence: &'a Sequence,
    loops: &'a Loops,
    graph: Graph,
    /// The new node of each old one.
    renamed: Vec<Option<NodeId>>,
    /// The buffers with the values of all trips.
    stacks: BTreeMap<Position, NodeId>,
}

impl Emitter<'_> {
    /// Adds a node that is in no loop.
    fn copy(&mut self, id: NodeId) -> Result<()> {
        let node = self.sequence.graph().node(id);
        let operands = node.operands.iter().map(|&operand| self.value(operand)).collect::<Result<Vec<_>>>()?;
        self.graph.set_label(self.sequence.graph().label(id));
        self.renamed[id.index()] = Some(self.graph.add(node.op.clone(), &operands)?);
        Ok(())
    }

    /// Returns the new node of an old one: for a value of a trip, a slice of the buffer that has the values of all trips.
    fn value(&mut self, id: NodeId) -> Result<NodeId> {
        if let Some(new) = self.renamed[id.index()] {
            return Ok(new);
        }
        let trip = self.sequence.place(id).and_then(|place| self.loops.at(place));
        let stacked = trip.and_then(|(member, trip)| Some((*self.stacks.get(&member)?, trip)));
        let Some((stack, trip)) = stacked else {
            let rule = format!("nothing returns the value of {id}");
            return Err(GraphError { op: "graph.for", operands: String::new(), rule });
        };
        self.graph.set_label(self.sequence.graph().label(id));
        let taken = self.graph.slice_dim(stack, 0, trip, trip + 1)?;
        let new = self.graph.reshape(taken, &self.sequence.graph().ty(id).dims)?;
        self.renamed[id.index()] = Some(new);
        Ok(new)
    }

    fn add_loop(&mut self, index: usize, carries: &[Carry]) -> Result<()> {
        let found = &self.loops[index];
        self.graph.set_label(self.sequence.graph().label(self.sequence.id(found.start)));
        let first = carries.iter().map(|&carry| self.first(found, carry)).collect::<Result<Vec<_>>>()?;
        let types: Vec<TensorType> = first.iter().map(|&id| self.graph.ty(id).clone()).collect();
        let body = Arc::new(body(self.sequence, found, carries, &types)?);
        let last = self.graph.add(Op::For { trips: found.trips, body }, &first)?;
        for (i, &carry) in carries.iter().enumerate() {
            match carry {
                Carry::Moved { position, .. } | Carry::Last { position } => {
                    let place = found.end() - found.period + position;
                    let id = self.sequence.id(place);
                    self.renamed[id.index()] = Some(self.graph.get_result(last, i)?);
                }
                Carry::Stacked { position } => {
                    let stack = self.graph.get_result(last, i)?;
                    self.stacks.insert(Position { of: index, position }, stack);
                }
                Carry::Fixed(_) | Carry::Scanned(_) => {}
            }
        }
        Ok(())
    }

    /// Returns what a carry of a loop is in the first trip.
    fn first(&mut self, found: &Loop, carry: Carry) -> Result<NodeId> {
        let ty = |position: usize| self.sequence.node(found.start + position).ty.clone();
        match carry {
            Carry::Moved { first, .. } | Carry::Fixed(first) => self.value(first),
            Carry::Scanned(member) => self.stacks.get(&member).copied().ok_or_else(|| GraphError {
                op: "graph.for",
                operands: String::new(),
                rule: format!("no loop returns {member:?}"),
            }),
            // Every trip overwrites its own entry.
            Carry::Stacked { position } => self.zeros(&stack_type(found.trips, &ty(position))),
            Carry::Last { position } => self.zeros(&ty(position)),
        }
    }

    fn zeros(&mut self, ty: &TensorType) -> Result<NodeId> {
        let dims = Dims::from_slice(&ty.dims);
        self.graph.splat(ty.dtype, &dims, 0i64)
    }
}
