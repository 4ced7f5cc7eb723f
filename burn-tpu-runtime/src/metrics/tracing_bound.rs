//! What steps are bound by: a warning when the device waits for the host to record.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Steps between two looks.
const STEPS: u32 = 100;

/// The steps since the latest look.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    steps: u32,
    began: Option<Instant>,
    /// Time traced up to then.
    traced: Duration,
    warned: bool,
}

impl Pace {
    /// Counts a step; `traced` is the time spent in tracing so far. Warns once.
    pub(super) fn step(&self, traced: Duration, now: Instant) {
        if let Some((step, trace)) = self.0.lock().step(traced, now) {
            tracing::warn!(
                step_ms = step.as_secs_f64() * 1e3,
                trace_ms = trace.as_secs_f64() * 1e3,
                "steps are bound by tracing: the device waits for ops to be recorded. Larger batches give it more to do"
            );
        }
    }
}

impl Window {
    /// The times of a step and of its tracing, when the latter is the news.
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

    /// What 300 steps of 10 ms give, of which so much is tracing.
    fn found(trace: Duration) -> Vec<(Duration, Duration)> {
        let (mut window, begin) = (Window::default(), Instant::now());
        let step = |n: u32| window.step(trace * n, begin + Duration::from_millis(10) * n);
        (1..=300).filter_map(step).collect()
    }

    #[test]
    fn steps_that_are_nearly_all_tracing_are_said_once() {
        let ms = Duration::from_millis;
        assert_eq!(found(ms(10)), [(ms(10), ms(10))]);
        assert_eq!(found(ms(8)), []);
    }
}
