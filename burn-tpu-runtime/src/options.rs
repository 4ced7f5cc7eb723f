//! Options of a device: one typed struct, three presets, and every environment variable that overrides one.
//!
//! The table at the end of this file is the only place that lists them: a row has an option's name, type, default, builder
//! method, variable, parser and documentation. [`TpuOptions`], its methods, [`TpuOptions::with_environment`],
//! [`TpuOptions::VARIABLES`] and the table in the latter's documentation are made from it.

#[macro_use]
mod table;
mod parse;

use crate::error::{Result, TpuError};
use crate::{Device, Platform};
use parse::{list, milliseconds, number, policy, seconds, switch, text};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// What happens when a device's engine cannot lower a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FallbackPolicy {
    /// The node runs on the host through burn-ndarray, silently; metrics count it.
    Allow,
    /// As `Allow`, with one warning for each op and device.
    #[default]
    Warn,
    /// The program fails with [`TpuError::FallbackDenied`].
    Deny,
}

const GIB: u64 = 1 << 30;

impl Default for TpuOptions {
    /// The preset for training.
    fn default() -> Self {
        Self::training()
    }
}

impl TpuOptions {
    /// For training: 100 cached programs in memory, 4 GiB of them on disk, warnings on host fallback.
    pub fn training() -> Self {
        Self::table_defaults()
    }

    /// For serving: host fallback is an error, since it would be slow silently.
    pub fn inference() -> Self {
        Self { fallback: FallbackPolicy::Deny, ..Self::training() }
    }

    /// For finding mistakes: warnings become errors, traces are cut early, and nothing comes from an earlier process, so
    /// that every run compiles the same.
    pub fn development() -> Self {
        Self { strict: true, fallback: FallbackPolicy::Deny, disk_cache: false, trace_cap: 20_000, ..Self::training() }
    }

    /// An XLA option for every compile, by its `xla_…` name. The table's rows are set once; this one adds to a list.
    pub fn compiler_flag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.compiler_flags.push((name.into(), value.into()));
        self
    }

    /// Makes these the options of `device`, with the environment's overrides on top.
    ///
    /// Call it before the device's first tensor. Choosing a device ([`Device::default`]), counting the devices of a
    /// platform, [`Device::metrics`], [`Device::program_keys`], [`Device::freeze`] and [`Device::seed`] do not count as a
    /// use.
    ///
    /// The options `plugin`, `memory_fraction` and `cpu_devices` belong to a platform's client, which all devices of the
    /// platform share. A device for which they are not set takes the client as it is.
    ///
    /// # Errors
    /// - [`TpuError::AlreadyRunning`] if the device is in use.
    /// - [`TpuError::ClientOption`] if another device of the platform is in use with another value of an option that
    ///   belongs to the client. The device is then not started.
    /// - [`TpuError::Option`] if an environment variable has a value that means nothing.
    /// - [`TpuError::Unavailable`] if the plugin file that these options name cannot be used. The device then reports
    ///   the same error at every read. Without a named file, a missing plugin is reported by the first read.
    pub fn install(self, device: &impl AsRef<Device>) -> Result<()> {
        crate::runtime::start(*device.as_ref(), self.with_environment()?)
    }

    /// What a node that the engine cannot lower leads to, with strict mode taken into account.
    pub(crate) fn fallback_policy(&self) -> FallbackPolicy {
        if self.strict { FallbackPolicy::Deny } else { self.fallback }
    }
}

/// The platform that `BURN_TPU_PLATFORM` names, if it is set.
pub(crate) fn platform_from_environment() -> Result<Option<Platform>> {
    let Some(name) = parse::variable("BURN_TPU_PLATFORM") else { return Ok(None) };
    match name.parse()? {
        Platform::Topology => Err(TpuError::Option {
            name: "BURN_TPU_PLATFORM".into(),
            value: name,
            rule: "runs nothing; name a slice with Device::topology".into(),
        }),
        platform => Ok(Some(platform)),
    }
}

options! {
    /// Options of one device, fixed at its first use. [`TpuOptions::VARIABLES`] lists the environment variables that
    /// override them.
    ///
    /// ```
    /// use burn_tpu_runtime::{Device, FallbackPolicy, TpuOptions};
    /// TpuOptions::inference().cache_entries(32).fallback(FallbackPolicy::Deny).install(&Device::ndarray())?;
    /// # Ok::<(), burn_tpu_runtime::TpuError>(())
    /// ```
    pub struct TpuOptions {
        /// XLA options for every compile.
        compiler_flags: Vec<(String, String)> = Vec::new(),
    }

    beside options {
        "BURN_TPU_PLATFORM": "[`Device::default`]", "the best that is present",
            "`tpu`, `cuda`, `cpu`, `ndarray`";
        "BURN_TPU_CACHE_DIR": "where plugins and data are kept", "`$XDG_CACHE_HOME/burn-tpu`, else `~/.cache/burn-tpu`",
            "a folder";
    }

    /// The plugin file to load, instead of the search that `docs/plugins.md` describes. If it cannot be used, that is an
    /// error: nothing else is tried. It belongs to the platform's client: see [`TpuOptions::install`].
    plugin(path: impl Into<PathBuf>): Option<PathBuf> = None, Some(path.into());
    "BURN_TPU_PLUGIN": text, "path of a plugin file";

    /// What happens to a node that the engine cannot lower.
    fallback(policy: FallbackPolicy): FallbackPolicy = FallbackPolicy::Warn, policy;
    "BURN_TPU_FALLBACK": policy, "`allow`, `warn`, `deny`";

    /// Whether host fallback, a full trace and a lost donation ([`TpuError::LostDonation`]) are errors instead of warnings.
    /// A fault of the disk cache stays a warning: it costs a compile and never a result.
    strict(strict: bool): bool = false, strict;
    "BURN_TPU_STRICT": switch, "`0`, `1`";

    /// The number of compiled programs that stay in memory, at least 1.
    cache_entries(entries: usize): NonZeroUsize = at_least_one(100), at_least_one(entries);
    "BURN_TPU_CACHE_ENTRIES": number(1, u64::MAX), "a number, at least 1";

    /// The bytes that the compiled programs in memory may take, as their plugin counts them.
    cache_bytes(bytes: u64): u64 = 4 * GIB, bytes;
    "BURN_TPU_CACHE_BYTES": number(0, u64::MAX), "bytes";

    /// Whether compiled programs are kept on disk for later processes.
    disk_cache(kept: bool): bool = true, kept;
    "BURN_TPU_DISK_CACHE": switch, "`0`, `1`";

    /// The folder of compiled programs instead of `programs` in the cache folder (`BURN_TPU_CACHE_DIR`, else
    /// `$XDG_CACHE_HOME/burn-tpu`, else `~/.cache/burn-tpu`). Nobody else may be able to write it.
    disk_cache_dir(folder: impl Into<PathBuf>): Option<PathBuf> = None, Some(folder.into());
    "BURN_TPU_DISK_CACHE_DIR": text, "a folder";

    /// The bytes that the folder of compiled programs may hold; the least recently used ones are deleted.
    disk_cache_bytes(bytes: u64): u64 = 4 * GIB, bytes;
    "BURN_TPU_DISK_CACHE_BYTES": number(0, u64::MAX), "bytes";

    /// The compile time from which a program is kept on disk.
    disk_cache_least_compile(time: Duration): Duration = Duration::from_millis(50), time;
    "BURN_TPU_DISK_CACHE_LEAST_MS": milliseconds, "milliseconds";

    /// The time that a program's compile may take before its tensors report [`TpuError::CompileTimeout`]; 300 s unless set
    /// otherwise, zero for no limit. The compile goes on by itself, and the program uses it when it comes again.
    compile_timeout(limit: Duration): Duration = Duration::from_secs(300), limit;
    "BURN_TPU_COMPILE_TIMEOUT_S": seconds, "seconds, 0 for no limit";

    /// The number of nodes that a trace may hold before it is cut by itself, at least 1.
    trace_cap(nodes: usize): usize = 50_000, nodes.max(1);
    "BURN_TPU_TRACE_CAP": number(1, u64::MAX), "nodes, at least 1";

    /// The number of devices that the CPU plugin makes, 1 to 256, for trying multi-device code on a laptop; 1 unless set
    /// otherwise. It belongs to the platform's client: see [`TpuOptions::install`].
    cpu_devices(count: u16): Option<u16> = None, Some(count.clamp(1, 256));
    "BURN_TPU_CPU_DEVICES": number(1, 256), "a number from 1 to 256";

    /// The part of device memory that the plugin may take, 0 to 1, where it takes such an option (CUDA); 0.9 unless set
    /// otherwise. It belongs to the platform's client: see [`TpuOptions::install`].
    memory_fraction(fraction: f32): Option<f32> = None, Some(fraction.clamp(0.0, 1.0));

    /// Ops (by mnemonic, `stablehlo.sort`) that run on the host although the engine could lower them: to corner a wrong
    /// result, and to test the fallback.
    host_ops(mnemonics: impl IntoIterator<Item = impl Into<String>>): Vec<String> = Vec::new(),
        mnemonics.into_iter().map(Into::into).collect();
    "BURN_TPU_HOST_OPS": list, "op mnemonics, comma-separated";

    /// A folder that receives the StableHLO text of every program that is compiled, those of [`fit`](crate::fit) and of
    /// slices ([`Device::topology`]) included.
    dump(folder: impl Into<PathBuf>): Option<PathBuf> = None, Some(folder.into());
    "BURN_TPU_DUMP": text, "folder for lowered programs";
}

/// 1 instead of 0.
const fn at_least_one(n: usize) -> NonZeroUsize {
    match NonZeroUsize::new(n) {
        Some(n) => n,
        None => NonZeroUsize::MIN,
    }
}

#[cfg(test)]
mod tests;
