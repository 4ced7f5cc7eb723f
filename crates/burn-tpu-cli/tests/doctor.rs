//! The doctor on machines with one defect: it names the defect and the fix, and ends by itself.
//!
//! Broken plugins are small libraries, built here by the compiler that builds the tests.

use burn_tpu_pjrt::{PluginKind, testing};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A machine without plugins: an empty cache, an empty home, no Python environment, no relevant variable.
struct Machine {
    home: TempDir,
    variables: Vec<(&'static str, String)>,
    timeout: &'static str,
}

impl Machine {
    fn new() -> Machine {
        // Long, so that a busy machine fails no test. The test of a plugin that hangs sets a short one.
        Machine { home: TempDir::new().unwrap(), variables: Vec::new(), timeout: "300" }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Machine {
        self.variables.push((name, value.into()));
        self
    }

    /// Returns the path of the pinned CPU plugin in this machine's cache.
    fn cached_cpu_plugin(&self) -> PathBuf {
        let package = PluginKind::Cpu.package();
        let path = self.cache().join(format!("plugins/cpu-{}", package.version)).join(package.library);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn cache(&self) -> PathBuf {
        self.home.path().join("cache")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_burn-tpu"));
        command.arg("doctor").args(arguments).args(["--timeout", self.timeout]);
        let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for name in inherited.filter(|name| ["BURN_TPU_", "XLA_", "TPU_", "PJRT_"].iter().any(|p| name.starts_with(p)))
        {
            command.env_remove(name);
        }
        ["VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "XDG_CACHE_HOME"].iter().for_each(|name| {
            command.env_remove(name);
        });
        command.env("HOME", self.home.path()).env("BURN_TPU_CACHE_DIR", self.cache());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.output().unwrap()
    }

    /// Returns the report, and whether the command succeeded.
    fn report(&self) -> (Value, bool) {
        let output = self.run(&["--json"]);
        let report = serde_json::from_slice(&output.stdout);
        (report.unwrap_or_else(|error| panic!("{error}: {output:?}")), output.status.success())
    }

    /// Returns the text for people.
    fn text(&self) -> String {
        String::from_utf8(self.run(&[]).stdout).unwrap()
    }
}

/// Returns the fix of the one problem that mentions all of `parts`.
fn fix(report: &Value, parts: &[&str]) -> String {
    let problems = report["problems"].as_array().unwrap();
    let mentions = |problem: &&Value| parts.iter().all(|part| problem["what"].as_str().unwrap().contains(part));
    let found: Vec<&Value> = problems.iter().filter(mentions).collect();
    assert_eq!(found.len(), 1, "one problem with {parts:?} in {report:#}");
    found[0]["fix"].as_str().unwrap().to_owned()
}

/// Returns the state of a platform.
fn state<'a>(report: &'a Value, platform: &str) -> &'a str {
    let platforms = report["platforms"].as_array().unwrap();
    platforms.iter().find(|entry| entry["name"] == platform).unwrap()["state"].as_str().unwrap()
}

/// Returns the reason why the only plugin failed.
fn reason(report: &Value) -> &str {
    assert_eq!(report["plugins"].as_array().unwrap().len(), 1, "{report:#}");
    report["plugins"][0]["failure"]["reason"].as_str().unwrap()
}

/// Compiles a library from this source.
fn library(path: &Path, source: &str) {
    let file = path.with_extension("rs");
    fs::write(&file, source).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition=2021", "--crate-type=cdylib", "--crate-name=fake", "--cap-lints=allow"]);
    let built = rustc.arg("-o").arg(path).arg(&file).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// Compiles a library with this body of `GetPjrtApi`; `TABLE` is the function table of a plugin of that version, without
/// functions.
fn fake_plugin(path: &Path, [major, minor]: [i32; 2], body: &str) {
    let source = format!(
        "#[repr(C)] pub struct Table {{ head: [usize; 4], version: [i32; 2], functions: [usize; 118] }}
        static TABLE: Table = Table {{ head: [984, 0, 24, 0], version: [{major}, {minor}], functions: [0; 118] }};
        #[no_mangle] pub extern \"C\" fn GetPjrtApi() -> *const Table {{ {body} }}"
    );
    library(path, &source);
}

#[test]
fn without_any_plugin_it_names_the_one_to_fetch() {
    let machine = Machine::new();
    let (report, usable) = machine.report();
    assert!(!usable && report["usable"] == false && report["plugins"].as_array().unwrap().is_empty(), "{report:#}");
    assert!(fix(&report, &["no PJRT plugin for cpu"]).contains("cargo xtask setup cpu"));
    assert_eq!((state(&report, "cpu"), state(&report, "ndarray")), ("absent", "works"));
    assert_eq!(report["default_device"], "ndarray:0");
    let text = machine.text();
    for part in ["cpu         no plugin", "fix: cargo xtask setup cpu", "programs run in the interpreter"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    // The interpreter works without plugins, so requesting it is no failure.
    let (report, usable) = machine.with("BURN_TPU_PLATFORM", "ndarray").report();
    assert!(usable, "{report:#}");
}

#[test]
fn a_file_that_is_no_library_is_reported_with_the_variable_that_names_it() {
    let machine = Machine::new();
    let file = machine.home.path().join("notes.txt");
    fs::write(&file, "not a library").unwrap();
    let path = file.display().to_string();
    let machine = machine.with("BURN_TPU_PLUGIN", &path);
    let (report, usable) = machine.report();
    assert!(!usable);
    assert_eq!(reason(&report), "not_loadable");
    assert!(fix(&report, &["notes.txt", "could not be loaded"]).starts_with("unset BURN_TPU_PLUGIN"));
    fs::remove_file(file).unwrap();
    let (report, _) = machine.report();
    assert_eq!(reason(&report), "missing");
    assert!(fix(&report, &["notes.txt"]).starts_with("unset BURN_TPU_PLUGIN"));
}

#[test]
fn a_truncated_plugin_is_fetched_again() {
    let machine = Machine::new();
    let path = machine.cached_cpu_plugin();
    fake_plugin(&path, [0, 81], "&TABLE");
    let whole = fs::read(&path).unwrap();
    // The headers alone, so that the dynamic linker maps bytes that do not exist; and a part of the headers.
    for length in [4096, 100] {
        fs::write(&path, &whole[..length]).unwrap();
        let (report, usable) = machine.report();
        assert!(!usable && ["not_loadable", "died"].contains(&reason(&report)), "{length}: {report:#}");
        let fix = fix(&report, &["xla_cpu_pjrt.so"]);
        assert!(fix.starts_with("rm ") && fix.ends_with("cargo xtask setup cpu"), "{fix}");
    }
}

#[test]
fn a_library_that_is_no_plugin_is_recognised() {
    let machine = Machine::new();
    let path = machine.cached_cpu_plugin();
    library(&path, "#[no_mangle] pub extern \"C\" fn something_else() {}");
    let (report, usable) = machine.report();
    assert!(!usable);
    assert_eq!(reason(&report), "not_a_plugin");
    assert!(fix(&report, &["GetPjrtApi"]).ends_with("cargo xtask setup cpu"));
}

#[test]
fn a_plugin_of_another_version_is_reported_with_both_versions() {
    for [major, minor] in [[1, 0], [0, 54]] {
        let machine = Machine::new();
        let path = machine.cached_cpu_plugin();
        fake_plugin(&path, [major, minor], "&TABLE");
        let (report, usable) = machine.report();
        assert!(!usable);
        assert_eq!(reason(&report), "version");
        let fix = fix(&report, &[&format!("speaks PJRT C API {major}.{minor}"), "0.81"]);
        assert!(fix.ends_with("cargo xtask setup cpu"), "{fix}");
    }
}

#[test]
fn a_plugin_that_dies_or_hangs_ends_only_its_child() {
    let machine = Machine::new();
    let path = machine.cached_cpu_plugin();
    fake_plugin(&path, [0, 81], "std::process::abort()");
    let (report, _) = machine.report();
    assert_eq!(reason(&report), "died");
    fix(&report, &["loading the plugin ended the process: abort"]);
    fake_plugin(&path, [0, 81], "loop { std::thread::park() }");
    let (report, _) = Machine { timeout: "1", ..machine }.report();
    assert_eq!(reason(&report), "hung");
    fix(&report, &["loading the plugin did not end within 1 s"]);
}

#[test]
fn variables_that_break_programs_are_reported() {
    let machine = Machine::new().with("XLA_FLAGS", "--xla_no_such_flag=1").with("BURN_TPU_CACHE_ENTRYS", "7");
    let (report, _) = machine.with("BURN_TPU_STRICT", "yes").report();
    assert_eq!(fix(&report, &["--xla_no_such_flag=1", "aborts the process"]), "unset XLA_FLAGS");
    assert_eq!(fix(&report, &["BURN_TPU_CACHE_ENTRYS", "nothing reads"]), "unset BURN_TPU_CACHE_ENTRYS");
    assert_eq!(fix(&report, &["BURN_TPU_STRICT", "\"yes\""]), "unset BURN_TPU_STRICT");
}

/// Takes libtpu's lock as libtpu does. Waits if another run of these tests holds it.
fn libtpu_lock() -> fs::File {
    let path = burn_tpu_pjrt::occupancy::LIBTPU_LOCK;
    let file = fs::File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    file
}

#[test]
fn a_held_libtpu_lock_is_traced_to_its_process() {
    let _lock = libtpu_lock();
    let us = format!("process {} (", std::process::id());
    let machine = Machine::new();
    let (report, _) = machine.report();
    assert_eq!(report["hardware"]["libtpu_lock"]["state"], "held");
    let fix_text = fix(&report, &["holds libtpu's lock", &us, "doctor"]);
    assert!(fix_text.contains(&format!("kill {}", std::process::id())), "{fix_text}");
    assert!(machine.text().contains(&format!("libtpu lock held by {us}")));
    // With libtpu itself, which is made to honour the lock: the plugin fails, and the only problem is still the lock.
    let Some(libtpu) = testing::plugin(PluginKind::Tpu) else { return };
    let machine = machine.with("BURN_TPU_PLUGIN", libtpu.to_string_lossy()).with("ALLOW_MULTIPLE_LIBTPU_LOAD", "0");
    let (report, usable) = machine.report();
    assert!(!usable);
    assert_eq!(reason(&report), "locked", "{report:#}");
    assert_eq!(fix(&report, &["holds libtpu's lock", &us]), fix_text);
}

#[test]
fn the_cpu_plugin_runs_a_matmul() {
    let Some(plugin) = testing::plugin(PluginKind::Cpu) else { return };
    let machine = Machine::new().with("BURN_TPU_PLUGIN", plugin.to_string_lossy());
    let (report, usable) = machine.report();
    assert!(usable, "{report:#}");
    assert_eq!((state(&report, "cpu"), report["default_device"].as_str()), ("works", Some("cpu:0")));
    let plugin = &report["plugins"][0];
    assert_eq!((plugin["platform"].as_str(), plugin["pjrt"].is_string()), (Some("cpu"), true), "{report:#}");
    assert_eq!(plugin["devices"].as_array().unwrap().len(), 1);
    // Requesting a platform that is not present is a problem although the CPU would work.
    let (report, usable) = machine.with("BURN_TPU_PLATFORM", "cuda").report();
    assert!(!usable && report["default_device"].is_null());
    assert_eq!(fix(&report, &["BURN_TPU_PLATFORM=cuda"]), "unset BURN_TPU_PLATFORM");
}
