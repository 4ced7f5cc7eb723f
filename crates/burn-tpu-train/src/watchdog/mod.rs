//! The watchdog: a thread that says which step hangs, on which device, and what it waits for.
//!
//! Owns: when a step has taken too long (`clock.rs`), and what is said and done then. May not know: how the device works; it
//! prints the device's [`Activity`].

mod clock;

use burn_tpu::{Activity, TpuDevice, distributed};
use clock::Clock;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Watches the steps of a run until it is dropped.
///
/// ```
/// use burn_tpu::TpuDevice;
/// use burn_tpu_train::Watchdog;
///
/// let watchdog = Watchdog::start(&TpuDevice::ndarray())?;
/// for step in 0..3 {
///     watchdog.step(step);
///     // Train.
/// }
/// watchdog.pause();
/// // Save, or measure: that is no step.
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Watchdog {
    shared: Arc<Shared>,
}

/// When a step takes too long, and what happens then.
pub struct WatchdogOptions {
    device: TpuDevice,
    clock: Clock,
    on_hang: Box<dyn FnMut(&Hang) + Send>,
    ends_process: bool,
}

/// A step that takes too long.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hang {
    /// The step.
    pub step: u64,
    /// The time since its begin.
    pub time: Duration,
    /// The time that it may take.
    pub limit: Duration,
    /// What the device does, and what threads wait for.
    pub activity: Activity,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    clock: Clock,
    has_ended: bool,
}

impl Watchdog {
    /// The exit code of a process that the watchdog ends: 124, as that of `timeout`.
    pub const EXIT_CODE: u8 = 124;

    /// Watches with the usual options. See [`WatchdogOptions::new`].
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(device: &TpuDevice) -> std::io::Result<Self> {
        WatchdogOptions::new(device).start()
    }

    /// Says that a step begins, and with it that the one before has ended.
    pub fn step(&self, step: u64) {
        let was_paused = self.shared.lock().clock.begin(step, Instant::now());
        if was_paused {
            self.shared.changed.notify_all();
        }
    }

    /// Says that the step has ended and that what follows is none, such as a measurement.
    pub fn pause(&self) {
        self.shared.lock().clock.pause(Instant::now());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.changed.notify_all();
    }
}

impl WatchdogOptions {
    /// Returns the usual options: a step may take ten times the median of the last 50 steps, and at least a minute. The
    /// first five, which compile, may take ten minutes each.
    pub fn new(device: &TpuDevice) -> Self {
        Self { device: *device, clock: Clock::default(), on_hang: Box::new(|_| ()), ends_process: false }
    }

    /// Sets the time that each step may take, instead of one that follows from earlier steps.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.clock = Clock::fixed(limit);
        self
    }

    /// Sets the factor of the median, and the least limit that may follow from it.
    #[must_use]
    pub fn times_median(mut self, factor: u32, least: Duration) -> Self {
        self.clock = Clock::relative(factor, least);
        self
    }

    /// Calls this too, on the watchdog's thread, whenever a hang is logged.
    #[must_use]
    pub fn on_hang(mut self, call: impl FnMut(&Hang) + Send + 'static) -> Self {
        self.on_hang = Box::new(call);
        self
    }

    /// Ends the process at a hang, at once, with [`Watchdog::EXIT_CODE`]: for a run that a scheduler starts again. Otherwise
    /// the hang is logged as an error, again whenever its time has doubled.
    #[must_use]
    pub fn ends_process(mut self, ends: bool) -> Self {
        self.ends_process = ends;
        self
    }

    /// Starts to watch. The first step is the first that [`Watchdog::step`] names.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(self) -> std::io::Result<Watchdog> {
        let Self { device, clock, mut on_hang, ends_process } = self;
        let state = Mutex::new(State { clock, has_ended: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let watched = Arc::clone(&shared);
        let watch = move || {
            watched.watch(|(step, time, limit)| {
                let hang = Hang { step, time, limit, activity: device.activity() };
                tracing::error!("{hang}");
                on_hang(&hang);
                if ends_process {
                    signal_hook::low_level::exit(i32::from(Watchdog::EXIT_CODE));
                }
            })
        };
        std::thread::Builder::new().name("burn-tpu-watchdog".into()).spawn(watch)?;
        Ok(Watchdog { shared })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `report` with each step that takes too long, its time and its limit, until the watchdog is dropped.
    fn watch(&self, mut report: impl FnMut((u64, Duration, Duration))) {
        let mut state = self.lock();
        while !state.has_ended {
            if let Some(overdue) = state.clock.overdue(Instant::now()) {
                drop(state);
                report(overdue);
                state = self.lock();
                continue;
            }
            state = match state.clock.wait(Instant::now()) {
                Some(time) => self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, time, limit, activity } = self;
        writeln!(f, "step {step} has taken {time:.1?}, and {limit:.1?} is its limit")?;
        write!(f, "{activity}")?;
        if activity.waits.is_empty() {
            f.write_str("\n  no thread waits for the device: the program itself is busy, such as with loading data")?;
        }
        if distributed::process_count().is_ok_and(|count| count > 1) {
            f.write_str("\n  a program of several processes runs once all have launched it: see what the others say")?;
        }
        Ok(())
    }
}
