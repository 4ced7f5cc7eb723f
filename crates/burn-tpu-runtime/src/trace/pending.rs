//! Values that a trace waits for: other streams record them, or they come from elsewhere, such as from other devices.
//!
//! An op's operands are computed before its trace is locked. An operand that cannot be computed then is a pending parameter:
//! each cut that needs it tries again first.
//!
//! Owns: when such a value is computed, and that no trace is locked meanwhile. May not know: what computes it.

use super::recorded::RecordedOps;
use super::{Origin, PendingValue, Placeholder, StreamTrace, Tensor, Trace, WaitForDevices};
use crate::engine::{Input, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use burn_tpu_graph::NodeId;
use parking_lot::MutexGuard;
use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// A parameter whose tensor had no value when an op used it.
#[derive(Clone)]
pub(super) struct PendingParameter {
    pub(super) index: usize,
    /// The position of the op.
    pub(super) position: u64,
    pub(super) tensor: Tensor,
}

/// Why operands have no value, by their number.
pub(super) type OperandErrors = Vec<(usize, TpuError)>;

/// Computes the operands that wait for something else than a cut of this stream. Call it without a trace's lock: what
/// computes them may lock any.
pub(super) fn compute_operands(stream: &Arc<StreamTrace>, operands: &[&Tensor]) -> OperandErrors {
    let mut errors = OperandErrors::new();
    if stream.function.as_ref().is_some_and(|function| function.captures()) {
        return errors;
    }
    for (number, tensor) in operands.iter().enumerate() {
        let is_own = tensor.origin().is_some_and(|origin| Arc::ptr_eq(&origin.trace, stream));
        if is_own || tensor.value().is_some() {
            continue;
        }
        if let Some(Err(error)) = tensor.pending_value().map(|value| value.compute(WaitForDevices::No)) {
            errors.push((number, error));
        }
    }
    errors
}

impl RecordedOps {
    /// Returns the parameter of an operand without a value, which the op at this position uses. Without an error it has no
    /// place in any trace either: a bug, which its readers report.
    pub(super) fn pending_parameter(
        &mut self,
        tensor: &Tensor,
        error: Option<TpuError>,
        position: u64,
    ) -> burn_tpu_graph::Result<NodeId> {
        let Some(error) = error else {
            let lost = TpuError::Bug(format!("{tensor:?} is in no trace"));
            return self.parameter(&Err(Arc::new(lost)), tensor.ty());
        };
        self.pending.push(PendingParameter { index: self.buffers.len(), position, tensor: tensor.clone() });
        self.parameter(&Err(Arc::new(error)), tensor.ty())
    }

    /// Returns the pending parameters of the ops up to a position.
    fn pending_until(&self, position: u64) -> &[PendingParameter] {
        let count = self.pending.partition_point(|parameter| parameter.position <= position);
        &self.pending[..count]
    }

    /// Checks that no op up to a position waits for a value.
    ///
    /// # Errors
    /// Why the first one that does had no value.
    pub(super) fn check_computed(&self, position: u64) -> Result<()> {
        let Some(parameter) = self.pending_until(position).first() else { return Ok(()) };
        self.buffers[parameter.index].as_ref().map(|_| ()).map_err(|error| TpuError::clone(error))
    }

    /// Gives pending parameters the values that are there.
    fn collect_pending(&mut self) {
        let buffers = &mut self.buffers;
        self.pending.retain(|parameter| match parameter.tensor.value() {
            Some(value) => {
                buffers[parameter.index] = value.clone();
                false
            }
            None => true,
        });
    }
}

impl StreamTrace {
    /// Locks the trace, after the values are computed for which ops up to a position wait.
    ///
    /// # Errors
    /// Why one of them was not computed.
    pub(super) fn lock_computed(&self, position: u64, wait: WaitForDevices) -> Result<MutexGuard<'_, Trace>> {
        let trace = self.trace.lock();
        if trace.recorded.pending.is_empty() {
            return Ok(trace);
        }
        let pending = trace.recorded.pending_until(position).to_vec();
        drop(trace);
        for parameter in &pending {
            if let Some(value) = parameter.tensor.pending_value() {
                value.compute(wait)?;
            }
        }
        let mut trace = self.trace.lock();
        trace.recorded.collect_pending();
        Ok(trace)
    }

    /// Another thread's cut, for the tensor of this serial number.
    fn cut_for_another_thread(&self, serial: u64, reason: CutReason, wait: WaitForDevices) -> Result<()> {
        self.refuse_cut(CutReason::OtherThread)?;
        let Some(position) = self.position_of(serial) else { return Ok(()) };
        let mut trace = self.lock_computed(position, wait)?;
        if trace.handles.get(serial).is_none() {
            // Another thread has cut it meanwhile.
            return Ok(());
        }
        let reason = if reason == CutReason::Read { CutReason::OtherThread } else { reason };
        self.cut_at(&mut trace, position, reason).map(|_| ())
    }

    /// Returns the position of the op that recorded a tensor which waits for a cut.
    fn position_of(&self, serial: u64) -> Option<u64> {
        self.trace.lock().handles.get(serial).map(|handle| handle.position)
    }

    /// Returns whether a value for which an op up to a position waits needs other devices.
    fn waits_for_devices(&self, position: u64) -> bool {
        let pending = self.trace.lock().recorded.pending_until(position).to_vec();
        pending.iter().any(|parameter| parameter.tensor.pending_value().is_some_and(|value| value.waits_for_devices()))
    }
}

impl PendingValue for Origin {
    fn collect(&self, into: &OnceLock<Input>) {
        self.trace.tensors.collect(self.serial, into);
    }

    fn compute(&self, wait: WaitForDevices) -> Result<()> {
        self.trace.cut_for_another_thread(self.serial, CutReason::OtherThread, wait)
    }

    fn waits_for_devices(&self) -> bool {
        self.trace.position_of(self.serial).is_some_and(|position| self.trace.waits_for_devices(position))
    }
}

impl Origin {
    /// Returns whether the owner's cut of the tensor's trace would have to wait for other devices.
    pub(crate) fn own_cut_waits_for_devices(&self) -> bool {
        self.trace.waits_for_devices(u64::MAX)
    }
}

/// Runs the ops of several tensors, the last recorded first: its cut covers the others. Those that come from elsewhere are
/// computed after them.
///
/// # Errors
/// The first cut's that fails; the tensors stay pending.
pub(crate) fn materialise_together<'t>(tensors: impl Iterator<Item = &'t Tensor>, reason: CutReason) -> Result<()> {
    let mut tensors: Vec<_> = tensors.filter(|tensor| tensor.pending_value().is_some()).collect();
    tensors.sort_unstable_by_key(|tensor| Reverse(tensor.origin().map(|origin| origin.serial)));
    tensors.into_iter().try_for_each(|tensor| compute_for_read(tensor, reason))
}

/// Returns the buffer of a tensor, after cutting what has to run for it.
///
/// # Errors
/// That of the cut, which leaves the tensor pending, or the one that the tensor holds.
pub(crate) fn materialise(tensor: &Tensor, reason: CutReason) -> Result<SharedBuffer> {
    compute_for_read(tensor, reason)?;
    match tensor.value() {
        Some(Ok(buffer)) => Placeholder::refuse_read(buffer).map_or_else(|| Ok(Arc::clone(buffer)), Err),
        Some(Err(error)) => Err(TpuError::clone(error)),
        None => Err(TpuError::Bug(format!("a cut did not compute {tensor:?}"))),
    }
}

/// Cuts as a read of the tensor does, by rules 2 and 4.
fn compute_for_read(tensor: &Tensor, reason: CutReason) -> Result<()> {
    let is_pending = tensor.value().is_none();
    let Some(origin) = tensor.origin() else {
        let pending = tensor.pending_value().filter(|_| is_pending);
        return pending.map_or(Ok(()), |value| value.compute(WaitForDevices::Yes));
    };
    let trace = &origin.trace;
    if !trace.is_current() {
        if is_pending {
            trace.cut_for_another_thread(origin.serial, reason, WaitForDevices::Yes)?;
        }
        return Ok(());
    }
    // Pending after the owner's cut: that cut failed.
    if is_pending || origin.serial >= trace.boundary.load(Relaxed) {
        let cut = trace.cut_everything(reason);
        // What another thread had computed can be read all the same; the next cut reports the error again.
        return if is_pending { cut } else { Ok(()) };
    }
    Ok(())
}
