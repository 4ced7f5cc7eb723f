//! The command `burn-tpu-serve`, which `burn-tpu serve` starts. It prints where it serves, and at its end what the device did.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program talks to its user")]

use burn_tpu_serve::{Options, Ready, Served, run};
use clap::Parser;
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

/// Prints the address. A program that started this one reads the line from a pipe, so it is flushed.
fn announce(ready: &Ready) {
    let token = if ready.needs_token { ", with a token" } else { ", without a token" };
    println!("serving {} on {}{token}", ready.device, ready.address);
    let _closed = std::io::stdout().flush();
}

fn report(served: &Served) -> ExitCode {
    let metrics = &served.metrics;
    println!(
        "served: programs={} compiles={} interpreted={} host_fallbacks={} bytes_left={}",
        metrics.executions, metrics.compiles, metrics.interpreted, metrics.host_fallbacks, served.bytes_left
    );
    println!("{metrics}");
    if served.ended {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: some sessions did not end within 10 s; their work was abandoned");
    ExitCode::FAILURE
}
