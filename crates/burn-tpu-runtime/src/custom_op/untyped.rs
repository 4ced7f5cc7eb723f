//! A custom op whose tensors have no static types, and what is known of it for each set of operand types.

use super::Kind;
use super::form::{CheckedOp, CustomForm};
use super::partition::{PartitionOf, partition};
use crate::{Device, Precision, Result, Tensor, TpuError, scoped_precision};
use burn_tpu_graph::TensorType;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What an op records on its operands: the form that a platform is given, and the results of the plain form.
pub type Record = dyn Fn(Vec<Tensor>) -> Result<(Result<CustomForm>, Vec<Tensor>)> + Send + Sync;

/// A custom op of a front end, without its gradient.
pub struct UntypedOp {
    name: &'static str,
    record: Arc<Record>,
    partition: Option<Arc<PartitionOf>>,
    results: Vec<Kind>,
    /// The op for the devices and operand types that it was called with.
    known: Mutex<HashMap<Signature, CheckedOp>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Signature {
    device: Device,
    /// The scope's precision, which the plain form's products are recorded with.
    precision: Option<Precision>,
    operands: Vec<TensorType>,
}

impl UntypedOp {
    /// Returns an op that records this, with results of these kinds.
    pub fn new(name: &'static str, record: Arc<Record>, results: Vec<Kind>) -> Self {
        Self { name, record, partition: None, results, known: Mutex::default() }
    }

    /// Returns the op with this partition on meshes of several chips.
    pub fn with_partition(&self, partition: Arc<PartitionOf>) -> Self {
        let (record, results) = (Arc::clone(&self.record), self.results.clone());
        Self { partition: Some(partition), ..Self::new(self.name, record, results) }
    }

    /// Returns the name that errors and reports have.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what kind of tensor each result is.
    pub fn results(&self) -> &[Kind] {
        &self.results
    }

    /// Calls the op.
    ///
    /// # Errors
    /// [`TpuError::CustomOp`] if there are no operands, or if they are on several devices; at the first call with operands of
    /// these types, if the forms do not agree with them and with each other, the plain form is no function of them, or the
    /// partition does not divide them. [`TpuError::Mesh`] if the partition names an axis that the mesh does not have.
    pub fn call(&self, operands: Vec<Tensor>) -> Result<Vec<Tensor>> {
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
    fn known(&self, device: Device, operands: &[Tensor]) -> Result<CheckedOp> {
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
        let partition = self.partition.as_ref().map(|of| partition(device, operands, &**of)).transpose()?.flatten();
        let op = CheckedOp::of(self.name, operands, partition, record)?;
        lock().insert(signature, op.clone());
        Ok(op)
    }

    /// Returns an error of this op.
    pub fn error(&self, reason: impl Into<String>) -> TpuError {
        error(self.name, reason.into())
    }
}

impl std::fmt::Debug for UntypedOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns the error of a custom op.
pub fn error(name: &str, reason: String) -> TpuError {
    TpuError::CustomOp { name: name.to_owned(), reason }
}
