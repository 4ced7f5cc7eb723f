//! The agreement of all processes on the step after which they stop.
//!
//! Processes that take different numbers of steps wait for each other for ever, and checkpoints of different steps do not
//! fit together. So if one has to stop, all stop after the same step:
//!
//! 1. The one that has to stop puts its reason into the store. A thread of every other process looks for it.
//! 2. Each puts the step that it is in. From then on it finishes that step and begins no other before it knows the answer.
//! 3. The answer is the largest of these steps. Nobody has begun a later one, so all can stop there.
//!
//! Threads of their own do all of it (decision 23): a process may meanwhile be in a program that waits for the others, and
//! they for it. Every wait has the group's time limit. Process 0 serves the store, so it waits until all others know the
//! answer.

use super::Group;
use crate::error::{Result, TpuError};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The pause between two looks for another process's request.
const PAUSE: Duration = Duration::from_millis(500);

/// This process's part in the agreement. All processes have to make theirs in the same order, and to call
/// [`StopAgreement::is_last`] after the same steps.
pub struct StopAgreement {
    shared: Arc<Shared>,
}

struct Shared {
    group: Group,
    /// The number of this agreement among those of the process.
    number: u64,
    state: Mutex<StopProgress>,
    changed: Condvar,
}

struct StopProgress {
    /// The step that this process is in: the one after the last that it finished; 0 before the first is finished.
    current: u64,
    phase: Phase,
}

enum Phase {
    Running,
    /// This process has to stop, for this reason.
    Requested(String),
    /// All put their steps.
    Agreeing,
    /// All stop after this step, for this reason.
    Agreed(u64, String),
    Failed(TpuError),
    /// This process takes no more steps.
    Left,
}

impl StopAgreement {
    /// Returns this process's part; `None` for a process that is alone.
    ///
    /// # Errors
    /// Those of joining the group, as at a mesh's first use: [`TpuError::Option`], [`TpuError::Store`],
    /// [`TpuError::MissingProcess`].
    pub fn join() -> Result<Option<Self>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let Some(group) = super::group()? else { return Ok(None) };
        Self::of(group.clone(), NUMBER.fetch_add(1, Relaxed)).map(Some)
    }

    fn of(group: Group, number: u64) -> Result<Self> {
        let state = Mutex::new(StopProgress { current: 0, phase: Phase::Running });
        let shared = Arc::new(Shared { group, number, state, changed: Condvar::new() });
        let watched = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("burn-tpu-stop".into()).spawn(move || watched.watch());
        thread.map_err(|error| TpuError::Bug(format!("cannot start a thread for the agreement to stop: {error}")))?;
        Ok(Self { shared })
    }

    /// Asks all processes to stop. The first request counts.
    pub fn request(&self, reason: impl Into<String>) {
        let mut state = self.shared.state.lock();
        if matches!(state.phase, Phase::Running) {
            state.phase = Phase::Requested(format!("process {}: {}", self.shared.group.index, reason.into()));
            self.shared.changed.notify_all();
        }
    }

    /// Says that this process has finished a step, and returns the reason to stop if it is the last one. Waits only while
    /// the processes agree. Steps count upwards; not every step needs a call.
    ///
    /// # Errors
    /// [`TpuError::MissingProcess`] if a process does not answer in time, [`TpuError::Store`]. Processes cannot stop
    /// together then, and every later call returns the same error.
    pub fn is_last(&self, step: u64) -> Result<Option<String>> {
        let mut state = self.shared.state.lock();
        loop {
            match &state.phase {
                Phase::Running | Phase::Left => {
                    state.current = step + 1;
                    return Ok(None);
                }
                Phase::Requested(_) | Phase::Agreeing => self.shared.changed.wait(&mut state),
                Phase::Agreed(last, reason) => return Ok((step >= *last).then(|| reason.clone())),
                Phase::Failed(error) => return Err(error.clone()),
            }
        }
    }
}

/// Says that this process takes no more steps, so that the others can agree without it. Waits for an agreement that has
/// begun.
impl Drop for StopAgreement {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        while matches!(state.phase, Phase::Requested(_) | Phase::Agreeing) {
            self.shared.changed.wait(&mut state);
        }
        if !matches!(state.phase, Phase::Running) {
            return;
        }
        state.phase = Phase::Left;
        let finished = state.current.saturating_sub(1);
        drop(state);
        self.shared.changed.notify_all();
        if let Err(error) = self.shared.put_step(finished).and_then(|()| self.shared.put_left()) {
            tracing::debug!(%error, "the other processes were not told that this one takes no more steps");
        }
    }
}

impl Shared {
    /// Looks for a request until there is one or this process has left, and takes part in the agreement.
    fn watch(&self) {
        let Some(reason) = self.wait_for_request() else { return };
        tracing::info!(process = self.group.index, reason, "the processes agree on their last step");
        let agreed = self.agree(&reason);
        let mut state = self.state.lock();
        state.phase = match agreed {
            Ok(last) => Phase::Agreed(last, reason),
            Err(error) => {
                tracing::error!(%error, "the processes cannot stop together");
                Phase::Failed(error)
            }
        };
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the reason to stop; `None` if this process has left. From then on it begins no further step.
    fn wait_for_request(&self) -> Option<String> {
        let mut state = self.state.lock();
        loop {
            match &state.phase {
                Phase::Requested(reason) => return Some(reason.clone()),
                Phase::Running => {}
                Phase::Agreeing | Phase::Agreed(..) | Phase::Failed(_) | Phase::Left => return None,
            }
            if let Some(reason) = MutexGuard::unlocked(&mut state, || self.requested_by_another())
                && matches!(state.phase, Phase::Running)
            {
                state.phase = Phase::Agreeing;
                return Some(reason);
            }
            if matches!(state.phase, Phase::Running) {
                self.changed.wait_for(&mut state, PAUSE);
            }
        }
    }

    /// A store that does not answer is no request: process 0, which serves it, may have ended as it should.
    fn requested_by_another(&self) -> Option<String> {
        let found = self.group.store.try_get(self.key("request", None));
        let found = found.inspect_err(|error| tracing::debug!(%error, "no request to stop can be looked for")).ok();
        found.flatten().map(|reason| String::from_utf8_lossy(&reason).into_owned())
    }

    /// Returns the step after which all stop.
    fn agree(&self, reason: &str) -> Result<u64> {
        let Group { index, count, store, .. } = &self.group;
        store.put(self.key("request", None), reason.as_bytes())?;
        let mut last = self.put_own_step()?;
        for process in (0..*count).filter(|process| process != index) {
            last = last.max(self.step_of(process)?);
        }
        self.leave()?;
        Ok(last)
    }

    fn put_own_step(&self) -> Result<u64> {
        let mut state = self.state.lock();
        state.phase = Phase::Agreeing;
        let current = state.current;
        drop(state);
        self.put_step(current).map(|()| current)
    }

    fn put_step(&self, step: u64) -> Result<()> {
        self.group.store.put(self.key("step", Some(self.group.index)), &step.to_le_bytes())
    }

    fn step_of(&self, process: usize) -> Result<u64> {
        let key = self.key("step", Some(process));
        let missing = || self.group.missing(process, "the agreement on the last step");
        let step = self.group.wait(&key, process)?.ok_or_else(missing)?;
        let step = step.try_into().map_err(|_| self.group.store.error(format!("{key} is not a number")))?;
        Ok(u64::from_le_bytes(step))
    }

    fn put_left(&self) -> Result<()> {
        self.group.store.put(self.key("left", Some(self.group.index)), b"")
    }

    /// Says that this process needs nothing more from the store, which process 0 waits for.
    fn leave(&self) -> Result<()> {
        self.put_left()?;
        let others = if self.group.index == 0 { 1..self.group.count } else { 0..0 };
        for process in others {
            if self.group.wait(&self.key("left", Some(process)), process)?.is_none() {
                tracing::warn!(process, "a process did not answer");
            }
        }
        Ok(())
    }

    fn key(&self, what: &str, process: Option<usize>) -> String {
        let process = process.map(|process| format!("/{process}")).unwrap_or_default();
        format!("stop/{}/{what}{process}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::agreement::tests::{LONG, processes};
    use super::*;
    use std::sync::Barrier;

    /// Takes steps until the agreement says which was the last one, and returns that.
    fn steps(agreement: &StopAgreement, mut step: impl FnMut(u64)) -> Result<(u64, String)> {
        for number in 0.. {
            step(number);
            if let Some(reason) = agreement.is_last(number)? {
                return Ok((number, reason));
            }
        }
        Err(TpuError::Bug("there are more steps".into()))
    }

    #[test]
    fn processes_at_different_steps_stop_after_the_same_one() {
        let stopped = processes(3, LONG, &[0, 1, 2], |group| {
            let agreement = StopAgreement::of(group.clone(), 0)?;
            let pause = Duration::from_micros(100 * (1 + group.index as u64));
            steps(&agreement, |step| {
                std::thread::sleep(pause);
                if (group.index, step) == (1, 5) {
                    agreement.request("a signal");
                }
            })
        });
        let stopped: Vec<_> = stopped.into_iter().map(Result::unwrap).collect();
        assert!(stopped.iter().all(|one| *one == stopped[0]), "{stopped:?}");
        assert_eq!(stopped[0].1, "process 1: a signal");
    }

    /// As on a mesh, no process finishes a step that the others do not take.
    #[test]
    fn processes_that_wait_for_each_other_in_every_step_stop_together() {
        let together = Barrier::new(3);
        for hearer in 0..3 {
            let stopped = processes(3, LONG, &[0, 1, 2], |group| {
                let agreement = StopAgreement::of(group.clone(), 0)?;
                steps(&agreement, |step| {
                    together.wait();
                    if (group.index, step) == (hearer, 2) {
                        agreement.request("a signal");
                    }
                })
            });
            let stopped: Vec<_> = stopped.into_iter().map(|one| one.unwrap().0).collect();
            // The hearer ends the step it is in; the others may be in the next one.
            assert!([[2; 3], [3; 3]].contains(&[stopped[0], stopped[1], stopped[2]]), "{stopped:?}");
        }
    }

    #[test]
    fn several_requests_are_one_stop() {
        let stopped = processes(2, LONG, &[0, 1], |group| {
            let agreement = StopAgreement::of(group.clone(), 0)?;
            agreement.request("first");
            agreement.request("second");
            steps(&agreement, |_| ())
        });
        let stopped: Vec<_> = stopped.into_iter().map(Result::unwrap).collect();
        assert_eq!((stopped[0].0, stopped[1].0), (0, 0));
        assert!(stopped.iter().all(|(_, reason)| reason.ends_with("first")), "{stopped:?}");
    }

    #[test]
    fn a_process_that_takes_no_more_steps_does_not_keep_the_others() {
        let has_left = Barrier::new(3);
        let stopped = processes(3, LONG, &[0, 1, 2], |group| {
            let agreement = StopAgreement::of(group.clone(), 0)?;
            if group.index == 2 {
                assert_eq!(agreement.is_last(7)?, None);
                drop(agreement);
                has_left.wait();
                return Ok((7, String::new()));
            }
            has_left.wait();
            agreement.request("a signal");
            steps(&agreement, |_| ())
        });
        // Those that had not finished a step go on to the one that the third has finished.
        assert_eq!(stopped.into_iter().map(|one| one.unwrap().0).collect::<Vec<_>>(), [7, 7, 7]);
    }

    #[test]
    fn a_process_that_does_not_come_is_an_error_that_names_it_and_stays() {
        let errors = processes(3, Duration::from_millis(300), &[0, 2], |group| {
            let agreement = StopAgreement::of(group.clone(), 0).unwrap();
            agreement.request("a signal");
            let error = agreement.is_last(3).unwrap_err();
            assert_eq!(agreement.is_last(4).unwrap_err().to_string(), error.to_string());
            error
        });
        for error in errors {
            assert!(matches!(error, TpuError::MissingProcess { process: 1, count: 3, .. }), "{error}");
        }
    }
}
