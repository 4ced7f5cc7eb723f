//! The options of a device: one typed struct, three presets and the environment variables that override them.
//!
//! The table at the end of this file is the only list of them. A row has an option's name, type, default, builder
//! method, variable, parser and documentation. A macro generates [`TpuOptions`], its methods,
//! [`TpuOptions::with_environment`], [`TpuOptions::VARIABLES`] and the table in the documentation of the latter from
//! these rows.

#[macro_use]
mod table;
mod chosen;
pub(crate) mod parse;
mod profile_steps;
mod shape_buckets;

pub use chosen::ChosenOptions;
pub use profile_steps::ProfileSteps;
pub use shape_buckets::ShapeBuckets;

#[cfg(doc)]
use crate::Device;
use crate::error::{Result, TpuError};
use crate::{Mesh, Platform};
use burn_tpu_fusion::{Optimization, Rewrite};
use burn_tpu_graph::op::Precision;
use parse::{
    index_checks, list, milliseconds, number, optimization, policy, precision, rewrites, seconds, switch, text,
};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// What happens to a node that a device's engine cannot lower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FallbackPolicy {
    /// The node runs on the host, in the interpreter, without a warning. The metrics count it.
    Allow,
    /// The same as `Allow`, with one warning per op and device.
    #[default]
    Warn,
    /// The program fails with [`TpuError::FallbackDenied`].
    Deny,
}

/// Which indices of `select`, `gather`, `scatter` and embeddings are checked. An index that is out of range and not checked
/// is clamped where elements are read, and dropped where they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexChecks {
    /// None.
    Off,
    /// Those whose values the host knows, since they were made of host data and not computed: token ids, labels. An index
    /// out of range is a panic at the op. Programs are the same as without checks.
    #[default]
    Host,
    /// Computed indices too. Programs also compute the extremes of the indices, and a read or `sync` returns
    /// [`TpuError::Index`]. A mark step waits for the step before.
    All,
}

impl From<bool> for IndexChecks {
    /// Returns `All` for true and `Off` for false.
    fn from(checked: bool) -> Self {
        if checked { Self::All } else { Self::Off }
    }
}

const GIB: u64 = 1 << 30;

impl Default for TpuOptions {
    /// Returns the preset for training.
    fn default() -> Self {
        Self::training()
    }
}

impl TpuOptions {
    /// Returns the preset for training: 100 cached programs in memory, 4 GiB of programs on disk, and warnings for host
    /// fallback.
    pub fn training() -> Self {
        Self::table_defaults()
    }

    /// Returns the preset for serving: every program is compiled when it first comes, and host fallback is an error,
    /// because it would slow the service down silently.
    pub fn inference() -> Self {
        Self { fallback: FallbackPolicy::Deny, interpret_from: 0, ..Self::training() }
    }

    /// Returns the preset for finding mistakes: warnings become errors, all indices are checked, NaN and infinities are
    /// traced to the op that made them, traces are cut early, and the disk cache is off, so that every run compiles the same
    /// programs.
    pub fn development() -> Self {
        Self {
            strict: true,
            fallback: FallbackPolicy::Deny,
            disk_cache: false,
            trace_cap: 20_000,
            check_indices: IndexChecks::All,
            check_numerics: true,
            lint_precision: true,
            ..Self::training()
        }
    }

    /// Adds an XLA option, by its `xla_…` name, to every compile. This method adds to a list; the other methods replace
    /// a value.
    pub fn compiler_flag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.compiler_flags.push((name.into(), value.into()));
        self
    }

    /// Returns the number of nodes from which a new program may be interpreted, if any may.
    pub(crate) fn interpreted_nodes(&self) -> Option<usize> {
        Some(self.interpret_from).filter(|&nodes| nodes > 0 && !self.strict)
    }

    /// Returns the fallback policy that applies. Strict mode always denies.
    pub(crate) fn fallback_policy(&self) -> FallbackPolicy {
        if self.strict { FallbackPolicy::Deny } else { self.fallback }
    }
}

/// Returns the mesh that `BURN_TPU_MESH` describes, if the variable is set.
pub(crate) fn mesh_from_environment() -> Result<Option<Mesh>> {
    parse::variable("BURN_TPU_MESH").map(|text| text.parse()).transpose()
}

/// Returns the platform that `BURN_TPU_PLATFORM` names, if the variable is set.
pub(crate) fn platform_from_environment() -> Result<Option<Platform>> {
    let Some(name) = parse::variable("BURN_TPU_PLATFORM") else { return Ok(None) };
    match name.parse()? {
        Platform::Topology => Err(TpuError::Option {
            name: "BURN_TPU_PLATFORM".into(),
            value: name,
            rule: "runs nothing; name a slice with TpuDevice::topology".into(),
        }),
        Platform::Mesh => Err(TpuError::Option {
            name: "BURN_TPU_PLATFORM".into(),
            value: name,
            rule: "is many chips of a platform; describe them with BURN_TPU_MESH, as data=4,model=2".into(),
        }),
        platform => Ok(Some(platform)),
    }
}

options! {
    /// The options of one device, fixed at its first use. [`TpuOptions::VARIABLES`] lists the environment variables
    /// that override them.
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
        "BURN_TPU_PLATFORM": "[`Device::default`]", "the best available platform",
            "`tpu`, `cuda`, `cpu`, `ndarray`";
        "BURN_TPU_MESH": "[`Device::default`]", "one chip", "axes with sizes: `data=4,model=2`; `data` for all chips";
        "BURN_TPU_XLA_RS_CLIENT": "[`Device::xla_rs`]", "`cpu`", "`cpu`, `tpu` or `cuda`";
        "BURN_TPU_SERVE_TOKEN": "`burn-tpu serve`", "none", "at least 16 characters";
        "BURN_TPU_PROCESS": "[`crate::distributed::process_index`]", "alone", "index and count: `0/4`";
        "BURN_TPU_STORE": "the store of several processes", "none", "`host:port` of process 0, or `redis://host:port#run`";
        "BURN_TPU_STORE_TIMEOUT_S": "how long a process waits for another", "`300`", "seconds, at least 1";
        "BURN_TPU_CACHE_DIR": "the folder of plugins and data", "`$XDG_CACHE_HOME/burn-tpu`, else `~/.cache/burn-tpu`",
            "a folder";
        "BURN_TPU_WARNINGS": "warnings on standard error of a program without a `tracing` subscriber", "`1`", "`0` or `1`";
    }

    /// The plugin file to load, instead of the search that `docs/plugins.md` describes. If the file cannot be used, the
    /// device reports an error and no other plugin is tried. This option belongs to the platform's client: see
    /// [`TpuOptions::install`].
    plugin(path: impl Into<PathBuf>): Option<PathBuf> = None, Some(path.into());
    "BURN_TPU_PLUGIN": text, "path of a plugin file";

    /// What happens to a node that the engine cannot lower.
    fallback(policy: FallbackPolicy): FallbackPolicy = FallbackPolicy::Warn, policy;
    "BURN_TPU_FALLBACK": policy, "`allow`, `warn`, `deny`";

    /// Whether host fallback, a full trace and a lost donation ([`TpuError::LostDonation`]) are errors instead of
    /// warnings. Errors of the disk cache remain warnings, since they cost a compile but never change a result.
    strict(strict: bool): bool = false, strict;
    "BURN_TPU_STRICT": switch, "`0`, `1`";

    /// Which indices are checked. Use [`IndexChecks::All`] to find the op of a wrong result or loss.
    check_indices(checks: impl Into<IndexChecks>): IndexChecks = IndexChecks::Host, checks.into();
    "BURN_TPU_CHECK_INDICES": index_checks, "`off`, `host`, `all`";

    /// Whether NaN and infinities are found: each program also computes whether its float results are finite. If they are
    /// not, it runs again with every value checked, and a read or `sync` returns [`TpuError::NotFinite`] with the Burn op
    /// and the line that made the first one. Programs leave their arguments as they are, so that they can run again: a
    /// step needs the memory of its parameters and optimizer state twice. A mark step waits for the step before. See
    /// `docs/debugging-numbers.md`.
    check_numerics(checked: bool): bool = false, checked;
    "BURN_TPU_CHECK_NUMERICS": switch, "`0`, `1`";

    /// Whether what loses precision in 16-bit floats is warned of, once for each line: weights without a master copy,
    /// updates that are lost to rounding, long sums, losses. It takes [`TpuOptions::check_numerics`], whose kept arguments
    /// it counts lost updates with. See `docs/debugging-numbers.md`.
    lint_precision(linted: bool): bool = false, linted;
    "BURN_TPU_LINT_PRECISION": switch, "`0`, `1`";

    /// How far programs are rewritten before they are compiled. [`Metrics::rewrites`](crate::Metrics::rewrites) counts what
    /// was rewritten.
    optimization(level: Optimization): Optimization = Optimization::Balanced, level;
    "BURN_TPU_OPTIMIZATION": optimization, "`off`, `conservative`, `balanced`, `aggressive`";

    /// How exactly products and convolutions of 32-bit floats multiply. By default a TPU rounds their factors to bf16, which is its
    /// rate for bf16; [`Precision::High`] takes three products and [`Precision::Highest`] six. Sums are f32. It changes nothing on
    /// CPUs, in the interpreter and for other types. [`with_precision`](crate::with_precision) sets it for a part of a program.
    precision(precision: Precision): Precision = Precision::Default, precision;
    "BURN_TPU_PRECISION": precision, "`default`, `high`, `highest`";

    /// Rewrites of the level that are not applied. Use it to find out which rewrite makes a result wrong or slow.
    skip_rewrites(rewrites: impl IntoIterator<Item = Rewrite>): Vec<Rewrite> = Vec::new(), rewrites.into_iter().collect();
    "BURN_TPU_SKIP_REWRITES": rewrites, "names of rewrites, comma-separated";

    /// Whether a TPU runs kernels, those of custom ops and of rewrites. Without, it compiles their plain forms, as other
    /// platforms do. Use it to find out whether a kernel makes a result wrong or slow.
    kernels(run: bool): bool = true, run;
    "BURN_TPU_KERNELS": switch, "`0`, `1`";

    /// The maximum number of compiled programs in memory, at least 1.
    cache_entries(entries: usize): NonZeroUsize = at_least_one(100), at_least_one(entries);
    "BURN_TPU_CACHE_ENTRIES": number(1, u64::MAX), "a number, at least 1";

    /// The maximum size in bytes of the compiled programs in memory, as their plugin reports it.
    cache_bytes(bytes: u64): u64 = 4 * GIB, bytes;
    "BURN_TPU_CACHE_BYTES": number(0, u64::MAX), "bytes";

    /// Whether compiled programs are stored on disk for later processes.
    disk_cache(kept: bool): bool = true, kept;
    "BURN_TPU_DISK_CACHE": switch, "`0`, `1`";

    /// The folder for compiled programs. The default is `programs` in the cache folder (`BURN_TPU_CACHE_DIR`, else
    /// `$XDG_CACHE_HOME/burn-tpu`, else `~/.cache/burn-tpu`). No other user may have write access to it.
    disk_cache_dir(folder: impl Into<PathBuf>): Option<PathBuf> = None, Some(folder.into());
    "BURN_TPU_DISK_CACHE_DIR": text, "a folder";

    /// The maximum size in bytes of the folder of compiled programs. The least recently used programs are deleted
    /// first.
    disk_cache_bytes(bytes: u64): u64 = 4 * GIB, bytes;
    "BURN_TPU_DISK_CACHE_BYTES": number(0, u64::MAX), "bytes";

    /// The minimum compile time of a program that is stored on disk.
    disk_cache_least_compile(time: Duration): Duration = Duration::from_millis(50), time;
    "BURN_TPU_DISK_CACHE_LEAST_MS": milliseconds, "milliseconds";

    /// The time limit of a compile, after which the program's tensors report [`TpuError::CompileTimeout`]. The default
    /// is 300 s; zero means no limit. The compile continues in the background, and a later run of the program uses its
    /// result.
    compile_timeout(limit: Duration): Duration = Duration::from_secs(300), limit;
    "BURN_TPU_COMPILE_TIMEOUT_S": seconds, "seconds, 0 for no limit";

    /// The time limit of a wait for the threads of other devices in a collective operation, after which it is an error,
    /// [`TpuError::Peer`]. The default is 600 s, since a device may compile meanwhile; zero means no limit.
    peer_timeout(limit: Duration): Duration = Duration::from_secs(600), limit;
    "BURN_TPU_PEER_TIMEOUT_S": seconds, "seconds, 0 for no limit";

    /// The number of nodes at which a trace is cut automatically, at least 1.
    trace_cap(nodes: usize): usize = 100_000, nodes.max(1);
    "BURN_TPU_TRACE_CAP": number(1, u64::MAX), "nodes, at least 1";

    /// The maximum number of nodes of a program after loops over time have become loops; 0 for no maximum. A longer
    /// recording runs as several programs, its pieces, one after another. Equal pieces are one program.
    ///
    /// A compiler needs more time per node the longer a program is, but it fuses and places the memory of a program as a
    /// whole: what passes from piece to piece is stored.
    program_cap(nodes: usize): usize = 20_000, nodes;
    "BURN_TPU_PROGRAM_CAP": number(0, u64::MAX), "nodes, 0 for no maximum";

    /// The number of nodes from which a program may run in the interpreter on the host; 0 for never. Strict mode compiles
    /// every program at once.
    ///
    /// A new program with little work is interpreted for as many runs as its compile would take; then it is compiled. What
    /// only assembles a batch or a mask from values on the host is always interpreted, alone or as a part of a program. A
    /// mark step is expected to come back, so its program is compiled at once. The choice depends on counts and sizes, never
    /// on time, so that the same run gives the same bits: see `docs/recompiles.md`.
    interpret_from(nodes: usize): usize = 1, nodes;
    "BURN_TPU_INTERPRET_FROM": number(0, u64::MAX), "nodes, 0 for never";

    /// The sizes of buffers where the sizes of a program vary. Programs that differ in sizes alone are one family, and from
    /// the third on they run as one program for each bucket, with the same results: see `docs/shapes.md`.
    shape_buckets(buckets: ShapeBuckets): ShapeBuckets = ShapeBuckets::Doubling, buckets;
    "BURN_TPU_SHAPE_BUCKETS": ShapeBuckets::parse, "`off`, `doubling`, `steps=128`, `64,128,256`";

    /// The number of devices that the CPU plugin creates, 1 to 256, to try multi-device code on a laptop. The default
    /// is 1. This option belongs to the platform's client: see [`TpuOptions::install`].
    cpu_devices(count: u16): Option<u16> = None, Some(count.clamp(1, 256));
    "BURN_TPU_CPU_DEVICES": number(1, 256), "a number from 1 to 256";

    /// The most bytes of the device's memory that programs and tensors may take; on a mesh, of all its chips together. A
    /// program or a value that does not fit is refused with [`TpuError::OutOfMemory`] before anything runs. The default is
    /// the device's own limit.
    memory_limit(bytes: u64): Option<u64> = None, Some(bytes);
    "BURN_TPU_MEMORY_LIMIT": number(1, u64::MAX), "bytes";

    /// The fraction of device memory that the plugin may allocate, 0 to 1, if the plugin has such an option (CUDA). The
    /// default is 0.9. This option belongs to the platform's client: see [`TpuOptions::install`].
    memory_fraction(fraction: f32): Option<f32> = None, Some(fraction.clamp(0.0, 1.0));

    /// Ops (by mnemonic, such as `stablehlo.sort`) that run on the host even if the engine can lower them. Use it to
    /// isolate a wrong result and to test the fallback.
    host_ops(mnemonics: impl IntoIterator<Item = impl Into<String>>): Vec<String> = Vec::new(),
        mnemonics.into_iter().map(Into::into).collect();
    "BURN_TPU_HOST_OPS": list, "op mnemonics, comma-separated";

    /// Profiles these steps of the device. [`profile`](crate::profile) profiles a closure instead.
    profile_steps(steps: ProfileSteps): Option<ProfileSteps> = None, Some(steps);
    "BURN_TPU_PROFILE": ProfileSteps::parse, "`DIR`, or `DIR,steps=10..15`";

    /// A folder for the StableHLO text of every compiled program, including the programs of [`fit`](crate::fit) and of
    /// slices ([`Device::topology`]).
    dump(folder: impl Into<PathBuf>): Option<PathBuf> = None, Some(folder.into());
    "BURN_TPU_DUMP": text, "folder for lowered programs";
}

/// Returns `n`, or 1 if `n` is 0.
const fn at_least_one(n: usize) -> NonZeroUsize {
    match NonZeroUsize::new(n) {
        Some(n) => n,
        None => NonZeroUsize::MIN,
    }
}

#[cfg(test)]
mod tests;
