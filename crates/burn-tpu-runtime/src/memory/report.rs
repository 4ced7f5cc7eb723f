//! The report of a device's memory, and its text.

use crate::Device;
use crate::units::bytes as size;
use std::fmt;

/// What a part of a device's memory holds.
///
/// Programs do not say what their values mean, so it is told from how they use them. The values that a step updates (it
/// returns them with something added) are parameters if the step also combines them with values of another shape, as a
/// product with activations does, and otherwise the optimizer's state: moments, f32 masters, running statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Weights that a step updates, and values from the host that more than one run has read.
    Parameters,
    /// Moments, master weights, running statistics.
    OptimizerState,
    /// Results of programs that are still referred to: losses, outputs, caches.
    Activations,
    /// Values from the host that one run has read.
    Batches,
    /// The code of the compiled programs in memory.
    Programs,
    /// What a program needs while it runs, beside its arguments and results.
    Temporaries,
}

impl MemoryKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Parameters, Self::OptimizerState, Self::Activations, Self::Batches, Self::Programs, Self::Temporaries];

    /// The kinds that tensors have, by their number.
    pub(super) const TENSORS: [Self; 4] = [Self::Parameters, Self::OptimizerState, Self::Activations, Self::Batches];

    /// Returns the kind's name: `optimizer state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::OptimizerState => "optimizer state",
            Self::Activations => "activations",
            Self::Batches => "batches",
            Self::Programs => "programs",
            Self::Temporaries => "temporaries",
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Bytes of device memory at one time, by what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// [`MemoryKind::Parameters`].
    pub parameters: u64,
    /// [`MemoryKind::OptimizerState`].
    pub optimizer_state: u64,
    /// [`MemoryKind::Activations`].
    pub activations: u64,
    /// [`MemoryKind::Batches`].
    pub batches: u64,
    /// [`MemoryKind::Programs`].
    pub programs: u64,
    /// [`MemoryKind::Temporaries`].
    pub temporaries: u64,
}

impl MemoryUse {
    /// Returns the bytes of a kind.
    pub fn of(&self, kind: MemoryKind) -> u64 {
        let mut copy = *self;
        *copy.of_mut(kind)
    }

    pub(super) fn of_mut(&mut self, kind: MemoryKind) -> &mut u64 {
        match kind {
            MemoryKind::Parameters => &mut self.parameters,
            MemoryKind::OptimizerState => &mut self.optimizer_state,
            MemoryKind::Activations => &mut self.activations,
            MemoryKind::Batches => &mut self.batches,
            MemoryKind::Programs => &mut self.programs,
            MemoryKind::Temporaries => &mut self.temporaries,
        }
    }

    /// Returns the bytes of all tensors: everything but programs and temporaries.
    pub fn tensors(&self) -> u64 {
        MemoryKind::TENSORS.into_iter().map(|kind| self.of(kind)).sum()
    }

    /// Returns the bytes of all kinds.
    pub fn total(&self) -> u64 {
        MemoryKind::ALL.into_iter().map(|kind| self.of(kind)).sum()
    }
}

/// Live tensors that one op made, of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveTensors {
    /// The Burn op, as `float_matmul`; `from_data` for values from the host; empty if it is not known.
    pub op: String,
    /// The line of the user's source that recorded it, as `src/train.rs:41 in app::step`, once it is known.
    pub line: Option<String>,
    /// Element type and dims, as `f32[64,128]`.
    pub ty: String,
    /// What they are.
    pub kind: MemoryKind,
    /// How many there are.
    pub count: usize,
    /// Their bytes on the device together.
    pub bytes: u64,
}

impl LiveTensors {
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.op, &self.line, &self.ty, self.kind) == (&other.op, &other.line, &other.ty, other.kind)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

impl fmt::Display for LiveTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, line, ty, kind, count, bytes } = self;
        let op = if op.is_empty() { "an op that is not known" } else { op };
        write!(f, "{:>10}  {count} x {ty} of {op}, {kind}", size(*bytes))?;
        line.as_ref().map_or(Ok(()), |line| write!(f, " ({line})"))
    }
}

/// What a plugin says of a device's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PluginMemory {
    /// In use now.
    pub in_use: u64,
    /// The most that was in use at once.
    pub peak: Option<u64>,
    /// The most that can be in use.
    pub limit: Option<u64>,
}

/// What a device's memory holds. Print it for a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The device. The numbers of a mesh are sums over the chips of this process.
    pub device: Device,
    /// What is live now.
    pub live: MemoryUse,
    /// What was live when most was, at the dispatch of a program.
    pub peak: MemoryUse,
    /// The largest live tensors, largest first; at most ten entries.
    pub largest: Vec<LiveTensors>,
    /// What the plugin says, if it does: the CPU plugin says nothing.
    pub plugin: Option<PluginMemory>,
    /// The most bytes that may be live: [`TpuOptions::memory_limit`](crate::TpuOptions::memory_limit).
    pub limit: Option<u64>,
}

impl MemoryReport {
    /// Returns the report of a device that holds nothing.
    pub(crate) fn empty(device: Device) -> Self {
        let (live, peak) = Default::default();
        Self { device, live, peak, largest: Vec::new(), plugin: None, limit: None }
    }

    /// Returns the bytes of the device's memory, as far as they are known: the limit that was set, or the plugin's.
    pub fn capacity(&self) -> Option<u64> {
        self.limit.or(self.plugin.and_then(|plugin| plugin.limit))
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<18} {:>11} {:>11}", format!("memory of {}", self.device), "now", "peak")?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, now: u64, peak: u64| {
            writeln!(f, "  {name:<16} {:>11} {:>11}", size(now), size(peak))
        };
        for kind in MemoryKind::ALL {
            row(f, kind.name(), self.live.of(kind), self.peak.of(kind))?;
        }
        row(f, "together", self.live.total(), self.peak.total())?;
        if let Some(plugin) = &self.plugin {
            row(f, "plugin", plugin.in_use, plugin.peak.unwrap_or(plugin.in_use))?;
        }
        if let Some(capacity) = self.capacity() {
            writeln!(f, "  {:<16} {:>11}", "limit", size(capacity))?;
        }
        if !self.largest.is_empty() {
            writeln!(f, "largest live tensors:")?;
        }
        self.largest.iter().try_for_each(|tensors| writeln!(f, "{tensors}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_a_table_and_a_list() {
        let live = MemoryUse { parameters: 3 << 20, activations: 512, programs: 100, ..MemoryUse::default() };
        let peak = MemoryUse { temporaries: 2 << 30, ..live };
        let kept = LiveTensors {
            op: "float_mean".to_owned(),
            line: Some("src/train.rs:41 in app::step".to_owned()),
            ty: "f32[1]".to_owned(),
            kind: MemoryKind::Activations,
            count: 128,
            bytes: 512,
        };
        let plugin = Some(PluginMemory { in_use: 4 << 20, peak: None, limit: Some(16 << 30) });
        let report = MemoryReport { device: Device::cpu(0), live, peak, largest: vec![kept], plugin, limit: None };
        assert_eq!(report.capacity(), Some(16 << 30));
        let text = report.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "memory of cpu:0            now        peak");
        assert_eq!(lines[1], "  parameters           3.0 MiB     3.0 MiB");
        assert_eq!(lines[6], "  temporaries              0 B    2.00 GiB");
        assert_eq!(lines[9], "  limit              16.00 GiB");
        let last = "     512 B  128 x f32[1] of float_mean, activations (src/train.rs:41 in app::step)";
        assert_eq!(lines[11], last);
    }
}
