//! The platforms: the state of their plugins, and a matmul on each platform whose plugin starts a client.

use super::child;
use super::probe::Line;
use super::report::{PlatformReport, PluginReport, Reason, Stage, State};
use burn_tpu_pjrt::presence;
use burn_tpu_runtime::Platform;
use std::time::Duration;

/// The platforms that run programs, in the order in which `TpuDevice::default` prefers them.
const PREFERENCE: [Platform; 4] = [Platform::Tpu, Platform::Cuda, Platform::Cpu, Platform::NdArray];

/// Returns the report of each platform, best first.
pub fn try_all(plugins: &[PluginReport], limit: Duration) -> Vec<PlatformReport> {
    std::thread::scope(|scope| {
        let running: Vec<_> = PREFERENCE.map(|platform| scope.spawn(move || judge(platform, plugins, limit))).into();
        running.into_iter().map(|thread| thread.join().expect("probes do not panic")).collect()
    })
}

/// Returns the platform that `TpuDevice::default` chooses; `None` if it does not work.
pub fn default(platforms: &[PlatformReport]) -> Option<Platform> {
    let works = |platform: &Platform| {
        platforms.iter().any(|report| report.name == platform.name() && report.state == State::Works)
    };
    let named = std::env::var("BURN_TPU_PLATFORM").ok().and_then(|name| name.parse().ok());
    match named {
        Some(platform) => Some(platform).filter(works),
        None => PREFERENCE.into_iter().find(works),
    }
}

/// Returns whether discovery chooses this file for a platform.
pub fn uses(platform: &str, plugin: &PluginReport) -> bool {
    plugin.used_for.contains(&platform)
}

fn judge(platform: Platform, plugins: &[PluginReport], limit: Duration) -> PlatformReport {
    let (state, summary) = match plugins.iter().find(|plugin| uses(platform.name(), plugin)) {
        // Not tried: it needs nothing.
        _ if platform == Platform::NdArray => {
            (State::Works, "works: part of every program that uses burn-tpu, without a plugin".to_owned())
        }
        None => (State::Absent, absent(platform, "no plugin")),
        Some(plugin) => match (&plugin.devices, &plugin.failure) {
            (Some(devices), None) if plugin.platform.as_deref() == Some(platform.name()) => {
                prove(platform, &count(devices), limit)
            }
            (Some(_), None) => (State::Absent, "its plugin serves another platform".to_owned()),
            _ if plugin.ahead_of_time => (State::AheadOfTime, absent(platform, "its plugin compiles ahead of time")),
            (_, Some(failure)) if failure.reason == Reason::NoDevice => {
                (State::Absent, absent(platform, "its plugin finds no device"))
            }
            _ => (State::Broken, "its plugin fails".to_owned()),
        },
    };
    PlatformReport { name: platform.name(), state, summary }
}

fn absent(platform: Platform, why: &str) -> String {
    match platform {
        Platform::Tpu if !presence::tpu_present() => format!("no TPU here; {why}"),
        Platform::Cuda if !presence::nvidia_gpu_present() => format!("no NVIDIA GPU here; {why}"),
        _ => why.to_owned(),
    }
}

fn prove(platform: Platform, devices: &str, limit: Duration) -> (State, String) {
    let outcome = child::run(&["proof", platform.name()], Stage::Proof, limit);
    let seconds = outcome.lines.iter().find_map(|line| match line {
        Line::Proven { seconds } => Some(*seconds),
        _ => None,
    });
    match (outcome.failure, seconds) {
        (None, Some(seconds)) => {
            (State::Works, format!("works: {devices}, matmul right (start to end {seconds:.2} s)"))
        }
        (Some(failure), _) => (State::Broken, format!("fails: {}", failure.message)),
        (None, None) => (State::Broken, "fails: the matmul's process ended without a result".to_owned()),
    }
}

/// Returns a text such as `4 x TPU v5 lite`.
fn count(devices: &[String]) -> String {
    let kind = devices.first().map_or("none", String::as_str);
    format!("{} x {kind}", devices.len())
}
