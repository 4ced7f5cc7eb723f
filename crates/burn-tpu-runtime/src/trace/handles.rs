//! The tensors of a trace: where each was recorded, and where its owner dropped it.
//!
//! A trace holds no tensor. A tensor knows its trace and its serial number there; the two meet in [`TensorStates`], where
//! tensors report that they were dropped and find their values after a cut.
//!
//! A *position* counts the events of a trace (a recorded op, a cut of the owner) from the beginning of its stream. It never
//! restarts, so it does not depend on what other threads do.
//!
//! Invariants, checked in debug builds at every cut: serial numbers are consecutive; positions never fall; a tensor is
//! dropped after the position that recorded it.

use crate::engine::Input;
use burn_tpu_graph::NodeId;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The drop position of a tensor that its owner holds.
const NEVER: u64 = u64::MAX;

/// A tensor that was recorded.
pub(super) struct Handle {
    pub(super) node: NodeId,
    /// The position of its op.
    pub(super) position: u64,
    /// The first position at which the owner no longer held it.
    dropped: u64,
}

impl Handle {
    /// Returns whether the owner held the tensor just after `position`.
    pub(super) fn alive_after(&self, position: u64) -> bool {
        self.position <= position && self.dropped > position
    }
}

/// The tensors that a trace recorded and no cut has run, oldest first.
#[derive(Default)]
pub(super) struct Handles {
    /// The serial number of the first one.
    first: u64,
    entries: Vec<Handle>,
}

impl Handles {
    /// Adds a tensor, which has the next serial number.
    pub(super) fn push(&mut self, states: &TensorStates, node: NodeId, position: u64) {
        self.entries.push(Handle { node, position, dropped: NEVER });
        states.recorded.store(self.next_serial(), Relaxed);
    }

    /// Returns the serial number of the next tensor.
    pub(super) fn next_serial(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Returns a tensor that still waits for a cut.
    pub(super) fn get(&self, serial: u64) -> Option<&Handle> {
        serial.checked_sub(self.first).and_then(|index| self.entries.get(index as usize))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Handle> {
        self.entries.iter()
    }

    /// Returns whether the owner held any tensor just after `position`.
    pub(super) fn are_alive_after(&self, position: u64) -> bool {
        self.entries.iter().any(|handle| handle.alive_after(position))
    }

    /// Returns the nodes of the tensors that the owner held just after `position`.
    pub(super) fn alive_nodes(&self, position: u64) -> Vec<NodeId> {
        let alive = self.entries.iter().filter(|handle| handle.alive_after(position));
        alive.map(|handle| handle.node).collect()
    }

    /// Notes the drops that owners reported since the last call.
    pub(super) fn apply(&mut self, states: &TensorStates) {
        for (serial, position) in states.reports.lock().dropped.drain(..) {
            if let Some(handle) = serial.checked_sub(self.first).and_then(|i| self.entries.get_mut(i as usize)) {
                handle.dropped = position;
            }
        }
        #[cfg(debug_assertions)]
        self.verify();
    }

    /// Forgets the tensors up to `position`, and leaves those that still exist their values: `value_of` returns that of a
    /// node. `renamed` returns the new nodes of the later tensors.
    pub(super) fn settle(
        &mut self,
        states: &TensorStates,
        position: u64,
        value_of: impl Fn(NodeId) -> Input,
        renamed: impl Fn(NodeId) -> NodeId,
    ) {
        let gone = self.entries.partition_point(|handle| handle.position <= position);
        let settled = (self.first..).zip(self.entries.drain(..gone));
        let held = settled.filter(|(_, handle)| handle.dropped == NEVER);
        let values: Vec<_> = held.map(|(serial, handle)| (serial, Some(value_of(handle.node)))).collect();
        self.first += gone as u64;
        self.entries.iter_mut().for_each(|handle| handle.node = renamed(handle.node));
        let applied = self.entries.iter().filter(|handle| handle.dropped != NEVER).count();
        states.settle(self.first, applied, values);
    }

    #[cfg(debug_assertions)]
    fn verify(&self) {
        let ascending = self.entries.windows(2).all(|pair| pair[0].position <= pair[1].position);
        debug_assert!(ascending, "positions of tensors fall");
        let dropped = self.entries.iter().all(|handle| handle.dropped > handle.position);
        debug_assert!(dropped, "a tensor was dropped before it was recorded");
    }
}

/// The drops that tensors report to their trace, and the values that its cuts leave for them. It has a lock of its own,
/// under which nothing is freed and nothing else locked, so that a tensor may be dropped anywhere, also while its trace is
/// locked.
#[derive(Default)]
pub(super) struct TensorStates {
    reports: Mutex<DropsAndValues>,
    /// The serial number of the next tensor.
    recorded: AtomicU64,
    /// The serial number of the first tensor that waits for a cut. Changes under the lock, after the values of the tensors
    /// before it are there.
    first: AtomicU64,
}

#[derive(Default)]
struct DropsAndValues {
    /// The number of tensors that wait for a cut and that the owner dropped.
    count: u64,
    /// Drops by the owner that the trace has not noted yet: serial number and position.
    dropped: Vec<(u64, u64)>,
    /// Tensors that wait for a cut, although another thread dropped the last handle.
    abandoned: Vec<u64>,
    /// Values that their tensors may not have asked for yet, by ascending serial number.
    values: Vec<(u64, Option<Input>)>,
}

impl DropsAndValues {
    fn take_value(&mut self, serial: u64) -> Option<Input> {
        let place = self.values.binary_search_by_key(&serial, |(of, _)| *of).ok()?;
        self.values[place].1.take()
    }
}

impl TensorStates {
    /// Leaves values for tensors before `first`, from which on tensors wait for a cut; the trace has noted the drops of
    /// `applied` of these.
    fn settle(&self, first: u64, applied: usize, values: Vec<(u64, Option<Input>)>) {
        let mut state = self.reports.lock();
        state.values.retain(|(_, value)| value.is_some());
        state.values.extend(values);
        // Tensors that were dropped since the drops were noted, or by other threads.
        let dropped = state.dropped.iter().map(|(serial, _)| serial).chain(&state.abandoned);
        let dropped: SmallVec<[u64; 8]> = dropped.copied().filter(|&serial| serial < first).collect();
        let unwanted: Vec<_> = dropped.into_iter().map(|serial| state.take_value(serial)).collect();
        state.dropped.retain(|&(serial, _)| serial >= first);
        state.abandoned.retain(|&serial| serial >= first);
        state.count = (applied + state.dropped.len()) as u64;
        self.first.store(first, Release);
        drop(state);
        drop(unwanted);
    }

    /// Reports that a tensor without a value was dropped: at `position` by its owner, without one by another thread.
    /// Returns whether the owner has dropped all tensors of the trace.
    pub(super) fn report_drop(&self, serial: u64, position: Option<u64>) -> bool {
        let mut state = self.reports.lock();
        let first = self.first.load(Relaxed);
        if serial < first {
            let value = state.take_value(serial);
            drop(state);
            drop(value);
            return false;
        }
        let Some(position) = position else {
            state.abandoned.push(serial);
            return false;
        };
        state.count += 1;
        state.dropped.push((serial, position));
        first + state.count == self.recorded.load(Relaxed)
    }

    /// Moves the value of a tensor, if a cut left one, into the tensor.
    pub(super) fn collect(&self, serial: u64, into: &OnceLock<Input>) {
        if serial < self.first.load(Acquire) {
            // Of several threads that ask, one finds the value; the others wait for it here.
            let mut state = self.reports.lock();
            if let Some(value) = state.take_value(serial) {
                let _first = into.set(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{DeviceBuffer, SharedBuffer};
    use std::sync::Arc;

    struct Value;

    impl DeviceBuffer for Value {}

    /// A trace with three tensors, recorded at the positions 0, 1 and 2.
    fn recorded() -> (Handles, TensorStates) {
        let (mut handles, states) = (Handles::default(), TensorStates::default());
        (0..3).for_each(|i| handles.push(&states, NodeId(i), u64::from(i)));
        (handles, states)
    }

    /// Cuts after the first two tensors, which have the same value; returns the number of its owners but this one.
    fn cut(handles: &mut Handles, states: &TensorStates) -> impl Fn() -> usize + use<> {
        let value: SharedBuffer = Arc::new(Value);
        handles.settle(states, 1, |_| Ok(Arc::clone(&value)), |node| NodeId(node.0 + 10));
        move || Arc::strong_count(&value) - 1
    }

    #[test]
    fn a_value_moves_into_its_tensor() {
        let (mut handles, states) = recorded();
        let tensor = OnceLock::new();
        states.collect(0, &tensor);
        assert!(tensor.get().is_none(), "before the cut");
        let owners = cut(&mut handles, &states);
        assert_eq!(owners(), 2);
        states.collect(0, &tensor);
        assert!(tensor.get().is_some() && owners() == 2, "the trace kept a second owner");
        drop(tensor);
        assert_eq!(owners(), 1);
        assert_eq!(handles.get(2).map(|handle| handle.node), Some(NodeId(12)));
        assert!(handles.get(1).is_none());
    }

    #[test]
    fn a_tensor_that_is_gone_leaves_no_value_behind() {
        let (mut handles, states) = recorded();
        // By its owner, after the trace noted the drops; by another thread.
        handles.apply(&states);
        states.report_drop(0, Some(3));
        states.report_drop(1, None);
        assert_eq!(cut(&mut handles, &states)(), 0);
        // After the cut.
        let (mut handles, states) = recorded();
        let owners = cut(&mut handles, &states);
        states.report_drop(0, Some(3));
        states.report_drop(1, None);
        assert_eq!(owners(), 0);
    }

    #[test]
    fn a_trace_is_idle_when_its_owner_has_dropped_every_tensor() {
        let (mut handles, states) = recorded();
        let _owners = cut(&mut handles, &states);
        handles.push(&states, NodeId(3), 3);
        assert!(!states.report_drop(0, Some(4)), "settled tensors do not count");
        assert!(!states.report_drop(2, Some(4)));
        handles.apply(&states);
        assert!(states.report_drop(3, Some(5)));
        let (_handles, states) = recorded();
        assert!(!(0..3).any(|serial| states.report_drop(serial, None)), "when another thread drops is chance");
    }
}
