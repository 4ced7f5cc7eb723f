//! What recording itself did and cost, counted without atomics and added to the metrics at each cut.

use crate::metrics::Counters;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// One op in this many is timed: two clock reads cost half as much as recording one.
const SAMPLED: u64 = 32;

/// What the clock itself adds to a sample: the shortest of many.
static CLOCK: LazyLock<Duration> = LazyLock::new(|| {
    let samples = (0..1000).map(|_| Instant::now().elapsed());
    samples.min().unwrap_or_default()
});

/// Counts of what was recorded since the last flush.
#[derive(Default)]
pub(super) struct RecordingStats {
    ops: u64,
    pub(super) nodes: u64,
    /// Ops ever recorded in the trace: which ones are timed does not depend on where a trace begins.
    ops_ever: u64,
    sampled: Duration,
    began: Option<Instant>,
}

impl RecordingStats {
    /// Counts an op; returns the time if this one is timed.
    pub(super) fn begin(&mut self) -> Option<Instant> {
        self.ops += 1;
        self.ops_ever += 1;
        let timed = self.ops_ever.is_multiple_of(SAMPLED);
        if !timed && self.began.is_some() {
            return None;
        }
        let now = Instant::now();
        self.began.get_or_insert(now);
        timed.then_some(now)
    }

    pub(super) fn end(&mut self, sample: Option<Instant>) {
        if let Some(began) = sample {
            self.sampled += began.elapsed().saturating_sub(*CLOCK);
        }
    }

    pub(super) fn flush(&mut self, counters: &Counters) {
        Counters::add(&counters.recorded_ops, self.ops as usize);
        Counters::add(&counters.recorded_nodes, self.nodes as usize);
        Counters::add_time(&counters.record_ns, self.sampled * SAMPLED as u32);
        if let Some(began) = self.began {
            Counters::add_time(&counters.trace_ns, began.elapsed());
        }
        *self = Self { ops_ever: self.ops_ever, ..Self::default() };
    }
}
