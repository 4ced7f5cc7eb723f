//! What a device's memory holds: the report of it, and the error of a device that is full.

use super::open::OpenDevice;
use crate::Device;
use crate::error::TpuError;
use crate::memory::{LiveTensors, MemoryKind, MemoryUse, OutOfMemory, PluginMemory};
use crate::units::bytes as size;
use std::fmt;

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

impl OpenDevice {
    /// Returns what the device's memory holds.
    pub(crate) fn memory(&self) -> MemoryReport {
        let ledger = &self.counters.memory;
        let programs = self.cache.bytes();
        MemoryReport {
            device: self.device,
            live: MemoryUse { programs, ..ledger.by_kind() },
            peak: MemoryUse { programs, ..ledger.peak() },
            largest: self.largest(),
            plugin: self.engine.as_ref().ok().and_then(|engine| engine.memory()),
            limit: ledger.limit(),
        }
    }

    fn largest(&self) -> Vec<LiveTensors> {
        self.counters.memory.largest(|ty| self.lines.uploads.line(ty))
    }

    /// Returns the error of a full device with what fills it; any other error as it is.
    pub(super) fn explain_memory(&self, error: TpuError, what: impl FnOnce() -> String) -> TpuError {
        let full = match error {
            TpuError::Pjrt { source, .. } if source.is_out_of_memory() => {
                TpuError::OutOfMemory(self.counters.memory.full(what(), None, None, Some(source.to_string())))
            }
            error => error,
        };
        match full {
            TpuError::OutOfMemory(full) if full.device.is_empty() => {
                let device = self.device.to_string();
                let live = MemoryUse { programs: self.cache.bytes(), ..full.live };
                TpuError::OutOfMemory(Box::new(OutOfMemory { device, live, largest: self.largest(), ..*full }))
            }
            error => error,
        }
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
