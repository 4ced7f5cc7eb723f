//! The environment variables that plugins need before they are loaded: the only place in the project that writes any.

use std::sync::Mutex;

/// Name and value, each with its reason. Measured with libtpu 0.0.51.
const AOT_VARIABLES: [(&str, &str); 6] = [
    // Without it, initialising queries the cloud's metadata server for each setting and waits half a minute per try.
    ("TPU_SKIP_MDS_QUERY", "1"),
    // Without it, a lock file lets only one process at a time load the library, even if they share no device.
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    // Without it, libtpu complains on stderr that its place in a slice is unknown; the values are not used for
    // compiling.
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
    // Without it, libtpu writes log files into the temporary directory.
    ("TPU_LOG_DIR", "disabled"),
    // Without it, libtpu tries to move the program's code into huge pages, and complains on stderr where that fails.
    ("LIBTPU_INIT_ARGS", "--hugepage_text=false"),
];

/// Sets the environment variables that libtpu needs to compile ahead of time on a machine without a TPU. Variables that
/// are already set keep their values.
///
/// [`Plugin::load`](crate::Plugin::load) calls it for libtpu when [`tpu_present`](crate::presence::tpu_present) returns
/// false. In C libraries older than glibc 2.41, writing to the environment while a thread of C code reads it is a data
/// race. A program that must rule this race out calls this function first in `main`: later calls then find every
/// variable set and write nothing. Never call it on a TPU host.
pub fn aot_environment() {
    set_missing(&AOT_VARIABLES);
}

/// Keeps XLA's informational log (two lines per client) off stderr; its warnings and errors stay. A level that is
/// already set is kept. The rule of [`aot_environment`] about threads holds here too.
pub(crate) fn quiet_environment() {
    set_missing(&[("TF_CPP_MIN_LOG_LEVEL", "1")]);
}

/// The variable from which XLA's CPU client takes the number of its threads; the number of processors without it.
const CPU_THREADS: &str = "NPROC";

/// The threads of a CPU client for each of its devices. With 9 threads for 8 devices, a transformer's step of JAX still
/// stopped; with 17 it ran. More threads than that cost no time that could be measured.
const THREADS_PER_DEVICE: usize = 4;

/// Gives the CPU client that is created next enough threads for its devices. A device that waits in a collective blocks one
/// of the client's threads; where all of them wait for a device that has none left, the plugin ends the process after 40 s
/// (seen with a transformer on 8 devices and 2 processors). A number that the user has set is kept. The rule of
/// [`aot_environment`] about threads holds here too.
pub(crate) fn cpu_threads(devices: usize) {
    static SET_BY_US: Mutex<Option<usize>> = Mutex::new(None);
    let mut set_by_us = SET_BY_US.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let needed = THREADS_PER_DEVICE * devices;
    let enough = set_by_us.unwrap_or(available) >= needed;
    if devices > 1 && !enough && (set_by_us.is_some() || std::env::var_os(CPU_THREADS).is_none()) {
        write(CPU_THREADS, &needed.to_string());
        *set_by_us = Some(needed);
    }
}

/// The variable from which each library that contains XLA takes options, once per process.
const XLA_FLAGS: &str = "XLA_FLAGS";

/// Adds an option of XLA, such as `xla_cpu_enable_fast_min_max`, to the variable `XLA_FLAGS`. One that the user has set there
/// is kept. XLA reads the variable once, when its first client starts; it ends the process if it does not know an option.
/// The rule of [`aot_environment`] about threads holds here too.
///
/// This is for a library that takes options in no other way. A program for a plugin has its own:
/// [`CompileOptions`](crate::CompileOptions).
pub fn xla_flag_environment(name: &str, value: bool) {
    let flags = std::env::var(XLA_FLAGS).unwrap_or_default();
    if !flags.contains(name) {
        write(XLA_FLAGS, format!("{flags} --{name}={value}").trim());
    }
}

fn set_missing(variables: &[(&str, &str)]) {
    variables.iter().filter(|(name, _)| std::env::var_os(name).is_none()).for_each(|(name, value)| write(name, value));
}

fn write(name: &str, value: &str) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _one_writer = WRITING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    tracing::debug!(name, value, "environment variable set");
    // SAFETY: std's own readers and writers share a lock with this call. C code that calls `getenv` on another thread is
    // safe from glibc 2.41 on; before, callers follow the rule in `aot_environment`'s docs.
    unsafe { std::env::set_var(name, value) };
}
