//! The problems that the facts show, each with the command that fixes it.

use super::platforms::uses;
use super::report::{Accelerator, Failure, Lock, PluginReport, Problem, Reason, Report, State, Variable};
use burn_tpu_pjrt::PluginKind;
use burn_tpu_pjrt::discovery::PLUGIN_VARIABLE;
use burn_tpu_pjrt::occupancy::LIBTPU_LOCK;
use burn_tpu_runtime::{TpuError, TpuOptions};
use std::path::{Path, PathBuf};

/// With less free space than this, a plugin does not fit.
const LITTLE_SPACE_BYTES: u64 = 1 << 30;

/// Returns all problems, those that keep programs from running first.
pub fn find(report: &Report) -> Vec<Problem> {
    let mut problems = Vec::new();
    problems.extend(variables(report));
    problems.extend(missing_plugins(report));
    problems.extend(report.plugins.iter().filter_map(|plugin| broken_plugin(plugin, report)));
    problems.extend(platforms(report));
    problems.extend(lock(&report.hardware.libtpu_lock));
    problems.extend(cache(report));
    problems
}

fn problem(what: impl Into<String>, fix: impl Into<String>) -> Problem {
    Problem { what: what.into(), fix: fix.into() }
}

/// Returns flags that would abort a plugin, invalid values, and names that nothing reads.
fn variables(report: &Report) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Err(error) = burn_tpu_pjrt::check_xla_flags() {
        problems.push(problem(error.to_string(), "unset XLA_FLAGS"));
    }
    if let Err(error) = TpuOptions::default().with_environment() {
        let fix = match &error {
            TpuError::Option { name, .. } => format!("unset {name}"),
            _ => "correct the variable".to_owned(),
        };
        problems.push(problem(error.to_string(), fix));
    }
    let platform = report.environment.iter().find(|variable| variable.name == "BURN_TPU_PLATFORM");
    if let Some(Err(error)) = platform.map(|variable| variable.value.parse::<burn_tpu_runtime::Platform>()) {
        problems.push(problem(format!("BURN_TPU_PLATFORM: {error}"), "unset BURN_TPU_PLATFORM"));
    }
    // Variables with this prefix are for this project's tests: they forbid skipping.
    let known = |name: &str| TpuOptions::VARIABLES.contains(&name) || name.starts_with("BURN_TPU_REQUIRE_");
    let ours = report.environment.iter().filter(|variable| variable.name.starts_with("BURN_TPU_"));
    problems.extend(ours.filter(|variable| !known(&variable.name)).map(|Variable { name, .. }| {
        problem(format!("{name} is set, but nothing reads a variable of that name"), format!("unset {name}"))
    }));
    problems
}

/// Returns the plugins that are missing: one for every accelerator that is present, and the CPU plugin.
fn missing_plugins(report: &Report) -> Vec<Problem> {
    let lacks = |kind: PluginKind| !report.plugins.iter().any(|plugin| uses(kind.name(), plugin));
    let needs = |kind: PluginKind| match kind {
        PluginKind::Tpu => report.hardware.tpu.present,
        PluginKind::Cuda => report.hardware.gpu.present,
        PluginKind::Cpu => true,
    };
    // A plugin that is named explicitly is used for all platforms; if it is missing, that is reported separately.
    let named = report.plugins.iter().any(|plugin| plugin.source.contains(PLUGIN_VARIABLE));
    let missing = PluginKind::ALL.into_iter().filter(|&kind| !named && needs(kind) && lacks(kind));
    missing.map(|kind| problem(format!("no PJRT plugin for {kind} was found"), fetch(kind))).collect()
}

/// Returns the commands that fetch a plugin, within a checkout of burn-tpu and outside.
fn fetch(kind: PluginKind) -> String {
    let package = kind.package();
    format!(
        "cargo xtask setup {kind}   (outside burn-tpu's sources: pip install {}=={})",
        package.package, package.version
    )
}

fn broken_plugin(plugin: &PluginReport, report: &Report) -> Option<Problem> {
    let failure = plugin.failure.as_ref()?;
    let path = plugin.path.display().to_string();
    let fix = match failure.reason {
        // Reported once, for the variable or for the lock.
        Reason::XlaFlag => return None,
        Reason::NoDevice if !expected(plugin, report) => return None,
        Reason::Locked if report.hardware.libtpu_lock != Lock::Free => return None,
        Reason::Locked => "end the other program; look for it in other containers".to_owned(),
        Reason::NoDevice => no_device(plugin, report),
        Reason::Hung if plugin.platform.as_deref() == Some("tpu") => hung_tpu(report),
        Reason::Missing
        | Reason::NotLoadable
        | Reason::NotAPlugin
        | Reason::Version
        | Reason::Died
        | Reason::Hung
        | Reason::WrongNumbers
        | Reason::Other => replace(plugin, failure),
    };
    let message = &failure.message;
    let what = if message.contains(&path) { message.clone() } else { format!("the plugin `{path}` fails: {message}") };
    Some(problem(what, fix))
}

/// Returns whether the plugin's hardware is present, so that finding no device is an error.
fn expected(plugin: &PluginReport, report: &Report) -> bool {
    match plugin.platform.as_deref() {
        Some("tpu") => report.hardware.tpu.present,
        Some("cuda") => report.hardware.gpu.present,
        _ => !plugin.ahead_of_time,
    }
}

fn no_device(plugin: &PluginReport, report: &Report) -> String {
    let users = |accelerator: &Accelerator| accelerator.used_by.join(", ");
    match plugin.platform.as_deref() {
        Some("tpu") if !report.hardware.tpu.used_by.is_empty() => format!("end {}", users(&report.hardware.tpu)),
        Some("cuda") => "nvidia-smi   (the driver must be as new as the plugin's CUDA 13)".to_owned(),
        _ => "check that this user may open the device files listed above".to_owned(),
    }
}

/// Returns the fix for libtpu waiting for a metadata server that does not exist.
fn hung_tpu(report: &Report) -> String {
    let set = report.environment.iter().any(|variable| variable.name == "TPU_SKIP_MDS_QUERY" && variable.value != "1");
    if set {
        return "export TPU_SKIP_MDS_QUERY=1   (it waits for a cloud metadata server)".to_owned();
    }
    "burn-tpu doctor --timeout 120   (a large slice may take longer than this probe was given)".to_owned()
}

/// Returns the command that replaces a bad file, which depends on where it was found.
fn replace(plugin: &PluginReport, failure: &Failure) -> String {
    let path = plugin.path.display();
    if let Some(variable) = plugin.source.strip_prefix("environment variable ") {
        return format!("unset {variable}   (or name a plugin's own file in it)");
    }
    let kind = PluginKind::ALL.into_iter().find(|kind| plugin.used_for.contains(&kind.name()) || is_of(plugin, *kind));
    let Some(kind) = kind else { return format!("rm {path}") };
    let package = kind.package();
    let install = format!("{}=={}", package.package, package.version);
    match plugin.source.as_str() {
        "cache folder" => format!("rm {path} && cargo xtask setup {kind}"),
        "Python site-packages" if failure.reason == Reason::Version => format!("pip install --upgrade {install}"),
        "Python site-packages" => format!("pip install --force-reinstall {install}"),
        _ => format!("pip install {install}   (and point {PLUGIN_VARIABLE} to it)"),
    }
}

fn is_of(plugin: &PluginReport, kind: PluginKind) -> bool {
    plugin.platform.as_deref() == Some(kind.name())
}

/// Returns platforms whose plugin loads but whose matmul fails, and a requested platform that does not work.
fn platforms(report: &Report) -> Vec<Problem> {
    let mut problems = Vec::new();
    for platform in report.platforms.iter().filter(|platform| platform.state == State::Broken) {
        let plugin = report.plugins.iter().find(|plugin| uses(platform.name, plugin));
        if plugin.is_some_and(|plugin| plugin.failure.is_none()) {
            problems.push(problem(
                format!("{} {}", platform.name, platform.summary),
                "export BURN_TPU_PLATFORM=ndarray   (runs without it; please report the above)",
            ));
        }
    }
    let asked = report.environment.iter().find(|variable| variable.name == "BURN_TPU_PLATFORM");
    let asked = asked.and_then(|variable| report.platforms.iter().find(|platform| platform.name == variable.value));
    if let Some(platform) = asked.filter(|platform| platform.state != State::Works) {
        problems.push(problem(
            format!("BURN_TPU_PLATFORM={} requests a platform that does not work here", platform.name),
            "unset BURN_TPU_PLATFORM",
        ));
    }
    problems
}

fn lock(lock: &Lock) -> Option<Problem> {
    match lock {
        Lock::Free => None,
        Lock::Held { pid, command } => Some(problem(
            format!("process {pid} ({command}) holds libtpu's lock {LIBTPU_LOCK}: no other process can use a TPU"),
            format!("wait for it, or kill {pid}   (to compile without a TPU: export ALLOW_MULTIPLE_LIBTPU_LOAD=1)"),
        )),
        Lock::Foreign { owner } => Some(problem(
            format!("libtpu's lock {LIBTPU_LOCK} is left over from user {owner} and cannot be opened by this one"),
            format!("sudo rm {LIBTPU_LOCK}"),
        )),
    }
}

fn cache(report: &Report) -> Vec<Problem> {
    let cache = &report.cache;
    let Some(path) = &cache.path else {
        let what = "there is no cache folder: BURN_TPU_CACHE_DIR, XDG_CACHE_HOME and HOME are all unset";
        return vec![problem(what, "export BURN_TPU_CACHE_DIR=/path/of/yours")];
    };
    let mut problems = Vec::new();
    if path.exists() && !cache.exists {
        problems
            .push(problem(format!("the cache folder {} is a file", path.display()), format!("rm {}", path.display())));
    } else if !cache.writable {
        let what = format!("the cache folder {} cannot be written to", path.display());
        problems.push(problem(
            what,
            format!("export BURN_TPU_CACHE_DIR=/path/of/yours   (or chmod u+rwx {})", path.display()),
        ));
    }
    if !cache.open_to_others.is_empty() {
        let what = format!("other users may change what is loaded as code from {}", list(&cache.open_to_others));
        problems.push(problem(
            what,
            format!("chmod go-w {0}   (and chown $USER {0} if it is another's)", list(&cache.open_to_others)),
        ));
    }
    if !cache.stale.is_empty() {
        let what = "the cache folder holds plugins of other versions or downloads that were cut off";
        problems.push(problem(what, format!("rm -r {}", list(&cache.stale))));
    }
    if let Some(free) = cache.free_bytes.filter(|&free| free < LITTLE_SPACE_BYTES) {
        let what = format!("{} MB are free on the cache folder's disk", free / 1_000_000);
        problems.push(problem(what, "export BURN_TPU_CACHE_DIR=/path/on/another/disk"));
    }
    problems
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| Path::display(path).to_string()).collect::<Vec<_>>().join(" ")
}
