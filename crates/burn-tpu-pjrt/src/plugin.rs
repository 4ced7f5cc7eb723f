//! Loading a plugin: the library, its function table, the version check, its one-time initialisation.
//!
//! A plugin is loaded once per process and never unloaded: plugins start threads and register handlers that
//! outlive any handle, so closing the library would leave them without code.

use std::fmt;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Mutex;

use crate::abi::Struct;
use crate::api::Api;
use crate::bindings::*;
use crate::discovery::{self, PluginKind};
use crate::environment::{aot_environment, quiet_environment};
use crate::error::{Code, PjrtError, Result};
use crate::flags;
use crate::named_value::{Attributes, Value};
use crate::occupancy::libtpu_lock;
use crate::presence::tpu_present;
use crate::process::watch_exit;
use crate::signals::KeptSignals;

/// A version of the PJRT C API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Another one is another interface.
    pub major: i32,
    /// Grows with every addition.
    pub minor: i32,
}

impl Version {
    /// What this crate's bindings were generated from.
    pub const HEADER: Version = Version { major: PJRT_API_MAJOR as i32, minor: PJRT_API_MINOR as i32 };
    /// The oldest whose `PJRT_ExecuteOptions` and `PJRT_Client_Create_Args` are as long as ours.
    pub const OLDEST: Version = Version { major: 0, minor: 78 };

    /// # Errors
    /// [`PjrtError::PluginVersion`] for another major version or a minor one that is too old.
    fn check(self, path: &Path) -> Result<()> {
        if self.major == Version::HEADER.major && self.minor >= Version::OLDEST.minor {
            return Ok(());
        }
        let (ours, needed) = (Version::HEADER, Version::OLDEST);
        Err(PjrtError::PluginVersion { path: path.to_path_buf(), found: self, ours, needed })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A loaded plugin. A copy names the same one; it lives until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Plugin(&'static Loaded);

#[derive(Debug)]
struct Loaded {
    api: Api,
    attributes: Attributes,
}

/// The plugins of this process, by canonical path. Initialising twice is not allowed, so loading asks here first.
static LOADED: Mutex<Vec<Plugin>> = Mutex::new(Vec::new());

impl Plugin {
    /// Finds the plugin for a platform (see [`discovery::find`]) and loads it.
    ///
    /// # Errors
    /// As [`discovery::find`] and [`Plugin::load`].
    pub fn find(kind: PluginKind, explicit: Option<&Path>) -> Result<Plugin> {
        Plugin::load(discovery::find(kind, explicit)?.path)
    }

    /// Loads the plugin at `path`, or returns the one already loaded from there.
    ///
    /// For libtpu on a machine without a TPU this sets environment variables first: see [`aot_environment`].
    ///
    /// # Errors
    /// [`PjrtError::XlaFlag`], [`PjrtError::PluginMissing`], [`PjrtError::PluginNotLoadable`],
    /// [`PjrtError::NotAPlugin`], [`PjrtError::PluginVersion`], [`PjrtError::TpuLocked`], [`PjrtError::Forked`], or what
    /// the plugin says when initialised.
    pub fn load(path: impl AsRef<Path>) -> Result<Plugin> {
        let path = path.as_ref();
        let missing = |_| PjrtError::PluginMissing { path: path.to_path_buf() };
        let path = path.canonicalize().map_err(missing)?;
        let mut loaded = LOADED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(plugin) = loaded.iter().find(|plugin| plugin.path() == path) {
            return plugin.api().check_process("Plugin::load").map(|()| *plugin);
        }
        flags::check_xla_flags()?;
        quiet_environment();
        if is_libtpu(&path) && !tpu_present() {
            aot_environment();
        }
        let plugin = Plugin::open(path)?;
        loaded.push(plugin);
        Ok(plugin)
    }

    fn open(path: PathBuf) -> Result<Plugin> {
        let _span = tracing::info_span!("pjrt.load_plugin", path = %path.display()).entered();
        let _kept = KeptSignals::new();
        let table = entry_point(&path)?;
        // SAFETY: `GetPjrtApi` returned the table, and the library stays loaded.
        let (size, version) = unsafe { header_of(table, &path) }?;
        let path: &'static Path = Box::leak(path.into_boxed_path());
        // SAFETY: as above; `size` is what the plugin states.
        let api = unsafe { Api::new(table, size, version, path) };
        // SAFETY: the function takes no pointers; the lock in `load` keeps it to one call per library.
        unsafe { api.call(&mut PJRT_Plugin_Initialize_Args::new()) }.map_err(|error| locked(path, error))?;
        let attributes = attributes(api)?;
        watch_exit();
        tracing::info!(%version, ?attributes, "plugin loaded");
        Ok(Plugin(Box::leak(Box::new(Loaded { api, attributes }))))
    }

    /// The library file.
    pub fn path(self) -> &'static Path {
        self.0.api.path()
    }

    /// The version of the C API that the plugin speaks.
    pub fn version(self) -> Version {
        self.0.api.version()
    }

    /// What the plugin says of itself: `xla_version`, `stablehlo_current_version`, `stablehlo_minimum_version`.
    pub fn attributes(self) -> &'static Attributes {
        &self.0.attributes
    }

    /// The newest StableHLO version that the plugin reads, as `[major, minor, patch]`, if it says so.
    pub fn stablehlo_version(self) -> Option<[i64; 3]> {
        match self.attributes().get("stablehlo_current_version") {
            Some(Value::Ints(version)) => version.as_slice().try_into().ok(),
            _ => None,
        }
    }

    pub(crate) fn api(self) -> Api {
        self.0.api
    }

    /// The same plugin with another function table.
    #[cfg(test)]
    pub(crate) fn with_table(self, change: impl FnOnce(&mut PJRT_Api)) -> Plugin {
        let api = self.api().with_table(change);
        Plugin(Box::leak(Box::new(Loaded { api, attributes: self.0.attributes.clone() })))
    }
}

impl PartialEq for Plugin {
    fn eq(&self, other: &Plugin) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Plugin {}

fn is_libtpu(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libtpu"))
}

/// libtpu serves one process at a time. Its own words about that never name the other one, and some ask to remove a lock
/// file that is rightly held.
fn locked(path: &'static Path, error: PjrtError) -> PjrtError {
    if !is_libtpu(path) || error.code() != Some(Code::Aborted) {
        return error;
    }
    PjrtError::TpuLocked { path, lock: Box::new(libtpu_lock()) }
}

/// Opens the library for good and asks for its table.
fn entry_point(path: &Path) -> Result<NonNull<PJRT_Api>> {
    let refuse = |reason| PjrtError::NotAPlugin { path: path.to_path_buf(), reason };
    // SAFETY: opening a library runs its initialisers. The user named this file as a plugin; that a file which merely
    // looks like one may do anything is inherent, and `docs/plugins.md` says so.
    let library = unsafe { libloading::Library::new(path) };
    let library = library
        .map_err(|error| PjrtError::PluginNotLoadable { path: path.to_path_buf(), reason: error.to_string() })?;
    // Never closed, even when it turns out to be no plugin: its initialisers have run.
    let library: &'static libloading::Library = Box::leak(Box::new(library));
    // SAFETY: the C API fixes the type of this symbol.
    let symbol = unsafe { library.get::<unsafe extern "C" fn() -> *const PJRT_Api>(b"GetPjrtApi\0") };
    let get_api = symbol.map_err(|_| refuse("it has no symbol `GetPjrtApi`"))?;
    // SAFETY: it takes no arguments and may be called at any time.
    let table = unsafe { get_api() };
    NonNull::new(table.cast_mut()).ok_or_else(|| refuse("`GetPjrtApi` returned no table"))
}

/// The table's size in bytes and its version, if the two can be worked with.
///
/// # Safety
/// `table` is what `GetPjrtApi` returned.
unsafe fn header_of(table: NonNull<PJRT_Api>, path: &Path) -> Result<(usize, Version)> {
    // SAFETY: the first field of every table, in every version.
    let size = unsafe { (*table.as_ptr()).struct_size };
    if size < offset_of!(PJRT_Api, pjrt_api_version) + size_of::<PJRT_Api_Version>() {
        let reason = "its function table is too short to hold a version";
        return Err(PjrtError::NotAPlugin { path: path.to_path_buf(), reason });
    }
    // SAFETY: the size just checked covers this field, which no version of the header has moved.
    let raw = unsafe { (*table.as_ptr()).pjrt_api_version };
    let version = Version { major: raw.major_version, minor: raw.minor_version };
    version.check(path)?;
    Ok((size, version))
}

fn attributes(api: Api) -> Result<Attributes> {
    let mut args = PJRT_Plugin_Attributes_Args::new();
    // SAFETY: the struct has out-fields only.
    unsafe { api.call(&mut args) }?;
    // SAFETY: the header gives the returned attributes the lifetime of the process.
    Ok(unsafe { Attributes::copy(args.attributes, args.num_attributes) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Fault;

    fn header(size: usize, major: i32, minor: i32) -> Result<(usize, Version)> {
        // SAFETY: the table holds sizes, a pointer, integers and `Option<fn>`: zero is valid.
        let mut table: Box<PJRT_Api> = Box::new(unsafe { std::mem::zeroed() });
        table.struct_size = size;
        table.pjrt_api_version.major_version = major;
        table.pjrt_api_version.minor_version = minor;
        // SAFETY: a whole table, alive during the call.
        unsafe { header_of(NonNull::from(&mut *table), Path::new("/p/plugin.so")) }
    }

    #[test]
    fn versions_from_the_oldest_on_pass_whatever_their_table_size() {
        for (size, minor) in [(984, 81), (1144, 116), (900, 78)] {
            assert_eq!(header(size, 0, minor).unwrap(), (size, Version { major: 0, minor }));
        }
    }

    #[test]
    fn another_major_or_a_too_old_minor_names_path_both_versions_and_the_remedy() {
        for (major, minor, remedy) in [(1, 0, "major version"), (0, 77, "newer plugin"), (0, 54, "newer plugin")] {
            let error = header(984, major, minor).unwrap_err();
            assert!(matches!(error, PjrtError::PluginVersion { .. }), "{error}");
            assert_eq!(error.fault(), Fault::Environment);
            let text = error.to_string();
            for part in ["/p/plugin.so", &format!("{major}.{minor}"), "0.81", "0.78", remedy] {
                assert!(text.contains(part), "`{part}` missing in: {text}");
            }
        }
    }

    #[test]
    fn a_table_without_a_version_is_no_plugin() {
        for size in [0, 8, 39] {
            assert!(matches!(header(size, 0, 81).unwrap_err(), PjrtError::NotAPlugin { .. }));
        }
    }

    #[test]
    fn files_that_are_no_plugins_are_told_apart() {
        let missing = Plugin::load("/no/such/plugin.so").unwrap_err();
        assert!(matches!(missing, PjrtError::PluginMissing { .. }), "{missing}");
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("plugin.so");
        std::fs::write(&text, "no library").unwrap();
        let not_elf = Plugin::load(&text).unwrap_err();
        assert!(matches!(not_elf, PjrtError::PluginNotLoadable { .. }), "{not_elf}");
        assert!(not_elf.to_string().contains("plugin.so"), "{not_elf}");
        // A library that every process on this system has open, and that is certainly no plugin.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.split_whitespace().find(|word| word.contains("/libc.so") || word.contains("/libc-2")).unwrap();
        let no_symbol = Plugin::load(libc).unwrap_err();
        assert!(matches!(no_symbol, PjrtError::NotAPlugin { .. }), "{no_symbol}");
        assert!(no_symbol.to_string().contains("GetPjrtApi") && no_symbol.to_string().contains("libc"), "{no_symbol}");
    }

    #[test]
    fn libtpu_is_told_by_its_file_name() {
        assert!(is_libtpu(Path::new("/lib/libtpu.so")) && is_libtpu(Path::new("libtpu-2.so")));
        assert!(!is_libtpu(Path::new("/libtpu/plugin.so")));
    }
}
