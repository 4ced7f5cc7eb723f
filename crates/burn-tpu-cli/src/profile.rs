//! `burn-tpu profile DIR`: the summary of a profile that `burn_tpu::profile` or `BURN_TPU_PROFILE` wrote.

use burn_tpu_profile::ProfileReport;
use std::path::PathBuf;
use std::process::ExitCode;

/// Which profile.
#[derive(clap::Args)]
pub struct Args {
    /// The folder that was given to the profiler (its latest run is read), the folder of a run, or an `.xplane.pb` file
    path: PathBuf,
    /// Print the report as one JSON object; times are in nanoseconds
    #[arg(long)]
    json: bool,
}

/// Runs the command. Returns a failure if there is no profile.
#[allow(clippy::print_stderr, reason = "a command-line program reports its errors there")]
pub fn run(args: &Args) -> ExitCode {
    match ProfileReport::read(&args.path) {
        Ok(report) if args.json => println!("{}", json(&report)),
        Ok(report) => print!("{report}"),
        Err(error) => {
            eprintln!("burn-tpu profile: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn json(report: &ProfileReport) -> serde_json::Value {
    let op = |op: &burn_tpu_profile::OpCost| {
        serde_json::json!({
            "name": op.name, "burn_ops": op.burn_ops, "source": op.source, "count": op.count,
            "time_ns": op.time.as_nanos() as u64,
        })
    };
    let phase = |phase: &burn_tpu_profile::PhaseCost| serde_json::json!({ "name": phase.name, "count": phase.count, "time_ns": phase.time.as_nanos() as u64 });
    let [window, device, host, profiler, idle] =
        [report.window, report.device, report.host, report.profiler, report.idle].map(|time| time.as_nanos() as u64);
    serde_json::json!({
        "window_ns": window, "device_ns": device, "host_ns": host, "profiler_ns": profiler, "idle_ns": idle,
        "named_share": report.named_share(),
        "phases": report.phases.iter().map(phase).collect::<Vec<_>>(),
        "ops": report.ops.iter().map(op).collect::<Vec<_>>(),
    })
}
