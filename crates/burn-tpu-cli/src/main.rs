//! The command `burn-tpu`. It prints text for people or, with `--json`, data for programs.
//!
//! Owns: the command line, and what `deploy` knows of Google Cloud. `burn-tpu-pjrt` finds plugins and hardware,
//! `burn-tpu-runtime` runs the test program and serves the store of several processes, `burn-tpu-profile` reads profiles.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command-line program talks to its user")]

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod companion;
mod deploy;
mod doctor;
mod launch;
mod profile;

/// Burn on TPUs: what this machine has, what keeps it from working, programs on many hosts and in the cloud, and profiles.
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
    /// Print what runs a program on Google Cloud's TPUs: YAML for GKE, gcloud commands, or a Dockerfile
    Deploy(deploy::Args),
    /// Run a program as several processes, on this host or on many: `burn-tpu launch --processes 2 -- PROGRAM`
    Launch(launch::Args),
    /// Print a profile: the costliest ops, and the shares of the time that are device, host and idle
    Profile(profile::Args),
    /// Serve the device of this machine to Burn programs elsewhere: starts `burn-tpu-serve`, which is installed apart
    Serve(companion::Args),
    /// Continue a text with a language model: starts `burn-tpu-llm`, which is installed apart
    Generate(companion::Args),
    /// Talk with a language model: starts `burn-tpu-llm`, which is installed apart
    Chat(companion::Args),
    /// Train a language model or an adapter of it: starts `burn-tpu-llm`, which is installed apart
    Finetune(companion::Args),
    /// Compile a step of a language model for TPUs that need not be there: starts `burn-tpu-llm`, which is installed apart
    Fit(companion::Args),
    /// One probe of the doctor: an action that may abort or hang its process
    #[command(hide = true, subcommand)]
    Probe(doctor::Probe),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Deploy(args) => deploy::run(&args),
        Command::Launch(args) => launch::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Serve(args) => companion::SERVE.run(&args),
        Command::Generate(args) => companion::GENERATE.run(&args),
        Command::Chat(args) => companion::CHAT.run(&args),
        Command::Finetune(args) => companion::FINETUNE.run(&args),
        Command::Fit(args) => companion::FIT.run(&args),
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
