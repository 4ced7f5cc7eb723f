//! What the whole process does to its plugins: it forks, and it exits while work is under way.
//!
//! - **Fork.** A child has the parent's memory and one thread of it. A plugin's threads are gone, and its locks may be
//!   held for good, so that a call can wait for ever. [`Process`] tells a plugin that this process loaded from one that its
//!   parent did; [`Api::call`](crate::api::Api::call) refuses the latter.
//! - **Exit.** libc runs the destructors of the plugin's static objects while its threads go on. A compiler uses such
//!   objects all the time, and so does a program that runs (oneDNN's compiled kernels are some): they crash. So an exit
//!   during a compile or a call ([`WorkGuard`]), or while a program runs ([`Work`]), ends the process at once, with the
//!   status that it was to have, and runs none of those destructors. It does not wait for the work, which may take minutes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, Once, Weak};

use crate::error::{PjrtError, Result};

/// Forks between the first process that loaded a plugin and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The [`WorkGuard`]s of this process.
static GUARDS: AtomicUsize = AtomicUsize::new(0);
/// What [`watch_work`] was given.
static WORK: Mutex<Vec<Weak<dyn Work>>> = Mutex::new(Vec::new());
static EXITING: AtomicBool = AtomicBool::new(false);

/// The process in which something was made. Compares in one load from memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    forks: u32,
    /// Its number, for people.
    pub(crate) id: u32,
}

impl Process {
    /// The calling process, of which forked children are told apart from here on.
    pub(crate) fn current() -> Process {
        watch_forks();
        Process { forks: FORKS.load(SeqCst), id: std::process::id() }
    }

    /// Whether the calling process is this one, and not a forked child of it.
    pub(crate) fn is_current(self) -> bool {
        FORKS.load(std::sync::atomic::Ordering::Relaxed) == self.forks
    }
}

/// While one of these exists, an exit of the process skips the destructors of static objects, which the plugin may be
/// using, and every handler that was registered before the plugin was loaded.
///
/// [`Client::compile`](crate::Client::compile), [`Client::load_serialized`](crate::Client::load_serialized),
/// [`TopologyDescription::compile`](crate::TopologyDescription::compile) and
/// [`LoadedExecutable::execute`](crate::LoadedExecutable::execute) hold one. A thread that compiles in the background holds
/// one for all of its work.
#[derive(Debug)]
pub struct WorkGuard(());

impl WorkGuard {
    /// Notes that work begins.
    ///
    /// # Errors
    /// [`PjrtError::Exiting`] once the process has begun to exit.
    pub fn new() -> Result<WorkGuard> {
        watch_exit();
        GUARDS.fetch_add(1, SeqCst);
        let guard = WorkGuard(());
        if EXITING.load(SeqCst) { Err(PjrtError::Exiting) } else { Ok(guard) }
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        // A guard of the parent's that ends in a forked child was not counted there.
        let _ = GUARDS.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
    }
}

/// Work that goes on after the call that began it: programs that were started and not waited for.
pub trait Work: Send + Sync {
    /// Returns whether any of it may be unfinished. Called while the process exits: it must not wait for a lock.
    fn is_under_way(&self) -> bool;
}

/// Has an exit of the process ask for this work, as if a [`WorkGuard`] existed while it is under way.
pub fn watch_work(work: Weak<dyn Work>) {
    let mut all = WORK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.retain(|work| work.strong_count() > 0);
    all.push(work);
}

/// Returns whether a plugin may be working on another thread. A list that another thread holds is about to change.
fn is_work_under_way() -> bool {
    let Ok(work) = WORK.try_lock() else { return true };
    GUARDS.load(SeqCst) > 0 || work.iter().filter_map(Weak::upgrade).any(|work| work.is_under_way())
}

#[cfg(unix)]
fn watch_forks() {
    unsafe extern "C" fn in_child() {
        FORKS.fetch_add(1, SeqCst);
        GUARDS.store(0, SeqCst);
    }
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler runs in a forked child and stores to two atomics, which POSIX allows there; its code is
        // never unloaded, since this crate is linked into the program or a library that plugins pin.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if refused != 0 {
            tracing::warn!("forked children cannot be told apart: no memory for a handler");
        }
    });
}

#[cfg(not(unix))]
fn watch_forks() {}

/// Has the exit look for work before it destroys anything.
///
/// An exit runs its handlers and destructors in the reverse order of their registration, and a plugin registers those of its
/// static objects when it makes them, some as late as in a compile. So the handler is registered twice: after a plugin
/// was loaded, and once more by the thread that exits, as the newest of all.
pub(crate) fn watch_exit() {
    static WATCH: Once = Once::new();
    WATCH.call_once(exit::register);
    // It fails only on a thread that is ending already.
    let _ = AT_THREAD_END.try_with(|_| ());
}

/// Registers the handler when its thread ends. libc ends the thread-local values of the thread that exits the process
/// before it runs any handler. What other threads register is superfluous and costs 32 bytes.
struct AtThreadEnd;

thread_local! {
    static AT_THREAD_END: AtThreadEnd = const { AtThreadEnd };
}

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        exit::register();
    }
}

/// glibc, for which libtpu and the CUDA plugin are built: the handler learns the exit's status.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod exit {
    use super::{EXITING, SeqCst, is_work_under_way};
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        /// glibc, `stdlib.h`: as `atexit`, with the status for the handler.
        fn on_exit(handler: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }

    unsafe extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
        EXITING.store(true, SeqCst);
        if is_work_under_way() {
            // SAFETY: null means every stream that is open for writing. Rust's own output is flushed by now.
            unsafe { libc::fflush(std::ptr::null_mut()) };
            // SAFETY: it takes a number and does not return.
            unsafe { libc::_exit(status) };
        }
    }

    pub(super) fn register() {
        // SAFETY: the handler ignores its argument, does not panic, and its code is never unloaded.
        let refused = unsafe { on_exit(at_exit, std::ptr::null_mut()) };
        if refused != 0 {
            tracing::warn!("an exit while a plugin works may crash: no memory for a handler");
        }
    }
}

/// Elsewhere the handler does not learn the status: an exit gives the work some time to end, and goes on.
#[cfg(all(unix, not(all(target_os = "linux", target_env = "gnu"))))]
mod exit {
    use super::{EXITING, SeqCst, is_work_under_way};
    use std::time::Duration;

    const STEP: Duration = Duration::from_millis(5);
    const MOST_STEPS: u32 = 400;

    extern "C" fn at_exit() {
        EXITING.store(true, SeqCst);
        for _ in 0..MOST_STEPS {
            if !is_work_under_way() {
                return;
            }
            std::thread::sleep(STEP);
        }
    }

    pub(super) fn register() {
        // SAFETY: the handler does not panic, and its code is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
}

#[cfg(not(unix))]
mod exit {
    pub(super) fn register() {}
}
