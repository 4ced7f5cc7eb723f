//! The memory monitor: a thread that samples a device's memory, keeps a history of it, draws that, and warns when the memory
//! is nearly full.
//!
//! Owns: when a sample is taken, how many are kept, when a warning is due. May not know: what is counted as what, which the
//! device's report says.

mod plot;

use burn_tpu::{MemoryReport, MemoryUse, TpuDevice};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Watches a device's memory until it is dropped.
///
/// ```
/// use burn_tpu::TpuDevice;
/// use burn_tpu_train::MemoryMonitor;
///
/// # let folder = tempfile::tempdir().unwrap();
/// let monitor = MemoryMonitor::start(&TpuDevice::ndarray())?;
/// // Train.
/// let last = monitor.history().last().copied();
/// assert!(last.is_some(), "the first sample is taken at once");
/// monitor.write_svg(folder.path().join("memory.svg"))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct MemoryMonitor {
    shared: Arc<Shared>,
    device: TpuDevice,
}

/// How often a device's memory is sampled, for how long the samples are kept, and when to warn.
pub struct MemoryMonitorOptions {
    device: TpuDevice,
    interval: Duration,
    history: Duration,
    warn_at: f64,
    capacity: Option<u64>,
    on_full: Box<dyn FnMut(&MemoryReport) + Send>,
}

/// What a device's memory held at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemorySample {
    /// The time since the monitor's start.
    pub time: Duration,
    /// What was live. Temporaries are those of the peak so far.
    pub live: MemoryUse,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    samples: VecDeque<MemorySample>,
    capacity: Option<u64>,
    has_ended: bool,
}

impl MemoryMonitor {
    /// Watches with the usual options. See [`MemoryMonitorOptions::new`].
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(device: &TpuDevice) -> std::io::Result<Self> {
        MemoryMonitorOptions::new(device).start()
    }

    /// Returns the samples, oldest first.
    pub fn history(&self) -> Vec<MemorySample> {
        self.shared.lock().samples.iter().copied().collect()
    }

    /// Draws the history: bytes by kind over time, stacked, with the device's limit if it is known.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_svg(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        let (samples, capacity) = (self.history(), self.shared.lock().capacity);
        let svg = plot::svg(&format!("memory of {}", self.device), &samples, capacity);
        std::fs::write(path, svg.map_err(std::io::Error::other)?)
    }
}

impl Drop for MemoryMonitor {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.changed.notify_all();
    }
}

impl MemoryMonitorOptions {
    /// Returns the usual options: a sample each second, those of the last hour, and a warning at 90 % of the device's
    /// memory, if that is known: from `TpuOptions::memory_limit`, or from the plugin.
    pub fn new(device: &TpuDevice) -> Self {
        Self {
            device: *device,
            interval: Duration::from_secs(1),
            history: Duration::from_secs(3600),
            warn_at: 0.9,
            capacity: None,
            on_full: Box::new(|_| ()),
        }
    }

    /// Sets the time between two samples, at least a millisecond.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Sets for how long a sample is kept.
    #[must_use]
    pub fn history(mut self, history: Duration) -> Self {
        self.history = history;
        self
    }

    /// Sets the share of the device's memory, 0 to 1, at which the monitor warns.
    #[must_use]
    pub fn warn_at(mut self, share: f64) -> Self {
        self.warn_at = share;
        self
    }

    /// Sets the bytes of the device's memory, where neither an option nor the plugin says them.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Calls this too, on the monitor's thread, whenever it warns.
    #[must_use]
    pub fn on_full(mut self, call: impl FnMut(&MemoryReport) + Send + 'static) -> Self {
        self.on_full = Box::new(call);
        self
    }

    /// Starts to sample; the first sample is taken now.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(self) -> std::io::Result<MemoryMonitor> {
        let device = self.device;
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let mut sampler = Sampler { begun: Instant::now(), shared: Arc::clone(&shared), is_full: false, options: self };
        sampler.sample();
        std::thread::Builder::new().name("burn-tpu-memory".into()).spawn(move || sampler.run())?;
        Ok(MemoryMonitor { shared, device })
    }
}

/// The monitor's thread.
struct Sampler {
    shared: Arc<Shared>,
    options: MemoryMonitorOptions,
    begun: Instant,
    /// Whether the last sample was above the share: a warning is given once each time that it is passed.
    is_full: bool,
}

impl Sampler {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        while !state.has_ended {
            let waited = shared.changed.wait_timeout(state, self.options.interval);
            let (waited, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            drop(waited);
            if timeout.timed_out() {
                self.sample();
            }
            state = shared.lock();
        }
    }

    fn sample(&mut self) {
        let report = self.options.device.memory();
        let mut live = report.live;
        live.temporaries = report.peak.temporaries;
        let sample = MemorySample { time: self.begun.elapsed(), live };
        let capacity = self.options.capacity.or(report.capacity());
        let mut state = self.shared.lock();
        state.capacity = capacity;
        state.keep(sample, self.options.history);
        drop(state);
        let is_full = capacity.is_some_and(|bytes| live.total() as f64 >= bytes as f64 * self.options.warn_at);
        if is_full && !self.is_full {
            let share = 100.0 * self.options.warn_at;
            tracing::warn!("more than {share:.0} % of the memory of {} is in use\n{report}", self.options.device);
            (self.options.on_full)(&report);
        }
        self.is_full = is_full;
    }
}

impl State {
    /// Keeps a sample, and forgets those that are too old.
    fn keep(&mut self, sample: MemorySample, history: Duration) {
        while self.samples.front().is_some_and(|oldest| sample.time - oldest.time > history) {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_kept_as_long_as_the_history() {
        let mut state = State::default();
        for second in 0..100 {
            let sample = MemorySample { time: Duration::from_secs(second), live: MemoryUse::default() };
            state.keep(sample, Duration::from_secs(10));
        }
        let seconds: Vec<u64> = state.samples.iter().map(|sample| sample.time.as_secs()).collect();
        assert_eq!(seconds, (89..100).collect::<Vec<_>>());
    }
}
