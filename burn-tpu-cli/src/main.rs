//! The command `burn-tpu`. It prints text for people or, with `--json`, data for programs.
//!
//! Owns: the command line. `burn-tpu-pjrt` finds plugins and hardware, `burn-tpu-runtime` runs the test program.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command-line program talks to its user")]

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod doctor;

/// Burn on TPUs: what this machine has, and what keeps it from working.
#[derive(Parser)]
#[command(name = "burn-tpu", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check plugins, devices, variables and the cache folder, and print how to fix what is wrong
    Doctor(doctor::Args),
    /// One probe of the doctor: an action that may abort or hang its process
    #[command(hide = true, subcommand)]
    Probe(doctor::Probe),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Probe(probe) => {
            probe.run();
            ExitCode::SUCCESS
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }
}
