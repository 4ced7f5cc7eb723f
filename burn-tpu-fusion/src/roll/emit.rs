//! The program with its loops.

use super::MIN_TRIPS;
use super::body::{body, stack_type};
use super::carries::{Carry, Reads};
use super::piece::{Loop, Loops, Position};
use super::sequence::Sequence;
use burn_tpu_graph::op::Trips;
use burn_tpu_graph::{Builder, Dims, GraphError, NodeId, Op, Program, Rebuild, TensorType};
use std::collections::BTreeMap;
use std::sync::Arc;

type Result<T> = std::result::Result<T, GraphError>;

/// Returns the program in which each loop replaces its members.
pub(super) fn emit(sequence: &Sequence, loops: &Loops) -> Result<Program> {
    let reads = Reads::new(sequence, loops);
    let mut emitter = Emitter { sequence, loops, new: Rebuild::new(sequence.graph()), stacks: BTreeMap::new() };
    // Leaves first: a loop may read one that the recording has after its first trips.
    for id in sequence.graph().ids().filter(|&id| sequence.place(id).is_none()) {
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
    for &output in sequence.program.outputs() {
        emitter.value(output)?;
    }
    emitter.new.finish(&sequence.program)
}

struct Emitter<'a> {
    sequence: &'a Sequence,
    loops: &'a Loops,
    new: Rebuild<'a>,
    /// The buffers with the values of all trips.
    stacks: BTreeMap<Position, NodeId>,
}

impl Emitter<'_> {
    /// Adds a node that is in no loop.
    fn copy(&mut self, id: NodeId) -> Result<()> {
        let node = self.sequence.graph().node(id);
        let Op::Concatenate { dim } = node.op else {
            for &operand in &node.operands {
                self.value(operand)?;
            }
            self.new.copy(id)?;
            return Ok(());
        };
        self.new.label(id);
        let operands = self.joined(&node.operands, dim)?;
        if let [only] = operands[..] {
            self.new.renamed.set(id, only);
        } else {
            self.new.add(id, node.op.clone(), &operands)?;
        }
        Ok(())
    }

    /// Returns the operands of a concatenation, in which the values of consecutive trips are one operand.
    fn joined(&mut self, operands: &[NodeId], dim: usize) -> Result<Vec<NodeId>> {
        let trips: Vec<_> = operands.iter().map(|&operand| self.stacked(operand)).collect();
        let mut joined = Vec::new();
        let mut at = 0;
        while at < operands.len() {
            let count = consecutive(&trips[at..]);
            joined.push(match trips[at] {
                Some((member, first)) if count >= MIN_TRIPS => {
                    let last = trips[at + count - 1].map_or(first, |(_, last)| last);
                    self.side_by_side(self.stacks[&member], [first, last], dim)?
                }
                _ => self.value(operands[at])?,
            });
            at += if count >= MIN_TRIPS { count } else { 1 };
        }
        Ok(joined)
    }

    /// Returns the values of a stack from a first to a last trip, side by side along `dim`.
    fn side_by_side(&mut self, stack: NodeId, [first, last]: [usize; 2], dim: usize) -> Result<NodeId> {
        let mut values = self.new.graph.slice_dim(stack, 0, first.min(last), first.max(last) + 1)?;
        if last < first {
            values = self.new.graph.reverse(values, &[0])?;
        }
        let mut dims = self.new.graph.dims(values);
        let order: Dims = (1..=dim).chain([0]).chain(dim + 1..dims.len()).collect();
        let moved = self.new.graph.transpose(values, &order)?;
        let count = dims.remove(0);
        dims[dim] *= count;
        self.new.graph.reshape(moved, &dims)
    }

    /// Returns where the value of a trip is in a stack.
    fn stacked(&self, id: NodeId) -> Option<(Position, usize)> {
        let found = self.sequence.place(id).and_then(|place| self.loops.at(place));
        found.filter(|(member, _)| self.stacks.contains_key(member))
    }

    /// Returns the new node of an old one: for a value of a trip, a slice of the buffer that has the values of all trips.
    fn value(&mut self, id: NodeId) -> Result<NodeId> {
        if let Some(new) = self.new.renamed.get(id) {
            return Ok(new);
        }
        let Some((member, trip)) = self.stacked(id) else {
            let rule = format!("nothing returns the value of {id}");
            return Err(GraphError { op: "graph.for", operands: String::new(), rule });
        };
        let stack = self.stacks[&member];
        self.new.label(id);
        let taken = self.new.graph.slice_dim(stack, 0, trip, trip + 1)?;
        let new = self.new.graph.reshape(taken, &self.sequence.graph().ty(id).dims)?;
        self.new.renamed.set(id, new);
        Ok(new)
    }

    fn add_loop(&mut self, index: usize, carries: &[Carry]) -> Result<()> {
        let found = &self.loops[index];
        self.new.label(self.sequence.id(found.start));
        let first = carries.iter().map(|&carry| self.first(found, carry)).collect::<Result<Vec<_>>>()?;
        let types: Vec<TensorType> = first.iter().map(|&id| self.new.graph.ty(id).clone()).collect();
        let body = Arc::new(body(self.sequence, found, carries, &types)?);
        let last = self.new.graph.add(Op::For { trips: Trips::Exactly(found.trips), body }, &first)?;
        for (i, &carry) in carries.iter().enumerate() {
            match carry {
                Carry::Moved { position, .. } | Carry::Last { position } => {
                    let place = found.end() - found.period + position;
                    let id = self.sequence.id(place);
                    let result = self.new.graph.get_result(last, i)?;
                    self.new.renamed.set(id, result);
                }
                Carry::Stacked { position } => {
                    let stack = self.new.graph.get_result(last, i)?;
                    self.stacks.insert(Position { of: index, position }, stack);
                }
                Carry::Fixed(_) | Carry::Scanned(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the value of a loop's carry in the first trip.
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
        self.new.graph.splat(ty.dtype, &dims, 0i64)
    }
}

/// Returns how many values, from the first one, are one member's in trips that follow each other, up or down.
fn consecutive(trips: &[Option<(Position, usize)>]) -> usize {
    let steps = trips.windows(2).map(|pair| match pair {
        [Some((a, from)), Some((b, to))] if a == b => to.checked_signed_diff(*from).unwrap_or(0),
        _ => 0,
    });
    let mut steps = steps.peekable();
    let Some(step) = steps.peek().copied().filter(|step| step.abs() == 1) else { return 1 };
    1 + steps.take_while(|&next| next == step).count()
}
