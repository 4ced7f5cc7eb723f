//! A custom op whose tensors have no static types, and what is known of it for each set of operand types.

use super::tensors::Kind;
use crate::{CustomForm, Result, TpuError};
use burn_tpu_runtime::graph::TensorType;
use burn_tpu_runtime::{CustomOp, Device, Precision, Tensor, scoped_precision};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// What an op records on its operands: the form that a platform is given, and the results of the plain form.
pub type Record = dyn Fn(Vec<Tensor>) -> Result<(Result<CustomForm>, Vec<Tensor>)> + Send + Sync;

/// From operands, results and gradients of the results to the gradients of the operands.
pub type Gradient = dyn Fn(Vec<Tensor>, Vec<Tensor>, Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync;

/// A custom op without its gradient.
pub struct Parts {
    name: &'static str,
    record: Box<Record>,
    results: Vec<Kind>,
    /// The op for the devices and operand types that it was called with.
    known: Mutex<HashMap<Signature, CustomOp>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Signature {
    device: Device,
    /// The scope's precision, which the plain form's products are recorded with.
    precision: Option<Precision>,
    operands: Vec<TensorType>,
}

impl Parts {
    pub(super) fn new(name: &'static str, record: Box<Record>, results: Vec<Kind>) -> Self {
        Self { name, record, results, known: Mutex::default() }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what kind of tensor each result is.
    pub(super) fn results(&self) -> &[Kind] {
        &self.results
    }

    /// Calls the op.
    pub(super) fn call(&self, operands: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let Some(first) = operands.first() else { return Err(self.error("it needs an operand")) };
        let device = first.device();
        if let Some(other) = operands.iter().find(|operand| operand.device() != device) {
            return Err(self.error(format!("its operands are on {device} and {}", other.device())));
        }
        let op = self.known(device, &operands)?;
        match op.record(&operands) {
            Some(results) => Ok(results),
            None => (self.record)(operands).map(|(_, results)| results),
        }
    }

    /// Returns the op for operands of these types.
    fn known(&self, device: Device, operands: &[Tensor]) -> Result<CustomOp> {
        let types = operands.iter().map(|operand| operand.ty().clone()).collect();
        let signature = Signature { device, precision: scoped_precision(), operands: types };
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&signature).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        // Not under the lock, since other custom ops, perhaps this one, may be called by the plain form.
        let record = |operands| match (self.record)(operands) {
            Ok(recorded) => recorded,
            Err(error) => (Err(error), Vec::new()),
        };
        let op = CustomOp::of(self.name, operands, record)?;
        lock().insert(signature, op.clone());
        Ok(op)
    }

    pub(super) fn error(&self, reason: impl Into<String>) -> TpuError {
        error(self.name, reason.into())
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns the error of a custom op.
pub(super) fn error(name: &str, reason: String) -> TpuError {
    TpuError::CustomOp { name: name.to_owned(), reason }
}
