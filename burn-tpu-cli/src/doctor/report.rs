//! What the doctor found: plain data, the shape of `--json`. Sizes are in bytes, times in seconds.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Everything.
#[derive(Serialize)]
pub struct Report {
    /// This command's version, which is burn-tpu's.
    pub version: &'static str,
    /// The device that a program gets when it names none; none when the platform asked for does not work.
    pub default_device: Option<String>,
    /// Whether that device runs programs through a plugin, or on burn-ndarray because somebody asked for it.
    pub usable: bool,
    /// One entry per platform, best first.
    pub platforms: Vec<PlatformReport>,
    /// Every plugin file found, and what came of trying it.
    pub plugins: Vec<PluginReport>,
    /// Accelerators, told from device files.
    pub hardware: Hardware,
    /// The variables that are set and matter here.
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
    /// How it stands.
    pub state: State,
    /// The same for people.
    pub summary: String,
}

/// How a platform stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It ran a matmul and the numbers were right. burn-ndarray is not tried: it is part of programs, not of this command.
    Works,
    /// Its plugin compiles for devices that are not here.
    AheadOfTime,
    /// There is no plugin, or no device for it.
    Absent,
    /// Something is there and fails.
    Broken,
}

/// One plugin file.
#[derive(Debug, Default, Serialize)]
pub struct PluginReport {
    /// The library file.
    pub path: PathBuf,
    /// The platform that it serves, in its own words or else by where it was found; none if neither tells.
    pub platform: Option<String>,
    /// Who named it, or where it was found.
    pub source: String,
    /// For which platforms discovery picks this file.
    pub used_for: Vec<&'static str>,
    /// Its size.
    pub bytes: u64,
    /// The version of the PJRT C API.
    pub pjrt: Option<String>,
    /// XLA's version.
    pub xla: Option<String>,
    /// The newest StableHLO version that it reads.
    pub stablehlo: Option<String>,
    /// The kinds of the devices that its client has; none if no client was made.
    pub devices: Option<Vec<String>>,
    /// Whether it compiles for devices that are not here.
    pub ahead_of_time: bool,
    /// Where trying it ended, if it did not go well.
    pub failure: Option<Failure>,
}

/// Why a probe came to no good end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What was being done.
    pub stage: Stage,
    /// What kind of failure it is.
    pub reason: Reason,
    /// The error, whole.
    pub message: String,
}

/// The steps of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Opening the library and initialising the plugin.
    Load,
    /// Starting a client, which takes hold of the devices.
    Client,
    /// Running a matmul.
    Proof,
}

/// Kinds of failure, as far as their fixes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The file does not exist.
    Missing,
    /// The dynamic linker refuses the file.
    NotLoadable,
    /// A library, but no plugin.
    NotAPlugin,
    /// A PJRT version that this build does not speak.
    Version,
    /// `XLA_FLAGS` would abort the process.
    XlaFlag,
    /// Another process has the TPU.
    Locked,
    /// The plugin finds no device.
    NoDevice,
    /// The process died.
    Died,
    /// The process did not end in time.
    Hung,
    /// The numbers are wrong.
    WrongNumbers,
    /// Anything else; the message says what.
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
    /// Processes that this user may not look into.
    pub hidden_processes: usize,
}

/// libtpu's lock file.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Lock {
    /// Nobody holds it.
    Free,
    /// A process has it.
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

/// A variable in force.
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
    /// Where it is, whether or not it exists; none when no variable says.
    pub path: Option<PathBuf>,
    /// Whether it exists.
    pub exists: bool,
    /// Whether this user may write to it.
    pub writable: bool,
    /// Folders in it that other users may write to, or that are another user's.
    pub open_to_others: Vec<PathBuf>,
    /// What is in it.
    pub entries: Vec<CacheEntry>,
    /// Left over: plugins of versions that are not the pinned ones, downloads that were cut off.
    pub stale: Vec<PathBuf>,
    /// Free on its disk.
    pub free_bytes: Option<u64>,
}

/// A folder in the cache folder.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct CacheEntry {
    /// Its name.
    pub name: String,
    /// The size of all files in it.
    pub bytes: u64,
    /// Their number.
    pub files: usize,
}

/// Something wrong.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// What.
    pub what: String,
    /// The command that fixes it.
    pub fix: String,
}
