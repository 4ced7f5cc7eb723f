//! A data loader around another that times the steps and ends the run after `--steps` of them.
//!
//! The Learner asks for the next batch exactly once per step, so the time between two requests is a step's time.

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::prelude::Backend;
use burn::train::Interrupter;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Steps that are left out of the average: they compile.
const WARM_UP: usize = 5;

/// What is known about a run's steps; shared by all clones.
#[derive(Clone, Default)]
pub struct Pace {
    limit: Option<usize>,
    interrupter: Interrupter,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    steps: usize,
    seconds: Vec<f64>,
}

impl Pace {
    /// Ends the run through `interrupter` after `limit` steps, if there is a limit.
    pub fn new(limit: Option<usize>, interrupter: Interrupter) -> Self {
        Self { limit, interrupter, state: Arc::default() }
    }

    /// The same batches, watched.
    pub fn watch<B: Backend, O: Send + 'static>(&self, loader: Arc<dyn DataLoader<B, O>>) -> Arc<dyn DataLoader<B, O>> {
        Arc::new(Watched { loader, pace: self.clone() })
    }

    /// Steps begun so far.
    pub fn steps(&self) -> usize {
        self.locked().steps
    }

    /// Steps per second without the first few, which compile; 0 when nothing was timed.
    pub fn steps_per_second(&self) -> f64 {
        rate(&self.locked().seconds)
    }

    fn begin(&self) {
        let mut state = self.locked();
        state.steps += 1;
        if self.limit.is_some_and(|limit| state.steps >= limit) {
            self.interrupter.stop(Some("the number of steps asked for is reached"));
        }
    }

    fn end(&self, begun: Instant) {
        self.locked().seconds.push(begun.elapsed().as_secs_f64());
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }
}

fn rate(seconds: &[f64]) -> f64 {
    let warm = &seconds[WARM_UP.min(seconds.len() / 2)..];
    let total: f64 = warm.iter().sum();
    if total > 0.0 { warm.len() as f64 / total } else { 0.0 }
}

struct Watched<B: Backend, O> {
    loader: Arc<dyn DataLoader<B, O>>,
    pace: Pace,
}

impl<B: Backend, O: Send + 'static> DataLoader<B, O> for Watched<B, O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        Box::new(WatchedIterator { inner: self.loader.iter(), pace: &self.pace, begun: None })
    }

    fn num_items(&self) -> usize {
        self.loader.num_items()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, O>> {
        self.pace.watch(self.loader.to_device(device))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, O>> {
        self.pace.watch(self.loader.slice(start, end))
    }
}

struct WatchedIterator<'a, O> {
    inner: Box<dyn DataLoaderIterator<O> + 'a>,
    pace: &'a Pace,
    begun: Option<Instant>,
}

impl<O> WatchedIterator<'_, O> {
    fn end_step(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.pace.end(begun);
        }
    }
}

impl<O> Iterator for WatchedIterator<'_, O> {
    type Item = O;

    fn next(&mut self) -> Option<O> {
        self.end_step();
        // The clock starts before the batch is fetched: waiting for data is part of a step.
        let now = Instant::now();
        let batch = self.inner.next()?;
        self.begun = Some(now);
        self.pace.begin();
        Some(batch)
    }
}

impl<O> DataLoaderIterator<O> for WatchedIterator<'_, O> {
    fn progress(&self) -> Progress {
        self.inner.progress()
    }
}

impl<O> Drop for WatchedIterator<'_, O> {
    fn drop(&mut self) {
        self.end_step();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_leaves_out_the_steps_that_compile() {
        assert_eq!(rate(&[9.0, 9.0, 9.0, 9.0, 9.0, 0.5, 0.5, 0.5, 0.5, 0.5]), 2.0);
        assert_eq!(rate(&[9.0, 0.5]), 2.0);
        assert_eq!(rate(&[]), 0.0);
    }

    #[test]
    fn the_last_step_allowed_stops_the_run() {
        let interrupter = Interrupter::new();
        let pace = Pace::new(Some(2), interrupter.clone());
        pace.begin();
        assert!(!interrupter.should_stop());
        pace.begin();
        assert!(interrupter.should_stop());
        assert_eq!(pace.steps(), 2);
    }
}
