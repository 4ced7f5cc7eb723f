//! Programs that were dispatched and may be unfinished.

use crate::activity::RunningProgram;
use crate::error::{Result, TpuError};
use crate::profile::{self, Phase};
use burn_tpu_pjrt::{Event, Work, watch_work};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// A dispatched program.
pub(super) struct Running {
    /// A description of the program.
    pub(super) program: Arc<str>,
    pub(super) begun: Instant,
    /// One event for each device.
    pub(super) done: Vec<Event>,
    /// The donated arguments. In PJRT's CPU client the drop of such a buffer waits for the program, which would keep
    /// the host from recording the next step.
    pub(super) _donated: Box<dyn Send + Sync>,
}

impl Running {
    fn is_finished(&self) -> bool {
        self.done.iter().all(|done| done.is_ready().unwrap_or(true))
    }

    /// Waits for all devices, even if one failed, since none may still run afterwards.
    fn wait(&self) -> burn_tpu_pjrt::Result<()> {
        let ended: Vec<_> = self.done.iter().map(Event::wait).collect();
        ended.into_iter().collect()
    }
}

/// The dispatched programs that may be unfinished, oldest first.
pub(super) struct InFlight {
    programs: Mutex<VecDeque<Arc<Running>>>,
    most: usize,
}

impl InFlight {
    /// At most `most` programs may be unfinished. A further one waits for the oldest, so that the host does not record steps
    /// whose results do not fit the device's memory.
    pub(super) fn new(most: usize) -> Arc<Self> {
        let new = Arc::new(Self { programs: Mutex::default(), most });
        let work: Weak<Self> = Arc::downgrade(&new);
        watch_work(work);
        new
    }

    /// Adds a dispatched program, and waits for the oldest one if too many are unfinished. The results of that program
    /// report its error, if any; here it is only logged.
    pub(super) fn push(&self, running: Running) {
        let mut programs = self.programs.lock();
        programs.push_back(Arc::new(running));
        let oldest = if programs.len() > self.most { programs.pop_front() } else { None };
        drop(programs);
        let wait = |program: Arc<Running>| {
            let _profiled = profile::span(Phase::Wait, "oldest program");
            program.wait()
        };
        if let Some(Err(error)) = oldest.map(wait) {
            tracing::warn!(%error, "a program failed while running");
        }
    }

    /// Returns the programs that have not finished, oldest first.
    pub(super) fn running(&self) -> Vec<RunningProgram> {
        let programs: Vec<Arc<Running>> = self.programs.lock().iter().cloned().collect();
        let unfinished = programs.iter().filter(|running| !running.is_finished());
        let of = |running: &Arc<Running>| RunningProgram {
            program: Arc::clone(&running.program),
            time: running.begun.elapsed(),
        };
        unfinished.map(of).collect()
    }

    /// Frees the arguments of finished programs, except for the newest. That takes time, so it is done where the host
    /// waits for the device anyway; the newest program's are left to the next wait, during which a program runs.
    pub(super) fn free_finished(&self) {
        let mut programs = self.programs.lock();
        let older = programs.len().saturating_sub(1);
        let count = programs.iter().take(older).take_while(|program| program.is_finished()).count();
        let freed: Vec<_> = programs.drain(..count).collect();
        drop(programs);
        drop(freed);
    }

    /// Waits for everything that was dispatched before the call.
    pub(super) fn wait(&self) -> Result<()> {
        self.free_finished();
        let running: Vec<Arc<Running>> = self.programs.lock().iter().cloned().collect();
        // Wait for all programs even if the first one failed, since none may still run afterwards.
        let ended: Vec<_> =
            running.iter().map(|program| program.wait().map_err(TpuError::pjrt("waiting for a program"))).collect();
        // The error of a program is reported once.
        let failed = |program: &Arc<Running>| {
            running.iter().zip(&ended).any(|(waited, ended)| ended.is_err() && Arc::ptr_eq(waited, program))
        };
        self.programs.lock().retain(|program| !failed(program));
        drop(running);
        self.free_finished();
        ended.into_iter().collect()
    }
}

impl Work for InFlight {
    fn is_under_way(&self) -> bool {
        self.programs.try_lock().is_none_or(|programs| programs.iter().any(|program| !program.is_finished()))
    }
}
