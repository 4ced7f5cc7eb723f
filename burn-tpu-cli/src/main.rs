//! `burn-tpu`, the command beside the library. It prints for people or, asked with `--json`, for machines.
//!
//! Owns: the command line. What a machine has is `burn-tpu-pjrt`'s to say, what a tensor computes `burn-tpu`'s.
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
    /// Look at plugins, devices, variables and the cache folder, try each, and say how to fix what is wrong
    Doctor(doctor::Args),
    /// One probe of the doctor's: what may end or hang the process that does it
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
