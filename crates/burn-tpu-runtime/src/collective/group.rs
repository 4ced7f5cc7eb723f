//! A group of devices: its calls, which of them belong together, and the batches in which they run.

use super::{Reduction, exchange};
use crate::engine::Input;
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use crate::runtime::runtime;
use crate::trace::{PendingValue, WaitForDevices};
use crate::trace::{Stream, materialise_together};
use crate::{Device, Tensor};
use burn_tpu_graph::TensorType;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, ThreadId};
use std::time::Instant;

/// Devices that reduce together.
pub(crate) struct Group {
    /// Ascending; the place of a device is its rank.
    devices: Vec<Device>,
    calls: Mutex<Calls>,
    /// Notified when a reduction has all of its parts, and when the group is abandoned.
    changed: Condvar,
    /// Where the reductions are recorded, one batch at a time.
    pub(super) stream: Mutex<Stream>,
}

/// The calls of a group's devices.
struct Calls {
    /// The number of calls of each device.
    counts: Vec<u64>,
    /// The reductions that wait for parts, by the number of the call.
    waiting: BTreeMap<u64, Arc<Call>>,
    /// The batch of the calls from now on.
    open: Arc<Batch>,
    /// The reductions that did not run when the group was last settled, and those since then.
    unsettled: Vec<Weak<Call>>,
}

/// Reductions that run together.
#[derive(Default)]
struct Batch {
    /// Held by the thread that runs it.
    running: Mutex<()>,
    runner: Mutex<Option<ThreadId>>,
    calls: Mutex<Vec<Weak<Call>>>,
}

/// The n-th calls of all devices.
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) ty: TensorType,
    pub(super) reduction: Reduction,
    batch: Arc<Batch>,
    state: Mutex<ReductionParts>,
}

/// The parts and then the results of a reduction, by rank.
struct ReductionParts {
    /// Freed when the results are there.
    parts: Vec<Option<Tensor>>,
    /// The number of devices that have called.
    called: usize,
    /// Set once; each device's tensor takes its own.
    results: Option<Vec<Option<Input>>>,
}

/// A device's result of a reduction, for which its tensor waits.
pub(super) struct PendingReduction {
    group: Arc<Group>,
    call: Arc<Call>,
    rank: usize,
}

impl Group {
    pub(super) fn new(devices: Vec<Device>) -> Self {
        let calls = Calls::new(devices.len());
        Self { devices, calls: Mutex::new(calls), changed: Condvar::new(), stream: Mutex::new(Stream::new()) }
    }

    pub(super) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Takes a device's part of its next reduction and returns the tensor of the result.
    pub(super) fn give(self: &Arc<Self>, rank: usize, x: Tensor, reduction: Reduction) -> Tensor {
        let (device, ty) = (x.device(), x.ty().clone());
        let mut calls = self.calls.lock();
        let call = calls.next(rank, &ty, reduction);
        if call.ty != ty || call.reduction != reduction {
            let reason = format!(
                "{device} asks for the {reduction:?} of {ty}, and another device for the {:?} of {}",
                call.reduction, call.ty
            );
            call.finish(self.failure(&TpuError::Peer { reason }));
        }
        if call.take(rank, x) {
            calls.waiting.remove(&call.number);
            self.changed.notify_all();
        }
        drop(calls);
        let pending = PendingReduction { group: Arc::clone(self), call, rank };
        Tensor::from_elsewhere(device, ty, Box::new(pending))
    }

    /// Closes the open batch and returns the device's parts of the reductions that did not run.
    pub(super) fn settle(&self, device: Device) -> Vec<Tensor> {
        let Ok(rank) = self.devices.binary_search(&device) else { return Vec::new() };
        let mut calls = self.calls.lock();
        if !calls.open.calls.lock().is_empty() {
            calls.open = Arc::default();
        }
        calls.unsettled.retain(|call| call.upgrade().is_some_and(|call| !call.is_done()));
        let calls: Vec<_> = calls.unsettled.iter().filter_map(Weak::upgrade).collect();
        calls.iter().filter_map(|call| call.part(rank)).collect()
    }

    /// Gives an error to all results that wait for parts, and counts the calls anew.
    pub(super) fn abandon(&self, error: &TpuError) {
        let old = std::mem::replace(&mut *self.calls.lock(), Calls::new(self.devices.len()));
        old.waiting.values().for_each(|call| call.finish(self.failure(error)));
        // Under the lock, so that no thread misses it between its check and its wait.
        let _calls = self.calls.lock();
        self.changed.notify_all();
    }

    fn failure(&self, error: &TpuError) -> Vec<Input> {
        let error = Arc::new(error.clone());
        self.devices.iter().map(|_| Err(Arc::clone(&error))).collect()
    }

    /// Closes the batch of a reduction, so that what is computed from its result belongs to a later one.
    fn close(&self, batch: &Arc<Batch>) {
        let mut calls = self.calls.lock();
        if Arc::ptr_eq(&calls.open, batch) {
            calls.open = Arc::default();
        }
    }

    /// Waits until every device has given its part, or the reduction has failed.
    ///
    /// # Errors
    /// [`TpuError::Peer`] with the devices that did not call in time.
    fn wait(&self, call: &Call) -> Result<()> {
        let limit = runtime(self.devices[0]).open().options().peer_timeout;
        let deadline = Instant::now().checked_add(limit).filter(|_| !limit.is_zero());
        let mut calls = self.calls.lock();
        while !call.is_complete() {
            let timed_out = match deadline {
                Some(deadline) => self.changed.wait_until(&mut calls, deadline).timed_out(),
                None => {
                    self.changed.wait(&mut calls);
                    false
                }
            };
            if timed_out && !call.is_complete() {
                let missing = call.missing(&self.devices);
                let reason = format!("{missing} did not call all_reduce within {} s", limit.as_secs_f64());
                return Err(TpuError::Peer { reason });
            }
        }
        Ok(())
    }
}

impl Calls {
    fn new(devices: usize) -> Self {
        Self { counts: vec![0; devices], waiting: BTreeMap::new(), open: Arc::default(), unsettled: Vec::new() }
    }

    /// Returns the next reduction of a device. Its first caller says what it is.
    fn next(&mut self, rank: usize, ty: &TensorType, reduction: Reduction) -> Arc<Call> {
        let (number, devices) = (self.counts[rank], self.counts.len());
        self.counts[rank] += 1;
        let (open, unsettled) = (&self.open, &mut self.unsettled);
        let call = self.waiting.entry(number).or_insert_with(|| {
            let state = Mutex::new(ReductionParts { parts: vec![None; devices], called: 0, results: None });
            let call = Arc::new(Call { number, ty: ty.clone(), reduction, batch: Arc::clone(open), state });
            open.calls.lock().push(Arc::downgrade(&call));
            unsettled.push(Arc::downgrade(&call));
            call
        });
        Arc::clone(call)
    }
}

impl Call {
    /// Takes a device's part; returns whether all devices have called.
    fn take(&self, rank: usize, x: Tensor) -> bool {
        let mut state = self.state.lock();
        state.called += 1;
        if state.results.is_none() {
            state.parts[rank] = Some(x);
        }
        state.called == state.parts.len()
    }

    /// Returns a device's part, until the results are there.
    fn part(&self, rank: usize) -> Option<Tensor> {
        self.state.lock().parts[rank].clone()
    }

    /// Returns the parts by rank, if all are there and there is no result.
    pub(super) fn parts(&self) -> Option<Vec<Tensor>> {
        let state = self.state.lock();
        if state.results.is_some() { None } else { state.parts.iter().cloned().collect() }
    }

    fn is_done(&self) -> bool {
        self.state.lock().results.is_some()
    }

    fn is_complete(&self) -> bool {
        let state = self.state.lock();
        state.results.is_some() || state.parts.iter().all(Option::is_some)
    }

    fn missing(&self, devices: &[Device]) -> String {
        let state = self.state.lock();
        let missing = devices.iter().zip(&state.parts).filter(|(_, part)| part.is_none());
        missing.map(|(device, _)| device.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Sets the results, by rank. The first call counts.
    pub(super) fn finish(&self, results: Vec<Input>) {
        let mut state = self.state.lock();
        if state.results.is_some() {
            return;
        }
        state.results = Some(results.into_iter().map(Some).collect());
        let parts: Vec<_> = state.parts.iter_mut().map(Option::take).collect();
        // A tensor's drop may lock its trace, so the parts are dropped after the lock.
        drop(state);
        drop(parts);
    }
}

impl PendingValue for PendingReduction {
    fn collect(&self, into: &OnceLock<Input>) {
        // Of several threads that ask, one finds the result; the others wait for it here.
        let mut state = self.call.state.lock();
        if let Some(result) = state.results.as_mut().and_then(|results| results[self.rank].take()) {
            let _first = into.set(result);
        }
    }

    /// Without a wait for the other devices, it runs the device's own part, so that a trace which uses the result has
    /// nothing to run before it.
    fn compute(&self, wait: WaitForDevices) -> Result<()> {
        if wait == WaitForDevices::No && self.waits_for_devices() {
            self.run_own()?;
            if self.waits_for_devices() {
                let reason = "a reduction over several devices was not waited for".to_owned();
                return Err(TpuError::Peer { reason });
            }
        }
        self.resolve();
        Ok(())
    }

    fn waits_for_devices(&self) -> bool {
        !self.call.is_complete()
    }
}

impl PendingReduction {
    /// Waits for the other devices' parts, and runs the batch unless another thread did. The result is then a value or an
    /// error.
    fn resolve(&self) {
        if self.call.is_done() {
            return;
        }
        self.group.close(&self.call.batch);
        if let Err(error) = self.group.wait(&self.call) {
            tracing::error!(%error, "a collective operation failed");
            self.group.abandon(&error);
            self.call.finish(self.group.failure(&error));
            return;
        }
        let (batch, own) = (&self.call.batch, Some(thread::current().id()));
        if *batch.runner.lock() == own {
            let reason = "a tensor to reduce was computed from the result, which was used before it was settled";
            self.call.finish(self.group.failure(&TpuError::Peer { reason: reason.to_owned() }));
            return;
        }
        let _running = batch.running.lock();
        if !self.call.is_done() {
            *batch.runner.lock() = own;
            let calls: Vec<_> = batch.calls.lock().iter().filter_map(Weak::upgrade).collect();
            exchange::run(&self.group, &calls);
            *batch.runner.lock() = None;
        }
    }

    /// Runs the device's own part, unless it has run or is the result of a reduction itself.
    ///
    /// # Errors
    /// That of the cut.
    fn run_own(&self) -> Result<()> {
        let own = self.call.part(self.rank).filter(|part| part.value().is_none());
        let Some(own) = own else { return Ok(()) };
        self.group.close(&self.call.batch);
        let recorded = std::iter::once(&own).filter(|part| part.origin().is_some());
        materialise_together(recorded, CutReason::DeviceCopy)
    }
}
