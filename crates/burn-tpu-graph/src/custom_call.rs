//! A custom call: a computation that a platform is given in a form that no rule here looks into, beside its plain form.
//!
//! The plain form is a program. It says what the computation means: inference, the interpreter, counts of operations and
//! placements on a mesh read it, and it is what is compiled where the other form is not taken. The two must compute the
//! same; only their types can be checked.
//!
//! - A *kernel* is compiled by libtpu alone. Other platforms compile the plain form. So does a mesh of several devices,
//!   whose partitioner knows nothing of a kernel and would run it whole on every device, unless the call has a
//!   [`Partition`].
//! - A *function* of StableHLO is compiled by every plugin, on a mesh too.
//! - *Parts* are what every device of a mesh computes of its parts of the operands: any program of their types.

mod partition;
mod stablehlo;
#[cfg(test)]
mod tests;

pub use partition::{Partition, Parts};
pub use stablehlo::StableHlo;

use crate::infer::bounded;
use crate::{DType, GraphError, Mesh, Op, Program, Result, TensorType};
use sha2::{Digest, Sha256};
use std::fmt::Display;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The mnemonic, which errors name.
pub(crate) const MNEMONIC: &str = "graph.custom_call";

/// A computation in two forms with the same types. It is checked when it is made and does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomCall {
    /// A hash of all the rest, so that one comparison tells most calls apart.
    digest: [u8; 32],
    name: String,
    form: CallForm,
    plain: Program,
}

/// What a platform is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// A kernel for a TPU.
    Kernel(KernelCall),
    /// A function in StableHLO.
    Function(StableHlo),
    /// What every device of a mesh computes of its parts.
    Parts(Parts),
}

/// A call into code that a plugin's compiler is given as configuration. Operands and results are row-major.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelCall {
    /// What is called: `tpu_custom_call`.
    pub target: String,
    /// The configuration.
    pub backend_config: String,
    /// The types of the operands.
    pub operands: Vec<TensorType>,
    /// The types of the results.
    pub results: Vec<TensorType>,
    /// The cost of one run, which a compiler cannot count.
    pub cost: KernelCost,
    /// How a mesh divides the call. Then the configuration and the cost are those of one device's part.
    pub partition: Option<Partition>,
}

impl KernelCall {
    /// Returns whether programs of this mesh of several devices, or of one device, can call the kernel: others have the
    /// plain form.
    pub fn is_for(&self, mesh: Option<&Mesh>) -> bool {
        self.partition.as_ref().map(|partition| &partition.mesh) == mesh
    }

    /// Returns the types that a device has of the operands.
    pub fn local_operands(&self) -> Vec<TensorType> {
        self.partition.as_ref().map_or_else(|| self.operands.clone(), |p| p.local_operands(&self.operands))
    }

    /// Returns the types that a device has of the results.
    pub fn local_results(&self) -> Vec<TensorType> {
        self.partition.as_ref().map_or_else(|| self.results.clone(), |p| p.local_results(&self.results))
    }
}

/// The cost of one run of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KernelCost {
    /// Floating-point operations: 2 per multiply-add.
    pub flops: u64,
    /// Evaluations of `exp`, `log` and similar functions.
    pub transcendentals: u64,
    /// Bytes that are read from and written to the device's memory.
    pub bytes: u64,
}

impl CallForm {
    /// Returns the types of the operands.
    pub fn operands(&self) -> &[TensorType] {
        match self {
            CallForm::Kernel(kernel) => &kernel.operands,
            CallForm::Function(function) => function.operands(),
            CallForm::Parts(parts) => parts.operands(),
        }
    }

    /// Returns the types of the results.
    pub fn results(&self) -> &[TensorType] {
        match self {
            CallForm::Kernel(kernel) => &kernel.results,
            CallForm::Function(function) => function.results(),
            CallForm::Parts(parts) => parts.results(),
        }
    }

    /// Returns what the form is, for errors.
    pub fn noun(&self) -> &'static str {
        match self {
            CallForm::Kernel(_) => "the kernel",
            CallForm::Function(_) => "the function",
            CallForm::Parts(_) => "the op of a mesh",
        }
    }

    /// Returns the text of all attributes; hashes stand for the long ones.
    pub(crate) fn text(&self) -> String {
        match self {
            CallForm::Kernel(KernelCall { target, backend_config, operands, results, cost, partition }) => {
                let KernelCost { flops, transcendentals, bytes } = cost;
                let (config, types) = (hex(&Sha256::digest(backend_config)), types(operands, results));
                let partition = partition.as_ref().map_or_else(String::new, Partition::text);
                format!("kernel({target} {config} {types}, cost {flops} {transcendentals} {bytes}{partition})")
            }
            CallForm::Function(function) => {
                let types = types(function.operands(), function.results());
                format!("stablehlo({} {types})", hex(&Sha256::digest(function.source())))
            }
            CallForm::Parts(parts) => {
                let (types, partition) = (types(parts.operands(), parts.results()), parts.partition().text());
                format!("parts({} {types}{partition})", hex(&Sha256::digest(parts.part().to_string())))
            }
        }
    }
}

impl CustomCall {
    /// Creates a call. Parameter `i` of the plain form is operand `i`; it need not read all of them. Its outputs are the
    /// results.
    ///
    /// # Errors
    /// A name that is not letters, digits, `_`, `.` and `-`; no operand or no result; types of the forms that differ; a
    /// plain form that reads slots or offsets.
    pub fn new(name: impl Into<String>, form: CallForm, plain: Program) -> Result<Self> {
        let name = name.into();
        if let Err(rule) = check_name(&name).and_then(|()| check_forms(&form, &plain)) {
            return Err(error(&name, form.operands(), rule));
        }
        let text = format!("{name}\n{}\n{plain}", form.text());
        Ok(Self { digest: Sha256::digest(text).into(), name, form, plain })
    }

    /// Returns the name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what a platform is given.
    pub fn form(&self) -> &CallForm {
        &self.form
    }

    /// Returns the kernel, if the call is one.
    pub fn kernel(&self) -> Option<&KernelCall> {
        if let CallForm::Kernel(kernel) = &self.form { Some(kernel) } else { None }
    }

    /// Returns what every device of a mesh computes, if the call says it.
    pub fn parts(&self) -> Option<&Parts> {
        if let CallForm::Parts(parts) = &self.form { Some(parts) } else { None }
    }

    /// Returns the program that computes the same.
    pub fn plain(&self) -> &Program {
        &self.plain
    }

    /// Returns the start of a hash of the whole call, in hexadecimal.
    pub(crate) fn short_hash(&self) -> String {
        hex(&self.digest[..6])
    }
}

impl Hash for CustomCall {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// Returns the calls of a program, those in the bodies of loops, in plain forms and in parts included, in program order.
pub fn custom_calls(program: &Program) -> Vec<&Arc<CustomCall>> {
    let mut calls = Vec::new();
    for node in program.graph().nodes() {
        if let Op::CustomCall(call) = &node.op {
            calls.push(call);
            calls.extend(custom_calls(call.plain()));
            calls.extend(call.parts().into_iter().flat_map(|parts| custom_calls(parts.part())));
        }
        if let Op::For { body, .. } = &node.op {
            calls.extend(custom_calls(body));
        }
    }
    calls
}

fn check_name(name: &str) -> Result<(), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    match name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_name) {
        true => Ok(()),
        false => Err("a name is letters, digits, `_`, `.` and `-`, and begins with a letter or `_`".into()),
    }
}

fn check_forms(form: &CallForm, plain: &Program) -> Result<(), String> {
    let (operands, results) = (form.operands(), form.results());
    if operands.is_empty() || results.is_empty() {
        let (form, takes, gives) = (form.noun(), operands.len(), results.len());
        return Err(format!("{form} has {takes} operands and {gives} results, and needs at least one of each"));
    }
    for ty in operands.iter().chain(results) {
        bounded(ty)?;
        if ty.dtype == DType::C64 {
            return Err(format!("{ty}: complex values cannot be passed"));
        }
    }
    if let CallForm::Kernel(kernel) = form {
        kernel.partition.as_ref().map_or(Ok(()), |partition| partition.check(operands, results))?;
    }
    if let Some((_, index, _)) = plain.slots().next() {
        return Err(format!("the plain form reads slot {index}: make it a constant or an operand"));
    }
    for (index, ty) in plain.parameters() {
        let given = operands.get(index as usize);
        if given != Some(ty) {
            let (form, given) = (form.noun(), given.map_or("nothing".into(), ToString::to_string));
            return Err(format!("{form} takes {given} as operand {index}, the plain form {ty}"));
        }
    }
    let computed: Vec<&TensorType> = plain.output_types().collect();
    if !computed.iter().copied().eq(results) {
        let (form, computed, results) = (form.noun(), list(computed), list(results));
        return Err(format!("{form} returns ({results}), the plain form ({computed})"));
    }
    Ok(())
}

/// Returns the error of a call.
pub(crate) fn error(name: &str, operands: &[TensorType], rule: String) -> GraphError {
    GraphError { op: MNEMONIC, operands: list(operands), rule: format!("`{name}`: {rule}") }
}

fn types(operands: &[TensorType], results: &[TensorType]) -> String {
    format!("({}) -> ({})", list(operands), list(results))
}

fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
