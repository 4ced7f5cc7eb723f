//! The running compiles: each has its own thread, so that a caller can stop waiting while the compile continues.
//!
//! - A second request for a program that is already being compiled waits for the running compile, from any thread.
//! - Compiles of different programs never wait for each other.
//! - A compile that takes long is announced once, however many wait for it.
//! - If all callers stopped waiting, the outcome is stored here until the program is requested again.
//!
//! May not know: programs, engines.

use crate::error::{Result, TpuError};
use burn_tpu_pjrt::WorkGuard;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The identity of a program.
type Key = [u8; 32];

/// Compilers recurse along a program's longest chain. The system commits only the pages of the stack that are used.
const STACK_BYTES: usize = 16 << 20;

/// The running and finished compiles of one device.
pub(crate) struct Compiling<T> {
    jobs: Mutex<FxHashMap<Key, Arc<Job<T>>>>,
}

struct Job<T> {
    outcome: Mutex<Option<Result<T>>>,
    ended: Condvar,
    is_announced: AtomicBool,
}

/// What to do once a compile has gone on for a time.
pub(crate) struct Notice<F> {
    pub(crate) after: Duration,
    pub(crate) call: F,
}

impl<T> Default for Compiling<T> {
    fn default() -> Self {
        Self { jobs: Mutex::default() }
    }
}

impl<T: Clone + Send + 'static> Compiling<T> {
    /// Returns the outcome of `compile`, or of an earlier compile of the same program that is running or whose outcome
    /// is stored. Returns `None` if there is no outcome within `limit` (zero: no limit); the compile then continues.
    /// It calls `notice` with the time that it has waited, unless another caller did for the same compile.
    pub(crate) fn wait_for(
        &self,
        key: Key,
        limit: Duration,
        notice: Notice<impl Fn(Duration)>,
        compile: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Option<Result<T>> {
        let job = match self.join_or_start(key, compile) {
            Ok(job) => job,
            Err(error) => return Some(Err(error)),
        };
        let outcome = job.wait(limit, &notice)?;
        let mut jobs = self.jobs.lock();
        // Another caller may have taken the outcome, and a third one may have started a new compile.
        if jobs.get(&key).is_some_and(|current| Arc::ptr_eq(current, &job)) {
            jobs.remove(&key);
        }
        Some(outcome)
    }

    fn join_or_start(&self, key: Key, compile: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Arc<Job<T>>> {
        let mut jobs = self.jobs.lock();
        if let Some(job) = jobs.get(&key) {
            return Ok(Arc::clone(job));
        }
        // Held until the job ends, so that a process exit does not destroy state that the compiler uses.
        let guard = WorkGuard::new().map_err(TpuError::pjrt("starting a compile"))?;
        let job =
            Arc::new(Job { outcome: Mutex::new(None), ended: Condvar::new(), is_announced: AtomicBool::new(false) });
        let running = Arc::clone(&job);
        let (span, subscriber) = (tracing::Span::current(), tracing::dispatcher::get_default(Clone::clone));
        let run = move || {
            let traced = || span.in_scope(compile);
            let outcome = catch_unwind(AssertUnwindSafe(|| tracing::dispatcher::with_default(&subscriber, traced)));
            drop(guard);
            running.end(outcome.unwrap_or_else(|_| Err(TpuError::Bug("a compile panicked".into()))));
        };
        let thread = std::thread::Builder::new().name("burn-tpu-compile".into()).stack_size(STACK_BYTES).spawn(run);
        thread.map_err(|error| TpuError::Bug(format!("cannot start a thread for a compile: {error}")))?;
        jobs.insert(key, Arc::clone(&job));
        Ok(job)
    }
}

impl<T: Clone> Job<T> {
    fn end(&self, outcome: Result<T>) {
        *self.outcome.lock() = Some(outcome);
        self.ended.notify_all();
    }

    fn wait(&self, limit: Duration, notice: &Notice<impl Fn(Duration)>) -> Option<Result<T>> {
        let begun = Instant::now();
        let left = || if limit.is_zero() { Duration::MAX } else { limit.saturating_sub(begun.elapsed()) };
        let mut outcome = self.outcome.lock();
        self.ended.wait_while_for(&mut outcome, |outcome| outcome.is_none(), left().min(notice.after));
        let is_long = outcome.is_none() && begun.elapsed() >= notice.after;
        if is_long && !self.is_announced.swap(true, Relaxed) {
            (notice.call)(begun.elapsed());
        }
        self.ended.wait_while_for(&mut outcome, |outcome| outcome.is_none(), left());
        outcome.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::ZERO;
    const SHORT: Duration = Duration::from_nanos(1);

    fn silent() -> Notice<impl Fn(Duration)> {
        Notice { after: Duration::from_secs(3600), call: |_| () }
    }

    #[test]
    fn a_long_compile_is_announced_once_whoever_waits_for_it() {
        let (compiling, announced) = (Compiling::<u8>::default(), Mutex::new(Vec::new()));
        let (release, released) = channel();
        let begin = Barrier::new(2);
        let slow = move || {
            released.recv().expect("the test lets it continue");
            Ok(7)
        };
        let after = Duration::from_millis(1);
        let notice = || Notice { after, call: |time: Duration| announced.lock().push(time) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                let joined = compiling.wait_for([1; 32], LONG, notice(), || Ok(7));
                assert_eq!(joined.unwrap().unwrap(), 7);
            });
            assert!(compiling.wait_for([1; 32], Duration::from_millis(20), notice(), slow).is_none(), "it goes on");
            begin.wait();
            std::thread::sleep(Duration::from_millis(20));
            release.send(()).expect("the compile is waiting");
        });
        let announced = announced.into_inner();
        assert!(announced.len() == 1 && announced[0] >= after, "{announced:?}");
    }

    #[test]
    fn a_short_compile_is_not_announced() {
        let notice = Notice { after: Duration::from_secs(3600), call: |_| panic!("it is short") };
        assert_eq!(Compiling::<u8>::default().wait_for([1; 32], LONG, notice, || Ok(7)).unwrap().unwrap(), 7);
    }

    #[test]
    fn a_compile_that_exceeds_the_limit_continues_and_is_used_later() {
        let compiling = Compiling::<u32>::default();
        let (release, released) = channel::<()>();
        let slow = move || {
            released.recv().expect("the test lets it continue");
            Ok(7)
        };
        assert!(compiling.wait_for([1; 32], SHORT, silent(), slow).is_none());
        assert_eq!(
            compiling.wait_for([2; 32], LONG, silent(), || Ok(8)).unwrap().unwrap(),
            8,
            "other programs do not wait"
        );
        release.send(()).expect("the compile is waiting");
        let again = || panic!("the first compile is still running");
        assert_eq!(compiling.wait_for([1; 32], LONG, silent(), again).unwrap().unwrap(), 7);
        assert!(compiling.jobs.lock().is_empty());
        assert_eq!(
            compiling.wait_for([1; 32], LONG, silent(), || Ok(9)).unwrap().unwrap(),
            9,
            "the outcome is returned once"
        );
    }

    /// Each of the three compiles ends only when all three run.
    #[test]
    fn different_programs_compile_at_the_same_time() {
        let (compiling, together) = (Compiling::<u8>::default(), Arc::new(Barrier::new(3)));
        std::thread::scope(|scope| {
            for program in 0..3u8 {
                let (compiling, together) = (&compiling, Arc::clone(&together));
                scope.spawn(move || {
                    let compile = move || {
                        together.wait();
                        Ok(program)
                    };
                    assert_eq!(compiling.wait_for([program; 32], LONG, silent(), compile).unwrap().unwrap(), program);
                });
            }
        });
    }

    #[test]
    fn failures_and_panics_reach_the_caller_and_are_not_stored() {
        let compiling = Compiling::<u8>::default();
        let failed = compiling.wait_for([1; 32], LONG, silent(), || Err(TpuError::Bug("no".into()))).unwrap();
        assert!(failed.unwrap_err().to_string().contains("no"));
        let panicked = compiling.wait_for([1; 32], LONG, silent(), || panic!("on purpose")).unwrap();
        assert!(matches!(panicked.unwrap_err(), TpuError::Bug(_)));
        assert_eq!(compiling.wait_for([1; 32], LONG, silent(), || Ok(1)).unwrap().unwrap(), 1);
    }
}
