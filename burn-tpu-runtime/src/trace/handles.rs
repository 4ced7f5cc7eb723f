//! The tensors of a trace: where each was recorded, and where its owner dropped it.
//!
//! A *position* counts the events of a trace (a recorded op, a cut of the owner) from the beginning of its stream. It never
//! restarts, so it does not depend on what other threads do.
//!
//! Invariants, checked in debug builds at every cut: serial numbers are consecutive; positions never fall; a tensor is
//! dropped after the position that recorded it.

use crate::tensor::TensorInner;
use burn_tpu_graph::NodeId;
use parking_lot::Mutex;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The drop position of a tensor that its owner holds.
const NEVER: u64 = u64::MAX;

/// A tensor that was recorded.
pub(super) struct Handle {
    pub(super) tensor: Weak<TensorInner>,
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
    pub(super) fn push(&mut self, drops: &Drops, node: NodeId, position: u64, tensor: Weak<TensorInner>) {
        self.entries.push(Handle { tensor, node, position, dropped: NEVER });
        drops.recorded.store(self.next_serial(), Relaxed);
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

    /// Notes the drops that owners reported since the last call.
    pub(super) fn apply(&mut self, drops: &Drops) {
        for (serial, position) in drops.log.lock().dropped.drain(..) {
            if let Some(handle) = serial.checked_sub(self.first).and_then(|i| self.entries.get_mut(i as usize)) {
                handle.dropped = position;
            }
        }
        #[cfg(debug_assertions)]
        self.verify();
    }

    /// Forgets the tensors up to `position`. `renamed` returns the new nodes of the others.
    pub(super) fn forget(&mut self, drops: &Drops, position: u64, renamed: impl Fn(NodeId) -> NodeId) {
        let gone = self.entries.partition_point(|handle| handle.position <= position);
        self.entries.drain(..gone);
        self.first += gone as u64;
        self.entries.iter_mut().for_each(|handle| handle.node = renamed(handle.node));
        let mut log = drops.log.lock();
        log.first = self.first;
        let first = self.first;
        log.dropped.retain(|&(serial, _)| serial >= first);
        let applied = self.entries.iter().filter(|handle| handle.dropped != NEVER).count();
        log.count = (applied + log.dropped.len()) as u64;
    }

    #[cfg(debug_assertions)]
    fn verify(&self) {
        let ascending = self.entries.windows(2).all(|pair| pair[0].position <= pair[1].position);
        debug_assert!(ascending, "positions of tensors fall");
        let dropped = self.entries.iter().all(|handle| handle.dropped > handle.position);
        debug_assert!(dropped, "a tensor was dropped before it was recorded");
    }
}

/// Where owners report drops. It has a lock of its own, under which nothing but counting happens, so that a tensor may be
/// dropped anywhere, also while its trace is locked.
#[derive(Default)]
pub(super) struct Drops {
    log: Mutex<DropLog>,
    /// The serial number of the next tensor.
    recorded: AtomicU64,
}

#[derive(Default)]
struct DropLog {
    /// The serial number of the first tensor that waits for a cut.
    first: u64,
    /// The number of tensors from there on that the owner dropped.
    count: u64,
    /// Drops that the trace has not noted yet: serial number and position.
    dropped: Vec<(u64, u64)>,
}

impl Drops {
    /// Reports that the owner dropped a tensor at `position`; returns whether no tensor of the trace is left.
    pub(super) fn report(&self, serial: u64, position: u64) -> bool {
        let mut log = self.log.lock();
        if serial < log.first {
            return false;
        }
        log.count += 1;
        log.dropped.push((serial, position));
        log.first + log.count == self.recorded.load(Relaxed)
    }
}
