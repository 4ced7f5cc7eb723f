//! Preemption: a run that hears that its machine will be taken away ends its step, saves and ends.
//!
//! Owns: what is heard (`signals.rs`, `metadata.rs`), and the question after each step whether to stop. In a group of
//! processes all stop after the same step ([`StopAgreement`]). May not know: what a step is, and how a run is saved.
//!
//! | heard | from |
//! |---|---|
//! | SIGTERM, SIGINT | a scheduler, a shutting machine, a terminal. A second one ends the process at once |
//! | `instance/preempted` is `TRUE` | Google's metadata server, for a Spot machine |
//! | `instance/maintenance-event` is `TERMINATE_ON_HOST_MAINTENANCE` | the same, for a machine that cannot be migrated |

mod error;
mod metadata;
mod notice;
mod signals;

pub use error::PreemptionError;
pub use notice::{Cause, Notice};

use burn_tpu::distributed::{PREEMPTED, StopAgreement};
use metadata::MetadataServer;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Listens for notices until it is dropped. There is one in a process.
///
/// ```
/// use burn_tpu_train::Preemption;
/// use std::process::ExitCode;
///
/// fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
///     let preemption = Preemption::watch()?;
///     for step in 0..3 {
///         // Train.
///         if let Some(notice) = preemption.stop_after(step)? {
///             // Save: the next start goes on from here.
///             eprintln!("saved, since {notice}");
///             return Ok(Preemption::exit_code());
///         }
///     }
///     Ok(ExitCode::SUCCESS)
/// }
/// ```
pub struct Preemption {
    heard: Arc<Heard>,
}

impl Preemption {
    /// The exit code of a process that was told to end and has saved: 75, `EX_TEMPFAIL` of `sysexits.h`. A process that a
    /// signal ends has another one, so a scheduler can tell the two apart. `burn-tpu launch` knows it.
    pub const EXIT_CODE: u8 = PREEMPTED;

    /// Returns [`Preemption::EXIT_CODE`] as the result of a program's `main`.
    pub fn exit_code() -> ExitCode {
        ExitCode::from(Self::EXIT_CODE)
    }

    /// Listens from now on. See [`PreemptionOptions`] for another metadata server.
    ///
    /// In a group of processes, all have to call this, and join the group here if no mesh did so before.
    ///
    /// # Errors
    /// [`PreemptionError`].
    pub fn watch() -> Result<Self, PreemptionError> {
        PreemptionOptions::default().watch()
    }

    /// Returns what was heard. It costs one atomic load. A process of a group asks [`Preemption::stop_after`], which knows
    /// whether the others have taken the same step.
    pub fn requested(&self) -> Option<&Notice> {
        self.heard.notice.get()
    }

    /// Says that a step is finished, and returns the notice if the run has to stop after it. Steps count upwards; it may be
    /// asked after every tenth step, in all processes after the same ones.
    ///
    /// It waits only once a process has heard a notice, until all have agreed on their last step.
    ///
    /// # Errors
    /// [`PreemptionError::Processes`] if a process does not answer. What it would save does not fit what the others have:
    /// end without saving.
    pub fn stop_after(&self, step: u64) -> Result<Option<&Notice>, PreemptionError> {
        let Some(together) = &self.heard.together else { return Ok(self.requested()) };
        let told = |reason| self.heard.notice.get_or_init(|| Notice::now(Cause::Group { reason }));
        Ok(together.is_last(step)?.map(told))
    }
}

/// What a [`Preemption`] listens to, besides signals.
#[derive(Clone, Debug, Default)]
pub struct PreemptionOptions {
    metadata: MetadataServer,
}

impl PreemptionOptions {
    /// Asks the metadata server at this address, such as `http://127.0.0.1:8080`, instead of the one that the variable
    /// `GCE_METADATA_HOST` names as `host:port`, or else Google's, `http://metadata.google.internal`. One that does not
    /// answer is warned about, unless it is Google's: elsewhere there is none.
    #[must_use]
    pub fn metadata_server(mut self, address: impl Into<String>) -> Self {
        self.metadata = MetadataServer::At(address.into());
        self
    }

    /// Asks no metadata server.
    #[must_use]
    pub fn without_metadata_server(mut self) -> Self {
        self.metadata = MetadataServer::None;
        self
    }

    /// Listens from now on.
    ///
    /// # Errors
    /// [`PreemptionError`].
    pub fn watch(self) -> Result<Preemption, PreemptionError> {
        let together = StopAgreement::join()?;
        let heard = Arc::new(Heard { notice: OnceLock::new(), first_signal: OnceLock::new(), together });
        signals::watch(&heard)?;
        metadata::watch(&self.metadata, &heard);
        Ok(Preemption { heard })
    }
}

/// What was heard. The listening threads hold it weakly, so that they end with the [`Preemption`].
struct Heard {
    notice: OnceLock<Notice>,
    first_signal: OnceLock<Instant>,
    together: Option<StopAgreement>,
}

impl Heard {
    /// Keeps the first notice, and tells the other processes.
    fn hear(&self, cause: Cause) {
        let notice = Notice::now(cause);
        tracing::warn!("{notice}: the run ends after its step");
        if let Some(together) = &self.together {
            together.request(notice.to_string());
        }
        self.notice.get_or_init(|| notice);
    }

    /// Keeps a signal; returns false for one that is to end the process. One that follows at once is the same request: it
    /// may reach a process directly and through a launcher.
    fn hear_signal(&self, signal: i32) -> bool {
        const SAME: Duration = Duration::from_secs(1);
        match self.first_signal.get() {
            Some(first) => first.elapsed() < SAME,
            None => {
                self.first_signal.get_or_init(Instant::now);
                self.hear(Cause::Signal { signal });
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_follow_at_once_are_one_request() {
        let heard = Heard { notice: OnceLock::new(), first_signal: OnceLock::new(), together: None };
        assert!(heard.hear_signal(15) && heard.hear_signal(2));
        assert_eq!(heard.notice.get().map(|notice| &notice.cause), Some(&Cause::Signal { signal: 15 }));
    }

    #[test]
    fn a_later_signal_is_to_end_the_process() {
        let earlier = Instant::now().checked_sub(Duration::from_secs(2)).expect("the machine has run for longer");
        let heard = Heard { notice: OnceLock::new(), first_signal: OnceLock::from(earlier), together: None };
        assert!(!heard.hear_signal(15));
    }

    /// The shutdown that follows a notice sends SIGTERM too.
    #[test]
    fn the_first_signal_after_another_notice_is_no_second_one() {
        let heard = Heard { notice: OnceLock::new(), first_signal: OnceLock::new(), together: None };
        heard.hear(Cause::Preempted);
        assert!(heard.hear_signal(15));
        assert_eq!(heard.notice.get().map(|notice| &notice.cause), Some(&Cause::Preempted));
    }
}
