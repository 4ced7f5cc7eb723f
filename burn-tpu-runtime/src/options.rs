//! Options of a device: one typed struct, three presets, and every environment variable that overrides one.
//!
//! | variable | overrides | values |
//! |---|---|---|
//! | `BURN_TPU_PLATFORM` | [`Device::default`] | `tpu`, `cuda`, `cpu`, `ndarray` |
//! | `BURN_TPU_PLUGIN` | [`TpuOptions::plugin`] | path of a plugin file |
//! | `BURN_TPU_CACHE_DIR` | where plugins and data are kept | a folder |
//! | `BURN_TPU_FALLBACK` | [`TpuOptions::fallback`] | `allow`, `warn`, `deny` |
//! | `BURN_TPU_STRICT` | [`TpuOptions::strict`] | `0`, `1` |
//! | `BURN_TPU_CACHE_ENTRIES` | [`TpuOptions::cache_entries`] | a number, at least 1 |
//! | `BURN_TPU_CACHE_BYTES` | [`TpuOptions::cache_bytes`] | bytes |
//! | `BURN_TPU_DISK_CACHE` | [`TpuOptions::disk_cache`] | `0`, `1` |
//! | `BURN_TPU_DISK_CACHE_DIR` | [`TpuOptions::disk_cache_dir`] | folder |
//! | `BURN_TPU_DISK_CACHE_BYTES` | [`TpuOptions::disk_cache_bytes`] | bytes |
//! | `BURN_TPU_DISK_CACHE_LEAST_MS` | [`TpuOptions::disk_cache_least_compile`] | milliseconds |
//! | `BURN_TPU_COMPILE_TIMEOUT_S` | [`TpuOptions::compile_timeout`] | seconds, 0 for no limit |
//! | `BURN_TPU_TRACE_CAP` | [`TpuOptions::trace_cap`] | nodes, at least 1 |
//! | `BURN_TPU_CPU_DEVICES` | [`TpuOptions::cpu_devices`] | a number from 1 to 256 |
//! | `BURN_TPU_HOST_OPS` | [`TpuOptions::host_ops`] | op mnemonics, comma-separated |
//! | `BURN_TPU_DUMP` | [`TpuOptions::dump`] | folder for lowered programs |

use crate::error::{Result, TpuError};
use crate::{Device, Platform};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// What happens when a device's engine cannot lower a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FallbackPolicy {
    /// The node runs on the host through burn-ndarray; metrics count it.
    Allow,
    /// As `Allow`, with one warning per op.
    #[default]
    Warn,
    /// The program fails with [`TpuError::FallbackDenied`].
    Deny,
}

/// Options of one device, fixed at its first use.
///
/// ```
/// # use burn_tpu_runtime as burn_tpu;
/// use burn_tpu::{Device, FallbackPolicy, TpuOptions};
/// TpuOptions::inference().cache_entries(32).fallback(FallbackPolicy::Deny).install(&Device::ndarray())?;
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TpuOptions {
    pub(crate) plugin: Option<PathBuf>,
    pub(crate) fallback: FallbackPolicy,
    pub(crate) strict: bool,
    pub(crate) cache_entries: NonZeroUsize,
    pub(crate) cache_bytes: u64,
    pub(crate) disk_cache: bool,
    pub(crate) disk_cache_dir: Option<PathBuf>,
    pub(crate) disk_cache_bytes: u64,
    pub(crate) disk_cache_least_compile: Duration,
    pub(crate) compile_timeout: Duration,
    pub(crate) trace_cap: usize,
    pub(crate) cpu_devices: u16,
    pub(crate) memory_fraction: f32,
    pub(crate) host_ops: Vec<String>,
    pub(crate) dump: Option<PathBuf>,
    pub(crate) compiler_flags: Vec<(String, String)>,
}

const GIB: u64 = 1 << 30;

impl Default for TpuOptions {
    /// The preset for training.
    fn default() -> Self {
        Self::training()
    }
}

impl TpuOptions {
    /// Every environment variable that burn-tpu reads. The file's header says what each does.
    pub const VARIABLES: &[&str] = &[
        "BURN_TPU_PLATFORM",
        "BURN_TPU_PLUGIN",
        "BURN_TPU_CACHE_DIR",
        "BURN_TPU_FALLBACK",
        "BURN_TPU_STRICT",
        "BURN_TPU_CACHE_ENTRIES",
        "BURN_TPU_CACHE_BYTES",
        "BURN_TPU_DISK_CACHE",
        "BURN_TPU_DISK_CACHE_DIR",
        "BURN_TPU_DISK_CACHE_BYTES",
        "BURN_TPU_DISK_CACHE_LEAST_MS",
        "BURN_TPU_COMPILE_TIMEOUT_S",
        "BURN_TPU_TRACE_CAP",
        "BURN_TPU_CPU_DEVICES",
        "BURN_TPU_HOST_OPS",
        "BURN_TPU_DUMP",
    ];

    /// For training: 100 cached programs in memory, 4 GiB of them on disk, warnings on host fallback.
    pub fn training() -> Self {
        Self {
            plugin: None,
            fallback: FallbackPolicy::Warn,
            strict: false,
            cache_entries: NonZeroUsize::MIN.saturating_add(99),
            cache_bytes: 4 * GIB,
            disk_cache: true,
            disk_cache_dir: None,
            disk_cache_bytes: 4 * GIB,
            disk_cache_least_compile: Duration::from_millis(50),
            compile_timeout: Duration::from_secs(300),
            trace_cap: 50_000,
            cpu_devices: 1,
            memory_fraction: 0.9,
            host_ops: Vec::new(),
            dump: None,
            compiler_flags: Vec::new(),
        }
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

    /// The plugin file to load, instead of the search that `docs/plugins.md` describes.
    pub fn plugin(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin = Some(path.into());
        self
    }

    /// What happens to a node that the engine cannot lower.
    pub fn fallback(mut self, policy: FallbackPolicy) -> Self {
        self.fallback = policy;
        self
    }

    /// Whether host fallback, a full trace and a lost donation ([`TpuError::LostDonation`]) are errors instead of warnings. A fault of the disk cache stays a warning: it
    /// costs a compile and never a result.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// How many compiled programs stay in memory, at least 1.
    pub fn cache_entries(mut self, entries: usize) -> Self {
        self.cache_entries = NonZeroUsize::new(entries).unwrap_or(NonZeroUsize::MIN);
        self
    }

    /// How many bytes the compiled programs in memory may take, as their plugin counts them.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Whether compiled programs are kept on disk for later processes.
    pub fn disk_cache(mut self, kept: bool) -> Self {
        self.disk_cache = kept;
        self
    }

    /// The folder of compiled programs instead of `programs` in the cache folder (`BURN_TPU_CACHE_DIR`, else
    /// `$XDG_CACHE_HOME/burn-tpu`, else `~/.cache/burn-tpu`). Nobody else may be able to write it.
    pub fn disk_cache_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.disk_cache_dir = Some(folder.into());
        self
    }

    /// How many bytes the folder of compiled programs may hold; the least recently used ones leave.
    pub fn disk_cache_bytes(mut self, bytes: u64) -> Self {
        self.disk_cache_bytes = bytes;
        self
    }

    /// Programs that compile faster than this are not kept on disk.
    pub fn disk_cache_least_compile(mut self, time: Duration) -> Self {
        self.disk_cache_least_compile = time;
        self
    }

    /// How long a program's compile may take before its tensors report [`TpuError::CompileTimeout`]; 300 s unless said
    /// otherwise, zero for no limit. The compile goes on by itself, and the program uses it when it comes again.
    pub fn compile_timeout(mut self, limit: Duration) -> Self {
        self.compile_timeout = limit;
        self
    }

    /// How many nodes a trace may hold before it is cut by itself.
    pub fn trace_cap(mut self, nodes: usize) -> Self {
        self.trace_cap = nodes.max(1);
        self
    }

    /// How many devices the CPU plugin makes, for trying multi-device code on a laptop. The first device used decides.
    pub fn cpu_devices(mut self, count: u16) -> Self {
        self.cpu_devices = count.clamp(1, 256);
        self
    }

    /// The part of device memory that the plugin may take, where it takes such an option (CUDA).
    pub fn memory_fraction(mut self, fraction: f32) -> Self {
        self.memory_fraction = fraction.clamp(0.0, 1.0);
        self
    }

    /// Ops (by mnemonic, `stablehlo.sort`) that run on the host although the engine could lower them: to corner a wrong
    /// result, and to test the fallback.
    pub fn host_ops(mut self, mnemonics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.host_ops = mnemonics.into_iter().map(Into::into).collect();
        self
    }

    /// A folder that receives the StableHLO text of every program that is compiled.
    pub fn dump(mut self, folder: impl Into<PathBuf>) -> Self {
        self.dump = Some(folder.into());
        self
    }

    /// An XLA option for every compile, by its `xla_…` name.
    pub fn compiler_flag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.compiler_flags.push((name.into(), value.into()));
        self
    }

    /// Makes these the options of `device`, with the environment's overrides on top.
    ///
    /// # Errors
    /// If the device is already in use, or an environment variable has a value that means nothing.
    pub fn install(self, device: &impl AsRef<Device>) -> Result<()> {
        crate::runtime::start(*device.as_ref(), self.with_environment()?)
    }

    /// These options with the environment's overrides.
    ///
    /// # Errors
    /// Names the variable and what its value must be.
    pub fn with_environment(mut self) -> Result<Self> {
        if let Some(path) = variable("BURN_TPU_PLUGIN") {
            self.plugin = Some(path.into());
        }
        if let Some(folder) = variable("BURN_TPU_DUMP") {
            self.dump = Some(folder.into());
        }
        if let Some(list) = variable("BURN_TPU_HOST_OPS") {
            self.host_ops = list.split(',').map(|op| op.trim().to_string()).collect();
        }
        if let Some(policy) = variable("BURN_TPU_FALLBACK") {
            self.fallback = parse_policy(&policy)?;
        }
        if let Some(strict) = number("BURN_TPU_STRICT", 0, 1)? {
            self.strict = strict == 1;
        }
        if let Some(entries) = number("BURN_TPU_CACHE_ENTRIES", 1, u64::MAX)? {
            self = self.cache_entries(entries as usize);
        }
        if let Some(bytes) = number("BURN_TPU_CACHE_BYTES", 0, u64::MAX)? {
            self.cache_bytes = bytes;
        }
        if let Some(kept) = number("BURN_TPU_DISK_CACHE", 0, 1)? {
            self.disk_cache = kept == 1;
        }
        if let Some(folder) = variable("BURN_TPU_DISK_CACHE_DIR") {
            self.disk_cache_dir = Some(folder.into());
        }
        if let Some(bytes) = number("BURN_TPU_DISK_CACHE_BYTES", 0, u64::MAX)? {
            self.disk_cache_bytes = bytes;
        }
        if let Some(least_ms) = number("BURN_TPU_DISK_CACHE_LEAST_MS", 0, u64::MAX)? {
            self.disk_cache_least_compile = Duration::from_millis(least_ms);
        }
        if let Some(seconds) = number("BURN_TPU_COMPILE_TIMEOUT_S", 0, u64::MAX)? {
            self.compile_timeout = Duration::from_secs(seconds);
        }
        if let Some(nodes) = number("BURN_TPU_TRACE_CAP", 1, u64::MAX)? {
            self.trace_cap = nodes as usize;
        }
        if let Some(count) = number("BURN_TPU_CPU_DEVICES", 1, 256)? {
            self.cpu_devices = count as u16;
        }
        Ok(self)
    }
}

/// The platform that `BURN_TPU_PLATFORM` names, if it is set.
pub(crate) fn platform_from_environment() -> Result<Option<Platform>> {
    let Some(name) = variable("BURN_TPU_PLATFORM") else { return Ok(None) };
    match name.parse()? {
        Platform::Topology => Err(TpuError::Option {
            name: "BURN_TPU_PLATFORM".into(),
            value: name,
            rule: "runs nothing; name a slice with TpuDevice::topology".into(),
        }),
        platform => Ok(Some(platform)),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str, least: u64, most: u64) -> Result<Option<u64>> {
    let Some(value) = variable(name) else { return Ok(None) };
    match value.parse() {
        Ok(n) if (least..=most).contains(&n) => Ok(Some(n)),
        _ => {
            Err(TpuError::Option { name: name.into(), value, rule: format!("is not a number from {least} to {most}") })
        }
    }
}

fn parse_policy(value: &str) -> Result<FallbackPolicy> {
    match value {
        "allow" => Ok(FallbackPolicy::Allow),
        "warn" => Ok(FallbackPolicy::Warn),
        "deny" => Ok(FallbackPolicy::Deny),
        _ => Err(TpuError::Option {
            name: "BURN_TPU_FALLBACK".into(),
            value: value.into(),
            rule: "is not one of allow, warn, deny".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The names of the header's table, and those that code reads: both are all of [`TpuOptions::VARIABLES`].
    #[test]
    fn the_list_of_variables_is_the_documented_one() {
        let source = include_str!("options.rs");
        let rows = source.lines().filter_map(|line| line.strip_prefix("//! | `")?.split('`').next());
        assert_eq!(rows.collect::<Vec<_>>(), TpuOptions::VARIABLES);
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        let rows = readme.lines().filter(|line| line.starts_with("| `BURN_TPU_")).flat_map(|row| {
            row.split('|')
                .nth(1)
                .into_iter()
                .flat_map(|names| names.split('`').filter(|name| name.starts_with("BURN_")))
        });
        let mut rows: Vec<&str> = rows.collect();
        rows.sort_by_key(|name| TpuOptions::VARIABLES.iter().position(|known| known == name));
        assert_eq!(rows, TpuOptions::VARIABLES, "README.md's table");
        let read = source.split('"').filter(|text| text.starts_with("BURN_TPU_") && !text.ends_with('_'));
        let known: BTreeSet<&str> = TpuOptions::VARIABLES.iter().copied().collect();
        assert_eq!(read.filter(|name| !known.contains(name)).collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
