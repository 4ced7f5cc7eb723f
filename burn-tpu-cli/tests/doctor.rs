//! The doctor on machines with one thing wrong: it names the thing and the fix, and ends by itself.
//!
//! Plugins that are broken in a certain way are small libraries, built here by the compiler that builds the tests.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A machine without plugins: nothing in the cache, no home, no Python environment, no variable that matters.
struct Machine {
    home: TempDir,
    variables: Vec<(&'static str, String)>,
    timeout: &'static str,
}

impl Machine {
    fn new() -> Machine {
        // Generous: what hangs is tested with a short one, the rest must not fail because a machine is busy.
        Machine { home: TempDir::new().unwrap(), variables: Vec::new(), timeout: "300" }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Machine {
        self.variables.push((name, value.into()));
        self
    }

    /// Where this machine keeps the CPU plugin of the pinned version.
    fn cached_cpu_plugin(&self) -> PathBuf {
        let package = burn_tpu_pjrt::PluginKind::Cpu.package();
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

    /// The report, and whether the command says that something usable was found.
    fn report(&self) -> (Value, bool) {
        let output = self.run(&["--json"]);
        let report = serde_json::from_slice(&output.stdout);
        (report.unwrap_or_else(|error| panic!("{error}: {output:?}")), output.status.success())
    }

    /// The text for people.
    fn text(&self) -> String {
        String::from_utf8(self.run(&[]).stdout).unwrap()
    }
}

/// The fix of the one problem that mentions all of `parts`.
fn fix(report: &Value, parts: &[&str]) -> String {
    let problems = report["problems"].as_array().unwrap();
    let says = |problem: &&Value| parts.iter().all(|part| problem["what"].as_str().unwrap().contains(part));
    let found: Vec<&Value> = problems.iter().filter(says).collect();
    assert_eq!(found.len(), 1, "one problem with {parts:?} in {report:#}");
    found[0]["fix"].as_str().unwrap().to_owned()
}

/// The state of a platform.
fn state<'a>(report: &'a Value, platform: &str) -> &'a str {
    let platforms = report["platforms"].as_array().unwrap();
    platforms.iter().find(|entry| entry["name"] == platform).unwrap()["state"].as_str().unwrap()
}

/// Why the only plugin failed.
fn reason(report: &Value) -> &str {
    assert_eq!(report["plugins"].as_array().unwrap().len(), 1, "{report:#}");
    report["plugins"][0]["failure"]["reason"].as_str().unwrap()
}

/// A library with this source.
fn library(path: &Path, source: &str) {
    let file = path.with_extension("rs");
    fs::write(&file, source).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition=2021", "--crate-type=cdylib", "--crate-name=fake", "--cap-lints=allow"]);
    let built = rustc.arg("-o").arg(path).arg(&file).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// A library whose `GetPjrtApi` does this; `TABLE` is the function table of a plugin of that version, without functions.
fn fake_plugin(path: &Path, [major, minor]: [i32; 2], body: &str) {
    let source = format!(
        "#[repr(C)] pub struct Table {{ head: [usize; 4], version: [i32; 2], functions: [usize; 118] }}
        static TABLE: Table = Table {{ head: [984, 0, 24, 0], version: [{major}, {minor}], functions: [0; 118] }};
        #[no_mangle] pub extern \"C\" fn GetPjrtApi() -> *const Table {{ {body} }}"
    );
    library(path, &source);
}

#[test]
fn without_any_plugin_it_says_which_to_fetch() {
    let machine = Machine::new();
    let (report, usable) = machine.report();
    assert!(!usable && report["usable"] == false && report["plugins"].as_array().unwrap().is_empty(), "{report:#}");
    assert!(fix(&report, &["no PJRT plugin for cpu"]).contains("cargo xtask setup cpu"));
    assert_eq!((state(&report, "cpu"), state(&report, "ndarray")), ("absent", "works"));
    assert_eq!(report["default_device"], "ndarray:0");
    let text = machine.text();
    for part in ["cpu         no plugin", "fix: cargo xtask setup cpu", "programs run on burn-ndarray"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    // On a machine without plugins, asking for burn-ndarray is asking for what works.
    let (report, usable) = machine.with("BURN_TPU_PLATFORM", "ndarray").report();
    assert!(usable, "{report:#}");
}

#[test]
fn a_file_that_is_no_library_is_named_with_who_named_it() {
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
    // The headers alone, whose dynamic linker maps what is not there, and less than them.
    for length in [4096, 100] {
        fs::write(&path, &whole[..length]).unwrap();
        let (report, usable) = machine.report();
        assert!(!usable && ["not_loadable", "died"].contains(&reason(&report)), "{length}: {report:#}");
        let fix = fix(&report, &["xla_cpu_pjrt.so"]);
        assert!(fix.starts_with("rm ") && fix.ends_with("cargo xtask setup cpu"), "{fix}");
    }
}

#[test]
fn a_library_that_is_no_plugin_is_told_apart() {
    let machine = Machine::new();
    let path = machine.cached_cpu_plugin();
    library(&path, "#[no_mangle] pub extern \"C\" fn something_else() {}");
    let (report, usable) = machine.report();
    assert!(!usable);
    assert_eq!(reason(&report), "not_a_plugin");
    assert!(fix(&report, &["GetPjrtApi"]).ends_with("cargo xtask setup cpu"));
}

#[test]
fn a_plugin_of_another_version_is_named_with_both_versions() {
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
fn a_plugin_that_dies_or_hangs_takes_only_its_child_along() {
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
fn variables_that_break_programs_are_named_before_they_do() {
    let machine = Machine::new().with("XLA_FLAGS", "--xla_no_such_flag=1").with("BURN_TPU_CACHE_ENTRYS", "7");
    let (report, _) = machine.with("BURN_TPU_STRICT", "yes").report();
    assert_eq!(fix(&report, &["--xla_no_such_flag=1", "aborts the process"]), "unset XLA_FLAGS");
    assert_eq!(fix(&report, &["BURN_TPU_CACHE_ENTRYS", "nothing reads"]), "unset BURN_TPU_CACHE_ENTRYS");
    assert_eq!(fix(&report, &["BURN_TPU_STRICT", "\"yes\""]), "unset BURN_TPU_STRICT");
}

/// libtpu's lock, as libtpu takes it. Waits for another run of these tests that holds it.
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
    // libtpu itself, told to mind the lock: the plugin fails, and the one problem is still the lock.
    let Some(libtpu) = plugin(burn_tpu_pjrt::PluginKind::Tpu, "BURN_TPU_REQUIRE_LIBTPU") else { return };
    let machine = machine.with("BURN_TPU_PLUGIN", libtpu).with("ALLOW_MULTIPLE_LIBTPU_LOAD", "0");
    let (report, usable) = machine.report();
    assert!(!usable);
    assert_eq!(reason(&report), "locked", "{report:#}");
    assert_eq!(fix(&report, &["holds libtpu's lock", &us]), fix_text);
}

#[test]
fn the_cpu_plugin_is_proven() {
    let Some(plugin) = plugin(burn_tpu_pjrt::PluginKind::Cpu, "BURN_TPU_REQUIRE_PLUGIN") else { return };
    let machine = Machine::new().with("BURN_TPU_PLUGIN", plugin);
    let (report, usable) = machine.report();
    assert!(usable, "{report:#}");
    assert_eq!((state(&report, "cpu"), report["default_device"].as_str()), ("works", Some("cpu:0")));
    let plugin = &report["plugins"][0];
    assert_eq!((plugin["platform"].as_str(), plugin["pjrt"].is_string()), (Some("cpu"), true), "{report:#}");
    assert_eq!(plugin["devices"].as_array().unwrap().len(), 1);
    // Asking for what is not here is a problem although the CPU would do.
    let (report, usable) = machine.with("BURN_TPU_PLATFORM", "cuda").report();
    assert!(!usable && report["default_device"].is_null());
    assert_eq!(fix(&report, &["BURN_TPU_PLATFORM=cuda"]), "unset BURN_TPU_PLATFORM");
}

/// A plugin's file, or `None` (with a line saying so); with the variable `required` set, a failure instead.
#[allow(clippy::print_stderr, reason = "a skipped test must say so")]
fn plugin(kind: burn_tpu_pjrt::PluginKind, required: &str) -> Option<String> {
    let found = burn_tpu_pjrt::discovery::find(kind, None);
    if found.is_err() && std::env::var(required).is_ok_and(|value| value == "1") {
        panic!("the {kind} plugin is missing: run `cargo xtask setup {kind}`");
    }
    if found.is_err() {
        eprintln!("skipped: no {kind} plugin");
    }
    found.ok().map(|found| found.path.to_string_lossy().into_owned())
}
