//! Counts the live handles of each kind in this process, for leak tests.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The kinds of handles that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noun {
    Client,
    Buffer,
    Event,
    Executable,
    LoadedExecutable,
    Topology,
    HostAllocation,
}

static COUNTS: [AtomicUsize; 7] = [const { AtomicUsize::new(0) }; 7];

/// Counts one live handle; dropping it decrements the count.
#[derive(Debug)]
pub(crate) struct Alive(Noun);

impl Alive {
    pub(crate) fn new(noun: Noun) -> Alive {
        COUNTS[noun as usize].fetch_add(1, Ordering::Relaxed);
        Alive(noun)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        COUNTS[self.0 as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// The numbers of live handles in this process, over all plugins. Plugins are not counted: they are never unloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveHandles {
    /// [`Client`](crate::Client)s (clones of one count once).
    pub clients: usize,
    /// [`Buffer`](crate::Buffer)s, including deleted and donated ones until they are dropped.
    pub buffers: usize,
    /// [`Event`](crate::Event)s, including those that are waited for in the background.
    pub events: usize,
    /// [`Executable`](crate::Executable)s; every loaded executable holds one of these too.
    pub executables: usize,
    /// [`LoadedExecutable`](crate::LoadedExecutable)s.
    pub loaded_executables: usize,
    /// [`TopologyDescription`](crate::TopologyDescription)s (clones of one count once).
    pub topologies: usize,
    /// Host allocations that a transfer keeps alive.
    pub host_allocations: usize,
}

/// Returns the current numbers of live handles.
pub fn live_handles() -> LiveHandles {
    let count = |noun: Noun| COUNTS[noun as usize].load(Ordering::Relaxed);
    LiveHandles {
        clients: count(Noun::Client),
        buffers: count(Noun::Buffer),
        events: count(Noun::Event),
        executables: count(Noun::Executable),
        loaded_executables: count(Noun::LoadedExecutable),
        topologies: count(Noun::Topology),
        host_allocations: count(Noun::HostAllocation),
    }
}

/// Returns the number of live [`Client`](crate::Client)s.
pub fn live_clients() -> usize {
    live_handles().clients
}

/// Returns the number of live [`Buffer`](crate::Buffer)s.
pub fn live_buffers() -> usize {
    live_handles().buffers
}

/// Returns the number of live [`Event`](crate::Event)s.
pub fn live_events() -> usize {
    live_handles().events
}

/// Returns the number of live [`LoadedExecutable`](crate::LoadedExecutable)s.
pub fn live_loaded_executables() -> usize {
    live_handles().loaded_executables
}
