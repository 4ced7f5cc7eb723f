//! A data loader that wraps another one, times the steps, and ends the run after `--steps` of them.
//!
//! The Learner requests the next batch exactly once per step, so the time between two requests is the time of a step.

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::prelude::Backend;
use burn::train::Interrupter;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Steps that are not part of the average, since they compile.
const WARM_UP: usize = 5;

/// The times of a run's steps; shared by all clones.
#[derive(Clone, Default)]
pub struct StepTimer {
    limit: Option<usize>,
    interrupter: Interrupter,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    steps: usize,
    seconds: Vec<f64>,
}

impl StepTimer {
    /// Creates a timer that ends the run through `interrupter` after `limit` steps, if there is a limit.
    pub fn new(limit: Option<usize>, interrupter: Interrupter) -> Self {
        Self { limit, interrupter, state: Arc::default() }
    }

    /// Returns a loader of the same batches that times the steps.
    pub fn time_steps<B: Backend, O: Send + 'static>(
        &self,
        loader: Arc<dyn DataLoader<B, O>>,
    ) -> Arc<dyn DataLoader<B, O>> {
        Arc::new(TimedLoader { loader, timer: self.clone() })
    }

    /// Returns the number of steps begun so far.
    pub fn steps(&self) -> usize {
        self.locked().steps
    }

    /// Returns the steps per second without the first few, which compile; 0 if no step was timed.
    pub fn steps_per_second(&self) -> f64 {
        rate(&self.locked().seconds)
    }

    fn begin(&self) {
        let mut state = self.locked();
        state.steps += 1;
        if self.limit.is_some_and(|limit| state.steps >= limit) {
            self.interrupter.stop(Some("the number of steps of `--steps` is reached"));
        }
    }

    fn end(&self, begun: Instant) {
        self.locked().seconds.push(begun.elapsed().as_secs_f64());
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

fn rate(seconds: &[f64]) -> f64 {
    let warm = &seconds[WARM_UP.min(seconds.len() / 2)..];
    let total: f64 = warm.iter().sum();
    if total > 0.0 { warm.len() as f64 / total } else { 0.0 }
}

struct TimedLoader<B: Backend, O> {
    loader: Arc<dyn DataLoader<B, O>>,
    timer: StepTimer,
}

impl<B: Backend, O: Send + 'static> DataLoader<B, O> for TimedLoader<B, O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        Box::new(TimedIterator { inner: self.loader.iter(), timer: &self.timer, begun: None })
    }

    fn num_items(&self) -> usize {
        self.loader.num_items()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, O>> {
        self.timer.time_steps(self.loader.to_device(device))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, O>> {
        self.timer.time_steps(self.loader.slice(start, end))
    }
}

struct TimedIterator<'a, O> {
    inner: Box<dyn DataLoaderIterator<O> + 'a>,
    timer: &'a StepTimer,
    begun: Option<Instant>,
}

impl<O> TimedIterator<'_, O> {
    fn end_step(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.timer.end(begun);
        }
    }
}

impl<O> Iterator for TimedIterator<'_, O> {
    type Item = O;

    fn next(&mut self) -> Option<O> {
        self.end_step();
        // The time starts before the batch is fetched: waiting for data is part of a step.
        let now = Instant::now();
        let batch = self.inner.next()?;
        self.begun = Some(now);
        self.timer.begin();
        Some(batch)
    }
}

impl<O> DataLoaderIterator<O> for TimedIterator<'_, O> {
    fn progress(&self) -> Progress {
        self.inner.progress()
    }
}

impl<O> Drop for TimedIterator<'_, O> {
    fn drop(&mut self) {
        self.end_step();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_excludes_the_steps_that_compile() {
        assert_eq!(rate(&[9.0, 9.0, 9.0, 9.0, 9.0, 0.5, 0.5, 0.5, 0.5, 0.5]), 2.0);
        assert_eq!(rate(&[9.0, 0.5]), 2.0);
        assert_eq!(rate(&[]), 0.0);
    }

    #[test]
    fn the_last_allowed_step_stops_the_run() {
        let interrupter = Interrupter::new();
        let timer = StepTimer::new(Some(2), interrupter.clone());
        timer.begin();
        assert!(!interrupter.should_stop());
        timer.begin();
        assert!(interrupter.should_stop());
        assert_eq!(timer.steps(), 2);
    }
}
