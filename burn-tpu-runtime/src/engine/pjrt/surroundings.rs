//! What a plugin's machine code depends on besides the program, and the disk cache that is keyed by it.

use crate::TpuOptions;
use crate::cache::{DiskCache, Surroundings};
use crate::metrics::Counters;
use burn_tpu_pjrt::{Client, CompileOptions, discovery, processor};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Variables from which compilers take options: XLA's, libtpu's, and those that choose what libtpu compiles for.
const FLAG_VARIABLES: [&str; 5] =
    ["XLA_FLAGS", "LIBTPU_INIT_ARGS", "TF_XLA_FLAGS", "TPU_ACCELERATOR_TYPE", "TPU_TOPOLOGY"];

/// The disk cache of a client's device; none if it is off, or there is no folder for it.
///
/// It is off too while XLA is asked to dump what it compiles: a program from disk has nothing to dump.
pub(super) fn disk_cache(
    client: &Client,
    compile_options: &CompileOptions,
    options: &TpuOptions,
    counters: &Arc<Counters>,
) -> Option<DiskCache> {
    let surroundings = surroundings(client, compile_options);
    let dumps = options.compiler_flags.iter().any(|(name, _)| name.starts_with("xla_dump_to"));
    if !options.disk_cache || dumps || surroundings.flags.contains("xla_dump_to") {
        return None;
    }
    let Some(folder) = options.disk_cache_dir.clone().or_else(|| Some(discovery::cache_dir()?.join("programs"))) else {
        tracing::warn!(
            "compiled programs are not kept on disk: neither BURN_TPU_CACHE_DIR, XDG_CACHE_HOME nor HOME is set"
        );
        return None;
    };
    DiskCache::open(&folder, options.disk_cache_bytes, options.disk_cache_least_compile, surroundings, counters)
}

fn surroundings(client: &Client, compile_options: &CompileOptions) -> Surroundings {
    let plugin = client.plugin();
    let on_host = client.platform_name() == "cpu";
    Surroundings {
        // Options that cannot be encoded fail every compile, so no program is ever kept for them.
        compile_options: compile_options.encode().unwrap_or_default(),
        flags: flags(|name| std::env::var(name).ok()),
        platform: format!("{}\n{}", client.platform_name(), client.platform_version()),
        plugin: file_identity(plugin.path()),
        interface: format!("PJRT {}\n{}", plugin.version(), lines(plugin.attributes().iter())),
        devices: lines(
            client.all_devices().map(|device| (device.id, (&device.kind, &device.debug, &device.attributes))),
        ),
        host: if on_host { host() } else { String::new() },
    }
}

/// XLA's CPU compiler targets this processor, and splits loops for its number of threads.
fn host() -> String {
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{} {threads}", processor())
}

fn flags(variable: impl Fn(&str) -> Option<String>) -> String {
    FLAG_VARIABLES.iter().filter_map(|name| Some(format!("{name}={}\n", variable(name)?))).collect()
}

/// Name, size and time of change. Reading half a gigabyte for a checksum would cost more than the cache saves.
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
    fn every_flag_variable_counts_and_none_is_the_same_as_no_variable() {
        assert_eq!(flags(|_| None), "");
        for name in FLAG_VARIABLES {
            let set = flags(|asked| (asked == name).then(|| "--x=1".into()));
            assert_eq!(set, format!("{name}=--x=1\n"));
        }
    }

    #[test]
    fn a_plugin_file_that_changes_is_another() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let before = file_identity(file.path());
        std::fs::write(file.path(), "more").expect("written");
        let longer = file_identity(file.path());
        assert_ne!(before, longer);
        file.as_file().set_modified(UNIX_EPOCH).expect("touched");
        assert_ne!(longer, file_identity(file.path()));
    }
}
