//! The doctor's results as plain data, which is also the shape of `--json`. Sizes are in bytes, times in seconds.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The whole report.
#[derive(Serialize)]
pub struct Report {
    /// This command's version, which is burn-tpu's.
    pub version: &'static str,
    /// The device that a program gets if it names none; null if the requested platform does not work.
    pub default_device: Option<String>,
    /// Whether that device runs programs through a plugin, or in the interpreter because a variable requests it.
    pub usable: bool,
    /// One entry per platform, best first.
    pub platforms: Vec<PlatformReport>,
    /// Every plugin file that was found, and the result of trying it.
    pub plugins: Vec<PluginReport>,
    /// Accelerators, found by their device files.
    pub hardware: Hardware,
    /// The relevant variables that are set.
    pub environment: Vec<Variable>,
    /// The cache folder.
    pub cache: CacheReport,
    /// What is wrong, and the command that fixes it.
    pub problems: Vec<Problem>,
}

/// One platform.
#[derive(Serialize)]
pub struct PlatformReport {
    /// `tpu`, `cuda`, `cpu` or `ndarray`.
    pub name: &'static str,
    /// Its state.
    pub state: State,
    /// The state as text for people.
    pub summary: String,
}

/// The state of a platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It ran a matmul and the result was correct. The interpreter is not tried, since it needs nothing.
    Works,
    /// Its plugin compiles for devices that are not attached.
    AheadOfTime,
    /// There is no plugin, or no device for it.
    Absent,
    /// Its plugin fails.
    Broken,
}

/// One plugin file.
#[derive(Debug, Default, Serialize)]
pub struct PluginReport {
    /// The library file.
    pub path: PathBuf,
    /// The platform that it reports, else the one of the place where it was found; null if neither is known.
    pub platform: Option<String>,
    /// The variable that names it, or where it was found.
    pub source: String,
    /// The platforms for which discovery chooses this file.
    pub used_for: Vec<&'static str>,
    /// Its size.
    pub bytes: u64,
    /// The version of the PJRT C API.
    pub pjrt: Option<String>,
    /// XLA's version.
    pub xla: Option<String>,
    /// The newest StableHLO version that it reads.
    pub stablehlo: Option<String>,
    /// The kinds of its client's devices; null if no client was created.
    pub devices: Option<Vec<String>>,
    /// Whether it compiles for devices that are not attached.
    pub ahead_of_time: bool,
    /// The failure of the probe, if it failed.
    pub failure: Option<Failure>,
}

/// Why a probe failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The stage that failed.
    pub stage: Stage,
    /// The kind of failure.
    pub reason: Reason,
    /// The full error text.
    pub message: String,
}

/// The steps of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Opening the library and initialising the plugin.
    Load,
    /// Starting a client, which opens the devices.
    Client,
    /// Running a matmul.
    Proof,
}

/// Kinds of failure that have different fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The file does not exist.
    Missing,
    /// The dynamic linker refuses the file.
    NotLoadable,
    /// A library that is not a plugin.
    NotAPlugin,
    /// A PJRT version that this build does not support.
    Version,
    /// `XLA_FLAGS` would abort the process.
    XlaFlag,
    /// Another process uses the TPU.
    Locked,
    /// The plugin finds no device.
    NoDevice,
    /// The process died.
    Died,
    /// The process did not end in time.
    Hung,
    /// The result is wrong.
    WrongNumbers,
    /// Anything else; see the message.
    Other,
}

/// Accelerators.
#[derive(Serialize)]
pub struct Hardware {
    /// TPUs.
    pub tpu: Accelerator,
    /// NVIDIA GPUs.
    pub gpu: Accelerator,
    /// The loaded NVIDIA driver's version line.
    pub nvidia_driver: Option<String>,
    /// libtpu's lock file.
    pub libtpu_lock: Lock,
}

/// One kind of accelerator.
#[derive(Serialize)]
pub struct Accelerator {
    /// Whether there is one.
    pub present: bool,
    /// Their device files.
    pub devices: Vec<PathBuf>,
    /// Processes that have one open.
    pub used_by: Vec<String>,
    /// The number of processes that this user may not inspect.
    pub hidden_processes: usize,
}

/// libtpu's lock file.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Lock {
    /// Nobody holds it.
    Free,
    /// A process holds it.
    Held {
        /// Its id.
        pid: u32,
        /// Its command line, empty if hidden.
        command: String,
    },
    /// Another user's file, which libtpu cannot open.
    Foreign {
        /// That user's id.
        owner: u32,
    },
}

/// An environment variable.
#[derive(Serialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The cache folder.
#[derive(Default, Serialize)]
pub struct CacheReport {
    /// Its path, whether or not it exists; null if no variable determines it.
    pub path: Option<PathBuf>,
    /// Whether it exists.
    pub exists: bool,
    /// Whether this user may write to it.
    pub writable: bool,
    /// Folders in it that other users may write to or that another user owns.
    pub open_to_others: Vec<PathBuf>,
    /// Its folders.
    pub entries: Vec<CacheEntry>,
    /// Stale files: plugins of versions that are not pinned, interrupted downloads.
    pub stale: Vec<PathBuf>,
    /// The free space on its disk.
    pub free_bytes: Option<u64>,
}

/// A folder in the cache folder.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct CacheEntry {
    /// Its name.
    pub name: String,
    /// The size of all files in it.
    pub bytes: u64,
    /// The number of files in it.
    pub files: usize,
}

/// A problem.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// What is wrong.
    pub what: String,
    /// The command that fixes it.
    pub fix: String,
}
