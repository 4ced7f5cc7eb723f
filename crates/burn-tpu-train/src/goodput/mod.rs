//! Goodput: how much of a run's wall clock, over all of its starts, was steps that count, and where the rest went.
//!
//! Owns: the clock of this start and the gauges. What is added up is in `account.rs`, what outlives a process in
//! `journal.rs`. May not know: what a step computes.

mod account;
mod journal;

pub use account::{GoodputReport, Work};

use account::{Entry, Seconds};
use burn_tpu::{TpuDevice, distributed};
use journal::Journal;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest time that a process which is killed can have run without a line in its journal, if its steps are shorter.
const INTERVAL: Duration = Duration::from_secs(10);

/// What a run does beside its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// What is built before the first step; where each start begins.
    Setup,
    /// Reading a checkpoint.
    Restore,
    /// Waiting for data.
    Data,
    /// Saving a checkpoint, as far as the run waits for it.
    Save,
    /// Measuring, such as on held-out data.
    Evaluation,
    /// Anything else.
    Other,
}

/// The account of a run's time. At each moment the run is in a step or in one [`Phase`], so the parts add up to the wall
/// clock. A journal keeps the account over restarts. A process that is killed loses the last 10 seconds of it, or its
/// last step if that took longer.
///
/// ```
/// use burn_tpu::TpuDevice;
/// use burn_tpu_train::{Goodput, Phase};
///
/// # let folder = tempfile::tempdir()?;
/// # let (folder, steps) = (folder.path(), 4);
/// let mut goodput = Goodput::open(folder.join("goodput.jsonl"), &TpuDevice::ndarray())?;
/// // Build the model.
/// goodput.enter(Phase::Restore)?;
/// // Restore the newest checkpoint, if there is one.
/// for step in 0..steps {
///     goodput.enter(Phase::Data)?;
///     // Wait for the batch.
///     goodput.step(step)?;
///     // Train.
///     if step % 1000 == 999 {
///         goodput.enter(Phase::Save)?;
///         // Save.
///     }
/// }
/// goodput.enter(Phase::Other)?;
/// println!("{}", goodput.report());
/// # assert_eq!(goodput.report().steps, 4);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// The time of the compiler is taken from the device's metrics and out of the phase in which it compiles. Call it where
/// the host waits for steps: where nothing of a step is read, its time is that of its dispatch.
///
/// Each line of the journal also sets gauges of the crate [`metrics`](https://docs.rs/metrics), which any of its
/// exporters serves (`metrics-exporter-prometheus`): `burn_tpu_run_seconds` with the label `part`, `burn_tpu_run_steps`,
/// `burn_tpu_run_goodput`, and, with [`Work`], `burn_tpu_run_tokens_per_second`, `burn_tpu_run_mfu` and
/// `burn_tpu_run_usd`.
pub struct Goodput {
    device: TpuDevice,
    /// `None` without one, and in all processes but the first.
    journal: Option<Journal>,
    work: Work,
    begun: Instant,
    /// This start, until `entered`.
    now: Entry,
    /// What the run is in: `None` for a step.
    phase: Option<Phase>,
    entered: Instant,
    /// The device's time in its compiler when the phase began.
    compiled: Duration,
    written: Instant,
}

impl Goodput {
    /// Begins the account of this start, in [`Phase::Setup`]. Earlier starts are read from the journal, which is created
    /// if it is not there. Of several processes the first keeps it; the others account for their own start alone.
    ///
    /// # Errors
    /// If the journal can be neither read nor created, or a variable of the group of processes is invalid.
    pub fn open(journal: impl AsRef<Path>, device: &TpuDevice) -> io::Result<Self> {
        let mut goodput = Self::start(device);
        if distributed::process_index().map_err(io::Error::other)? == 0 {
            goodput.journal = Some(Journal::open(journal.as_ref())?);
        }
        goodput.write()?;
        Ok(goodput)
    }

    /// Begins an account of this start alone.
    pub fn start(device: &TpuDevice) -> Self {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let begun = Instant::now();
        Self {
            device: *device,
            journal: None,
            work: Work::default(),
            begun,
            now: Entry { start, ..Entry::default() },
            phase: Some(Phase::Setup),
            entered: begun,
            compiled: device.metrics().compile_time(),
            written: begun,
        }
    }

    /// Sets what a step does and what the hardware can do and costs, for tokens a second, MFU and dollars.
    #[must_use]
    pub fn work(mut self, work: Work) -> Self {
        self.work = work;
        self
    }

    /// Says that a step begins, and that what was before it has ended. `step` is its number: that of the first step after
    /// a restart tells which steps of earlier starts are taken again.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn step(&mut self, step: u64) -> io::Result<()> {
        self.now.first.get_or_insert(step);
        self.change(None, step)
    }

    /// Says that the run is in a phase from now on.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn enter(&mut self, phase: Phase) -> io::Result<()> {
        let next = self.now.next + u64::from(self.phase.is_none());
        self.change(Some(phase), next)
    }

    /// Returns the account until now, of all starts.
    pub fn report(&self) -> GoodputReport {
        let mut now = self.now.clone();
        self.add_phase(&mut now, Instant::now(), self.device.metrics().compile_time());
        let earlier = self.journal.as_ref().map_or(&[][..], |journal| &journal.earlier);
        GoodputReport::of(earlier, Some(&now), self.work)
    }

    fn change(&mut self, phase: Option<Phase>, next: u64) -> io::Result<()> {
        let (left, now, compiled) = (self.phase, Instant::now(), self.device.metrics().compile_time());
        let mut entry = std::mem::take(&mut self.now);
        self.add_phase(&mut entry, now, compiled);
        self.now = Entry { next, ..entry };
        (self.phase, self.entered, self.compiled) = (phase, now, compiled);
        // A run goes on from what it saved: the journal knows that moment.
        if left == Some(Phase::Save) || now - self.written >= INTERVAL {
            self.write()?;
        }
        Ok(())
    }

    /// Adds the time since the last change to its phase, and what the compiler took of it to `compile`.
    fn add_phase(&self, entry: &mut Entry, now: Instant, compiled: Duration) {
        let time = now - self.entered;
        let compile = compiled.saturating_sub(self.compiled).min(time);
        entry.seconds.compile += compile.as_secs_f64();
        *entry.seconds.of(self.phase) += (time - compile).as_secs_f64();
        entry.at = (now - self.begun).as_secs_f64();
    }

    fn write(&mut self) -> io::Result<()> {
        if let Some(journal) = &mut self.journal {
            journal.write(&self.now)?;
        }
        self.written = self.entered;
        self.report().set_gauges();
        Ok(())
    }
}

impl Drop for Goodput {
    fn drop(&mut self) {
        let result = self.enter(Phase::Other).and_then(|()| self.write());
        if let Err(error) = result {
            tracing::warn!("the last line of the journal of goodput is not written: {error}");
        }
    }
}

impl Seconds {
    /// Returns the time of a phase; that of steps for none.
    fn of(&mut self, phase: Option<Phase>) -> &mut f64 {
        match phase {
            None => &mut self.step,
            Some(Phase::Setup) => &mut self.setup,
            Some(Phase::Restore) => &mut self.restore,
            Some(Phase::Data) => &mut self.data,
            Some(Phase::Save) => &mut self.save,
            Some(Phase::Evaluation) => &mut self.evaluation,
            Some(Phase::Other) => &mut self.other,
        }
    }
}

#[cfg(test)]
mod tests;
