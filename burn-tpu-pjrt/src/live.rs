//! How many handles of each noun are alive in this process: what leak tests look at.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A kind of handle that is counted.
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

/// One live handle; dropping it counts it out.
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

/// The live handles of this process, of all plugins together. Plugins are not counted: they are never unloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveHandles {
    /// [`Client`](crate::Client)s (clones of one count once).
    pub clients: usize,
    /// [`Buffer`](crate::Buffer)s, deleted and donated ones included until they are dropped.
    pub buffers: usize,
    /// [`Event`](crate::Event)s, those waited for in the background included.
    pub events: usize,
    /// [`Executable`](crate::Executable)s; every loaded one holds one of these too.
    pub executables: usize,
    /// [`LoadedExecutable`](crate::LoadedExecutable)s.
    pub loaded_executables: usize,
    /// [`TopologyDescription`](crate::TopologyDescription)s (clones of one count once).
    pub topologies: usize,
    /// Host allocations that a transfer keeps alive.
    pub host_allocations: usize,
}

/// Counts what is alive now.
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

/// The number of live [`Client`](crate::Client)s.
pub fn live_clients() -> usize {
    live_handles().clients
}

/// The number of live [`Buffer`](crate::Buffer)s.
pub fn live_buffers() -> usize {
    live_handles().buffers
}

/// The number of live [`Event`](crate::Event)s.
pub fn live_events() -> usize {
    live_handles().events
}

/// The number of live [`LoadedExecutable`](crate::LoadedExecutable)s.
pub fn live_loaded_executables() -> usize {
    live_handles().loaded_executables
}
