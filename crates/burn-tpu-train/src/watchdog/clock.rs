//! When a step has taken too long. Every method is told the time, so that a test can say what it is.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of steps whose median counts, and the number that have to be known.
const STEPS: usize = 50;
const KNOWN: usize = 5;
/// The limit while fewer are known.
const FIRST: Duration = Duration::from_secs(600);
const FACTOR: u32 = 10;
const LEAST: Duration = Duration::from_secs(60);

/// The steps of a run, and the limit of each.
pub(super) struct Clock {
    limit: Limit,
    /// The times of the last steps.
    times: VecDeque<Duration>,
    running: Option<Running>,
}

enum Limit {
    Fixed(Duration),
    Relative { factor: u32, least: Duration },
}

struct Running {
    step: u64,
    begun: Instant,
    limit: Duration,
    /// The time at which it is reported next.
    report_at: Duration,
}

impl Default for Clock {
    fn default() -> Self {
        Self::relative(FACTOR, LEAST)
    }
}

impl Clock {
    pub(super) fn fixed(limit: Duration) -> Self {
        Self { limit: Limit::Fixed(limit.max(Duration::from_millis(1))), times: VecDeque::new(), running: None }
    }

    pub(super) fn relative(factor: u32, least: Duration) -> Self {
        Self { limit: Limit::Relative { factor, least }, times: VecDeque::new(), running: None }
    }

    /// Begins a step, and returns whether there was none before.
    pub(super) fn begin(&mut self, step: u64, now: Instant) -> bool {
        let was_paused = self.running.is_none();
        self.pause(now);
        let limit = self.limit();
        self.running = Some(Running { step, begun: now, limit, report_at: limit });
        was_paused
    }

    /// Ends the step.
    pub(super) fn pause(&mut self, now: Instant) {
        let Some(ended) = self.running.take() else { return };
        self.times.push_back(now - ended.begun);
        if self.times.len() > STEPS {
            self.times.pop_front();
        }
    }

    /// Returns the step, its time and its limit, if it is to be reported now. Then it is reported next when its time has
    /// doubled.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<(u64, Duration, Duration)> {
        let running = self.running.as_mut()?;
        let time = now - running.begun;
        (time >= running.report_at).then(|| {
            running.report_at = time * 2;
            (running.step, time, running.limit)
        })
    }

    /// Returns how long there is nothing to report; `None` without a step. It is never longer than the limit of a new step.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let running = self.running.as_ref()?;
        let left = running.report_at.saturating_sub(now - running.begun);
        Some(match self.limit {
            Limit::Fixed(limit) => left.min(limit),
            Limit::Relative { least, .. } => left.min(least),
        })
    }

    fn limit(&self) -> Duration {
        match self.limit {
            Limit::Fixed(limit) => limit,
            Limit::Relative { least, .. } if self.times.len() < KNOWN => FIRST.max(least),
            Limit::Relative { factor, least } => (self.median() * factor).max(least),
        }
    }

    fn median(&self) -> Duration {
        let mut times: Vec<_> = self.times.iter().copied().collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_step_is_reported_when_it_passes_its_limit_and_whenever_its_time_has_doubled() {
        let (start, mut clock) = (Instant::now(), Clock::fixed(2 * SECOND));
        assert!(clock.begin(7, start));
        let reported = (0..=20).filter(|&second| clock.overdue(start + SECOND * second).is_some());
        assert_eq!(reported.collect::<Vec<_>>(), [2, 4, 8, 16]);
        assert_eq!(clock.overdue(start + 32 * SECOND), Some((7, 32 * SECOND, 2 * SECOND)));
        assert!(!clock.begin(8, start + 33 * SECOND));
        assert_eq!(clock.overdue(start + 34 * SECOND), None);
    }

    #[test]
    fn a_limit_follows_from_the_median_of_the_last_steps() {
        let (mut now, mut clock) = (Instant::now(), Clock::relative(10, SECOND));
        // Steps of one second, and a compile of a minute that the median passes over.
        for (step, seconds) in [60, 1, 1, 1, 1, 1].into_iter().enumerate() {
            clock.begin(step as u64, now);
            let limit = if step < KNOWN { FIRST } else { 10 * SECOND };
            assert_eq!(clock.running.as_ref().map(|running| running.limit), Some(limit));
            now += SECOND * seconds;
        }
        for _ in 0..STEPS {
            clock.begin(9, now);
            now += SECOND / 100;
        }
        clock.begin(10, now);
        assert_eq!(clock.overdue(now + SECOND / 2), None);
        assert_eq!(clock.overdue(now + SECOND), Some((10, SECOND, SECOND)), "the least limit");
    }

    #[test]
    fn a_pause_is_no_step() {
        let (start, mut clock) = (Instant::now(), Clock::fixed(SECOND));
        assert_eq!(clock.wait(start), None);
        clock.begin(1, start);
        assert_eq!(clock.wait(start), Some(SECOND));
        clock.pause(start + SECOND / 2);
        assert_eq!((clock.overdue(start + 60 * SECOND), clock.wait(start)), (None, None));
        assert_eq!(clock.times, [SECOND / 2]);
        assert!(clock.begin(2, start + 60 * SECOND));
        assert_eq!(clock.times.len(), 1);
    }
}
