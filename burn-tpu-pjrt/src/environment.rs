//! The environment variables that plugins need before they are loaded: the only place in the project that writes any.

use std::sync::Mutex;

/// Name, value, why. Measured with libtpu 0.0.51.
const AOT_VARIABLES: [(&str, &str); 6] = [
    // Else initialising asks the cloud's metadata server for each setting and waits half a minute per try.
    ("TPU_SKIP_MDS_QUERY", "1"),
    // Else a lock file lets only one process at a time load the library, although no device is shared.
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    // Else it complains on stderr that nobody told it its place in a slice; the values are not used for compiling.
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
    // Else it writes log files into the temporary directory.
    ("TPU_LOG_DIR", "disabled"),
    // Else it tries to move the program's code into huge pages and complains on stderr where that cannot be done.
    ("LIBTPU_INIT_ARGS", "--hugepage_text=false"),
];

/// Sets what libtpu needs to compile ahead of time on a machine without a TPU; variables already set are left alone.
///
/// [`Plugin::load`](crate::Plugin::load) calls it for libtpu when [`tpu_present`](crate::presence::tpu_present) says
/// no. Writing to the environment while another thread of C code reads it is a data race in C libraries older
/// than glibc 2.41, so a program that wants none at all calls this first thing in `main`: later calls find
/// everything set and write nothing. Never call it on a TPU host.
pub fn aot_environment() {
    set_missing(&AOT_VARIABLES);
}

/// Keeps XLA's own notes (two lines per client) off stderr; its warnings and errors stay. A level that is set already is
/// left alone. The rule of [`aot_environment`] about threads holds here too.
pub(crate) fn quiet_environment() {
    set_missing(&[("TF_CPP_MIN_LOG_LEVEL", "1")]);
}

fn set_missing(variables: &[(&str, &str)]) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _one_writer = WRITING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for (name, value) in variables {
        if std::env::var_os(name).is_none() {
            tracing::debug!(name, value, "environment variable set");
            // SAFETY: std's own readers and writers share a lock with this call. Threads in C code that call `getenv`
            // meanwhile are safe from glibc 2.41 on; before, callers keep to the rule in `aot_environment`'s docs.
            unsafe { std::env::set_var(name, value) };
        }
    }
}
