//! One trip of a loop over layers: the nodes of a layer that the loop needs, as the body of the loop.

use super::{COUNTER, LayerLoop, LayerValue, Role, missing};
use burn_tpu_graph::op::{BinaryOp, MemorySpace};
use burn_tpu_graph::{Builder, DType, GraphError, NodeId, Number, Op, Program, Rebuild, Result, TensorType};
use std::collections::{BTreeMap, BTreeSet};

/// What a loop computes.
pub(super) struct Plan {
    pub(super) pass: Pass,
    /// The carries of the layer whose values, or gradients, the loop carries.
    pub(super) carries: Vec<usize>,
    /// What a trip gives for each of them: zeros, where there is nothing.
    pub(super) gives: Vec<Option<LayerValue>>,
    /// What a trip writes to its part of each stack.
    pub(super) stacked: Vec<LayerValue>,
    /// The slices whose stacks these are, of a loop that replaces them. Others begin as zeros.
    pub(super) replaced: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    Backward,
    Update,
}

/// An operand of the loop that no trip changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Invariant {
    /// A carry that every layer gives as it took it.
    Carry(usize),
    /// A stacked operand, of which a trip reads its layer's part.
    Stack(usize),
    /// A value of the layers that the forward loop stacked.
    Saved(LayerValue),
    /// A tensor that the layer uses from outside.
    Captured(usize),
    /// The scalar of this slot or offset.
    Slot(NodeId),
    /// A half of the state of the first draw, as `Recorder::rng_halves` has them.
    Draw(usize),
}

/// Where a value that a trip does not compute comes from.
#[derive(Clone, Copy)]
enum Source {
    /// A carry of the loop.
    Carry(usize),
    /// The layer's part of the stack at this place, which the loop replaces.
    Replaced(usize),
    Invariant(Invariant),
    /// A half of the state of the layer's draw at this counter.
    Draw(usize, u64),
}

impl Source {
    /// Returns the operands that no trip changes which it is computed from.
    fn invariants(self) -> Vec<Invariant> {
        match self {
            Self::Carry(_) | Self::Replaced(_) => Vec::new(),
            Self::Invariant(invariant) => vec![invariant],
            Self::Draw(half @ 0..2, _) => vec![Invariant::Draw(half)],
            // A carry may go from the low half of the counter to the high one.
            Self::Draw(..) => vec![Invariant::Draw(2), Invariant::Draw(3)],
        }
    }
}

/// The body of a loop, while it is built.
pub(super) struct Trip<'l> {
    layer: &'l LayerLoop,
    plan: &'l Plan,
    new: Rebuild<'l>,
    /// The carries of the loop: values, then stacks.
    carries: Vec<NodeId>,
    invariants: BTreeMap<Invariant, NodeId>,
    /// The number of the trip's layer, `i32[]`.
    index: NodeId,
    /// The stacks at these places, with what the trip has written to its part.
    written: BTreeMap<usize, NodeId>,
}

impl<'l> Trip<'l> {
    /// Returns the body of a loop, and its operands that no trip changes, which are the last ones.
    pub(super) fn body(layer: &'l LayerLoop, plan: &'l Plan) -> Result<(Program, Vec<Invariant>)> {
        let wanted = plan.gives.iter().copied().flatten().chain(plan.stacked.iter().copied());
        let needed = layer.needed(wanted.clone(), plan.stops(layer));
        let arguments = layer.arguments(&needed);
        let (carries, invariants, written) = Default::default();
        let new = Rebuild::new(&layer.graph);
        let mut trip = Self { layer, plan, new, carries, invariants, index: NodeId(0), written };
        let mut sources = BTreeMap::new();
        for id in layer.graph.ids().filter(|id| needed[id.index()]) {
            if let Some(source) = trip.source(id, &arguments)? {
                sources.insert(id, source);
            }
        }
        let mut given = Vec::new();
        for value in wanted {
            if let LayerValue::Argument(argument) = value {
                given.push(trip.source_of(argument)?);
            }
        }
        let found: BTreeSet<Invariant> =
            sources.values().chain(&given).flat_map(|source| source.invariants()).collect();
        trip.add_parameters(found)?;
        let updates = trip.updates(&sources);
        for id in layer.graph.ids().filter(|id| needed[id.index()]) {
            trip.new.label(id);
            let node = match (sources.get(&id), updates.get(&id)) {
                (Some(&source), _) => trip.read(source)?,
                (None, Some(&place)) => trip.update(id, place)?,
                (None, None) => trip.new.copy(id)?,
            };
            trip.new.renamed.set(id, node);
        }
        trip.finish()
    }

    /// Adds the parameters of the loop: its carries, what no trip changes, and the number of the trip.
    fn add_parameters(&mut self, invariants: BTreeSet<Invariant>) -> Result<()> {
        let Self { layer, plan, .. } = *self;
        let values = plan.carries.iter().map(|&carry| layer.carries[carry].clone());
        let stacks = plan.stacked.iter().map(|&value| layer.stack_type(layer.ty(value)));
        let types: Vec<TensorType> = values.chain(stacks).collect();
        for ty in types {
            let carry = self.parameter(ty)?;
            self.carries.push(carry);
        }
        for invariant in invariants {
            let node = self.parameter(self.ty(invariant))?;
            self.invariants.insert(invariant, node);
        }
        let counter = self.parameter(TensorType::scalar(COUNTER))?;
        self.index = match plan.pass {
            Pass::Forward | Pass::Update => counter,
            Pass::Backward => {
                let last = self.new.graph.scalar(COUNTER, Number::Int(layer.layers as i64 - 1))?;
                self.new.graph.binary(BinaryOp::Sub, last, counter)?
            }
        };
        Ok(())
    }

    fn parameter(&mut self, ty: TensorType) -> Result<NodeId> {
        let index = (self.carries.len() + self.invariants.len()) as u32;
        self.new.graph.add(Op::Parameter { index, ty }, &[])
    }

    fn ty(&self, invariant: Invariant) -> TensorType {
        let layer = self.layer;
        match invariant {
            Invariant::Carry(carry) => layer.carries[carry].clone(),
            Invariant::Stack(slice) => layer.stack_type(&layer.slices[slice]),
            Invariant::Saved(value) => layer.stack_type(layer.ty(value)),
            Invariant::Captured(place) => layer.recording.captured[place].ty().clone(),
            Invariant::Slot(id) => layer.graph.ty(id).clone(),
            Invariant::Draw(_) => TensorType::scalar(DType::U32),
        }
    }

    /// Returns where a node's value comes from; `None` if the trip computes it.
    fn source(&self, id: NodeId, arguments: &BTreeMap<NodeId, usize>) -> Result<Option<Source>> {
        if self.plan.stops(self.layer).contains(&id) {
            return Ok(Some(Source::Invariant(Invariant::Saved(LayerValue::Node(id)))));
        }
        match self.layer.graph.node(id).op {
            Op::Parameter { index, .. } => {
                let argument = arguments.get(&id).copied().ok_or_else(|| unknown(index as usize))?;
                self.source_of(argument).map(Some)
            }
            Op::Slot { index, .. } | Op::Offset { index, .. } => {
                let draws = &self.layer.recording.draws;
                let draw = draws.iter().find(|draw| (draw.slot..draw.slot + 4).contains(&index));
                let slot = Source::Invariant(Invariant::Slot(id));
                Ok(Some(draw.map_or(slot, |draw| Source::Draw((index - draw.slot) as usize, draw.counter))))
            }
            _ => Ok(None),
        }
    }

    /// Returns where the value of an argument of the layer comes from.
    fn source_of(&self, argument: usize) -> Result<Source> {
        let place = |carry| self.plan.carries.iter().position(|&of| of == carry).map(Source::Carry);
        let is_forward = self.plan.pass != Pass::Backward;
        match self.layer.role(argument) {
            Role::Carry(carry) => {
                let known = if is_forward { place(carry) } else { None };
                let saved = match self.layer.is_unchanged(carry) {
                    true => Invariant::Carry(carry),
                    false => Invariant::Saved(LayerValue::Argument(carry)),
                };
                Ok(known.unwrap_or(Source::Invariant(saved)))
            }
            Role::Slice(slice) => {
                let replaced = self.plan.replaced.iter().position(|&of| of == slice);
                Ok(replaced.map_or(Source::Invariant(Invariant::Stack(slice)), Source::Replaced))
            }
            Role::Gradient(carry) if !is_forward => place(carry).ok_or_else(|| unknown(argument)),
            Role::Gradient(_) => Err(unknown(argument)),
            Role::Captured(place) => Ok(Source::Invariant(Invariant::Captured(place))),
        }
    }

    /// Returns the node of a value that the trip does not compute.
    fn read(&mut self, source: Source) -> Result<NodeId> {
        match source {
            Source::Carry(place) => Ok(self.carries[place]),
            Source::Replaced(place) => {
                let part = self.part(self.carries[self.plan.carries.len() + place])?;
                self.moved(self.layer.slice(self.plan.replaced[place]), part, MemorySpace::Device)
            }
            Source::Invariant(invariant @ (Invariant::Stack(_) | Invariant::Saved(_))) => {
                let stack = self.invariant(invariant)?;
                let part = self.part(stack)?;
                match invariant {
                    Invariant::Saved(value) => self.moved(value, part, MemorySpace::Device),
                    _ => Ok(part),
                }
            }
            Source::Invariant(invariant) => self.invariant(invariant),
            Source::Draw(half @ 0..2, _) => self.invariant(Invariant::Draw(half)),
            Source::Draw(half, counter) => self.counter(half, counter),
        }
    }

    fn invariant(&self, invariant: Invariant) -> Result<NodeId> {
        self.invariants.get(&invariant).copied().ok_or_else(|| missing(invariant))
    }

    /// Returns the layer's part of a stack.
    fn part(&mut self, stack: NodeId) -> Result<NodeId> {
        let mut sizes = self.new.graph.dims(stack);
        sizes[0] = 1;
        let starts = self.starts(stack)?;
        let part = self.new.graph.dynamic_slice(stack, &starts, &sizes)?;
        self.new.graph.reshape(part, &sizes[1..])
    }

    /// Returns a part of what the forward loop stacks, in this memory, if its stack is in the host's.
    fn moved(&mut self, value: LayerValue, part: NodeId, memory: MemorySpace) -> Result<NodeId> {
        match self.layer.on_host.contains(&value) {
            true => self.new.graph.move_to(part, memory),
            false => Ok(part),
        }
    }

    /// Writes a value to the layer's part of a stack, and returns that.
    fn write(&mut self, stack: NodeId, value: NodeId) -> Result<NodeId> {
        let starts = self.starts(stack)?;
        self.write_at(stack, value, &starts)
    }

    /// Writes a value without the dim of the layers to a stack, and returns that.
    fn write_at(&mut self, stack: NodeId, value: NodeId, starts: &[NodeId]) -> Result<NodeId> {
        let sizes: Vec<usize> = std::iter::once(1).chain(self.new.graph.dims(value)).collect();
        let part = self.new.graph.reshape(value, &sizes)?;
        self.new.graph.dynamic_update_slice(stack, part, starts)
    }

    /// Returns the updates of slices that make the new value of a part, as of a cache whose row is written, each with the
    /// place of its stack. They are done to the stack, since XLA would copy the part twice.
    fn updates(&self, sources: &BTreeMap<NodeId, Source>) -> BTreeMap<NodeId, usize> {
        let Self { layer, plan, .. } = *self;
        let mut found = BTreeMap::new();
        for (place, (&slice, &value)) in plan.replaced.iter().zip(&plan.stacked).enumerate() {
            let LayerValue::Node(mut id) = value else { continue };
            let mut updates = Vec::new();
            while let Op::DynamicUpdateSlice = layer.graph.node(id).op {
                updates.push((id, place));
                id = layer.graph.node(id).operands[0];
            }
            let is_part = matches!(sources.get(&id), Some(Source::Replaced(of)) if *of == place);
            if is_part && !layer.on_host.contains(&layer.slice(slice)) {
                found.extend(updates);
            }
        }
        found
    }

    /// Does an update of the layer's part to the stack at a place, and returns the part.
    fn update(&mut self, id: NodeId, place: usize) -> Result<NodeId> {
        let operands = self.layer.graph.node(id).operands.clone();
        let [_, value, starts @ ..] = &operands[..] else { return Err(unknown(place)) };
        let value = self.new.renamed.id(*value)?;
        let mut places = vec![self.index];
        for &start in starts {
            places.push(self.new.renamed.id(start)?);
        }
        let stack = self.written.get(&place).copied().unwrap_or(self.carries[self.plan.carries.len() + place]);
        let stack = self.write_at(stack, value, &places)?;
        self.written.insert(place, stack);
        self.part(stack)
    }

    /// Returns where the layer's part of a stack begins.
    fn starts(&mut self, stack: NodeId) -> Result<Vec<NodeId>> {
        let zero = self.new.graph.scalar(COUNTER, 0i64)?;
        let mut starts = vec![zero; self.new.graph.rank(stack)];
        starts[0] = self.index;
        Ok(starts)
    }

    /// Returns a half of the counter of the layer's draw at `counter`: that of the first layer, after what the layers
    /// before draw.
    fn counter(&mut self, half: usize, counter: u64) -> Result<NodeId> {
        let halves = [self.invariant(Invariant::Draw(2))?, self.invariant(Invariant::Draw(3))?];
        let graph = &mut self.new.graph;
        let [low, high] = [graph.convert(halves[0], DType::U64)?, graph.convert(halves[1], DType::U64)?];
        let high = graph.binary_const(BinaryOp::ShiftLeft, high, Number::UInt(32))?;
        let first = graph.binary(BinaryOp::Or, high, low)?;
        let layer = graph.convert(self.index, DType::U64)?;
        let before = graph.binary_const(BinaryOp::Mul, layer, Number::UInt(self.layer.recording.drawn))?;
        let before = graph.binary_const(BinaryOp::Add, before, Number::UInt(counter))?;
        let mut word = graph.binary(BinaryOp::Add, first, before)?;
        if half == 3 {
            word = graph.binary_const(BinaryOp::ShiftRightLogical, word, Number::UInt(32))?;
        }
        let word = graph.binary_const(BinaryOp::And, word, Number::UInt(0xffff_ffff))?;
        graph.convert(word, DType::U32)
    }

    /// Returns a value of the layer.
    fn value(&mut self, value: LayerValue) -> Result<NodeId> {
        match value {
            LayerValue::Node(id) => self.new.renamed.id(id),
            LayerValue::Argument(argument) => {
                let source = self.source_of(argument)?;
                self.read(source)
            }
        }
    }

    /// Returns the body, which gives the carries of the next trip, and the operands that no trip changes.
    fn finish(mut self) -> Result<(Program, Vec<Invariant>)> {
        let Self { layer, plan, .. } = self;
        let mut outputs = Vec::new();
        for (&carry, &given) in plan.carries.iter().zip(&plan.gives) {
            let ty = &layer.carries[carry];
            outputs.push(match given {
                Some(value) => self.value(value)?,
                None => self.new.graph.splat(ty.dtype, &ty.dims, 0i64)?,
            });
        }
        for (place, &value) in plan.stacked.iter().enumerate() {
            if let Some(&stack) = self.written.get(&place) {
                outputs.push(stack);
                continue;
            }
            let part = self.value(value)?;
            let stack = match plan.pass {
                Pass::Forward => Some(value),
                Pass::Backward => None,
                Pass::Update => Some(layer.slice(plan.replaced[place])),
            };
            let part = match stack {
                Some(stack) => self.moved(stack, part, MemorySpace::PinnedHost)?,
                None => part,
            };
            outputs.push(self.write(self.carries[plan.carries.len() + place], part)?);
        }
        outputs.extend(self.invariants.values());
        let program = Program::extract(&self.new.graph, &outputs)?;
        Ok((program, self.invariants.into_keys().collect()))
    }
}

impl Plan {
    /// Returns the nodes whose values come from the forward loop.
    fn stops<'l>(&self, layer: &'l LayerLoop) -> &'l BTreeSet<NodeId> {
        const NONE: &BTreeSet<NodeId> = &BTreeSet::new();
        match self.pass {
            Pass::Forward | Pass::Update => NONE,
            Pass::Backward => &layer.kept,
        }
    }
}

fn unknown(argument: usize) -> GraphError {
    GraphError { op: "graph.layers", operands: format!("argument {argument}"), rule: "has no place in the loop".into() }
}
