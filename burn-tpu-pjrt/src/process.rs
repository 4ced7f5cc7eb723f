//! What the whole process does to its plugins: it forks, and it exits while a compile is under way.
//!
//! - **Fork.** A child has the parent's memory and one thread of it. A plugin's threads are gone, and its locks may be
//!   held for good, so that a call can wait for ever. [`Process`] tells a plugin that this process loaded from one that its
//!   parent did; [`Api::call`](crate::api::Api::call) refuses the latter.
//! - **Exit.** libc runs the destructors of the plugin's static objects while its threads go on. A compiler uses such
//!   objects all the time and crashes. So an exit first waits for the compiles under way ([`CompileGuard`]), and after
//!   [`EXIT_LIMIT`] ends the process, with the status that it was to have, without running those destructors.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::error::{PjrtError, Result};

/// The longest that an exit waits for compiles. A compile may take minutes; nobody waits that long for a process that has
/// nothing left to do.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

/// Forks between the first process that loaded a plugin and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Compiles under way in this process.
static COMPILES: AtomicUsize = AtomicUsize::new(0);
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

/// While one of these exists, the process's exit waits for it, for 2 s at most; a compile that goes on longer ends with the
/// process, which then skips the destructors of static objects.
///
/// [`Client::compile`](crate::Client::compile), [`Client::load_serialized`](crate::Client::load_serialized) and
/// [`TopologyDescription::compile`](crate::TopologyDescription::compile) hold one. A thread that compiles in the background
/// holds one for all of its work.
#[derive(Debug)]
pub struct CompileGuard(());

impl CompileGuard {
    /// Counts a compile.
    ///
    /// # Errors
    /// [`PjrtError::Exiting`] once the process has begun to exit.
    pub fn new() -> Result<CompileGuard> {
        watch_exit();
        COMPILES.fetch_add(1, SeqCst);
        let guard = CompileGuard(());
        if EXITING.load(SeqCst) { Err(PjrtError::Exiting) } else { Ok(guard) }
    }
}

impl Drop for CompileGuard {
    fn drop(&mut self) {
        // A guard of the parent's that ends in a forked child was not counted there.
        let _ = COMPILES.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
    }
}

/// Whether every compile has ended, after waiting for them within the limit. Later ones are refused.
fn wait_for_compiles() -> bool {
    const STEP: Duration = Duration::from_millis(5);
    EXITING.store(true, SeqCst);
    let mut waited = Duration::ZERO;
    while COMPILES.load(SeqCst) > 0 && waited < EXIT_LIMIT {
        std::thread::sleep(STEP);
        waited += STEP;
    }
    COMPILES.load(SeqCst) == 0
}

#[cfg(unix)]
fn watch_forks() {
    unsafe extern "C" fn in_child() {
        FORKS.fetch_add(1, SeqCst);
        COMPILES.store(0, SeqCst);
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

/// Has the exit wait for compiles. The exit runs its handlers in the reverse order of their registration, and a
/// plugin registers the destructors of its static objects when it makes them, some as late as in a compile. So the handler
/// is registered twice: here, after the plugin was loaded, and by the main thread when it ends, as the newest of all.
pub(crate) fn watch_exit() {
    static WATCH: Once = Once::new();
    WATCH.call_once(exit::register);
    // No error but that this thread is ending already.
    let _ = AT_END_OF_MAIN.try_with(|_| ());
}

/// Dropped with its thread: libc ends the thread-local values of the thread that exits before it runs the exit's handlers.
struct AtEndOfMain;

thread_local! {
    static AT_END_OF_MAIN: AtEndOfMain = const { AtEndOfMain };
}

impl Drop for AtEndOfMain {
    fn drop(&mut self) {
        if exit::is_main_thread() {
            exit::register();
        }
    }
}

/// glibc and Linux: the handler learns the exit's status.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod exit {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        /// glibc, `stdlib.h`: as `atexit`, with the status for the handler.
        fn on_exit(handler: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }

    unsafe extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
        if !super::wait_for_compiles() {
            // SAFETY: it ends the process at once. Rust's own output is flushed before the handlers run.
            unsafe { libc::_exit(status) };
        }
    }

    pub(super) fn register() {
        // SAFETY: the handler takes no argument, does not panic, and its code is never unloaded.
        let refused = unsafe { on_exit(at_exit, std::ptr::null_mut()) };
        if refused != 0 {
            tracing::warn!("an exit will not wait for compiles: no memory for a handler");
        }
    }

    pub(super) fn is_main_thread() -> bool {
        // SAFETY: it takes and changes nothing.
        let thread = unsafe { libc::gettid() };
        u32::try_from(thread).is_ok_and(|thread| thread == std::process::id())
    }
}

/// Elsewhere the handler does not learn the status, so an exit waits for at most the limit and then goes on.
#[cfg(all(unix, not(all(target_os = "linux", target_env = "gnu"))))]
mod exit {
    extern "C" fn at_exit() {
        super::wait_for_compiles();
    }

    pub(super) fn register() {
        // SAFETY: the handler does not panic, and its code is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }

    pub(super) fn is_main_thread() -> bool {
        false
    }
}

#[cfg(not(unix))]
mod exit {
    pub(super) fn register() {}

    pub(super) fn is_main_thread() -> bool {
        false
    }
}
