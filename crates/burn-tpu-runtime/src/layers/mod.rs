//! Equal layers as one loop: a layer is recorded once, and each trip reads its part of stacked operands.
//!
//! Owns: the recording of a layer with its gradient, the forward loop and the backward loop. May not know: what a layer's
//! tensors are to the user, and how its gradient is found, which are the front end's.
//!
//! A layer is a function of *carries*, which it takes from the layer before and gives to the next, and of *slices*, its part
//! of each operand `[layers, ..]`. It is recorded on tensors without values, with its gradient in the same recording. So the
//! gradient's reads of the forward pass are known: a value that is kept is stacked by the forward loop and read by the
//! backward loop, all others are computed again there, from what is. A loop's body has no slots and no hidden operands, so
//! scalars, draws and the tensors that the layer uses from outside are operands that no trip changes.

mod keep;
mod names;
mod path;
mod rewrite;
mod trip;

pub use keep::Keep;
pub use path::{ALL_LAYERS, ModulePath};

use crate::Device;
use crate::error::{Result, TpuError};
use crate::ops::movement;
use crate::ops::random::{Draws, draws, replay};
use crate::runtime::runtime;
use crate::trace::{
    FunctionRecording, FunctionSource, Purpose, Recorder, Stream, Tensor, create, current_function, record_list,
};
use burn_tpu_graph::op::Trips;
use burn_tpu_graph::{Builder, DType, Graph, GraphError, NodeId, Op, TensorType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trip::{Invariant, Pass, Plan, Trip};

/// The tensors that a layer is recorded on, none of which has a value.
pub struct LayerInputs {
    /// What the layer before gives.
    pub carries: Vec<Tensor>,
    /// The layer's part of each stacked operand.
    pub slices: Vec<Tensor>,
    /// The gradient of each carry that the layer gives. Of what is not float it has no meaning.
    pub gradients: Vec<Tensor>,
}

/// What a layer records.
#[derive(Default)]
pub struct LayerResults {
    /// What it gives to the next layer, of the types of what it takes.
    pub carries: Vec<Tensor>,
    /// The gradients of the carries and of the slices that it takes, in this order, where they have one. Empty for a
    /// layer without a gradient.
    pub gradients: Vec<Option<Tensor>>,
    /// The new values of slices, of their types, which [`LayerLoop::replace`] writes to the stacks. May be shorter than the
    /// slices.
    pub parts: Vec<Option<Tensor>>,
}

/// A layer that was recorded, and its place in the device's random numbers.
pub struct LayerLoop {
    device: Device,
    layers: usize,
    recording: FunctionRecording,
    graph: Arc<Graph>,
    /// The types of carries and slices.
    carries: Vec<TensorType>,
    slices: Vec<TensorType>,
    /// What the layer gives.
    results: Vec<LayerValue>,
    /// The gradients of carries and slices. A carry that is float has one, if any has.
    gradients: Vec<Option<LayerValue>>,
    /// The new values of slices.
    parts: Vec<Option<LayerValue>>,
    kept: BTreeSet<NodeId>,
    /// What of the kept values, and of the carries, is in the host's memory.
    on_host: BTreeSet<LayerValue>,
    start: Draws,
}

/// A value of a layer: one of its arguments, or a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LayerValue {
    Argument(usize),
    Node(NodeId),
}

/// What the backward loop reads of the forward loop.
#[derive(Clone, Debug)]
pub struct Residuals {
    /// The carries of the first layer.
    carries: Vec<Tensor>,
    stacked: Vec<Tensor>,
    /// The values that the forward loop stacked.
    stacks: Vec<(LayerValue, Tensor)>,
}

/// The gradients of a loop's operands, where they have one.
#[derive(Clone, Debug)]
pub struct LayerGradients {
    /// Those of the first layer's carries.
    pub carries: Vec<Option<Tensor>>,
    /// Those of the stacked operands, `[layers, ..]`.
    pub stacked: Vec<Option<Tensor>>,
}

/// Gives a value of the layer that is being recorded a name, for [`Keep::Names`]. Elsewhere it does nothing.
pub fn name(name: &'static str, tensor: &Tensor) {
    if let Some(function) = current_function() {
        function.name(name, tensor);
    }
}

/// Checks that programs of a device can have values in the host's memory.
///
/// # Errors
/// [`TpuError::HostMemory`].
pub(crate) fn check_host_memory(device: Device) -> Result<()> {
    match runtime(device).open().engine()?.has_host_memory() {
        true => Ok(()),
        false => Err(TpuError::HostMemory { device: device.to_string() }),
    }
}

/// Returns one tensor `[parts, ..]` of tensors of one type.
pub fn stack_of(parts: &[Tensor]) -> Tensor {
    let part = |part: &Tensor| {
        let dims: Vec<usize> = std::iter::once(1).chain(part.dims().iter().copied()).collect();
        movement::reshape(part.clone(), &dims)
    };
    movement::cat(parts.iter().map(part).collect(), 0)
}

impl LayerLoop {
    /// Records a layer of `layers` equal ones on tensors of the types of these carries, and of these operands `[layers, ..]`
    /// without their first dim.
    ///
    /// # Errors
    /// [`TpuError::Layers`] if what the layer gives is not what it takes; [`TpuError::Impure`] if it reads a value,
    /// ends a step or uses another device; [`TpuError::HostMemory`] if the device has no memory for what is to be kept on
    /// the host.
    ///
    /// # Panics
    /// If `record` does.
    pub fn record(
        layers: usize,
        carries: &[Tensor],
        stacked: &[Tensor],
        keep: &Keep,
        record: impl FnOnce(LayerInputs) -> LayerResults,
    ) -> Result<Self> {
        let Some(first) = carries.first() else { return Err(refused("they carry nothing")) };
        let device = first.device();
        let start = draws(device);
        let carries: Vec<TensorType> = carries.iter().map(|carry| carry.ty().clone()).collect();
        let slices = stacked.iter().map(|stack| slice_of(stack, layers)).collect::<Result<Vec<_>>>()?;
        let arguments = [&carries[..], &slices[..], &carries[..]].concat();
        let of_layer = |mut tensors: Vec<Tensor>| {
            let gradients = tensors.split_off(carries.len() + slices.len());
            let slices = tensors.split_off(carries.len());
            let given = record(LayerInputs { carries: tensors, slices, gradients });
            let counts = (given.carries.len(), has(&given.gradients), has(&given.parts));
            let more = given.gradients.into_iter().chain(given.parts).flatten();
            (counts, given.carries.into_iter().chain(more).collect())
        };
        let purpose = Purpose::Part(arguments.len());
        let ((given, with_gradient, replaced), recording) =
            Stream::record_function(device, &arguments, of_layer, purpose)?;
        let types: Vec<&TensorType> = recording.results.iter().map(|(ty, _)| ty).collect();
        if types[..given] != carries.iter().collect::<Vec<_>>() {
            return Err(refused(&format!("a layer takes {} and gives {}", list(&carries), list(&types[..given]))));
        }
        let mut values = recording.results.iter().map(|(_, source)| LayerValue::of(source));
        let results = values.by_ref().take(given).collect::<Result<Vec<_>>>()?;
        let mut next = |has: &bool| if *has { values.next().transpose() } else { Ok(None) };
        let gradients = with_gradient.iter().map(&mut next).collect::<Result<Vec<_>>>()?;
        let parts = replaced.iter().map(&mut next).collect::<Result<Vec<_>>>()?;
        let trained = chosen(carries.iter().chain(&slices), &with_gradient).map(|ty| (ty, "gradient"));
        let changed = chosen(slices.iter(), &replaced).map(|ty| (ty, "new value"));
        let found = trained.chain(changed).zip(&types[given..]);
        if let Some(((of, what), ty)) = found.into_iter().find(|((of, _), ty)| of != *ty) {
            return Err(refused(&format!("the {what} of {of} is {ty}")));
        }
        let graph = recording.recording.to_graph(recording.recording.len());
        let mut layer = Self {
            device,
            layers,
            recording,
            graph,
            carries,
            slices,
            results,
            gradients,
            parts,
            kept: BTreeSet::new(),
            on_host: BTreeSet::new(),
            start,
        };
        // Where nothing is kept, the backward loop has all that the rewrite looks at.
        if *keep != Keep::Nothing {
            rewrite::rewrite(&mut layer).map_err(bug)?;
        }
        layer.kept = keep::kept(&layer, keep);
        layer.on_host = keep::on_host(&layer, keep);
        if !layer.on_host.is_empty() {
            check_host_memory(device)?;
        }
        if let Some(recorded) = runtime(device).open().engine()?.recorded() {
            recorded.name(names::of(&layer));
        }
        Ok(layer)
    }

    /// Returns whether the layer gives a carry as it took it.
    fn is_unchanged(&self, carry: usize) -> bool {
        self.results[carry] == LayerValue::Argument(carry)
    }

    /// Returns the carries that a layer changes, and what it gives for them.
    fn changed(&self) -> (Vec<usize>, Vec<Option<LayerValue>>) {
        let carries = (0..self.carries.len()).filter(|&carry| !self.is_unchanged(carry));
        carries.map(|carry| (carry, Some(self.results[carry]))).unzip()
    }

    /// Returns the forward loop: it carries what a layer changes, and stacks what the gradient reads.
    fn forward_plan(&self) -> Plan {
        let (carries, gives) = self.changed();
        let (taken, kept) = self.read_by_gradient();
        let taken = taken.into_iter().map(LayerValue::Argument);
        let stacked = taken.chain(kept.into_iter().map(LayerValue::Node)).collect();
        Plan { pass: Pass::Forward, carries, gives, stacked, replaced: Vec::new() }
    }

    /// Returns the loop that carries what a layer changes, and replaces stacks.
    fn update_plan(&self) -> Plan {
        let (carries, gives) = self.changed();
        let parts = self.parts.iter().enumerate();
        let (replaced, stacked) = parts.filter_map(|(slice, part)| Some((slice, (*part)?))).unzip();
        Plan { pass: Pass::Update, carries, gives, stacked, replaced }
    }

    /// Returns the backward loop: it carries the gradients of the carries, and stacks those of the slices.
    fn backward_plan(&self) -> Plan {
        let carries: Vec<usize> =
            (0..self.carries.len()).filter(|&carry| self.carries[carry].dtype.is_float()).collect();
        let gives = carries.iter().map(|&carry| self.gradients.get(carry).copied().flatten()).collect();
        let stacked = self.trained().map(|(_, gradient)| gradient).collect();
        Plan { pass: Pass::Backward, carries, gives, stacked, replaced: Vec::new() }
    }

    /// Returns the slices that have a gradient, with it.
    fn trained(&self) -> impl Iterator<Item = (usize, LayerValue)> {
        let gradients = self.gradients.iter().skip(self.carries.len()).enumerate();
        gradients.filter_map(|(slice, gradient)| Some((slice, (*gradient)?)))
    }

    /// Runs the layers, and returns the last one's carries with what [`LayerLoop::backward`] reads.
    ///
    /// # Errors
    /// Only a bug gives one.
    ///
    /// # Panics
    /// If an operand is on another device.
    pub fn forward(&self, carries: Vec<Tensor>, stacked: Vec<Tensor>) -> Result<(Vec<Tensor>, Residuals)> {
        let plan = self.forward_plan();
        let given: Vec<&Tensor> = plan.carries.iter().map(|&carry| &carries[carry]).collect();
        let operand = |invariant| self.forward_operand(invariant, &carries, &stacked);
        let mut results = self.run("layers_forward", &plan, &given, operand)?.into_iter();
        let mut last = carries.clone();
        for (carry, result) in plan.carries.iter().zip(results.by_ref()) {
            last[*carry] = result;
        }
        let stacks = plan.stacked.into_iter().zip(results).collect();
        Ok((last, Residuals { carries, stacked, stacks }))
    }

    /// Returns the gradients of the first layer's carries and of the stacked operands, from those of the last layer's
    /// carries. What is not float has none, nor has an operand that no gradient reaches.
    ///
    /// # Errors
    /// Only a bug gives one.
    ///
    /// # Panics
    /// If an operand is on another device.
    pub fn backward(&self, residuals: &Residuals, gradients: &[Option<Tensor>]) -> Result<LayerGradients> {
        let plan = self.backward_plan();
        let given: Vec<Tensor> = plan.carries.iter().map(|&carry| self.gradient(carry, gradients)).collect();
        let given: Vec<&Tensor> = given.iter().collect();
        let operand = |invariant| self.backward_operand(invariant, residuals);
        let run = || self.run("layers_backward", &plan, &given, operand);
        let mut results = replay(self.device, self.start, run)?.into_iter();
        let mut found =
            LayerGradients { carries: vec![None; self.carries.len()], stacked: vec![None; self.slices.len()] };
        for (carry, result) in plan.carries.iter().zip(results.by_ref()) {
            found.carries[*carry] = Some(result);
        }
        for ((slice, _), result) in self.trained().zip(results) {
            found.stacked[slice] = Some(result);
        }
        Ok(found)
    }

    /// Runs the layers without a gradient, and replaces the stacked operands for whose parts the layer gives new values,
    /// part by part. Those at the places `on_host` are in the host's memory, and one layer's part at a time in the device's.
    /// Returns the last layer's carries, and all stacked operands.
    ///
    /// # Errors
    /// Only a bug gives one.
    ///
    /// # Panics
    /// If an operand is on another device.
    pub fn replace(
        &mut self,
        mut carries: Vec<Tensor>,
        mut stacked: Vec<Tensor>,
        on_host: &[usize],
    ) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        self.on_host = on_host.iter().map(|&slice| self.slice(slice)).collect();
        let plan = self.update_plan();
        let given = plan.carries.iter().map(|&carry| &carries[carry]);
        let given: Vec<&Tensor> = given.chain(plan.replaced.iter().map(|&slice| &stacked[slice])).collect();
        let operand = |invariant| self.forward_operand(invariant, &carries, &stacked);
        let op = if plan.replaced.is_empty() { "layers_forward" } else { "layers_replace" };
        let mut results = self.run(op, &plan, &given, operand)?.into_iter();
        for (carry, result) in plan.carries.into_iter().zip(results.by_ref()) {
            carries[carry] = result;
        }
        for (slice, result) in plan.replaced.into_iter().zip(results) {
            stacked[slice] = result;
        }
        Ok((carries, stacked))
    }

    /// Returns a slice as an argument of the layer.
    fn slice(&self, slice: usize) -> LayerValue {
        LayerValue::Argument(self.carries.len() + slice)
    }

    /// Returns the gradient of a carry that the last layer gives: zeros, if nothing reads it.
    fn gradient(&self, carry: usize, gradients: &[Option<Tensor>]) -> Tensor {
        let ty = &self.carries[carry];
        gradients.get(carry).cloned().flatten().unwrap_or_else(|| {
            create("layers_backward", &self.device, |recorder| recorder.splat(ty.dtype, &ty.dims, 0i64))
        })
    }

    /// Records a loop over these carries and over stacks of zeros, of which each trip writes its part. A loop that replaces
    /// stacks is given those instead. Returns the last values.
    fn run<'t>(
        &self,
        op: &'static str,
        plan: &Plan,
        carries: &[&'t Tensor],
        operand: impl Fn(Invariant) -> Option<&'t Tensor>,
    ) -> Result<Vec<Tensor>> {
        let (body, invariants) = Trip::body(self, plan).map_err(bug)?;
        let body = Arc::new(body);
        let fixed = invariants.iter().filter_map(|&invariant| operand(invariant));
        let tensors: Vec<&Tensor> = carries.iter().copied().chain(fixed).collect();
        Ok(record_list(op, &tensors, |recorder, nodes| {
            let (given, fixed) = nodes.split_at(carries.len());
            let (mut operands, mut fixed) = (given.to_vec(), fixed.iter().copied());
            for &value in plan.stacked.iter().filter(|_| plan.pass != Pass::Update) {
                let ty = self.stack_type(self.ty(value));
                operands.push(recorder.splat(ty.dtype, &ty.dims, 0i64)?);
            }
            let changing = operands.len();
            let halves = self.draw(recorder, &invariants)?;
            for &invariant in &invariants {
                operands.push(match invariant {
                    Invariant::Slot(node) => self.slot(recorder, node)?,
                    Invariant::Draw(half) => halves[half],
                    _ => fixed.next().ok_or_else(|| missing(invariant))?,
                });
            }
            let mut results = recorder.loop_of(Trips::Exactly(self.layers), Arc::clone(&body), &operands)?;
            results.truncate(changing);
            Ok(results)
        }))
    }

    /// Returns what an argument of the layer is.
    fn role(&self, argument: usize) -> Role {
        let (taken, slices) = (self.carries.len(), self.slices.len());
        match argument {
            carry if carry < taken => Role::Carry(carry),
            slice if slice < taken + slices => Role::Slice(slice - taken),
            gradient if gradient < 2 * taken + slices => Role::Gradient(gradient - taken - slices),
            captured => Role::Captured(captured - 2 * taken - slices),
        }
    }

    /// Returns the type of a value of the layer.
    fn ty(&self, value: LayerValue) -> &TensorType {
        match value {
            LayerValue::Node(id) => self.graph.ty(id),
            LayerValue::Argument(argument) => match self.role(argument) {
                Role::Carry(carry) | Role::Gradient(carry) => &self.carries[carry],
                Role::Slice(slice) => &self.slices[slice],
                Role::Captured(place) => self.recording.captured[place].ty(),
            },
        }
    }

    /// Returns the type of one value for each layer.
    fn stack_type(&self, ty: &TensorType) -> TensorType {
        let dims: Vec<usize> = std::iter::once(self.layers).chain(ty.dims.iter().copied()).collect();
        TensorType::new(ty.dtype, &dims[..])
    }

    /// Records the slots of the random draws of all layers, if a trip draws.
    fn draw(&self, recorder: &mut Recorder, invariants: &[Invariant]) -> burn_tpu_graph::Result<[NodeId; 4]> {
        let draws = invariants.iter().any(|invariant| matches!(invariant, Invariant::Draw(_)));
        if !draws {
            return Ok([NodeId(0); 4]);
        }
        let counters = self.recording.drawn * self.layers as u64;
        recorder.rng_halves(2 * (counters as usize - 1))
    }

    /// Records a scalar of the layer.
    fn slot(&self, recorder: &mut Recorder, node: NodeId) -> burn_tpu_graph::Result<NodeId> {
        let op = &self.graph.node(node).op;
        let (Op::Slot { index, .. } | Op::Offset { index, .. }) = op else {
            return Err(missing(Invariant::Slot(node)));
        };
        recorder.slot_of(op, self.recording.slots[*index as usize])
    }

    /// Returns the tensor of an operand of the forward loop that no trip changes.
    fn forward_operand<'t>(
        &'t self,
        invariant: Invariant,
        carries: &'t [Tensor],
        stacked: &'t [Tensor],
    ) -> Option<&'t Tensor> {
        match invariant {
            Invariant::Carry(carry) => carries.get(carry),
            Invariant::Stack(slice) => stacked.get(slice),
            Invariant::Captured(place) => self.recording.captured.get(place),
            Invariant::Saved(_) | Invariant::Slot(_) | Invariant::Draw(_) => None,
        }
    }

    /// Returns the tensor of an operand of the backward loop that no trip changes.
    fn backward_operand<'t>(&'t self, invariant: Invariant, residuals: &'t Residuals) -> Option<&'t Tensor> {
        match invariant {
            Invariant::Saved(value) => residuals.stacks.iter().find(|(of, _)| *of == value).map(|(_, tensor)| tensor),
            other => self.forward_operand(other, &residuals.carries, &residuals.stacked),
        }
    }

    /// Returns the changed carries and the kept nodes that the gradient reads.
    fn read_by_gradient(&self) -> (Vec<usize>, Vec<NodeId>) {
        let gradients = || self.gradients.iter().copied().flatten();
        let needed = self.needed(gradients(), &self.kept);
        let given = gradients().filter_map(|gradient| match gradient {
            LayerValue::Argument(argument) => Some(argument),
            LayerValue::Node(_) => None,
        });
        let read: BTreeSet<usize> = self.arguments(&needed).into_values().chain(given).collect();
        let taken = (0..self.carries.len()).filter(|carry| read.contains(carry) && !self.is_unchanged(*carry));
        (taken.collect(), self.kept.iter().copied().filter(|id| needed[id.index()]).collect())
    }

    /// Returns the nodes that values need, with those where a walk stops.
    fn needed(&self, values: impl Iterator<Item = LayerValue>, stops: &BTreeSet<NodeId>) -> Vec<bool> {
        let mut needed = vec![false; self.graph.len()];
        for value in values {
            if let LayerValue::Node(id) = value {
                needed[id.index()] = true;
            }
        }
        for id in self.graph.ids().rev() {
            if needed[id.index()] && !stops.contains(&id) {
                self.graph.node(id).operands.iter().for_each(|operand| needed[operand.index()] = true);
            }
        }
        needed
    }

    /// Returns the argument of each needed parameter.
    fn arguments(&self, needed: &[bool]) -> BTreeMap<NodeId, usize> {
        let mut found = BTreeMap::new();
        for id in self.graph.ids().filter(|id| needed[id.index()]) {
            if let Op::Parameter { index, .. } = self.graph.node(id).op
                && let Some(FunctionSource::Argument(argument)) = self.recording.inputs.get(index as usize)
            {
                found.insert(id, *argument);
            }
        }
        found
    }
}

/// What an argument of a layer is, in the order of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Carry(usize),
    Slice(usize),
    /// The gradient of what the layer gives for this carry.
    Gradient(usize),
    /// A tensor that the layer uses from outside.
    Captured(usize),
}

impl LayerValue {
    fn of(source: &FunctionSource) -> Result<Self> {
        match source {
            FunctionSource::Argument(argument) => Ok(Self::Argument(*argument)),
            FunctionSource::Node(id) => Ok(Self::Node(*id)),
            FunctionSource::Captured(_) => Err(TpuError::Bug("a layer captured a value".to_owned())),
        }
    }
}

/// Returns the type of one layer's part of an operand.
fn slice_of(stack: &Tensor, layers: usize) -> Result<TensorType> {
    match stack.dims() {
        [of, dims @ ..] if *of == layers => Ok(TensorType::new(stack.element(), dims)),
        _ => Err(refused(&format!("an operand of {layers} layers is {}", stack.ty()))),
    }
}

/// Returns which ones there are.
fn has(tensors: &[Option<Tensor>]) -> Vec<bool> {
    tensors.iter().map(Option::is_some).collect()
}

/// Returns the types that are chosen.
fn chosen<'t>(types: impl Iterator<Item = &'t TensorType>, has: &[bool]) -> impl Iterator<Item = &'t TensorType> {
    types.zip(has).filter(|(_, has)| **has).map(|(ty, _)| ty)
}

fn list(types: &[impl ToString]) -> String {
    format!("({})", types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn refused(reason: &str) -> TpuError {
    TpuError::Layers { reason: reason.to_owned() }
}

fn bug(error: GraphError) -> TpuError {
    TpuError::Bug(format!("the body of a loop over layers: {error}"))
}

fn missing(invariant: Invariant) -> GraphError {
    GraphError { op: "graph.layers", operands: format!("{invariant:?}"), rule: "is no operand of the loop".into() }
}

/// The element type of a trip's number.
const COUNTER: DType = DType::I32;
