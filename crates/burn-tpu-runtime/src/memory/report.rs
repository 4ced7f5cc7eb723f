//! What is said of a device's memory: kinds of values, sums, the largest tensors.

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
