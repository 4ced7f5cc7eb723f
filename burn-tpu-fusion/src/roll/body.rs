//! The body of a loop: the program of one trip.

use super::carries::Carry;
use super::piece::{Counted, Loop, Position, Source};
use super::sequence::Sequence;
use burn_tpu_graph::op::BinaryOp;
use burn_tpu_graph::{Builder, DType, Dims, Graph, GraphError, Literal, NodeId, Op, Program, TensorType};
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, GraphError>;

/// Returns the program of one trip. `types` are those of the carries.
pub(super) fn body(sequence: &Sequence, found: &Loop, carries: &[Carry], types: &[TensorType]) -> Result<Program> {
    let mut graph = Graph::new();
    let mut parameters = Vec::with_capacity(carries.len());
    for (index, ty) in types.iter().chain([&TensorType::scalar(DType::I32)]).enumerate() {
        parameters.push(graph.add(Op::Parameter { index: index as u32, ty: ty.clone() }, &[])?);
    }
    let mut body = Body {
        sequence,
        found,
        carried: carries.iter().copied().zip(parameters.iter().copied()).collect(),
        counter: parameters[carries.len()],
        graph,
        values: Vec::with_capacity(found.period),
        memo: Memo::default(),
    };
    for position in 0..found.period {
        body.graph.set_label(sequence.graph().label(sequence.id(found.start + position)));
        let value = body.member(position)?;
        body.values.push(value);
    }
    let next = carries.iter().zip(&parameters).map(|(&carry, &now)| body.next(carry, now));
    let next = next.collect::<Result<Vec<_>>>()?;
    Program::extract(&body.graph, &next)
}

/// Returns the type of the buffer with a member's values of all trips.
pub(super) fn stack_type(trips: usize, ty: &TensorType) -> TensorType {
    let dims: Dims = std::iter::once(trips).chain(ty.dims.iter().copied()).collect();
    TensorType { dtype: ty.dtype, dims }
}

/// A body under construction.
struct Body<'a> {
    sequence: &'a Sequence,
    found: &'a Loop,
    graph: Graph,
    carried: BTreeMap<Carry, NodeId>,
    /// The number of the trip.
    counter: NodeId,
    /// The members so far, by position.
    values: Vec<NodeId>,
    memo: Memo,
}

/// What a body computes once, wherever it is read.
#[derive(Default)]
struct Memo {
    fixed: BTreeMap<NodeId, NodeId>,
    counted: BTreeMap<(DType, Counted), NodeId>,
    scanned: BTreeMap<(Position, Counted), NodeId>,
}

impl Body<'_> {
    /// Adds the member at a position.
    fn member(&mut self, position: usize) -> Result<NodeId> {
        let node = self.sequence.node(self.found.start + position);
        let mut operands = Vec::with_capacity(node.operands.len());
        for operand in 0..node.operands.len() {
            operands.push(self.operand(position, operand)?);
        }
        let Some(rules) = &self.found.slices[position] else { return self.graph.add(node.op.clone(), &operands) };
        let starts = rules.iter().map(|&rule| self.number(DType::I32, rule)).collect::<Result<Vec<_>>>()?;
        self.graph.dynamic_slice(operands[0], &starts, &node.ty.dims)
    }

    fn operand(&mut self, position: usize, operand: usize) -> Result<NodeId> {
        match self.found.sources[position][operand] {
            Source::Inside { distance } if distance <= position => Ok(self.values[position - distance]),
            Source::Inside { .. } => self.carried_value(self.found.carry(self.sequence, position, operand)),
            Source::Fixed(value) => self.fixed(value),
            Source::Integer { dtype, value } => self.number(dtype, value),
            Source::Scanned { member, trip } => self.scanned(member, trip),
        }
    }

    /// Returns the value of a carry in this trip.
    fn carried_value(&self, carry: Option<Carry>) -> Result<NodeId> {
        let value = carry.and_then(|carry| self.carried.get(&carry).copied());
        let rule = || format!("{carry:?} is not carried");
        value.ok_or_else(|| GraphError { op: "graph.for", operands: String::new(), rule: rule() })
    }

    /// Returns a value from outside: a carry, or leaves that are repeated in the body.
    fn fixed(&mut self, value: NodeId) -> Result<NodeId> {
        let carried = self.carried.get(&Carry::Fixed(value)).or_else(|| self.memo.fixed.get(&value));
        if let Some(&id) = carried {
            return Ok(id);
        }
        let node = self.sequence.graph().node(value);
        if !is_repeated(&node.op) {
            return self.carried_value(Some(Carry::Fixed(value)));
        }
        let operands = node.operands.iter().map(|&operand| self.fixed(operand)).collect::<Result<Vec<_>>>()?;
        let id = self.graph.add(node.op.clone(), &operands)?;
        self.memo.fixed.insert(value, id);
        Ok(id)
    }

    /// Returns a number that follows a rule, in this trip.
    fn number(&mut self, dtype: DType, rule: Counted) -> Result<NodeId> {
        if let Some(&id) = self.memo.counted.get(&(dtype, rule)) {
            return Ok(id);
        }
        let Counted { first, step } = rule;
        let constant = |value: i64| Counted { first: value, step: 0 };
        let id = match (first, step) {
            (first, 0) => self.graph.constant(Literal::scalar(dtype, first))?,
            (0, 1) => self.graph.convert(self.counter, dtype)?,
            (0, step) => self.combined(BinaryOp::Mul, dtype, [Counted { first: 0, step: 1 }, constant(step)])?,
            (first, step) => self.combined(BinaryOp::Add, dtype, [Counted { first: 0, step }, constant(first)])?,
        };
        self.memo.counted.insert((dtype, rule), id);
        Ok(id)
    }

    fn combined(&mut self, op: BinaryOp, dtype: DType, [a, b]: [Counted; 2]) -> Result<NodeId> {
        let (a, b) = (self.number(dtype, a)?, self.number(dtype, b)?);
        self.graph.binary(op, a, b)
    }

    /// Returns the value that an earlier loop computed in the trip that belongs to this one.
    fn scanned(&mut self, member: Position, trip: Counted) -> Result<NodeId> {
        if let Some(&id) = self.memo.scanned.get(&(member, trip)) {
            return Ok(id);
        }
        let stack = self.carried_value(Some(Carry::Scanned(member)))?;
        let at = self.number(DType::I32, trip)?;
        let starts = self.in_stack(stack, at)?;
        let mut sizes = self.graph.dims(stack);
        sizes[0] = 1;
        let taken = self.graph.dynamic_slice(stack, &starts, &sizes)?;
        let id = self.graph.reshape(taken, &sizes[1..])?;
        self.memo.scanned.insert((member, trip), id);
        Ok(id)
    }

    /// Returns the starts of entry `at` of a stack.
    fn in_stack(&mut self, stack: NodeId, at: NodeId) -> Result<Vec<NodeId>> {
        let zero = self.number(DType::I32, Counted { first: 0, step: 0 })?;
        let mut starts = vec![zero; self.graph.rank(stack)];
        starts[0] = at;
        Ok(starts)
    }

    /// Returns the value of a carry in the next trip. `now` is its value in this one.
    fn next(&mut self, carry: Carry, now: NodeId) -> Result<NodeId> {
        match carry {
            Carry::Moved { position, .. } | Carry::Last { position } => Ok(self.values[position]),
            Carry::Fixed(_) | Carry::Scanned(_) => Ok(now),
            Carry::Stacked { position } => {
                let value = self.values[position];
                let dims: Dims = std::iter::once(1).chain(self.graph.dims(value)).collect();
                let entry = self.graph.reshape(value, &dims)?;
                let starts = self.in_stack(now, self.counter)?;
                self.graph.dynamic_update_slice(now, entry, &starts)
            }
        }
    }
}

/// Returns whether a leaf is repeated in a body rather than carried.
fn is_repeated(op: &Op) -> bool {
    matches!(op, Op::Constant(_) | Op::Iota { .. } | Op::BroadcastInDim { .. })
}
