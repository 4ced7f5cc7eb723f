//! Recording a function: its ops, in a stream of their own that nothing may cut, on arguments that have no values.
//!
//! Owns: what a function's trace notes beside its nodes (random draws, why the function is refused). May not know: when a
//! function is recorded, or what is done with the recording (`function`).

use super::recorded::RecordedOps;
use super::{Stream, StreamTrace, Tensor};
use crate::Device;
use crate::engine::{DeviceBuffer, HostBytes, HostValue, Input, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::lines::Stack;
use crate::metrics::CutReason;
use crate::program::Provenance;
use crate::recompile::{DivergenceTracker, RecompileLog};
use crate::recording::Recording;
use crate::runtime::IndexRange;
use burn_tpu_graph::{Builder, Label, NodeId, Op, TensorType};
use parking_lot::Mutex;
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// The function that a stream records.
pub(crate) struct FunctionNotes {
    purpose: Purpose,
    state: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    draws: Vec<FunctionDraw>,
    /// The extremes of computed indices, with their ranges.
    checks: Vec<(Tensor, IndexRange)>,
    /// The draw counter relative to that of the call.
    counter: u64,
    /// The tensors from outside that the function uses, with what stands for them, if they are arguments too.
    captured: Vec<(Tensor, SharedBuffer)>,
    /// The tensors that the function gave names.
    named: Vec<(&'static str, Tensor)>,
    refusal: Option<TpuError>,
}

/// Why a function is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To run what it records. The stack of every op is captured, for errors and reports to come.
    Run,
    /// To inspect what it records, as beside what it recorded before. No stack is captured.
    Inspect,
    /// To find the line that records this node.
    Find(usize),
    /// To make it a part of what its caller records, which has this many arguments. Tensors from outside are further
    /// ones: they need no value. No stack is captured.
    Part(usize),
}

/// A random draw: its state is the device's key and counter at a call, and this many draws of the function before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionDraw {
    /// The first of the four slots of the state.
    pub(crate) slot: u32,
    /// The counter, relative to that of the call.
    pub(crate) counter: u64,
}

impl FunctionNotes {
    fn new(purpose: Purpose) -> Self {
        Self { purpose, state: Mutex::default() }
    }

    /// Returns key and counter of a draw of `words` 32-bit words whose state begins with this slot.
    pub(super) fn draw(&self, slot: u32, words: usize) -> (u64, u64) {
        let mut notes = self.state.lock();
        let counter = notes.counter;
        notes.draws.push(FunctionDraw { slot, counter });
        notes.counter = counter.wrapping_add(words as u64 / 2 + 1);
        (0, counter)
    }

    /// Returns key and counter of the next draw.
    pub(crate) fn next_draw(&self) -> (u64, u64) {
        (0, self.state.lock().counter)
    }

    /// Makes the next draw begin at this counter.
    pub(crate) fn draw_from(&self, next: (u64, u64)) {
        self.state.lock().counter = next.1;
    }

    /// Notes that indices are to be checked at each call.
    pub(crate) fn check(&self, extremes: Tensor, range: IndexRange) {
        self.state.lock().checks.push((extremes, range));
    }

    /// Notes why the function is refused, and returns that. The first reason counts.
    fn refuse(&self, refusal: TpuError) -> TpuError {
        self.state.lock().refusal.get_or_insert(refusal).clone()
    }

    /// Returns a log's tracker for what the function records.
    pub(super) fn tracker(&self, log: &Arc<RecompileLog>) -> DivergenceTracker {
        match self.purpose {
            Purpose::Run => DivergenceTracker::of_function(log),
            Purpose::Inspect | Purpose::Find(_) | Purpose::Part(_) => DivergenceTracker::default(),
        }
    }

    /// Returns whether tensors from outside are arguments.
    pub(super) fn captures(&self) -> bool {
        matches!(self.purpose, Purpose::Part(_))
    }

    /// Returns what stands for a tensor from outside, if such tensors are arguments.
    pub(super) fn capture(self: &Arc<Self>, tensor: &Tensor) -> Option<SharedBuffer> {
        let Purpose::Part(arguments) = self.purpose else { return None };
        let is_argument = |buffer| Placeholder::of(buffer).is_some_and(|of| Arc::ptr_eq(&of.notes, self));
        if let Some(Ok(buffer)) = tensor.value().filter(|value| value.as_ref().is_ok_and(is_argument)) {
            return Some(Arc::clone(buffer));
        }
        let mut state = self.state.lock();
        if let Some((_, known)) = state.captured.iter().find(|(of, _)| of.is(tensor)) {
            return Some(Arc::clone(known));
        }
        let index = arguments + state.captured.len();
        let buffer: SharedBuffer = Arc::new(Placeholder { index, notes: Arc::clone(self) });
        state.captured.push((tensor.clone(), Arc::clone(&buffer)));
        Some(buffer)
    }

    /// Notes the name of a tensor.
    pub(crate) fn name(&self, name: &'static str, tensor: &Tensor) {
        if self.captures() {
            self.state.lock().named.push((name, tensor.clone()));
        }
    }

    /// Returns whether the line of one of these nodes is looked for.
    pub(super) fn looks_for(&self, nodes: &Range<usize>) -> bool {
        matches!(self.purpose, Purpose::Find(node) if nodes.contains(&node))
    }
}

/// The value of an argument while its function is recorded: none.
pub(crate) struct Placeholder {
    index: usize,
    notes: Arc<FunctionNotes>,
}

impl DeviceBuffer for Placeholder {}

impl Placeholder {
    fn of(buffer: &SharedBuffer) -> Option<&Self> {
        let any: &dyn Any = &**buffer;
        any.downcast_ref()
    }

    /// Returns the error for a read of this buffer, if it is an argument of a function that is being recorded.
    pub(crate) fn refuse_read(buffer: &SharedBuffer) -> Option<TpuError> {
        let placeholder = Self::of(buffer)?;
        Some(placeholder.notes.refuse(impure("it reads the value of an argument", "", &Stack::capture())))
    }
}

/// Where a result of a function, or an input of its program, comes from.
#[derive(Clone)]
pub(crate) enum FunctionSource {
    /// From this argument.
    Argument(usize),
    /// From a value outside of the function, or why there is none.
    Captured(Input),
    /// From this recorded node.
    Node(NodeId),
}

impl FunctionSource {
    fn of(input: &Input) -> Self {
        match input.as_ref().ok().and_then(Placeholder::of) {
            Some(placeholder) => Self::Argument(placeholder.index),
            None => Self::Captured(input.clone()),
        }
    }

    /// Returns the value at a call with these arguments, unless the function computes it.
    pub(crate) fn value(&self, arguments: &[Option<SharedBuffer>]) -> Option<Input> {
        match self {
            Self::Argument(index) => arguments.get(*index).cloned().flatten().map(Ok),
            Self::Captured(value) => Some(value.clone()),
            Self::Node(_) => None,
        }
    }

    /// Returns whether two recordings have the same source here. Host values are compared by their bytes: a function may
    /// make constants.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Argument(a), Self::Argument(b)) => a == b,
            (Self::Node(a), Self::Node(b)) => a == b,
            (Self::Captured(Ok(a)), Self::Captured(Ok(b))) => Arc::ptr_eq(a, b) || have_same_bytes(a, b),
            _ => false,
        }
    }
}

/// Returns whether two buffers have the same bytes that the host gave.
fn have_same_bytes(a: &SharedBuffer, b: &SharedBuffer) -> bool {
    match (host_bytes(a), host_bytes(b)) {
        (Some(a), Some(b)) => a.as_ref() == b.as_ref(),
        _ => a.given().is_some() && a.given() == b.given(),
    }
}

fn host_bytes(buffer: &SharedBuffer) -> Option<HostBytes> {
    HostValue::of(buffer)?.bytes()
}

/// What a function recorded.
pub(crate) struct FunctionRecording {
    pub(crate) recording: Recording,
    /// By parameter index.
    pub(crate) inputs: Vec<FunctionSource>,
    pub(crate) results: Vec<(TensorType, FunctionSource)>,
    /// The extremes of indices that each call checks, with their ranges.
    pub(crate) checks: Vec<(TensorType, FunctionSource, IndexRange)>,
    pub(crate) slots: Vec<u64>,
    pub(crate) draws: Vec<FunctionDraw>,
    /// The number by which a call advances the device's draw counter.
    pub(crate) drawn: u64,
    /// The tensors from outside that are its last arguments, of a part.
    pub(crate) captured: Vec<Tensor>,
    /// The values that have names, of a part.
    pub(crate) named: Vec<(&'static str, FunctionSource)>,
    pub(crate) provenance: Provenance,
}

const ANOTHER_OP: &str = "another op";

/// Burn initialises a parameter when it is first used.
const INITIALISE: &str = "; if it captures a model, use the model's parameters once before, as by `num_params()`,";

/// A difference between two recordings of one function.
pub(crate) struct FunctionDifference {
    pub(crate) node: Option<usize>,
    pub(crate) label: Label,
    what: &'static str,
}

impl FunctionRecording {
    /// Returns the first difference to a later recording of the same function.
    pub(crate) fn difference(&self, later: &Self) -> Option<FunctionDifference> {
        let (ours, theirs) = (self.recording.len(), later.recording.len());
        for node in 0..ours.min(theirs) {
            if let Some(what) = self.difference_at(later, node) {
                return Some(FunctionDifference::at(later, node, what));
            }
        }
        if theirs > ours {
            return Some(FunctionDifference::at(later, ours, ANOTHER_OP));
        }
        let is_same = ours == theirs && self.has_results_of(later);
        (!is_same).then_some(FunctionDifference::RESULTS)
    }

    /// Returns how a node of a later recording differs.
    fn difference_at(&self, later: &Self, node: usize) -> Option<&'static str> {
        let (ours, theirs) = (&self.recording.nodes()[node], &later.recording.nodes()[node]);
        if ours.op != theirs.op || ours.operands != theirs.operands {
            return Some(ANOTHER_OP);
        }
        let (same, what) = match theirs.op {
            Op::Slot { index, .. } | Op::Offset { index, .. } => {
                let index = index as usize;
                (self.slots[index] == later.slots[index], "a number that changes")
            }
            Op::Parameter { index, .. } => {
                let index = index as usize;
                (self.inputs[index].is(&later.inputs[index]), "a tensor that changes and is not an argument")
            }
            _ => return None,
        };
        (!same).then_some(what)
    }

    fn has_results_of(&self, later: &Self) -> bool {
        let mut pairs = self.results.iter().zip(&later.results);
        self.results.len() == later.results.len() && pairs.all(|((_, ours), (_, theirs))| ours.is(theirs))
    }
}

impl FunctionDifference {
    const RESULTS: Self = Self { node: None, label: "", what: "another result" };

    fn at(later: &FunctionRecording, node: usize, what: &'static str) -> Self {
        Self { node: Some(node), label: later.recording.label(NodeId(node as u32)), what }
    }

    /// Returns the error for this difference, whose line a third recording may have found.
    pub(crate) fn refusal(&self, third: Option<&FunctionRecording>) -> TpuError {
        let found = third.and_then(|recording| recording.provenance.lines.of(self.node?));
        let reason = format!("recorded again, it has {}", self.what);
        let reason = if self.what == ANOTHER_OP { format!("{reason}{INITIALISE}") } else { reason };
        match found {
            Some(stack) => impure(&reason, self.label, stack),
            None => TpuError::Impure { reason, op: self.label.to_owned(), caller: String::new() },
        }
    }
}

fn impure(reason: &str, op: &str, stack: &Stack) -> TpuError {
    TpuError::Impure { reason: reason.to_owned(), op: op.to_owned(), caller: stack.line() }
}

impl Stream {
    /// Records a function on arguments of these types; `function` returns its result and the tensors in it.
    ///
    /// # Errors
    /// [`TpuError::Impure`] if the function reads a value, ends a step, or uses another device.
    pub(crate) fn record_function<T>(
        device: Device,
        arguments: &[TensorType],
        function: impl FnOnce(Vec<Tensor>) -> (T, Vec<Tensor>),
        purpose: Purpose,
    ) -> Result<(T, FunctionRecording)> {
        /// What the notes hold of tensors holds the notes.
        struct Forgets<'n>(&'n FunctionNotes);
        impl Drop for Forgets<'_> {
            fn drop(&mut self) {
                let mut state = self.0.state.lock();
                let held = (std::mem::take(&mut state.captured), std::mem::take(&mut state.named));
                drop(state);
                drop(held);
            }
        }
        let notes = Arc::new(FunctionNotes::new(purpose));
        let _forgets = Forgets(&notes);
        let stream = Stream::of_function(Arc::clone(&notes));
        let mut placeholders = Vec::with_capacity(arguments.len());
        for (index, ty) in arguments.iter().enumerate() {
            let buffer: SharedBuffer = Arc::new(Placeholder { index, notes: Arc::clone(&notes) });
            placeholders.push(Tensor::new(device, ty.clone(), Ok(buffer)));
        }
        let in_stream = || stream.run(|| function(placeholders));
        let ran = catch_unwind(AssertUnwindSafe(|| match purpose {
            Purpose::Part(_) => super::stream::around_part(in_stream),
            Purpose::Run | Purpose::Inspect | Purpose::Find(_) => in_stream(),
        }));
        if let Some(refusal) = notes.state.lock().refusal.take() {
            return Err(refusal);
        }
        let (result, tensors) = ran.unwrap_or_else(|panic| resume_unwind(panic));
        let trace = stream.run(|| super::stream::trace_of(device));
        let recording = trace.take_function(device, &tensors, &notes)?;
        Ok((result, recording))
    }
}

impl StreamTrace {
    /// Returns the error for a cut, if the trace records a function.
    pub(super) fn refuse_cut(&self, reason: CutReason) -> Result<()> {
        let Some(notes) = &self.function else { return Ok(()) };
        let what = match reason {
            CutReason::MarkStep | CutReason::Seam => "it ends a step",
            CutReason::Sync => "it waits for the device",
            CutReason::DeviceCopy => "it copies a tensor to another device",
            CutReason::OtherThread => "another thread uses a tensor of it",
            CutReason::Read | CutReason::TraceCap | CutReason::Call => "it reads a value",
        };
        let trace = self.trace.lock();
        let last = trace.recorded.ops.iter().rev().find(|op| op.start < op.end);
        let label = last.map_or("", |op| trace.recorded.recording.label(NodeId(op.start as u32)));
        drop(trace);
        Err(notes.refuse(impure(what, label, &Stack::capture())))
    }

    /// Takes what the function recorded. Tensors of it that are still held somewhere have no value from now on.
    fn take_function(&self, device: Device, tensors: &[Tensor], notes: &FunctionNotes) -> Result<FunctionRecording> {
        let results = tensors.iter().map(|tensor| self.source_of(device, tensor)).collect::<Result<_>>()?;
        let (noted, named) = {
            let mut state = notes.state.lock();
            (std::mem::take(&mut state.checks), std::mem::take(&mut state.named))
        };
        let source = |tensor: &Tensor| match self.node_of(tensor) {
            Some(node) => Some(FunctionSource::Node(node)),
            None => tensor.value().map(FunctionSource::of),
        };
        let named = named.iter().filter_map(|(name, tensor)| Some((*name, source(tensor)?))).collect();
        let mut checks = Vec::with_capacity(noted.len());
        for (extremes, range) in noted {
            let (ty, source) = self.source_of(device, &extremes)?;
            checks.push((ty, source, range));
        }
        let mut trace = self.trace.lock();
        let lines = trace.recorded.lines(usize::MAX);
        let tracker = std::mem::take(&mut trace.tracker);
        let RecordedOps { recording, buffers, slots, .. } = std::mem::take(&mut trace.recorded);
        let mut noted = notes.state.lock();
        let mut recorded = FunctionRecording {
            recording,
            inputs: buffers.iter().map(FunctionSource::of).collect(),
            results,
            checks,
            slots,
            draws: std::mem::take(&mut noted.draws),
            drawn: noted.counter,
            captured: std::mem::take(&mut noted.captured).into_iter().map(|(tensor, _)| tensor).collect(),
            named,
            provenance: Provenance::default(),
        };
        drop(noted);
        // Later reports are about results, and about where the recording diverged.
        let kept =
            if self.runtime.open().lines().ops.keeps_all() { lines } else { lines.first_and_of(&recorded.outputs()) };
        recorded.provenance = tracker.provenance(kept);
        trace.stats.flush(self.runtime.open().counters());
        self.reset(&mut trace, &super::CutResults::default());
        Ok(recorded)
    }

    /// Returns the node of a tensor that this stream recorded and did not run.
    fn node_of(&self, tensor: &Tensor) -> Option<NodeId> {
        let own = tensor.origin().filter(|origin| std::ptr::eq(&*origin.trace, self))?;
        self.trace.lock().handles.get(own.serial).map(|handle| handle.node)
    }

    /// Returns where a result comes from.
    fn source_of(&self, device: Device, tensor: &Tensor) -> Result<(TensorType, FunctionSource)> {
        if tensor.device() != device {
            let reason = format!("a result is on {}, the arguments are on {device}", tensor.device());
            return Err(TpuError::Impure { reason, op: String::new(), caller: String::new() });
        }
        let node = self.node_of(tensor);
        let captured = || self.function.as_ref()?.capture(tensor);
        let source = match (node, tensor.value()) {
            (Some(node), _) => FunctionSource::Node(node),
            (None, _) if let Some(buffer) = captured() => FunctionSource::of(&Ok(buffer)),
            (None, Some(value)) => FunctionSource::of(value),
            (None, None) => FunctionSource::Captured(Ok(super::materialise(tensor, CutReason::OtherThread)?)),
        };
        Ok((tensor.ty().clone(), source))
    }
}
