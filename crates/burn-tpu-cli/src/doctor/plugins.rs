//! Every plugin file that exists where discovery searches. Each is tried in a child process, all at the same time.

use super::child;
use super::probe::Line;
use super::report::{Failure, PluginReport, Reason, Stage};
use burn_tpu_pjrt::discovery::{self, Candidate, DiscoveryError, PLUGIN_VARIABLE, PluginKind, Source};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Returns the report of each file.
pub fn try_all(limit: Duration) -> Vec<PluginReport> {
    let mut plugins = list();
    std::thread::scope(|scope| {
        for plugin in plugins.iter_mut().filter(|plugin| plugin.failure.is_none()) {
            scope.spawn(move || probe(plugin, limit));
        }
    });
    plugins
}

/// Returns the files, in order of platform and search. A file that several platforms use is one entry.
fn list() -> Vec<PluginReport> {
    let mut plugins: Vec<PluginReport> = Vec::new();
    for kind in PluginKind::ALL {
        let chosen = discovery::find(kind, None);
        for candidate in discovery::candidates(kind, None) {
            if !candidate.path.is_file() && !named_outright(&candidate) {
                continue;
            }
            let known = plugins.iter().position(|plugin| same(&plugin.path, &candidate.path));
            let index = known.unwrap_or(plugins.len());
            if known.is_none() {
                plugins.push(found(kind, &candidate));
            }
            if chosen.as_ref().is_ok_and(|chosen| same(&chosen.path, &candidate.path)) {
                plugins[index].used_for.push(kind.name());
            }
        }
    }
    plugins
}

/// Returns whether discovery stops at this candidate even if it is not a file.
fn named_outright(candidate: &Candidate) -> bool {
    candidate.source == Source::Variable(PLUGIN_VARIABLE)
}

fn same(one: &Path, other: &Path) -> bool {
    one == other || fs::canonicalize(one).is_ok_and(|path| fs::canonicalize(other).is_ok_and(|other| path == other))
}

fn found(kind: PluginKind, candidate: &Candidate) -> PluginReport {
    let missing = || DiscoveryError::Missing { candidate: candidate.clone() }.to_string();
    let exists = candidate.path.is_file();
    PluginReport {
        path: candidate.path.clone(),
        // A file that is named for all platforms reports its platform when it runs.
        platform: (!named_outright(candidate)).then(|| kind.name().to_owned()),
        source: candidate.source.to_string(),
        bytes: fs::metadata(&candidate.path).map_or(0, |file| file.len()),
        failure: (!exists).then(|| Failure { stage: Stage::Load, reason: Reason::Missing, message: missing() }),
        ..PluginReport::default()
    }
}

fn probe(plugin: &mut PluginReport, limit: Duration) {
    let arguments = [OsStr::new("plugin"), plugin.path.as_os_str()];
    let outcome = child::run(&arguments, Stage::Load, limit);
    plugin.failure = outcome.failure;
    for line in outcome.lines {
        match line {
            Line::Loaded { pjrt, xla, stablehlo } => {
                (plugin.pjrt, plugin.xla, plugin.stablehlo) = (Some(pjrt), xla, stablehlo);
            }
            Line::Started { platform, devices } => {
                (plugin.platform, plugin.devices) = (Some(platform), Some(devices));
            }
            Line::AheadOfTime => plugin.ahead_of_time = true,
            Line::Begins { .. } | Line::Proven { .. } | Line::Failed(_) => {}
        }
    }
}
