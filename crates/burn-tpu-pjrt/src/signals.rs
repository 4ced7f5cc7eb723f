//! SIGTERM and SIGINT stay the program's.
//!
//! libtpu installs a handler for SIGTERM that prints a stack and ends the process, in front of any that the program had: a
//! run could not save when it is told to end. So whatever a plugin installs for these two signals while it starts is taken
//! back. Its handlers for crashes stay.

#[cfg(unix)]
pub(crate) use unix::KeptSignals;

#[cfg(unix)]
mod unix {
    use libc::{SIGINT, SIGTERM, c_int, sigaction};
    use std::mem::MaybeUninit;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    const SIGNALS: [c_int; 2] = [SIGTERM, SIGINT];

    /// What the program does at the signals, while plugins start.
    struct Program {
        starting: usize,
        actions: [Option<sigaction>; 2],
    }

    static PROGRAM: Mutex<Program> = Mutex::new(Program { starting: 0, actions: [None; 2] });

    /// Exists while a plugin starts. Its drop makes the program's actions the present ones again.
    pub(crate) struct KeptSignals(());

    impl KeptSignals {
        pub(crate) fn new() -> Self {
            let mut program = program();
            // If another plugin is starting, the present actions may be that plugin's.
            if program.starting == 0 {
                program.actions = SIGNALS.map(action);
            }
            program.starting += 1;
            Self(())
        }
    }

    impl Drop for KeptSignals {
        fn drop(&mut self) {
            let mut program = program();
            program.starting -= 1;
            for (signal, kept) in SIGNALS.into_iter().zip(&program.actions) {
                kept.as_ref().into_iter().for_each(|kept| put_back(signal, kept));
            }
        }
    }

    fn program() -> MutexGuard<'static, Program> {
        PROGRAM.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_back(signal: c_int, kept: &sigaction) {
        if action(signal).is_some_and(|now| now.sa_sigaction != kept.sa_sigaction) {
            // SAFETY: the system returned this action for this signal, so its handler is code of the program or of a library
            // that is never unloaded; the pointers live during the call.
            let refused = unsafe { libc::sigaction(signal, kept, std::ptr::null_mut()) };
            tracing::debug!(signal, refused, "a plugin's handler of a signal is taken back");
        }
    }

    /// Returns what the process does at a signal; `None` if the system does not say.
    fn action(signal: c_int) -> Option<sigaction> {
        let mut action = MaybeUninit::uninit();
        // SAFETY: without a new action the call only writes the present one to `action`, which has room for it.
        let refused = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
        // SAFETY: the call has written it.
        (refused == 0).then(|| unsafe { action.assume_init() })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_handler_that_a_plugin_installs_is_taken_back() {
            extern "C" fn of_a_plugin(_: c_int) {}
            let before = action(SIGTERM).unwrap().sa_sigaction;
            let kept = KeptSignals::new();
            // SAFETY: the handler does nothing, which is allowed at any time.
            unsafe { libc::signal(SIGTERM, of_a_plugin as *const () as usize) };
            assert_ne!(action(SIGTERM).unwrap().sa_sigaction, before);
            // A second plugin that starts meanwhile does not take the first one's handler for the program's.
            drop(KeptSignals::new());
            assert_eq!(action(SIGTERM).unwrap().sa_sigaction, before);
            drop(kept);
            assert_eq!(action(SIGTERM).unwrap().sa_sigaction, before);
        }
    }
}

/// Elsewhere there are no such signals.
#[cfg(not(unix))]
pub(crate) struct KeptSignals;

#[cfg(not(unix))]
impl KeptSignals {
    pub(crate) fn new() -> Self {
        Self
    }
}
