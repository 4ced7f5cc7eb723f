//! The command `burn-tpu-serve`, which `burn-tpu serve` starts. It prints where it serves, and at its end what the device
//! did.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "a command-line program talks to its user")]

use burn_tpu_serve::{Options, Ready, Served, run};
use clap::Parser;
use std::fmt::Arguments;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,burn_tpu_pjrt=warn"));
    let to_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(to_terminal).with_env_filter(filter).init();
    match run(&Options::parse(), announce) {
        Ok(served) => report(&served),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn announce(ready: &Ready) {
    let token = if ready.needs_token { ", with a token" } else { ", without a token" };
    print(format_args!("serving {} on {}{token}", ready.device, ready.address));
}

fn report(served: &Served) -> ExitCode {
    let metrics = &served.metrics;
    print(format_args!(
        "served: programs={} compiles={} interpreted={} host_fallbacks={} bytes_left={}",
        metrics.executions, metrics.compiles, metrics.interpreted, metrics.host_fallbacks, served.bytes_left
    ));
    print(format_args!("{metrics}"));
    if served.ended {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: some sessions did not end within 10 s; their work was abandoned");
    ExitCode::FAILURE
}

/// Prints a line at once: a program that started this one may read it from a pipe. One that closed the pipe does not end the
/// server.
fn print(line: Arguments) {
    let mut output = std::io::stdout();
    let _closed = writeln!(output, "{line}").and_then(|()| output.flush());
}
