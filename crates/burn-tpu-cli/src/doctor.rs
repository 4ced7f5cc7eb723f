//! `burn-tpu doctor`: checks everything that a program on this machine depends on, and tries it.
//!
//! A plugin that hangs or aborts does not affect this process: plugins are loaded and clients started in child processes
//! with a time limit (`child.rs`, `probe.rs`). The rest reads files and variables. The doctor collects all facts
//! (`report.rs`), derives the problems (`problems.rs`) and prints the text (`text.rs`).

use burn_tpu_runtime::Platform;
use report::Report;
use std::process::ExitCode;
use std::time::Duration;

mod cache;
mod child;
mod environment;
mod hardware;
mod platforms;
mod plugins;
mod probe;
mod problems;
mod report;
mod text;

pub use probe::Probe;

/// Options of the doctor.
#[derive(clap::Args)]
pub struct Args {
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
    /// Time limit in seconds of one probe (loading a plugin, or a matmul on a platform)
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

/// Runs the command. Returns a failure if no plugin runs a matmul: then programs run in the interpreter, if at all.
pub fn run(args: &Args) -> ExitCode {
    let report = examine(Duration::from_secs(args.timeout));
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report).expect("a report has no map keys and no NaN"));
    } else {
        print!("{}", text::render(&report));
    }
    if report.usable { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn examine(limit: Duration) -> Report {
    let hardware = hardware::look();
    let plugins = plugins::try_all(limit);
    let platforms = platforms::try_all(&plugins, limit);
    let default = platforms::default(&platforms);
    let host_requested = std::env::var("BURN_TPU_PLATFORM").is_ok_and(|name| name == Platform::NdArray.name());
    let usable = default.is_some_and(|platform| platform != Platform::NdArray || host_requested);
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        default_device: default.map(|platform| format!("{platform}:0")),
        usable,
        platforms,
        plugins,
        hardware,
        environment: environment::look(),
        cache: cache::look(),
        problems: Vec::new(),
    };
    report.problems = problems::find(&report);
    report
}
