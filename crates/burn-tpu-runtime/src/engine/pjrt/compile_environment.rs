//! The environment that a plugin's machine code depends on besides the program, and the disk cache that uses it in its
//! keys.

use crate::TpuOptions;
use crate::cache::{CompileEnvironment, DiskCache};
use crate::metrics::Counters;
use burn_tpu_pjrt::{Client, CompileOptions, Plugin, TopologyDescription, discovery, processor};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// The variables from which compilers take options: those of XLA and libtpu, and those that select the target of
/// libtpu.
const FLAG_VARIABLES: [&str; 5] =
    ["XLA_FLAGS", "LIBTPU_INIT_ARGS", "TF_XLA_FLAGS", "TPU_ACCELERATOR_TYPE", "TPU_TOPOLOGY"];

/// Opens the disk cache of a client's device. Returns `None` if the cache is off or has no folder.
///
/// The cache is also off while XLA dumps what it compiles, since a program from disk produces no dump.
pub(super) fn disk_cache(
    client: &Client,
    compile_options: &CompileOptions,
    options: &TpuOptions,
    counters: &Arc<Counters>,
) -> Option<DiskCache> {
    open(environment(client, compile_options), options, counters)
}

/// Opens the cache for notes on what libtpu compiles for a slice. See [`disk_cache`].
pub(in crate::engine) fn notes(
    description: &TopologyDescription,
    compile_options: &CompileOptions,
    options: &TpuOptions,
) -> Option<DiskCache> {
    let plugin = description.plugin();
    let environment = CompileEnvironment {
        devices: lines(
            description.devices().iter().map(|device| (device.id, (&device.kind, &device.debug, &device.attributes))),
        ),
        ..of_plugin(plugin, description.platform_name(), description.platform_version(), compile_options)
    };
    open(environment, options, &Arc::default())
}

fn open(environment: CompileEnvironment, options: &TpuOptions, counters: &Arc<Counters>) -> Option<DiskCache> {
    let dumps = options.compiler_flags.iter().any(|(name, _)| name.starts_with("xla_dump_to"));
    if !options.disk_cache || dumps || environment.flags.contains("xla_dump_to") {
        return None;
    }
    let Some(folder) = options.disk_cache_dir.clone().or_else(|| Some(discovery::cache_dir()?.join("programs"))) else {
        tracing::warn!(
            "compiled programs are not stored on disk: neither BURN_TPU_CACHE_DIR, XDG_CACHE_HOME nor HOME is set"
        );
        return None;
    };
    DiskCache::open(&folder, options.disk_cache_bytes, options.disk_cache_least_compile, environment, counters)
}

fn environment(client: &Client, compile_options: &CompileOptions) -> CompileEnvironment {
    let plugin = client.plugin();
    let (on_host, on_cuda) = (client.platform_name() == "cpu", client.platform_name() == "cuda");
    let root = Path::new("/");
    let search_path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let search_path: Vec<PathBuf> = std::env::split_paths(&search_path).filter(|path| path.is_absolute()).collect();
    CompileEnvironment {
        devices: lines(
            client.all_devices().map(|device| (device.id, (&device.kind, &device.debug, &device.attributes))),
        ),
        host: if on_host { host() } else { String::new() },
        driver: if on_cuda { driver(root) } else { String::new() },
        libraries: if on_cuda { libraries(root, plugin.path(), &search_path) } else { String::new() },
        ..of_plugin(plugin, client.platform_name(), client.platform_version(), compile_options)
    }
}

/// Returns what depends on the plugin and the options alone.
fn of_plugin(plugin: Plugin, name: &str, version: &str, compile_options: &CompileOptions) -> CompileEnvironment {
    CompileEnvironment {
        // Options that cannot be encoded fail every compile, so no program is ever stored for them.
        compile_options: compile_options.encode().unwrap_or_default(),
        flags: flags(|name| std::env::var(name).ok()),
        platform: format!("{name}\n{version}"),
        plugin: file_identity(plugin.path()),
        interface: format!("PJRT {}\n{}", plugin.version(), lines(plugin.attributes().iter())),
        ..CompileEnvironment::default()
    }
}

/// Returns the version text of the NVIDIA driver. The driver compiles the PTX that a plugin leaves.
fn driver(root: &Path) -> String {
    std::fs::read_to_string(root.join("proc/driver/nvidia/version")).unwrap_or_default()
}

/// The libraries that XLA's CUDA compiler queries for the fastest algorithm or compiles with: cuDNN, cuBLAS, NVVM, the
/// linker.
const CUDA_LIBRARIES: [&str; 5] = ["libcudnn", "libcublas", "libnvvm", "libnvrtc", "libnvJitLink"];

/// Returns name, size and modification time of each of the [`CUDA_LIBRARIES`] in the folders where a plugin searches
/// for them. `search_path` is that of the dynamic linker.
fn libraries(root: &Path, plugin: &Path, search_path: &[PathBuf]) -> String {
    let mut folders: Vec<PathBuf> = search_path.to_vec();
    // Wheels: `nvidia/cudnn/lib` and similar folders, next to the folder of the plugin's package.
    let packages = plugin.ancestors().nth(3).map(|packages| packages.join("nvidia"));
    let packages = packages.and_then(|nvidia| std::fs::read_dir(nvidia).ok()).into_iter().flatten().flatten();
    folders.extend(packages.map(|package| package.path().join("lib")));
    let system = ["usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/local/cuda/lib64"];
    folders.extend(system.iter().map(|folder| root.join(folder)));
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let paths = files.map(|file| file.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        CUDA_LIBRARIES.iter().any(|library| name.starts_with(library)) && name.contains(".so")
    });
    let mut identities: Vec<String> = paths.map(|path| file_identity(&path) + "\n").collect();
    identities.sort();
    identities.dedup();
    identities.concat()
}

/// Returns the processor and the number of threads, which `NPROC` may set. XLA's CPU compiler generates code for this
/// processor and splits loops by the number of threads.
fn host() -> String {
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{} {threads} {}", processor(), std::env::var("NPROC").unwrap_or_default())
}

fn flags(variable: impl Fn(&str) -> Option<String>) -> String {
    FLAG_VARIABLES.iter().filter_map(|name| Some(format!("{name}={}\n", variable(name)?))).collect()
}

/// Returns name, size and modification time. A checksum of a file of half a gigabyte would cost more than the cache
/// saves.
fn file_identity(path: &Path) -> String {
    let metadata = path.metadata().ok();
    let changed = metadata.as_ref().and_then(|m| m.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("{name} {} {}", metadata.map_or(0, |m| m.len()), changed.unwrap_or_default().as_nanos())
}

fn lines<N: std::fmt::Display, V: std::fmt::Debug>(entries: impl Iterator<Item = (N, V)>) -> String {
    entries.fold(String::new(), |mut text, (name, value)| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}={value:?}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_variable_changes_the_flags() {
        assert_eq!(flags(|_| None), "");
        for name in FLAG_VARIABLES {
            let set = flags(|asked| (asked == name).then(|| "--x=1".into()));
            assert_eq!(set, format!("{name}=--x=1\n"));
        }
    }

    #[test]
    fn the_driver_and_cuda_libraries_in_all_folders_are_found() {
        let root = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        let plugin = root.path().join("site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so");
        let own = [root.path().join("own")];
        let look = || (driver(root.path()), libraries(root.path(), &plugin, &own));
        assert_eq!(look(), (String::new(), String::new()), "a machine without any");
        put("usr/lib64/libc.so.6", "no library of CUDA's");
        put("usr/lib64/libcudnn.txt", "no library");
        assert_eq!(look().1, "");
        put("proc/driver/nvidia/version", "NVRM version: 580.82.07\n");
        assert_eq!(look().0, "NVRM version: 580.82.07\n");
        let mut before = look().1;
        for path in [
            "usr/lib64/libcudnn.so.9",
            "site-packages/nvidia/cudnn/lib/libcudnn_engines.so.9",
            "site-packages/nvidia/cu13/lib/libcublasLt.so.13",
            "usr/local/cuda/lib64/libnvrtc.so.13",
            "own/libcublas.so.13",
        ] {
            put(path, "one version");
            let added = look().1;
            put(path, "another version");
            let changed = look().1;
            assert!(added != before && changed != added, "{path}");
            before = changed;
        }
        assert_eq!(before, look().1, "the same files, the same text");
    }

    #[test]
    fn a_changed_plugin_file_has_another_identity() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let before = file_identity(file.path());
        std::fs::write(file.path(), "more").expect("written");
        let longer = file_identity(file.path());
        assert_ne!(before, longer);
        file.as_file().set_modified(UNIX_EPOCH).expect("touched");
        assert_ne!(longer, file_identity(file.path()));
    }
}
