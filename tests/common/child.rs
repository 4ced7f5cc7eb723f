//! Scenarios that need a process of their own: a machine without plugins, other variables, a plugin that was never loaded.

use burn_tpu_pjrt::{PluginKind, testing};
use std::process::Command;

/// The scenario that this process is to play, if it is a child.
pub fn scenario() -> Option<String> {
    std::env::var("SCENARIO").ok()
}

/// Returns the arguments with which this program runs one test, `child` of a module ([`module_path!`]), and shows what it
/// prints.
pub fn arguments(module: &str) -> [String; 3] {
    let name = module.split_once("::").map_or(String::new(), |(_, inner)| format!("{inner}::"));
    ["--exact".into(), format!("{name}child"), "--nocapture".into()]
}

/// Returns a command that plays a scenario: the test `child` of a module ([`module_path!`]) in a process of its own.
pub fn command(module: &str, scenario: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(arguments(module)).env("SCENARIO", scenario);
    command
}

/// Plays a scenario of a module with these environment variables, and returns its output. It must end well.
pub fn run(module: &str, scenario: &str, environment: &[(&str, &str)]) -> String {
    let empty = tempfile::tempdir().expect("a folder");
    let mut command = command(module, scenario);
    // A machine without plugins: no cache, no home, no Python.
    for variable in
        ["VIRTUAL_ENV", "CONDA_PREFIX", "PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH", "BURN_TPU_PLUGIN"]
    {
        command.env_remove(variable);
    }
    command.env("BURN_TPU_CACHE_DIR", empty.path()).env("HOME", empty.path()).env("PATH", "");
    command.envs(environment.iter().copied());
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{scenario}: {text}");
    text
}

/// Returns a cache folder with the CPU plugin in its place, which `make` puts at a path.
pub fn cache_with_plugin(make: impl FnOnce(&std::path::Path)) -> tempfile::TempDir {
    use burn_tpu_pjrt::discovery;
    let folder = tempfile::tempdir().expect("a folder");
    let (cache, plugin) = (discovery::cache_dir(), discovery::cached_plugin(PluginKind::Cpu));
    let (cache, plugin) = cache.zip(plugin).expect("a cache folder has a place for each plugin");
    let path = folder.path().join(plugin.strip_prefix(cache).expect("the place is in the cache folder"));
    std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
    make(&path);
    folder
}

/// Returns the CPU plugin's file; `None` without one when `BURN_TPU_REQUIRE_PLUGIN` does not forbid skipping.
pub fn cpu_plugin() -> Option<String> {
    testing::plugin(PluginKind::Cpu).map(|file| file.to_string_lossy().into_owned())
}

/// Returns libtpu's file, on a machine without a TPU; `None` when `BURN_TPU_REQUIRE_LIBTPU` does not forbid skipping.
pub fn libtpu() -> Option<String> {
    testing::libtpu().map(|file| file.to_string_lossy().into_owned())
}
