//! The report as text for people: aligned, one screen, facts first, then problems with their fixes.

use super::report::{Accelerator, CacheReport, Hardware, Lock, PluginReport, Report};
use std::fmt::Write;

/// Where the second column starts.
const COLUMN: usize = 12;

/// Returns the whole text.
pub fn render(report: &Report) -> String {
    let mut page = Page(format!("burn-tpu {} doctor\n", report.version));
    platforms(&mut page, report);
    plugins(&mut page, &report.plugins);
    hardware(&mut page, &report.hardware);
    page.heading("environment");
    report.environment.iter().for_each(|variable| page.line(&format!("{}={}", variable.name, variable.value), ""));
    if report.environment.is_empty() {
        page.line("nothing set", "");
    }
    cache(&mut page, &report.cache);
    problems(&mut page, report);
    page.0
}

struct Page(String);

impl Page {
    fn heading(&mut self, name: &str) {
        writeln!(self.0, "\n{name}").expect("writing to a string does not fail");
    }

    /// Adds a line of two columns; further lines of `text` are aligned with the second column.
    fn line(&mut self, name: &str, text: &str) {
        let text = text.replace('\n', &format!("\n{:1$}", "", COLUMN + 2));
        writeln!(self.0, "{}", format!("  {name:COLUMN$}{text}").trim_end())
            .expect("writing to a string does not fail");
    }
}

fn platforms(page: &mut Page, report: &Report) {
    page.heading("platforms");
    for platform in &report.platforms {
        let device = format!("{}:0", platform.name);
        let default = if report.default_device.as_deref() == Some(&device) { "   <- default" } else { "" };
        page.line(platform.name, &format!("{}{default}", first_line(&platform.summary)));
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn plugins(page: &mut Page, plugins: &[PluginReport]) {
    page.heading("plugins");
    if plugins.is_empty() {
        page.line("none found", "");
    }
    for plugin in plugins {
        let platform = plugin.platform.as_deref().unwrap_or("?");
        page.line(platform, &format!("{}\n{}", plugin.path.display(), facts(plugin)));
    }
}

/// Returns a text such as `PJRT 0.81, XLA 2, StableHLO 1.13.3, 259 MB, cache folder`.
fn facts(plugin: &PluginReport) -> String {
    let versions = [("PJRT", &plugin.pjrt), ("XLA", &plugin.xla), ("StableHLO", &plugin.stablehlo)];
    let mut facts: Vec<String> = versions
        .iter()
        .filter_map(|(name, version)| version.as_ref().map(|version| format!("{name} {version}")))
        .collect();
    facts.extend([megabytes(plugin.bytes), plugin.source.clone()]);
    if plugin.used_for.is_empty() {
        facts.push("not used: another comes first".to_owned());
    }
    facts.join(", ")
}

fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..10_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.0} GB", bytes as f64 / 1e9),
    }
}

fn hardware(page: &mut Page, hardware: &Hardware) {
    page.heading("hardware");
    page.line("TPU", &accelerator(&hardware.tpu));
    let driver = hardware.nvidia_driver.iter().map(|version| format!(", driver {version}"));
    page.line("NVIDIA GPU", &(accelerator(&hardware.gpu) + &driver.collect::<String>()));
    let lock = match &hardware.libtpu_lock {
        Lock::Free => "free".to_owned(),
        Lock::Held { pid, command } => format!("held by process {pid} ({command})"),
        Lock::Foreign { owner } => format!("a file of user {owner}, which libtpu cannot open"),
    };
    page.line("libtpu lock", &lock);
}

fn accelerator(found: &Accelerator) -> String {
    if !found.present {
        return "none".to_owned();
    }
    let devices: Vec<String> = found.devices.iter().map(|device| device.display().to_string()).collect();
    let hidden = match found.hidden_processes {
        0 => String::new(),
        count => format!(" ({count} processes of other users cannot be inspected)"),
    };
    match found.used_by.as_slice() {
        [] => format!("{}: free{hidden}", devices.join(" ")),
        users => format!("{}: open in {}{hidden}", devices.join(" "), users.join(", ")),
    }
}

fn cache(page: &mut Page, cache: &CacheReport) {
    page.heading("cache");
    let Some(path) = &cache.path else { return page.line("no folder", "") };
    page.line("folder", &format!("{}{}", path.display(), if cache.exists { "" } else { " (not there yet)" }));
    for entry in &cache.entries {
        page.line(&entry.name, &format!("{} in {} files", megabytes(entry.bytes), entry.files));
    }
    if let Some(free) = cache.free_bytes {
        page.line("free", &megabytes(free));
    }
}

fn problems(page: &mut Page, report: &Report) {
    if report.problems.is_empty() {
        page.heading("no problems");
    } else {
        page.heading(if report.problems.len() == 1 { "1 problem" } else { "problems" });
    }
    for (index, problem) in report.problems.iter().enumerate() {
        let number = index + 1;
        let what = problem.what.replace('\n', "\n     ");
        writeln!(page.0, "  {number}. {what}\n     fix: {}", problem.fix).expect("writing to a string does not fail");
    }
    let verdict = match &report.default_device {
        Some(device) if report.usable => format!("programs run on {device}"),
        Some(_) => "programs run in the interpreter, slowly: no plugin is usable".to_owned(),
        None => "programs do not run: the platform that BURN_TPU_PLATFORM requests does not work".to_owned(),
    };
    writeln!(page.0, "\n{verdict}").expect("writing to a string does not fail");
}
