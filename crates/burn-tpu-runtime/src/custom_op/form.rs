//! The forms of a custom op for operands of certain types: how the plain form becomes a program, and the checks of both.

use crate::error::{Result, TpuError};
use crate::trace::{FunctionRecording, FunctionSource, Purpose, Stream, Tensor, record_list};
use burn_tpu_fusion::kernel_call;
use burn_tpu_graph::{
    Builder, CallForm, CustomCall, Graph, GraphError, NodeId, Op, Partition, Parts, Program, Rebuild, StableHlo,
    TensorType,
};
use burn_tpu_kernels::Kernel;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The form of a custom op that a platform is given. Every platform without it runs the plain form.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CustomForm {
    /// A kernel, which a TPU runs; [`TpuOptions::kernels`](crate::TpuOptions::kernels) turns it off. A mesh of several chips
    /// runs the plain form, unless the op has a partition: XLA's partitioner cannot divide a kernel.
    Kernel(Kernel),
    /// The text of a function in StableHLO, which every plugin compiles, on a mesh too: one or more `func.func` in MLIR's
    /// pretty form, alone or in a `module`, as JAX prints it. `@main` is called, or the only function that is not private.
    StableHlo(String),
    /// None: the plain form runs everywhere. It is then as if there were no custom op but for the gradient.
    Plain,
}

impl CustomForm {
    /// Returns the form of a StableHLO text.
    pub fn stablehlo(text: impl Into<String>) -> Self {
        Self::StableHlo(text.into())
    }
}

impl From<Kernel> for CustomForm {
    fn from(kernel: Kernel) -> Self {
        Self::Kernel(kernel)
    }
}

/// A custom op for operands of certain types, checked.
#[derive(Clone, Debug)]
pub(super) struct CheckedOp {
    name: &'static str,
    call: Option<Arc<CustomCall>>,
}

impl CheckedOp {
    /// Returns the op for operands of the types of these. `record` is given tensors without values: it returns the form that
    /// a platform is given and, recorded on the tensors, the results of the plain form. With a partition it is called once
    /// more, for the parts of a device.
    ///
    /// # Errors
    /// [`TpuError::CustomOp`] if the types of the operands, of the form and of the plain form differ, if the form is not
    /// valid, if the plain form is not a function of the operands alone: if it reads a value, draws random numbers, or
    /// uses another tensor; or if the partition does not divide the operands and results.
    ///
    /// # Panics
    /// If `record` does.
    pub(super) fn of(
        name: &'static str,
        operands: &[Tensor],
        partition: Option<Partition>,
        record: impl Fn(Vec<Tensor>) -> (Result<CustomForm>, Vec<Tensor>),
    ) -> Result<Self> {
        let fails = |reason: String| TpuError::CustomOp { name: name.to_owned(), reason };
        let Some(first) = operands.first() else { return Err(fails("it needs an operand".into())) };
        let types: Vec<TensorType> = operands.iter().map(|operand| operand.ty().clone()).collect();
        let recorded = |types: &[TensorType]| {
            let recorded = Stream::record_function(first.device(), types, &record, Purpose::Inspect);
            recorded.map_err(|error| match error {
                TpuError::Impure { .. } => fails(format!("its plain form: {error}")),
                other => other,
            })
        };
        let (form, whole) = recorded(&types)?;
        let Some(partition) = partition else {
            let call = custom_call(name, &types, form?, &whole).map_err(fails)?;
            return Ok(Self { name, call: call.map(Arc::new) });
        };
        // The whole has its plain form alone; each device has a form for its parts.
        let plain = plain_program(&whole).map_err(fails)?;
        let results: Vec<TensorType> = whole.results.iter().map(|(ty, _)| ty.clone()).collect();
        let of_graph = |error: GraphError| fails(without_name("parts", error.rule));
        let locals = partition.local_types(&types, &results).map_err(of_graph)?;
        let (form, recording) = recorded(&locals)?;
        let part = match custom_call(name, &locals, form?, &recording).map_err(fails)? {
            Some(call) => call_alone(call).map_err(of_graph)?,
            None => plain_program(&recording).map_err(fails)?,
        };
        let parts = Parts::new(types, results, partition, part).map_err(of_graph)?;
        let call = CustomCall::new(name, CallForm::Parts(parts), plain);
        let call = call.map_err(|error| fails(without_name(name, error.rule)))?;
        Ok(Self { name, call: Some(Arc::new(call)) })
    }

    /// Records the op on operands of its types; `None` if it has no form but the plain one.
    ///
    /// # Panics
    /// If an operand has another type or is on another device.
    pub(super) fn record(&self, operands: &[Tensor]) -> Option<Vec<Tensor>> {
        let call = self.call.as_ref()?;
        let operands: Vec<&Tensor> = operands.iter().collect();
        Some(record_list(self.name, &operands, |recorder, nodes| recorder.custom_call(Arc::clone(call), nodes)))
    }
}

/// Returns the call of a form for operands of these types, whose plain form was recorded; `None` if it has no other form.
fn custom_call(
    name: &str,
    types: &[TensorType],
    form: CustomForm,
    recording: &FunctionRecording,
) -> Result<Option<CustomCall>, String> {
    let Some(form) = call_form(form).map_err(|reason| without_name(name, reason))? else { return Ok(None) };
    check_operands(types, &form)?;
    let plain = plain_program(recording)?;
    CustomCall::new(name, form, plain).map(Some).map_err(|error| without_name(name, error.rule))
}

/// Returns the program of one call, whose parameters are the operands.
fn call_alone(call: CustomCall) -> Result<Program, GraphError> {
    let mut graph = Graph::new();
    let types = call.form().operands().to_vec();
    let operands = types.into_iter().zip(0..).map(|(ty, index)| graph.add(Op::Parameter { index, ty }, &[]));
    let operands = operands.collect::<Result<Vec<_>, _>>()?;
    let results = graph.custom_call(Arc::new(call), &operands)?;
    Program::extract(&graph, &results)
}

/// Returns a form as the graph knows it.
fn call_form(form: CustomForm) -> Result<Option<CallForm>, String> {
    match form {
        CustomForm::Kernel(kernel) => {
            let call = kernel_call(&kernel).map_err(|error| error.to_string())?;
            Ok(Some(CallForm::Kernel(call)))
        }
        CustomForm::StableHlo(text) => {
            let parsed = StableHlo::parse(text).map_err(|error| without_name("stablehlo", error.rule));
            Ok(Some(CallForm::Function(parsed.map_err(|rule| format!("its StableHLO text: {rule}"))?)))
        }
        CustomForm::Plain => Ok(None),
    }
}

/// Returns the rule of a graph error without the name of the op, which the error has.
fn without_name(name: &str, rule: String) -> String {
    rule.strip_prefix(&format!("`{name}`: ")).map(str::to_owned).unwrap_or(rule)
}

fn check_operands(given: &[TensorType], form: &CallForm) -> Result<(), String> {
    if given == form.operands() {
        return Ok(());
    }
    let (given, takes) = (list(given), list(form.operands()));
    Err(format!("{} takes ({takes}), and it is called with ({given})", form.noun()))
}

fn list<'t>(types: impl IntoIterator<Item = &'t TensorType>) -> String {
    types.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the program of a recorded plain form. Its numbers are constants of it. Its own computed indices are not checked.
fn plain_program(recording: &FunctionRecording) -> Result<Program, String> {
    if !recording.draws.is_empty() {
        return Err("its plain form draws random numbers; pass them as an operand".into());
    }
    let recorded = recording.recording.to_graph(recording.recording.len());
    let mut plain = Plain { new: Rebuild::new(&recorded), arguments: BTreeMap::new() };
    for id in recorded.ids() {
        match &recorded.node(id).op {
            Op::Parameter { index, ty } => {
                plain.new.label(id);
                let input = plain.input(&recording.inputs[*index as usize], ty)?;
                plain.new.renamed.set(id, input);
            }
            _ => drop(plain.new.copy(id).map_err(rule)?),
        }
    }
    let mut outputs = Vec::with_capacity(recording.results.len());
    for (ty, source) in &recording.results {
        outputs.push(match source {
            FunctionSource::Node(id) => plain.new.renamed.id(*id).map_err(rule)?,
            source => plain.input(source, ty)?,
        });
    }
    let program = Program::extract(&plain.new.graph, &outputs).map_err(rule)?;
    program.bake(|slot| recording.slots.get(slot as usize).copied()).map_err(rule)
}

/// The graph of a plain form.
struct Plain<'r> {
    new: Rebuild<'r>,
    /// The node of each operand.
    arguments: BTreeMap<usize, NodeId>,
}

impl Plain<'_> {
    /// Returns the node of a value that the plain form reads.
    fn input(&mut self, source: &FunctionSource, ty: &TensorType) -> Result<NodeId, String> {
        match source {
            FunctionSource::Argument(index) => {
                if let Some(&known) = self.arguments.get(index) {
                    return Ok(known);
                }
                let op = Op::Parameter { index: *index as u32, ty: ty.clone() };
                let node = self.new.graph.add(op, &[]).map_err(rule)?;
                self.arguments.insert(*index, node);
                Ok(node)
            }
            // Of a tensor that was made of host data, a slice that is not attached has no value: the same rule everywhere.
            FunctionSource::Captured(_) => {
                Err("its plain form uses a tensor that is no operand, or that it makes of host data: pass it as one"
                    .into())
            }
            FunctionSource::Node(id) => Err(format!("{id} is an input")),
        }
    }
}

fn rule(error: GraphError) -> String {
    error.to_string()
}
