//! The error of a device that is full.

use super::report::{LiveTensors, MemoryKind, MemoryUse};
use crate::units::bytes as size;
use std::fmt;

/// A device had no room for a program or a value. Nothing that was there is lost, so the process can go on: with a smaller
/// batch, or after it has dropped tensors.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The device.
    pub device: String,
    /// What there was no room for.
    pub what: String,
    /// The bytes that it needs, if they are known.
    pub needed: Option<u64>,
    /// What was live.
    pub live: MemoryUse,
    /// The limit that [`TpuOptions::memory_limit`](crate::TpuOptions::memory_limit) set, if that is what was reached.
    pub limit: Option<u64>,
    /// The plugin's message, if the plugin refused.
    pub message: Option<String>,
    /// The largest live tensors, largest first.
    pub largest: Vec<LiveTensors>,
}

/// The number of tensors that the message lists.
const LISTED: usize = 5;

impl OutOfMemory {
    /// Returns what could help, the most promising first.
    pub fn advice(&self) -> Vec<&'static str> {
        let tensors = self.live.tensors();
        let needed = self.needed.unwrap_or(0);
        let is_large = |kind: MemoryKind| self.live.of(kind) > tensors / 4;
        let mut advice = Vec::new();
        if needed > tensors {
            advice.push("a smaller batch, or gradients of parts of it, as DeviceAdamW::with_microbatches does: the program itself needs most");
        }
        if is_large(MemoryKind::Activations) {
            advice.push("drop the results that are kept, or read them as numbers: the list says which");
        }
        if is_large(MemoryKind::OptimizerState) {
            advice.push("an optimizer with less state, or the state split over a mesh (docs/fit.md)");
        }
        if is_large(MemoryKind::Parameters) {
            advice.push("parameters in bf16, or split over a mesh");
        }
        if is_large(MemoryKind::Batches) {
            advice.push("fewer batches ahead of the step, or drop them after it");
        }
        advice.push("burn_tpu::fit says which TPU the step fits");
        advice
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no room for {}", self.device, self.what)?;
        if let Some(needed) = self.needed {
            write!(f, ", which needs {} more", size(needed))?;
        }
        write!(f, ": {} are live", size(self.live.tensors()))?;
        if let Some(limit) = self.limit {
            write!(f, ", and memory_limit is {}", size(limit))?;
        }
        if let Some(message) = &self.message {
            write!(f, "\n  the plugin: {message}")?;
        }
        let used = MemoryKind::ALL.into_iter().map(|kind| (kind, self.live.of(kind))).filter(|&(_, bytes)| bytes > 0);
        let used: Vec<String> = used.map(|(kind, bytes)| format!("{kind} {}", size(bytes))).collect();
        if !used.is_empty() {
            write!(f, "\n  live: {}", used.join(", "))?;
        }
        self.largest.iter().take(LISTED).try_for_each(|tensors| write!(f, "\n  {tensors}"))?;
        self.advice().into_iter().try_for_each(|advice| write!(f, "\n  could help: {advice}"))
    }
}

impl std::error::Error for OutOfMemory {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_follows_from_what_is_live() {
        let live = MemoryUse { parameters: 100, activations: 900, ..MemoryUse::default() };
        let error = OutOfMemory {
            device: "cpu:0".to_owned(),
            what: "a program".to_owned(),
            needed: Some(64),
            live,
            limit: Some(1024),
            message: None,
            largest: Vec::new(),
        };
        let text = error.to_string();
        let first =
            "cpu:0 has no room for a program, which needs 64 B more: 1000 B are live, and memory_limit is 1.0 KiB";
        assert_eq!(text.lines().next(), Some(first));
        assert!(error.advice()[0].starts_with("drop the results"), "{text}");
        let large = OutOfMemory { needed: Some(5000), ..error };
        assert!(large.advice()[0].starts_with("a smaller batch"), "{large}");
    }
}
