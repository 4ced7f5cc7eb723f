//! Detects steps that are bound by tracing: warns when the device waits for the host to record.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The number of steps per measurement.
const STEPS: u32 = 100;

/// The steps since the latest measurement.
#[derive(Debug, Default)]
pub(super) struct TracingBoundMonitor(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    steps: u32,
    began: Option<Instant>,
    /// The total tracing time at the start of the measurement.
    traced: Duration,
    warned: bool,
}

impl TracingBoundMonitor {
    /// Counts a step. `traced` is the total time spent in tracing so far. Warns at most once.
    pub(super) fn step(&self, traced: Duration, now: Instant) {
        if let Some((step, trace)) = self.0.lock().step(traced, now) {
            tracing::warn!(
                step_ms = step.as_secs_f64() * 1e3,
                trace_ms = trace.as_secs_f64() * 1e3,
                "steps are bound by tracing: the device waits for ops to be recorded; larger batches compute more per step"
            );
        }
    }
}

impl Window {
    /// Returns the average time of a step and of its tracing when tracing is found to dominate, once.
    fn step(&mut self, traced: Duration, now: Instant) -> Option<(Duration, Duration)> {
        self.steps += 1;
        if self.warned || self.steps < STEPS {
            return None;
        }
        self.steps = 0;
        let trace = traced.saturating_sub(std::mem::replace(&mut self.traced, traced));
        let whole = now.saturating_duration_since(self.began.replace(now)?);
        self.warned = trace > whole * 9 / 10;
        self.warned.then_some((whole / STEPS, trace / STEPS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the warnings of 300 steps of 10 ms, each with `trace` of tracing time.
    fn found(trace: Duration) -> Vec<(Duration, Duration)> {
        let (mut window, begin) = (Window::default(), Instant::now());
        let step = |n: u32| window.step(trace * n, begin + Duration::from_millis(10) * n);
        (1..=300).filter_map(step).collect()
    }

    #[test]
    fn tracing_bound_steps_are_reported_once() {
        let ms = Duration::from_millis;
        assert_eq!(found(ms(10)), [(ms(10), ms(10))]);
        assert_eq!(found(ms(8)), []);
    }
}
