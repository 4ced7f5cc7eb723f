//! Compiled functions: recorded once for each signature, then run without recording.
//!
//! Owns: the signatures of a function, what was recorded for each, and the checks that the function still records that. May
//! not know: how a function's argument and result are made of tensors, which is the caller's.

use crate::Device;
use crate::engine::{Input, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::metrics::{Counters, CutReason};
use crate::program::{Provenance, Recorded, Subgraph};
use crate::recompile::{RecordedRun, note_lines};
use crate::runtime::{CallProgram, DeviceRuntime, IndexRange, runtime};
use crate::trace::{
    FunctionRecording, FunctionSource, Purpose, Stream, Tensor, current_function, materialise_together,
    scoped_precision,
};
use burn_tpu_graph::op::Precision;
use burn_tpu_graph::{Arrival, NodeId, TensorType};
use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most signatures of one function that are kept; the least recently used one is forgotten first.
const MOST_SIGNATURES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

/// A function of tensors that is recorded once for each signature, and run without recording from then on.
///
/// `T` is what the function returns beside its tensors: the structure of its result.
pub struct Function<T> {
    signatures: Mutex<LruCache<Signature, Arc<RecordedFunction<T>>, FxBuildHasher>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Signature {
    device: Device,
    structure: u64,
    /// The scope's precision, which products are recorded with.
    precision: Option<Precision>,
    types: Vec<TensorType>,
    /// On a mesh, where the arguments are.
    arrivals: Vec<Arrival>,
}

/// A signature that borrows the arguments: comparing it with a known one copies nothing.
struct SignatureRef<'a> {
    device: Device,
    structure: u64,
    precision: Option<Precision>,
    arguments: &'a [Tensor],
    arrivals: Vec<Arrival>,
}

impl SignatureRef<'_> {
    fn is(&self, signature: &Signature) -> bool {
        (self.device, self.structure, self.precision) == (signature.device, signature.structure, signature.precision)
            && self.arguments.iter().map(Tensor::ty).eq(&signature.types)
            && self.arrivals == signature.arrivals
    }

    fn into_signature(self) -> Signature {
        let types = self.arguments.iter().map(|tensor| tensor.ty().clone()).collect();
        let Self { device, structure, precision, arrivals, .. } = self;
        Signature { device, structure, precision, types, arrivals }
    }
}

/// What a function recorded for one signature.
pub struct RecordedFunction<T> {
    device: Device,
    result: Mutex<T>,
    recording: FunctionRecording,
    results: Vec<ResultPlan>,
    /// None if every result is an argument or a captured value.
    program: Option<FunctionProgram>,
    calls: AtomicU64,
}

/// How a result becomes a tensor.
struct ResultPlan {
    /// Its place among the program's results, if it is one.
    place: Option<usize>,
    /// Whether no later result has this place, so that it need not be shared.
    is_last: bool,
    /// An argument of its type, whose handle it takes over if nothing else holds that. No two results have the same one.
    refills: Option<usize>,
}

impl ResultPlan {
    fn of(recording: &FunctionRecording, program: Option<&FunctionProgram>, arguments: &[Tensor]) -> Vec<Self> {
        let mut free: Vec<_> = arguments.iter().map(|argument| Some(argument.ty())).collect();
        let mut plans = Vec::with_capacity(recording.results.len());
        for (ty, source) in &recording.results {
            let refills = free.iter().position(|free| *free == Some(ty));
            if let Some(argument) = refills {
                free[argument] = None;
            }
            let place = program.and_then(|program| program.place(source));
            plans.push(Self { place, is_last: true, refills });
        }
        let mut seen = HashSet::new();
        for plan in plans.iter_mut().rev() {
            plan.is_last = seen.insert(plan.place);
        }
        plans
    }
}

/// The program of a function, and the slots of its calls.
struct FunctionProgram {
    recorded: Arc<Recorded>,
    inputs: Vec<ProgramInput>,
    /// In the order of the program.
    slots: Vec<u64>,
    draws: Vec<DrawSlot>,
    ready: Mutex<Option<Arc<ReadyProgram>>>,
}

/// What runs a function's program.
struct ReadyProgram {
    program: CallProgram,
    /// Captured values that it reads in larger buffers, by parameter.
    captured: Vec<(usize, SharedBuffer)>,
}

/// Where a parameter of the program comes from.
enum ProgramInput {
    /// From this argument of the call.
    Argument(u32),
    /// From a value outside of the function, which the program holds.
    Captured(SharedBuffer),
}

/// A slot of the program that holds a part of a random draw's state.
struct DrawSlot {
    place: usize,
    /// The draw's counter, relative to that of the call.
    counter: u64,
    part: StatePart,
}

impl DrawSlot {
    /// Returns the slots of a program that hold parts of its draws' states.
    fn of(recording: &FunctionRecording, recorded: &Recorded) -> Vec<Self> {
        let mut slots = Vec::new();
        for draw in &recording.draws {
            for (part, slot) in StatePart::ALL.into_iter().zip(draw.slot..) {
                if let Some(place) = recorded.bindings.slots.iter().position(|&of| of == slot) {
                    slots.push(Self { place, counter: draw.counter, part });
                }
            }
        }
        slots
    }
}

/// A half of a draw's key or counter, in the order of the slots that a draw records.
#[derive(Clone, Copy)]
enum StatePart {
    KeyLow,
    KeyHigh,
    CounterLow,
    CounterHigh,
}

impl StatePart {
    const ALL: [Self; 4] = [Self::KeyLow, Self::KeyHigh, Self::CounterLow, Self::CounterHigh];

    fn of(self, key: u64, counter: u64) -> u64 {
        match self {
            Self::KeyLow => key & 0xffff_ffff,
            Self::KeyHigh => key >> 32,
            Self::CounterLow => counter & 0xffff_ffff,
            Self::CounterHigh => counter >> 32,
        }
    }
}

impl<T> Default for Function<T> {
    fn default() -> Self {
        Self { signatures: Mutex::new(LruCache::with_hasher(MOST_SIGNATURES, FxBuildHasher)) }
    }
}

impl<T: Clone> Function<T> {
    /// Returns whether the calling stream records a function. A function that is called then is a part of that one: record
    /// it as usual.
    pub fn is_recording() -> bool {
        current_function().is_some()
    }

    /// Returns what the function records on these arguments. `structure` is a hash of everything about them but their
    /// tensors.
    /// `record` is the function: it takes an argument's tensors, and returns its result and the tensors in that, in an order
    /// that is always the same. It is called twice for a new signature, which is a structure with the types of its tensors,
    /// and once more at the second, fourth, eighth call and so on, to check that it still records the same.
    ///
    /// # Errors
    /// [`TpuError::Impure`] if the function reads a value, ends a step, or did not record the same again; those of the
    /// arguments and of a compile.
    pub fn recorded(
        &self,
        device: Device,
        structure: u64,
        arguments: &[Tensor],
        record: &dyn Fn(Vec<Tensor>) -> (T, Vec<Tensor>),
    ) -> Result<Arc<RecordedFunction<T>>> {
        if let Some(tensor) = arguments.iter().find(|tensor| tensor.device() != device) {
            let reason = format!("its arguments are on {device} and on {}", tensor.device());
            return Err(TpuError::Impure { reason, op: String::new(), caller: String::new() });
        }
        let runtime = runtime(device);
        materialise_together(arguments.iter(), CutReason::Call)?;
        let arrivals = runtime.arrivals(arguments.iter().map(|tensor| tensor.value()?.as_ref().ok()));
        let again = |purpose| {
            Counters::add(&runtime.open().counters().function_recordings, 1);
            let types: Vec<TensorType> = arguments.iter().map(|argument| argument.ty().clone()).collect();
            Stream::record_function(device, &types, record, purpose)
        };
        let signature =
            match self.find(SignatureRef { device, structure, precision: scoped_precision(), arguments, arrivals }) {
                Ok(known) => {
                    let call = known.calls.fetch_add(1, Relaxed) + 1;
                    if call.is_power_of_two() {
                        known.recording.check(again)?;
                    }
                    known.make_ready(&runtime)?;
                    return Ok(known);
                }
                Err(signature) => signature,
            };
        let (result, recording) = again(Purpose::Run)?;
        recording.check(again)?;
        let buffers = present(arguments.iter().map(|tensor| tensor.value().cloned()))?;
        let program = FunctionProgram::of(&recording, &runtime, &buffers)?;
        let results = ResultPlan::of(&recording, program.as_ref(), arguments);
        let (result, calls) = (Mutex::new(result), AtomicU64::new(1));
        let recorded = Arc::new(RecordedFunction { device, result, recording, results, program, calls });
        self.signatures.lock().put(signature, Arc::clone(&recorded));
        recorded.make_ready(&runtime)?;
        Ok(recorded)
    }

    /// Returns what was recorded for a signature, or the signature if nothing was.
    fn find(&self, wanted: SignatureRef) -> Result<Arc<RecordedFunction<T>>, Signature> {
        let mut signatures = self.signatures.lock();
        if let Some((_, latest)) = signatures.peek_mru().filter(|(latest, _)| wanted.is(latest)) {
            return Ok(Arc::clone(latest));
        }
        let signature = wanted.into_signature();
        signatures.get(&signature).cloned().ok_or(signature)
    }
}

/// Returns the values of arguments.
///
/// # Errors
/// Why one has no value.
fn present(values: impl Iterator<Item = Option<Input>>) -> Result<Vec<Option<SharedBuffer>>> {
    let values: Result<_, Arc<TpuError>> = values.map(|value| value.unwrap_or_else(no_value).map(Some)).collect();
    values.map_err(|error| TpuError::clone(&error))
}

fn no_value() -> Input {
    Err(Arc::new(TpuError::Bug("an argument of a function has no value after a cut".to_owned())))
}

impl FunctionRecording {
    /// Checks that the function records this again.
    ///
    /// # Errors
    /// [`TpuError::Impure`] with the op and the line of the first difference.
    fn check<T>(&self, again: impl Fn(Purpose) -> Result<(T, Self)>) -> Result<()> {
        let (_, later) = again(Purpose::Inspect)?;
        let Some(difference) = self.difference(&later) else { return Ok(()) };
        let third = difference.node.map(|node| again(Purpose::Find(node))).transpose()?;
        Err(difference.refusal(third.as_ref().map(|(_, recording)| recording)))
    }

    /// Returns the nodes that are results, ascending.
    pub(crate) fn outputs(&self) -> Vec<NodeId> {
        let results = self.results.iter().map(|(_, source)| source);
        let all = results.chain(self.checks.iter().map(|(_, source, _)| source));
        let mut nodes: Vec<NodeId> =
            all.filter_map(|source| if let FunctionSource::Node(node) = source { Some(*node) } else { None }).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Returns the values of the recording's parameters at a call.
    fn parameters(&self, buffers: &[Option<SharedBuffer>]) -> Vec<Input> {
        self.inputs.iter().map(|source| source.value(buffers).unwrap_or_else(no_value)).collect()
    }
}

impl FunctionProgram {
    fn of(
        recording: &FunctionRecording,
        runtime: &DeviceRuntime,
        buffers: &[Option<SharedBuffer>],
    ) -> Result<Option<Self>> {
        let outputs = recording.outputs();
        if outputs.is_empty() {
            return Ok(None);
        }
        let parameters = recording.parameters(buffers);
        let (len, provenance) = (recording.recording.len(), Provenance::default());
        let subgraph = Subgraph { recording: &recording.recording, len, outputs, provenance };
        let recorded = runtime.recorded(&subgraph, &parameters)?;
        let mut inputs = Vec::with_capacity(recorded.bindings.parameters.len());
        for (parameter, &input) in (0..).zip(&recorded.bindings.parameters) {
            inputs.push(match &recording.inputs[input as usize] {
                FunctionSource::Argument(argument) => ProgramInput::Argument(*argument as u32),
                FunctionSource::Captured(Ok(value)) => {
                    ProgramInput::Captured(runtime.captured(&recorded, parameter, value)?)
                }
                FunctionSource::Captured(Err(error)) => return Err(TpuError::clone(error)),
                FunctionSource::Node(node) => {
                    return Err(TpuError::Bug(format!("{node} is a function's parameter")));
                }
            });
        }
        let slots = recorded.slots(&recording.slots).into_owned();
        let draws = DrawSlot::of(recording, &recorded);
        Ok(Some(Self { inputs, slots, draws, ready: Mutex::default(), recorded }))
    }

    /// Returns the slots of a call whose draws begin with this key and counter.
    fn slots(&self, (key, counter): (u64, u64)) -> Vec<u64> {
        let mut slots = self.slots.clone();
        for draw in &self.draws {
            slots[draw.place] = draw.part.of(key, counter.wrapping_add(draw.counter));
        }
        slots
    }

    fn run(
        &self,
        recording: &FunctionRecording,
        runtime: &DeviceRuntime,
        buffers: &mut [Option<SharedBuffer>],
    ) -> Result<Vec<SharedBuffer>> {
        let slots = self.slots(runtime.draws().draws_of_call(recording.drawn));
        let ready = self.ready(recording, runtime, &slots)?;
        let mut arguments = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            arguments.push(match input {
                ProgramInput::Argument(index) => buffers[*index as usize].take(),
                ProgramInput::Captured(buffer) => Some(Arc::clone(buffer)),
            });
        }
        for (parameter, value) in &ready.captured {
            arguments[*parameter] = Some(Arc::clone(value));
        }
        let results = runtime.call(self.run_of(recording, &slots), &ready.program, &mut arguments)?;
        note_lines(&self.recorded, &recording.provenance.lines, &results);
        Ok(results)
    }

    fn run_of<'a>(&'a self, recording: &'a FunctionRecording, slots: &'a [u64]) -> RecordedRun<'a> {
        RecordedRun { recorded: &self.recorded, slots, provenance: &recording.provenance }
    }

    /// Returns what runs the program, which is compiled now if it does not serve these slots.
    fn ready(
        &self,
        recording: &FunctionRecording,
        runtime: &DeviceRuntime,
        slots: &[u64],
    ) -> Result<Arc<ReadyProgram>> {
        if let Some(ready) = self.ready.lock().clone().filter(|ready| ready.program.serves(slots)) {
            return Ok(ready);
        }
        self.make_ready(recording, runtime, slots)
    }

    fn make_ready(
        &self,
        recording: &FunctionRecording,
        runtime: &DeviceRuntime,
        slots: &[u64],
    ) -> Result<Arc<ReadyProgram>> {
        let program = runtime.call_program(self.run_of(recording, slots))?;
        let mut captured = Vec::new();
        for (parameter, input) in self.inputs.iter().enumerate() {
            let ProgramInput::Captured(value) = input else { continue };
            let value = runtime.captured_for(&program, &self.recorded, parameter, value)?;
            captured.extend(value.map(|value| (parameter, value)));
        }
        let ready = Arc::new(ReadyProgram { program, captured });
        *self.ready.lock() = Some(Arc::clone(&ready));
        Ok(ready)
    }

    /// Returns the place of a value among the program's results, if it is one.
    fn place(&self, source: &FunctionSource) -> Option<usize> {
        let FunctionSource::Node(node) = source else { return None };
        self.recorded.outputs.binary_search(node).ok()
    }
}

impl<T: Clone> RecordedFunction<T> {
    /// Compiles the program if it has not been compiled yet, or if it comes so often that it gets one of its own. It is
    /// called before an argument is taken, so that none is lost to a refusal.
    fn make_ready(&self, runtime: &DeviceRuntime) -> Result<()> {
        let Some(program) = &self.program else { return Ok(()) };
        let known = program.ready.lock().clone();
        if known.is_some_and(|ready| !runtime.gets_own_program(&ready.program)) {
            return Ok(());
        }
        program.make_ready(&self.recording, runtime, &program.slots(runtime.draws().next_draw())).map(drop)
    }

    /// Runs the function on an argument's tensors, and returns its result's. A tensor that nothing else refers to is
    /// donated to a result, as in a recorded step.
    ///
    /// # Errors
    /// Those of the arguments, of a compile, and of the start of the program.
    pub fn run(&self, mut arguments: Vec<Tensor>) -> Result<(T, Vec<Tensor>)> {
        let runtime = runtime(self.device);
        Counters::add(&runtime.open().counters().function_calls, 1);
        let mut buffers = present(arguments.iter_mut().map(Tensor::take_value))?;
        // What is both an argument and a result has two owners, so the program cannot take it.
        let passed: Vec<_> = self.recording.results.iter().filter_map(|(_, source)| source.value(&buffers)).collect();
        let checked: Vec<_> = self.recording.checks.iter().map(|(_, source, _)| source.value(&buffers)).collect();
        let computed = match &self.program {
            Some(program) => program.run(&self.recording, &runtime, &mut buffers)?,
            None => Vec::new(),
        };
        let mut computed: Vec<Option<SharedBuffer>> = computed.into_iter().map(Some).collect();
        for ((_, source, range), passed) in self.recording.checks.iter().zip(checked) {
            let place = self.program.as_ref().and_then(|program| program.place(source));
            let value = place.and_then(|place| computed.get(place)?.clone()).map(Ok);
            let extremes = to_value(value.or(passed)).map_err(Arc::new);
            runtime.check_later(Box::new(move || Some(extremes.clone())), IndexRange::clone(range));
        }
        let mut passed = passed.into_iter();
        let mut handles = Vec::from_iter(arguments.into_iter().map(Some));
        let mut results = Vec::with_capacity(self.results.len());
        for (plan, (ty, _)) in self.results.iter().zip(&self.recording.results) {
            let computed = plan.place.and_then(|place| computed.get_mut(place));
            let computed = computed.and_then(|value| if plan.is_last { value.take() } else { value.clone() });
            let value = to_value(computed.map(Ok).or_else(|| passed.next()));
            results.push(match plan.refills.and_then(|argument| handles[argument].take()) {
                Some(handle) => handle.refill(ty, value),
                None => Tensor::new(self.device, ty.clone(), value),
            });
        }
        Ok((self.result.lock().clone(), results))
    }
}

/// Returns the value of a result.
fn to_value(input: Option<Input>) -> Result<SharedBuffer> {
    match input {
        Some(value) => value.map_err(|error| TpuError::clone(&error)),
        None => Err(TpuError::Bug("a function's result comes from nowhere".to_owned())),
    }
}
