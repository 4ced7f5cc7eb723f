//! Where plugins are looked for, in which order, and where `cargo xtask setup` puts them.
//!
//! Nothing here opens a library: it is file names and environment variables only, so it is cheap and safe to
//! call for every platform at start-up. The order for one [`PluginKind`], first hit wins:
//!
//! 1. the path the caller names ([`find`]'s `explicit`), else `BURN_TPU_PLUGIN`: if one of these names no file,
//!    that is an error, never a silent fall-through to some other plugin;
//! 2. the variables that JAX users know: `TPU_LIBRARY_PATH` (TPU only) and `PJRT_NAMES_AND_LIBRARY_PATHS`
//!    (`name:path,name:path`);
//! 3. this project's cache folder ([`cached_plugin`]): the pinned version that the tests ran with;
//! 4. the places where a TPU VM image keeps its library (TPU only);
//! 5. Python's site-packages: `VIRTUAL_ENV`, `CONDA_PREFIX`, `~/.local`, pyenv, the system.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// The variable that names a plugin file outright, whatever its platform.
pub const PLUGIN_VARIABLE: &str = "BURN_TPU_PLUGIN";
/// The variable that moves this project's cache folder.
pub const CACHE_VARIABLE: &str = "BURN_TPU_CACHE_DIR";

/// A platform for which a plugin can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PluginKind {
    /// XLA's CPU backend.
    Cpu,
    /// Google TPUs: libtpu.
    Tpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// The pinned Python package that carries a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PluginPackage {
    /// The package's name in the Python package registry.
    pub package: &'static str,
    /// The version that this crate was tested with.
    pub version: &'static str,
    /// The library's path inside the wheel, and so below a site-packages folder.
    pub library: &'static str,
}

impl PluginKind {
    /// Every kind, in the order of [`PluginKind`].
    pub const ALL: [PluginKind; 3] = [PluginKind::Cpu, PluginKind::Tpu, PluginKind::Cuda];

    /// The lower-case name used in folders, options and messages: `cpu`, `tpu`, `cuda`.
    pub fn name(self) -> &'static str {
        match self {
            PluginKind::Cpu => "cpu",
            PluginKind::Tpu => "tpu",
            PluginKind::Cuda => "cuda",
        }
    }

    /// The pinned package that carries this kind's plugin.
    pub fn package(self) -> PluginPackage {
        let (package, version, library) = match self {
            PluginKind::Cpu => ("xla-cpu-pjrt", "0.0.1", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"),
            PluginKind::Tpu => ("libtpu", "0.0.51", "libtpu/libtpu.so"),
            // `xla-cuda13-pjrt` links the CUDA libraries directly and fails to open without them; this one loads.
            PluginKind::Cuda => ("jax-cuda13-pjrt", "0.12.0.1", "jax_plugins/xla_cuda13/xla_cuda_plugin.so"),
        };
        PluginPackage { package, version, library }
    }

    /// Names under which `PJRT_NAMES_AND_LIBRARY_PATHS` may list this kind.
    fn registered_names(self) -> &'static [&'static str] {
        match self {
            PluginKind::Cpu => &["cpu", "xla_cpu"],
            PluginKind::Tpu => &["tpu", "libtpu"],
            PluginKind::Cuda => &["cuda", "gpu", "xla_cuda"],
        }
    }

    /// Library paths below a site-packages folder, the pinned one first.
    fn site_libraries(self) -> &'static [&'static str] {
        match self {
            PluginKind::Cpu => &["xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"],
            PluginKind::Tpu => &["libtpu/libtpu.so"],
            PluginKind::Cuda => {
                &["jax_plugins/xla_cuda13/xla_cuda_plugin.so", "jax_plugins/xla_cuda12/xla_cuda_plugin.so"]
            }
        }
    }
}

impl fmt::Display for PluginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a path is a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The caller named it.
    Explicit,
    /// An environment variable named it.
    Variable(&'static str),
    /// This project's cache folder.
    Cache,
    /// A TPU VM image's library folder.
    SystemLibrary,
    /// A Python site-packages folder.
    SitePackages,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Explicit => f.write_str("named by the caller"),
            Source::Variable(name) => write!(f, "environment variable {name}"),
            Source::Cache => f.write_str("cache folder"),
            Source::SystemLibrary => f.write_str("system library folder"),
            Source::SitePackages => f.write_str("Python site-packages"),
        }
    }
}

/// A path that was, or would be, looked at. A `*` left in it is a folder that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The library file.
    pub path: PathBuf,
    /// Why it is looked at.
    pub source: Source,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.display(), self.source)
    }
}

/// No plugin file: the environment's or the user's fault, never the plugin's.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A path that somebody named outright is no file.
    #[error(
        "the plugin path `{}` ({}) is not a file: correct it, or remove it so that the usual places are searched",
        .candidate.path.display(), .candidate.source
    )]
    Missing {
        /// The path and who named it.
        candidate: Candidate,
    },
    /// None of the usual places holds one.
    #[error(
        "no PJRT plugin for {kind} found; run `cargo xtask setup {kind}`, install the Python package `{}`, or set \
         {PLUGIN_VARIABLE}; looked at:{}", .kind.package().package, list(.looked)
    )]
    NotFound {
        /// What was asked for.
        kind: PluginKind,
        /// Every place looked at, in order.
        looked: Vec<Candidate>,
    },
}

fn list(candidates: &[Candidate]) -> String {
    candidates.iter().map(|candidate| format!("\n  - {candidate}")).collect()
}

/// This project's cache folder: `$BURN_TPU_CACHE_DIR`, else `$XDG_CACHE_HOME/burn-tpu`, else `~/.cache/burn-tpu`.
///
/// `None` when none of the three variables that decide it is set. The folder need not exist.
pub fn cache_dir() -> Option<PathBuf> {
    Environment::process().cache_dir()
}

/// Where `cargo xtask setup` puts the pinned plugin: `<cache>/plugins/<kind>-<version>/<path inside the wheel>`.
///
/// `None` when there is no cache folder. The file need not exist.
pub fn cached_plugin(kind: PluginKind) -> Option<PathBuf> {
    Environment::process().cached_plugin(kind)
}

/// Every place where a plugin of this kind is looked for, in order. The files need not exist.
pub fn candidates(kind: PluginKind, explicit: Option<&Path>) -> Vec<Candidate> {
    Environment::process().candidates(kind, explicit)
}

/// The first candidate that is a file.
///
/// # Errors
/// [`DiscoveryError::Missing`] if the caller or `BURN_TPU_PLUGIN` names something that is no file, else
/// [`DiscoveryError::NotFound`] with every place looked at.
pub fn find(kind: PluginKind, explicit: Option<&Path>) -> Result<Candidate, DiscoveryError> {
    Environment::process().find(kind, explicit)
}

/// What discovery reads from outside: variables, and the root of the file system (moved by tests).
struct Environment<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    root: PathBuf,
}

impl Environment<'static> {
    fn process() -> Self {
        Environment { variable: &|name| std::env::var_os(name), root: PathBuf::from("/") }
    }
}

impl Environment<'_> {
    /// An absolute path from a variable; an empty or relative value counts as unset, as the XDG rules say.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn cache_dir(&self) -> Option<PathBuf> {
        self.file(CACHE_VARIABLE)
            .or_else(|| self.folder("XDG_CACHE_HOME").map(|cache| cache.join("burn-tpu")))
            .or_else(|| self.folder("HOME").map(|home| home.join(".cache/burn-tpu")))
    }

    fn cached_plugin(&self, kind: PluginKind) -> Option<PathBuf> {
        let package = kind.package();
        let folder = self.cache_dir()?.join("plugins").join(format!("{kind}-{}", package.version));
        Some(folder.join(package.library))
    }

    fn candidates(&self, kind: PluginKind, explicit: Option<&Path>) -> Vec<Candidate> {
        let mut found = Vec::new();
        let mut push = |path: PathBuf, source| found.push(Candidate { path, source });
        if let Some(path) = explicit {
            push(path.to_path_buf(), Source::Explicit);
        }
        if let Some(path) = self.file(PLUGIN_VARIABLE) {
            push(path, Source::Variable(PLUGIN_VARIABLE));
        }
        if let (PluginKind::Tpu, Some(path)) = (kind, self.file("TPU_LIBRARY_PATH")) {
            push(path, Source::Variable("TPU_LIBRARY_PATH"));
        }
        self.registered(kind).for_each(|path| push(path, Source::Variable("PJRT_NAMES_AND_LIBRARY_PATHS")));
        if let Some(path) = self.cached_plugin(kind) {
            push(path, Source::Cache);
        }
        if kind == PluginKind::Tpu {
            for folder in ["lib", "usr/lib", "usr/local/lib"] {
                push(self.root.join(folder).join("libtpu.so"), Source::SystemLibrary);
            }
        }
        for folder in self.site_packages() {
            kind.site_libraries().iter().for_each(|library| push(folder.join(library), Source::SitePackages));
        }
        found
    }

    fn find(&self, kind: PluginKind, explicit: Option<&Path>) -> Result<Candidate, DiscoveryError> {
        let looked = self.candidates(kind, explicit);
        for candidate in &looked {
            if candidate.path.is_file() {
                tracing::debug!(%kind, path = %candidate.path.display(), source = %candidate.source, "plugin found");
                return Ok(candidate.clone());
            }
            if matches!(candidate.source, Source::Explicit | Source::Variable(PLUGIN_VARIABLE)) {
                return Err(DiscoveryError::Missing { candidate: candidate.clone() });
            }
        }
        Err(DiscoveryError::NotFound { kind, looked })
    }

    /// Paths that `PJRT_NAMES_AND_LIBRARY_PATHS` gives for this kind.
    fn registered(&self, kind: PluginKind) -> impl Iterator<Item = PathBuf> {
        let value = (self.variable)("PJRT_NAMES_AND_LIBRARY_PATHS").and_then(|value| value.into_string().ok());
        let entries: Vec<PathBuf> = value
            .iter()
            .flat_map(|value| value.split(','))
            .filter_map(|entry| entry.split_once(':'))
            .filter(|(name, _)| kind.registered_names().contains(&name.trim()))
            .map(|(_, path)| PathBuf::from(path.trim()))
            .collect();
        entries.into_iter()
    }

    /// Site-packages folders, the user's own environment first.
    fn site_packages(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| self.folder(name));
        let home = self.folder("HOME");
        for prefix in active.chain(home.iter().map(|home| home.join(".local"))) {
            folders.extend(pythons(&prefix.join("lib"), "site-packages"));
        }
        let pyenv = self.folder("PYENV_ROOT").or_else(|| home.map(|home| home.join(".pyenv")));
        for version in pyenv.iter().flat_map(|root| newest_first(&root.join("versions"), "")) {
            folders.extend(pythons(&version.join("lib"), "site-packages"));
        }
        for (lib, packages) in [
            ("usr/local/lib", "site-packages"),
            ("usr/local/lib", "dist-packages"),
            ("usr/lib", "site-packages"),
            ("usr/lib", "dist-packages"),
        ] {
            folders.extend(pythons(&self.root.join(lib), packages));
        }
        folders
    }
}

/// `<lib>/python3*/<packages>`, the newest Python first; the pattern itself when nothing matches, for the error text.
fn pythons(lib: &Path, packages: &str) -> Vec<PathBuf> {
    newest_first(lib, "python3").iter().map(|python| python.join(packages)).collect()
}

/// Folders in `parent` whose name starts with `prefix`, in falling numeric order (3.12 before 3.9).
fn newest_first(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.starts_with(prefix));
    names.sort_by_key(|name| std::cmp::Reverse(version_of(name)));
    if names.is_empty() {
        names.push(format!("{prefix}*"));
    }
    names.iter().map(|name| parent.join(name)).collect()
}

/// The numbers in a name, for sorting; the name itself breaks ties so that the order never depends on the disk.
fn version_of(name: &str) -> (Vec<u64>, String) {
    let numbers = name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    (numbers, name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn in_environment<T>(root: &Path, variables: &[(&str, &str)], run: impl FnOnce(&Environment<'_>) -> T) -> T {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        let variable = |name: &str| variables.get(name).map(OsString::from);
        run(&Environment { variable: &variable, root: root.to_path_buf() })
    }

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"").unwrap();
    }

    #[test]
    fn cache_folder_follows_the_three_variables_in_order() {
        let root = Path::new("/");
        let all = [(CACHE_VARIABLE, "/c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        let cache = |variables: &[(&str, &str)]| in_environment(root, variables, |environment| environment.cache_dir());
        assert_eq!(cache(&all), Some("/c".into()));
        assert_eq!(cache(&all[1..]), Some("/x/burn-tpu".into()));
        assert_eq!(cache(&all[2..]), Some("/h/.cache/burn-tpu".into()));
        assert_eq!(cache(&[]), None);
        assert_eq!(cache(&[("XDG_CACHE_HOME", ""), ("HOME", "/h")]), Some("/h/.cache/burn-tpu".into()));
    }

    #[test]
    fn cached_plugin_names_kind_version_and_wheel_path() {
        let path = in_environment(Path::new("/"), &[(CACHE_VARIABLE, "/c")], |e| e.cached_plugin(PluginKind::Tpu));
        assert_eq!(path, Some("/c/plugins/tpu-0.0.51/libtpu/libtpu.so".into()));
    }

    #[test]
    fn a_named_path_that_is_no_file_is_an_error_even_when_the_cache_has_one() {
        let root = tempfile::tempdir().unwrap();
        let cache = root.path().to_str().unwrap();
        let variables = [(CACHE_VARIABLE, cache), (PLUGIN_VARIABLE, "/nowhere.so")];
        in_environment(root.path(), &variables, |environment| {
            touch(&environment.cached_plugin(PluginKind::Cpu).unwrap());
            let by_variable = environment.find(PluginKind::Cpu, None).unwrap_err();
            assert!(by_variable.to_string().contains("environment variable BURN_TPU_PLUGIN"), "{by_variable}");
            let by_caller = environment.find(PluginKind::Cpu, Some(Path::new("/gone.so"))).unwrap_err();
            assert!(by_caller.to_string().contains("/gone.so"), "{by_caller}");
        });
        in_environment(root.path(), &variables[..1], |environment| {
            assert_eq!(environment.find(PluginKind::Cpu, None).unwrap().source, Source::Cache);
        });
    }

    #[test]
    fn jax_variables_are_read_for_their_kind_only() {
        let root = tempfile::tempdir().unwrap();
        let library = root.path().join("mine.so");
        touch(&library);
        let registered = format!("cuda:/cuda.so,tpu:{}", library.display());
        let variables = [("PJRT_NAMES_AND_LIBRARY_PATHS", registered.as_str()), ("TPU_LIBRARY_PATH", "/gone.so")];
        in_environment(root.path(), &variables, |environment| {
            let found = environment.find(PluginKind::Tpu, None).unwrap();
            assert_eq!(found, Candidate { path: library, source: Source::Variable("PJRT_NAMES_AND_LIBRARY_PATHS") });
            assert!(environment.find(PluginKind::Cpu, None).is_err());
        });
    }

    #[test]
    fn site_packages_prefer_the_active_environment_and_the_newest_python() {
        let root = tempfile::tempdir().unwrap();
        let library = PluginKind::Cpu.package().library;
        let places = ["venv/lib/python3.9", "venv/lib/python3.12", "usr/lib/python3.13"];
        places.iter().for_each(|place| touch(&root.path().join(place).join("site-packages").join(library)));
        let venv = root.path().join("venv");
        in_environment(root.path(), &[("VIRTUAL_ENV", venv.to_str().unwrap())], |environment| {
            let found = environment.find(PluginKind::Cpu, None).unwrap();
            assert_eq!(found.path, venv.join("lib/python3.12/site-packages").join(library));
        });
        in_environment(root.path(), &[], |environment| {
            assert!(environment.find(PluginKind::Cpu, None).unwrap().path.starts_with(root.path().join("usr/lib")));
        });
    }

    #[test]
    fn nothing_found_lists_every_place_and_says_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let error = in_environment(root.path(), &[(CACHE_VARIABLE, "/c")], |environment| {
            environment.find(PluginKind::Tpu, None).unwrap_err().to_string()
        });
        for part in ["cargo xtask setup tpu", "`libtpu`", "/c/plugins/tpu-0.0.51", "usr/lib/libtpu.so", "python3*"] {
            assert!(error.contains(part), "`{part}` missing in {error}");
        }
    }

    #[test]
    fn kinds_have_distinct_names_and_the_pinned_library_is_searched_in_site_packages() {
        for kind in PluginKind::ALL {
            assert!(kind.site_libraries().contains(&kind.package().library));
            assert!(kind.registered_names().contains(&kind.name()));
        }
    }
}
